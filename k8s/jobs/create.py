"""From a `JobSpec` or a manifest to a job on the cluster, and away again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from k8s.client.client import Client
from k8s.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from k8s.job_spec import JOB_FIELDS, NO_FILES, JobFiles, JobSpec
from k8s.jobs.companions import (
    JOB_LABEL,
    Companion,
    companions_of,
    is_uploaded,
    problems_with_files,
    shortage,
    with_files,
)
from k8s.jobs.transaction import Transaction, owner_reference
from k8s.jobs.upload import Progress, upload_code
from k8s.kinds import KINDS, CreatableKind, JobRef, Manifest, kind_of
from k8s.models import convert
from k8s.models.claim import Claim
from k8s.models.resources import NAMESPACES, Resource
from k8s.watch.discovery import RestMapper

Found = Callable[[Companion], None]
"""Told of what is not created, as it is there already."""
_FIELD_ENDINGS: Mapping[str, str] = {
    "metadata.name": "name",
    "metadata.labels": "labels",
    "metadata.annotations": "annotations",
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
_LIMIT = re.compile(r"\b(cpu|memory) limit\b")
"""In the sentence about requests that are more than a limit, whose path names no resource."""


async def _nothing() -> None:
    return


class JobRejected(Invalid):
    """The job is refused as it is; `causes` are keyed by the fields of `JobSpec`."""


def check(spec: JobSpec, more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Look for mistakes without asking anybody; `more` are known already, by field.

    Raises:
        JobRejected: There are some.
    """
    problems = {**more, **spec.problems()}
    if problems:
        error = JobRejected(
            f"Job {spec.name or '(no name)'} is not valid.",
            "\n".join(f"{name}: {sentence}" for name, sentence in problems.items()),
        )
        error.causes = problems
        raise error


def job_objects(
    kind: CreatableKind, spec: JobSpec, files: JobFiles = NO_FILES, *, is_optional_too: bool = True
) -> tuple[tuple[Resource, Manifest], ...]:
    """Return all that `create_job` creates, in its order: what pods need first, the job, the rest.

    For previews, `-o yaml` and, without what is optional, questions of permission. Credentials stand in the
    Secrets among them, and nowhere else: `k8s.text.masked` hides them.
    """
    spec = with_files(spec, files)
    along = [each for each in companions_of(kind, spec, files) if is_optional_too or not each.is_optional]
    return (
        *((each.resource, each.manifest) for each in along if each.comes_first),
        (kind.resource, kind.manifest(spec)),
        *((each.resource, each.manifest) for each in along if not each.comes_first),
    )


async def create_job(
    client: Client,
    kind: CreatableKind,
    spec: JobSpec,
    *,
    files: JobFiles = NO_FILES,
    manifest: Manifest | None = None,
    dry_run: bool = False,
    on_upload: Progress = lambda sent, total: None,
    on_found: Found = lambda companion: None,
) -> JobRef:
    """Create a job and all that comes along with it, or with `dry_run` ask the server whether it would.

    All of it is there afterwards, or none; an answer that gets lost does not double anything.

    Args:
        client: The cluster.
        kind: What the job becomes.
        spec: The job.
        files: What it needs of this machine.
        manifest: What the job's own object is to be, where that is not what the kind makes of `spec`.
        dry_run: Have the server check every object, and store none.
        on_upload: Told how far it is where a large folder is sent into a volume.
        on_found: Told of a volume claim that is not created, as it is there already.

    Raises:
        JobRejected: Something is wrong with a field, by our rules or the server's.
        KubeError: It could not be created for another reason; what is left of it, if anything, is named.
    """
    check(spec, problems_with_files(spec, files))
    given, spec = spec, with_files(spec, files)

    async def upload() -> None:
        if is_uploaded(given, files) and not dry_run:
            await upload_code(client, given, files, on_upload)

    if is_uploaded(given, files) and not dry_run:
        # What the server would refuse is found before minutes of sending.
        await create_job(client, kind, given, files=files, manifest=manifest, dry_run=True)
    return await create_manifest(
        client,
        kind.resource,
        kind.manifest(spec) if manifest is None else manifest,
        spec.namespace,
        companions=companions_of(kind, spec, files),
        dry_run=dry_run,
        fill_claims=upload,
        on_found=on_found,
    )


async def create_manifest(
    client: Client,
    resource: Resource,
    manifest: Manifest,
    namespace: str,
    *,
    companions: Sequence[Companion] = (),
    dry_run: bool = False,
    fill_claims: Callable[[], Awaitable[None]] = _nothing,
    on_found: Found = lambda companion: None,
) -> JobRef:
    """Create a job from a manifest as it stands, and what comes along with it.

    Args:
        client: The cluster.
        resource: Of the job.
        manifest: The job.
        namespace: Where to create it.
        companions: What comes along.
        dry_run: Have the server check every object, and store none.
        fill_claims: Awaited once the new volume claims are there, before anything else is created.
        on_found: Told of a volume claim that is not created, as it is there already.

    Raises:
        JobRejected: The name is taken, or the server names a field that is wrong.
        KubeError: It could not be created for another reason; what is left of it, if anything, is named.
    """
    transaction = Transaction(client, namespace, dry_run=dry_run)
    try:
        claims = [each for each in companions if each.outlives_job]
        others = [each for each in companions if not each.outlives_job]
        for claim in claims:
            await _create_claim(transaction, claim, on_found)
        await fill_claims()
        made = await _create_all(client, transaction, resource, manifest, namespace, others, dry_run)
    except KubeError as caught:
        error = await _of_namespace(client, caught, namespace)
        if left := await transaction.roll_back():
            remains = f"This may be left in namespace {namespace}: {', '.join(left)}."
            error.hint = f"{error.hint} {remains}".strip()
        if error is caught:
            raise
        raise error from caught
    except asyncio.CancelledError:
        await transaction.roll_back()
        raise
    meta = made.get("metadata") or {}
    return JobRef(
        str(meta.get("namespace", namespace)), str(meta.get("name", "")), resource.kind, resource.api_version
    )


async def _create_all(
    client: Client,
    transaction: Transaction,
    resource: Resource,
    manifest: Manifest,
    namespace: str,
    companions: Sequence[Companion],
    dry_run: bool,
) -> Manifest:
    """Create what pods need, the job, and the rest; then the job owns all of it."""
    for each in companions:
        if each.comes_first:
            await _create_companion(transaction, each, each.manifest)
    made = await _create_main(client, transaction, resource, manifest, namespace)
    references = [owner_reference({**made, "apiVersion": resource.api_version, "kind": resource.kind})]
    for each in companions:
        meta = each.manifest["metadata"]
        if not each.comes_first:
            owned = {**each.manifest, "metadata": {**meta, "ownerReferences": references}}
            await _create_companion(transaction, each, owned)
        elif not dry_run:
            await transaction.own(each.resource, str(meta["name"]), references)
    return made


async def _create_claim(transaction: Transaction, companion: Companion, on_found: Found) -> None:
    """Create a volume claim, or take the one that is there if it is large enough."""
    try:
        held = await transaction.create_claim(companion.manifest)
    except Invalid as error:
        raise _refused(error, {companion.field: error.why}) from error
    if held is None:
        return
    if sentence := shortage(convert(held, Claim), companion.manifest["spec"]):
        short = Conflict(
            f"Could not create {companion.title}.",
            sentence,
            "Choose another name or a smaller size, or try again.",
        )
        raise _refused(short, {companion.field: sentence})
    on_found(companion)


def _refused(error: KubeError, causes: dict[str, str]) -> JobRejected:
    found = JobRejected(error.what, error.why, error.hint)
    found.causes = causes
    return found


async def _create_companion(transaction: Transaction, companion: Companion, manifest: Manifest) -> None:
    """Create what comes along; what the server has against it is told of the field that asks for it."""
    try:
        await transaction.create_anew(companion.resource, manifest, JOB_LABEL)
    except (Conflict, Invalid) as error:
        if isinstance(error, Conflict) and not error.name_is_taken:
            raise
        refused = JobRejected(error.what, error.why, error.hint)
        is_taken = isinstance(error, Conflict)
        sentence = f"{companion.title} exists already. {error.hint}".strip() if is_taken else error.why
        causes = {} if is_taken else _by_field(error.causes if isinstance(error, Invalid) else {})
        known = {name: words for name, words in causes.items() if name in JOB_FIELDS and name != "name"}
        refused.causes = known or {"name" if is_taken else companion.field: sentence}
        raise refused from error
    except Forbidden:
        if not companion.is_optional:
            raise


async def _create_main(
    client: Client, transaction: Transaction, resource: Resource, manifest: Manifest, namespace: str
) -> Manifest:
    try:
        return await transaction.create(resource, manifest)
    except Conflict as error:
        if not error.name_is_taken:
            raise
        refused = JobRejected(error.what, error.why, "Choose another name, or delete that job first.")
        refused.causes = {"name": f"There is already a {resource.kind} of this name in {namespace}."}
        raise refused from error
    except Invalid as error:
        refused = JobRejected(error.what, error.why, error.hint)
        refused.causes = _by_field(error.causes)
        raise refused from error
    except NotFound as error:
        if await _namespace_is_missing(client, namespace, error):
            raise
        raise JobRejected(
            error.what,
            f"This cluster does not serve {resource.kind} {resource.api_version}.",
            "Choose another kind of job, or ask for its operator to be installed.",
        ) from error


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


async def _of_namespace(client: Client, error: KubeError, namespace: str) -> KubeError:
    """Return what to raise for an error: where there is no such namespace, that."""
    if not isinstance(error, NotFound) or not await _namespace_is_missing(client, namespace, error):
        return error
    refused = JobRejected(error.what, f"There is no namespace {namespace}.")
    refused.causes = {"namespace": f"There is no namespace {namespace}."}
    return refused


async def _namespace_is_missing(client: Client, namespace: str, error: NotFound) -> bool:
    if f'namespaces "{namespace}"' in error.why:
        return True
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound:
        return True
    except KubeError:
        return False
    return False


def _by_field(causes: Mapping[str, str]) -> dict[str, str]:
    """Return the server's sentences by the fields that made what is wrong."""
    found: dict[str, str] = {}
    for path, sentence in causes.items():
        field = _field_of(path, sentence)
        found[field] = f"{found[field]}; {sentence}" if field in found else sentence
    return found


def _field_of(path: str, sentence: str) -> str:
    for ending, name in _FIELD_ENDINGS.items():
        if path.endswith(ending):
            return name
    if path.endswith(".resources.requests") and (limit := _LIMIT.search(sentence)):
        return f"{limit[1]}_request"
    if ".resources." in path:
        return "gpus"
    if ".env" in path:
        return "env"
    return path
