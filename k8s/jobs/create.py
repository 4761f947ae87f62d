"""From a `JobSpec` or a manifest to a job on the cluster, and away again."""

from __future__ import annotations

from collections.abc import Mapping

from k8s.client.client import Client
from k8s.errors import Conflict, Invalid, KubeError, NotFound
from k8s.job_spec import JobSpec
from k8s.kinds import KINDS, CreatableKind, JobRef, Manifest, kind_of
from k8s.models.resources import CLAIMS, NAMESPACES, Resource
from k8s.watch.discovery import RestMapper

_FIELD_ENDINGS: Mapping[str, str] = {
    "metadata.name": "name",
    ".image": "image",
    ".command": "command",
    ".workingDir": "working_dir",
    ".replicas": "workers",
    "spec.completions": "workers",
    "spec.parallelism": "workers",
    ".nprocPerNode": "processes",
    ".backoffLimit": "retries",
    ".priorityClassName": "priority_class",
    ".claimName": "mounts",
    ".mountPath": "mounts",
    ".emptyDir.sizeLimit": "shared_memory",
    "[cpu]": "cpu",
    "[memory]": "memory",
}
"""How the path of a refused field ends, and which of the form's fields made it."""


class JobRejected(Invalid):
    """The job is refused as it is; `causes` are keyed by the fields of `JobSpec`."""


def check(spec: JobSpec) -> None:
    """Look for mistakes without asking anybody.

    Raises:
        JobRejected: There are some.
    """
    problems = spec.problems()
    if problems:
        error = JobRejected(
            f"Job {spec.name or '(no name)'} is not valid.",
            "\n".join(f"{name}: {sentence}" for name, sentence in problems.items()),
        )
        error.causes = problems
        raise error


async def create_job(client: Client, kind: CreatableKind, spec: JobSpec, *, dry_run: bool = False) -> JobRef:
    """Create a job, or with `dry_run` ask the server whether it would.

    Raises:
        JobRejected: Something is wrong with a field, by our rules or the server's.
        KubeError: It could not be created for another reason.
    """
    check(spec)
    return await create_manifest(client, kind.resource, kind.manifest(spec), spec.namespace, dry_run=dry_run)


async def create_manifest(
    client: Client, resource: Resource, manifest: Manifest, namespace: str, *, dry_run: bool = False
) -> JobRef:
    """Create a job from a manifest as it stands.

    Raises:
        JobRejected: The name is taken, or the server names a field that is wrong.
        KubeError: It could not be created for another reason.
    """
    try:
        made = await client.create(resource, manifest, namespace, dry_run=dry_run)
    except Conflict as error:
        if not error.name_is_taken:
            raise
        refused = JobRejected(error.what, error.why, "Choose another name, or delete that job first.")
        refused.causes = {"name": f"There is already a {resource.kind} of this name in {namespace}."}
        raise refused from error
    except Invalid as error:
        refused = JobRejected(error.what, error.why, error.hint)
        by_field: dict[str, str] = {}
        for path, sentence in error.causes.items():
            field = _field_of(path)
            by_field[field] = f"{by_field[field]}; {sentence}" if field in by_field else sentence
        refused.causes = by_field
        raise refused from error
    except NotFound as error:
        if f'namespaces "{namespace}"' in error.why or await _namespace_is_missing(client, namespace):
            refused = JobRejected(error.what, f"There is no namespace {namespace}.")
            refused.causes = {"namespace": f"There is no namespace {namespace}."}
            raise refused from error
        raise JobRejected(
            error.what,
            f"This cluster does not serve {resource.kind} {resource.api_version}.",
            "Choose another kind of job, or ask for its operator to be installed.",
        ) from error
    meta = made.get("metadata") or {}
    return JobRef(
        str(meta.get("namespace", namespace)), str(meta.get("name", "")), resource.kind, resource.api_version
    )


async def delete_job(client: Client, ref: JobRef, uid: str = "", *, propagation: str = "Background") -> None:
    """Delete a job, or whatever else holds GPUs; with `uid`, only if it is still that.

    Args:
        client: The cluster.
        ref: Which job.
        uid: What it must still be.
        propagation: What becomes of all that it owns: Background, Foreground or Orphan.

    Raises:
        NotFound: It is gone already.
        Conflict: Another one has its name now.
        KubeError: It could not be deleted, or the cluster does not say where its kind is found.
    """
    resource: Resource | None = resource_of(ref)
    if resource not in {kind.resource for kind in KINDS}:  # never delete by a guess
        resource = await RestMapper(client).resource_of(ref.api_version, ref.kind)
    if resource is None:
        raise KubeError(
            f"Could not delete {ref.kind} {ref.name}.",
            f"This cluster does not serve {ref.kind} {ref.api_version}.",
        )
    await client.delete(resource, ref.name, ref.namespace, propagation=propagation, uid=uid)


def resource_of(ref: JobRef) -> Resource:
    """Return where a job is found on the server; of a kind that is none of ours its plural is a guess."""
    return kind_of(ref).resource


async def claim_names(client: Client, namespace: str) -> list[str]:
    """Return the volume claims of a namespace, `workspace` first."""
    names = [str(claim["metadata"]["name"]) for claim in await client.list(CLAIMS, namespace)]
    return sorted(names, key=lambda name: (name != "workspace", name))


async def _namespace_is_missing(client: Client, namespace: str) -> bool:
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound:
        return True
    except KubeError:
        return False
    return False


def _field_of(path: str) -> str:
    for ending, name in _FIELD_ENDINGS.items():
        if path.endswith(ending):
            return name
    if ".resources." in path:
        return "gpus"
    if ".env" in path:
        return "env"
    return path
