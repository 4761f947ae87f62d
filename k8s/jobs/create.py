"""Create a job from a `JobSpec` or a manifest, and delete it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from k8s.client.client import Client
from k8s.cluster.discovery import RestMapper
from k8s.jobs.owned_objects import (
    JOB_LABEL,
    OwnedObject,
    is_uploaded,
    owned_objects_of,
    problems_with_files,
    shortage,
    with_files,
)
from k8s.jobs.transaction import Transaction, owner_reference
from k8s.jobs.upload import Progress, upload_code
from k8s.kinds import KINDS, CreatableKind, JobRef, Manifest, is_pod_group, kind_of
from k8s.kinds.carried_spec import with_spec
from k8s.kinds.job_spec import JOB_FIELDS, NO_FILES, JobFiles, JobSpec, problems_of
from k8s.models import convert
from k8s.models.namespace import Claim
from k8s.models.resources import NAMESPACES, PODS, Resource
from k8s.text.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, join_sentences

Found = Callable[[OwnedObject], None]
# Form fields by the end of a refused field's path.
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
# In messages on requests above the limit, whose path names no resource.
_LIMIT = re.compile(r"\b(cpu|memory) limit\b")


async def _nothing() -> None:
    return


class JobRejected(Invalid):
    """Job refused because of its fields; `causes` has the fields of `JobSpec`."""


def check(spec: JobSpec, more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Validate a spec locally; `more` are errors by field found before.

    Raises:
        JobRejected: The spec has errors.
    """
    problems = {**more, **problems_of(spec)}
    if problems:
        why = "\n".join(f"{name}: {sentence}" for name, sentence in problems.items())
        raise _rejected(KubeError(f"Job {spec.name or '(no name)'} is not valid.", why), problems)


def job_objects(
    kind: CreatableKind, spec: JobSpec, files: JobFiles = NO_FILES, *, is_optional_too: bool = True
) -> tuple[tuple[Resource, Manifest], ...]:
    """Return all objects that `create_job` creates, in order: dependencies of the pods, the job, the rest.

    For previews and, without optional objects, permission checks. Credentials are only in the Secrets;
    `k8s.text.redact` hides them.
    """
    spec = with_files(spec, files)
    along = [each for each in owned_objects_of(kind, spec, files) if is_optional_too or not each.is_optional]
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
    on_found: Found = lambda owned: None,
) -> JobRef:
    """Create a job with all its objects, or with `dry_run` ask the server whether it would.

    Either all objects exist afterwards or none; a lost answer creates nothing twice.

    Args:
        client: The cluster.
        kind: Kind of the job.
        spec: The job.
        files: Local content for it.
        manifest: The job's object, if it differs from what the kind generates.
        dry_run: Have the server check every object, and store none.
        on_upload: Called with the progress of sending a large folder into a volume.
        on_found: Called with a volume claim that exists and is used.

    Raises:
        JobRejected: A field is invalid, by our rules or the server's.
        KubeError: Creation failed otherwise; remaining objects, if any, are named.
    """
    check(spec, problems_with_files(spec, files))
    given, spec = spec, with_files(spec, files)

    async def upload() -> None:
        if is_uploaded(given, files) and not dry_run:
            await upload_code(client, given, files, on_upload)

    if is_uploaded(given, files) and not dry_run:
        # A dry run first: sending may take minutes.
        await create_job(client, kind, given, files=files, manifest=manifest, dry_run=True)
    return await create_manifest(
        client,
        kind.resource,
        with_spec(kind.manifest(spec) if manifest is None else manifest, kind.supported(spec)),
        spec.namespace,
        owned_objects=owned_objects_of(kind, spec, files),
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
    owned_objects: Sequence[OwnedObject] = (),
    dry_run: bool = False,
    fill_claims: Callable[[], Awaitable[None]] = _nothing,
    on_found: Found = lambda owned: None,
) -> JobRef:
    """Create a job from a manifest, with its owned objects; see `create_job`.

    `fill_claims` is awaited once the new volume claims exist, before other objects are created.

    Raises:
        JobRejected: The name is in use, or the server refuses a field.
        KubeError: Creation failed otherwise; remaining objects, if any, are named.
    """
    transaction = Transaction(client, namespace, dry_run=dry_run)
    try:
        claims = [each for each in owned_objects if each.outlives_job]
        others = [each for each in owned_objects if not each.outlives_job]
        for claim in claims:
            await _create_claim(transaction, claim, on_found)
        await fill_claims()
        made = await _create_all(client, transaction, resource, manifest, namespace, others, dry_run)
    except KubeError as caught:
        error = await _of_namespace(client, caught, namespace)
        if left := await transaction.roll_back():
            remains = f"This may be left in namespace {namespace}: {', '.join(left)}."
            error.hint = join_sentences(error.hint, remains)
        if error is caught:
            raise
        try:
            raise error from caught
        finally:
            del error  # its traceback leads to this frame
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
    owned_objects: Sequence[OwnedObject],
    dry_run: bool,
) -> Manifest:
    for each in owned_objects:
        if each.comes_first:
            await _create_owned(transaction, each, each.manifest)
    made = await _create_main(client, transaction, resource, manifest, namespace)
    references = [owner_reference({**made, "apiVersion": resource.api_version, "kind": resource.kind})]
    for each in owned_objects:
        meta = each.manifest["metadata"]
        if not each.comes_first:
            owned = {**each.manifest, "metadata": {**meta, "ownerReferences": references}}
            await _create_owned(transaction, each, owned)
        elif not dry_run:
            await transaction.own(each.resource, str(meta["name"]), references)
    return made


async def _create_claim(transaction: Transaction, owned: OwnedObject, on_found: Found) -> None:
    # An existing claim is used if it is large enough.
    try:
        held = await transaction.create_claim(owned.manifest)
    except Invalid as error:
        raise _rejected(error, {owned.field: error.why}) from error
    if held is None:
        return
    if sentence := shortage(convert(held, Claim), owned.manifest["spec"]):
        hint = "Choose another name or a smaller size, or try again."
        raise _rejected(
            KubeError(f"Could not create {owned.title}.", sentence, hint), {owned.field: sentence}
        )
    on_found(owned)


def _rejected(error: KubeError, causes: Mapping[str, str], *, why: str = "", hint: str = "") -> JobRejected:
    rejected = JobRejected(error.what, why or error.why, hint or error.hint)
    rejected.causes = causes
    return rejected


async def _create_owned(transaction: Transaction, owned: OwnedObject, manifest: Manifest) -> None:
    # Errors are reported for the field that requires the object.
    try:
        await transaction.create_anew(owned.resource, manifest, JOB_LABEL)
    except (Conflict, Invalid) as error:
        if isinstance(error, Conflict) and not error.is_name_in_use:
            raise
        if isinstance(error, Conflict):
            taken = f"{owned.title} exists already. {error.hint}".strip()
            raise _rejected(error, {"name": taken}) from error
        causes = _by_field(error.causes)
        known = {name: text for name, text in causes.items() if name in JOB_FIELDS and name != "name"}
        raise _rejected(error, known or {owned.field: error.why}) from error
    except Forbidden:
        if not owned.is_optional:
            raise


async def _create_main(
    client: Client, transaction: Transaction, resource: Resource, manifest: Manifest, namespace: str
) -> Manifest:
    try:
        return await transaction.create(resource, manifest)
    except Conflict as error:
        if not error.is_name_in_use:
            raise
        causes = {"name": f"A {resource.kind} of this name already exists in {namespace}."}
        raise _rejected(error, causes, hint="Choose another name, or delete that job first.") from error
    except Invalid as error:
        raise _rejected(error, _by_field(error.causes)) from error
    except NotFound as error:
        if await _namespace_is_missing(client, namespace, error):
            raise
        raise JobRejected(
            error.what,
            f"This cluster does not serve {resource.kind} {resource.api_version}.",
            "Choose another kind of job, or ask for its operator to be installed.",
        ) from error


async def delete_job(client: Client, ref: JobRef, uid: str = "", *, propagation: str = "Background") -> None:
    """Delete a job, or another holder of GPUs; with `uid`, only that object.

    `propagation` to owned objects is Background, Foreground or Orphan.

    Raises:
        NotFound: The job does not exist.
        Conflict: The name belongs to another object now.
        KubeError: Deletion failed, or the cluster does not serve the kind.
    """
    if is_pod_group(ref):
        selector = kind_of(ref).pod_selector(ref.name)
        for pod in await client.list(PODS, ref.namespace, label_selector=selector):
            await client.delete(PODS, str(pod["metadata"]["name"]), ref.namespace)
        return
    resource: Resource | None = resource_of(ref)
    if resource not in {kind.resource for kind in KINDS}:  # never delete by a guessed plural
        resource = await RestMapper(client).resource_of(ref.api_version, ref.kind)
    if resource is None:
        raise KubeError(
            f"Could not delete {ref.kind} {ref.name}.",
            f"This cluster does not serve {ref.kind} {ref.api_version}.",
        )
    await client.delete(resource, ref.name, ref.namespace, propagation=propagation, uid=uid)


def resource_of(ref: JobRef) -> Resource:
    """Return the resource of a job; for an unknown kind its plural is a guess."""
    return kind_of(ref).resource


async def _of_namespace(client: Client, error: KubeError, namespace: str) -> KubeError:
    # A 404 may be about the namespace.
    if not isinstance(error, NotFound) or not await _namespace_is_missing(client, namespace, error):
        return error
    why = f"There is no namespace {namespace}."
    return _rejected(KubeError(error.what), {"namespace": why}, why=why)


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
        return limit[1]
    if ".resources." in path:
        return "gpus"
    if ".env" in path:
        return "env"
    return path
