"""What is wrong with a job on this cluster, asked with the user's own permissions. Nothing is changed.

Each check asks for what it needs alone and all ask at once; one that may not be answered finds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

from k8s.client.client import Client
from k8s.diagnosis.gather import KUEUE, KUEUE_VERSIONS, PRIORITIES, STORAGE_CLASSES
from k8s.job_spec import ACCESS_MODES, JobSpec, NewClaim
from k8s.jobs.companions import new_claim_spec, shortage
from k8s.kinds import CreatableKind, Manifest, NeededObject
from k8s.models import convert
from k8s.models.claim import Claim
from k8s.models.resources import CLAIMS, CONFIG_MAPS, SECRETS, Resource
from k8s.preflight.finding import REFUSED, Finding, error, warning
from k8s.preflight.limits import limit_findings, quota_findings
from k8s.preflight.object_checks import (
    Check,
    find,
    name_findings,
    namespace_is_missing,
    permission_findings,
    run_checks,
    served_findings,
)

Objects = Sequence[tuple[Resource, Manifest]]
"""All that must be created for a job, itself included."""


async def check_against_cluster(
    client: Client, kind: CreatableKind, spec: JobSpec, objects: Objects
) -> list[Finding]:
    """Return what is wrong with a job on a cluster, the worst first; what cannot be asked is left out.

    Args:
        client: The cluster, as the user who would create it.
        kind: Of the job.
        spec: The job.
        objects: What would be created.
    """
    if await namespace_is_missing(client, spec.namespace):
        text = f"{REFUSED}there is no namespace {spec.namespace}"
        return [error("namespace", text, "choose one that exists")]
    manifest = next(obj for resource, obj in objects if resource == kind.resource)
    checks: list[Check] = [
        served_findings(client, kind.resource),
        permission_findings(client, dict.fromkeys(resource for resource, _ in objects), spec.namespace),
        # What an earlier job left of its companions is replaced, so the job's own name is asked for alone.
        name_findings(client, kind.resource, spec.name, spec.namespace),
        *(_claim(client, spec, name) for name in _old_claims(spec)),
        *(_new_claim(client, spec, claim) for claim in spec.new_claims),
        *(_needed(client, spec, each) for each in kind.needs(spec)),
        *_sources(client, spec),
        quota_findings(client, kind, spec, manifest),
        limit_findings(client, kind, spec, manifest),
    ]
    if spec.priority_class:
        checks.append(_priority_class(client, spec.priority_class))
    if spec.queue:
        checks.append(_queue(client, spec))
    return sorted(chain(*await run_checks(checks)), key=lambda finding: finding.severity != "error")


def _old_claims(spec: JobSpec) -> list[str]:
    """Return the claims that the job mounts and does not bring along."""
    new = {claim.name for claim in spec.new_claims}
    return [name for name in dict.fromkeys(mount.claim for mount in spec.mounts) if name not in new]


async def _new_claim(client: Client, spec: JobSpec, wanted: NewClaim) -> list[Finding]:
    """Tell whether a claim can be created, or which one is used in its place."""
    obj = await find(client, CLAIMS, wanted.name, spec.namespace)
    if obj is not None:
        claim = convert(obj, Claim)
        if sentence := shortage(claim, new_claim_spec(wanted)):
            remedy = "choose another name or a smaller size, or try again"
            return [error("new_claims", f"{REFUSED}{_lower(sentence)}", remedy)]
        text = f"would use volume claim {wanted.name}, which is there already ({claim.size})"
        found = [warning("new_claims", text, "choose another name for a new one")]
        return [*found, *await _claim(client, spec, wanted.name)]
    modes = _access_by(spec, wanted.name, {ACCESS_MODES[wanted.mode]})
    if not wanted.storage_class or await find(client, STORAGE_CLASSES, wanted.storage_class) is not None:
        return modes
    known = ", ".join(
        sorted(str(each["metadata"]["name"]) for each in await client.list(STORAGE_CLASSES))[:5]
    )
    text = f"would wait: there is no StorageClass {wanted.storage_class}"
    return [error("new_claims", text, f"choose one of {known}" if known else "leave it empty"), *modes]


async def _needed(client: Client, spec: JobSpec, needed: NeededObject) -> list[Finding]:
    """Tell whether something is there without which the kind cannot run."""
    resource, name, field = needed
    if await find(client, resource, name, spec.namespace) is not None:
        return []
    namespace = spec.namespace if resource.is_namespaced else ""
    known = sorted(str(each["metadata"]["name"]) for each in await client.list(resource, namespace))
    text = f"would fail: there is no {resource.kind} {name}" + (f" in {namespace}" if namespace else "")
    return [
        error(field, text, f"choose one of {', '.join(known[:5])}" if known else "ask for it to be installed")
    ]


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


async def _claim(client: Client, spec: JobSpec, name: str) -> list[Finding]:
    obj = await find(client, CLAIMS, name, spec.namespace)
    if obj is None:
        text = f"would wait: volume claim {name} not found in {spec.namespace}"
        return [error("mounts", text, "choose one that exists, or create it")]
    claim = convert(obj, Claim)
    found = []
    if claim.state in ("Lost", "Terminating"):
        text = f"would wait: volume claim {name} is {claim.state}"
        found.append(error("mounts", text, "choose another claim"))
    elif claim.state != "Bound" and not await _binds_later(client, claim):
        text = f"would wait: volume claim {name} is not bound"
        found.append(warning("mounts", text, "see events of the claim: its volume cannot be provided yet"))
    return [*found, *_access(spec, claim)]


async def _binds_later(client: Client, claim: Claim) -> bool:
    """Tell whether a claim is bound only once a pod wants it."""
    storage_class = claim.spec.storage_class_name
    found = await find(client, STORAGE_CLASSES, storage_class) if storage_class else None
    return found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"


def _access(spec: JobSpec, claim: Claim) -> list[Finding]:
    """Tell whether as many pods as there are may mount a claim as they want to."""
    return _access_by(spec, claim.metadata.name, set(claim.access_modes))


def _access_by(spec: JobSpec, name: str, modes: set[str]) -> list[Finding]:
    mounts = [mount for mount in spec.mounts if mount.claim == name]
    if not modes or "ReadWriteMany" in modes:
        return []
    if modes == {"ReadOnlyMany"} and not all(mount.is_read_only for mount in mounts):
        text = f"would fail to write: volume claim {name} is read-only (ROX)"
        return [warning("mounts", text, "mount it read-only, as claim:/path:ro, and write elsewhere")]
    if spec.workers > 1 and modes == {"ReadWriteOncePod"}:
        text = f"would never start: one pod alone may mount volume claim {name} (RWOP), not {spec.workers}"
        return [error("mounts", text, "use a claim with ReadWriteMany")]
    if spec.workers > 1 and "ReadOnlyMany" not in modes:
        text = (
            f"would wait unless all {spec.workers} pods fit on one node: volume claim {name} is mounted "
            "on one node at a time (RWO)"
        )
        return [warning("mounts", text, "use a claim with ReadWriteMany")]
    return []


def _sources(client: Client, spec: JobSpec) -> list[Check]:
    """Return the checks of all Secrets and ConfigMaps that the pods need."""
    wanted = [
        *((SECRETS, name, "", "pull_secrets") for name in spec.pull_secrets),
        *((SECRETS, spec.git_secret, "", "git_secret") for _ in [0] if spec.git_secret),
        *(
            (SECRETS if each.is_secret else CONFIG_MAPS, each.source, each.key, "env_from")
            for each in spec.env_from
        ),
    ]
    return [_source(client, spec.namespace, *each) for each in dict.fromkeys(wanted)]


async def _source(
    client: Client, namespace: str, resource: Resource, name: str, key: str, field: str
) -> list[Finding]:
    found = await find(client, resource, name, namespace)
    if found is None:
        text = f"would wait: {resource.kind} {name} not found in {namespace}"
        return [error(field, text, "create it, or name one that exists")]
    keys = {**(found.get("data") or {}), **(found.get("stringData") or {})}
    if key and key not in keys:
        known = ", ".join(sorted(keys)[:5]) or "none"
        text = f"would wait: {resource.kind} {name} has no key {key}"
        return [error(field, text, f"its keys: {known}")]
    return []


async def _priority_class(client: Client, name: str) -> list[Finding]:
    if await find(client, PRIORITIES, name) is not None:
        return []
    known = sorted(str(each["metadata"]["name"]) for each in await client.list(PRIORITIES))
    text = f"{REFUSED}there is no PriorityClass {name}"
    return [error("priority_class", text, f"choose one of {', '.join(known[:5])}")]


async def _queue(client: Client, spec: JobSpec) -> list[Finding]:
    queues = (Resource(KUEUE, version, "localqueues", "LocalQueue") for version in KUEUE_VERSIONS)
    found = await asyncio.gather(*(find(client, each, spec.queue, spec.namespace) for each in queues))
    queue = next(filter(None, found), None)
    if queue is None:
        text = f"would wait: there is no LocalQueue {spec.queue} in {spec.namespace}"
        return [error("queue", text, "choose one that exists, or leave it empty")]
    for condition in (queue.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Active" and condition.get("status") == "False":
            why = str(condition.get("message") or condition.get("reason") or "it is not active")
            text = f"would wait: LocalQueue {spec.queue} admits nothing: {why.rstrip('.')}"
            return [warning("queue", text, "choose another queue, or ask who runs it")]
    return []
