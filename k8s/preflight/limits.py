"""Whether a namespace's quotas and limit ranges allow a job, by the arithmetic that diagnosis uses."""

from __future__ import annotations

from collections.abc import Iterator

from k8s.client.client import Client
from k8s.diagnosis.causes.admission import beyond
from k8s.diagnosis.gather import LIMIT_RANGES
from k8s.diagnosis.objects import LimitRange
from k8s.diagnosis.words import amount, bare_amount
from k8s.job_spec import JobSpec
from k8s.kinds import CreatableKind, Manifest, Replica
from k8s.models import PodSpec, convert
from k8s.models.namespace import Quota
from k8s.models.resources import QUOTAS
from k8s.preflight.finding import REFUSED, Finding, error, warning
from k8s.scheduling import requests

_FIELDS = {"cpu": "cpu", "memory": "memory", requests.PODS: "workers"}
"""The field that makes an amount; of every other resource it is the GPUs'."""
_COUNT_OF_PODS = "count/pods"


async def quota_findings(
    client: Client, kind: CreatableKind, spec: JobSpec, manifest: Manifest
) -> list[Finding]:
    """Return the quotas of which too little is left for all pods together.

    Raises:
        KubeError: Quotas cannot be listed.
    """
    total = requests.add(requests.of_pod(_pod(replica)) for replica in kind.replicas(manifest))
    quotas = [convert(each, Quota) for each in await client.list(QUOTAS, spec.namespace)]
    return [finding for quota in quotas for finding in _over(quota, total, spec.namespace)]


def _over(quota: Quota, total: requests.ResourceList, namespace: str) -> Iterator[Finding]:
    if quota.spec.scopes or quota.spec.scope_selector:
        return  # for some pods only
    hard, used = requests.from_quantities(quota.status.hard), requests.from_quantities(quota.status.used)
    for key, limit in hard.items():
        name = (
            requests.PODS if key == _COUNT_OF_PODS else key.removeprefix("requests.").removeprefix("limits.")
        )
        want, left = total.get(name), limit - used.get(key, 0)
        if want is None or want <= left:
            continue
        field = _FIELDS.get(name, "gpus")
        quota_name = quota.metadata.name
        if want > limit:
            text = (
                f"would never start: all pods want {amount(name, want)}, quota {quota_name} allows "
                f"{bare_amount(key, limit)}"
            )
            yield error(field, text, f"ask for less, or for more quota in {namespace}")
        else:
            text = (
                f"would wait: all pods want {amount(name, want)}, quota {quota_name} has "
                f"{bare_amount(key, left)} of {bare_amount(key, limit)} left"
            )
            yield warning(field, text, f"ask for less, or end other jobs in {namespace}")


async def limit_findings(
    client: Client, kind: CreatableKind, spec: JobSpec, manifest: Manifest
) -> list[Finding]:
    """Return the limit ranges that allow no such pods.

    Raises:
        KubeError: They cannot be listed.
    """
    ranges = [convert(each, LimitRange) for each in await client.list(LIMIT_RANGES, spec.namespace)]
    found: dict[str, Finding] = {}
    for replica in kind.replicas(manifest):
        containers = [requests.of_container(each) for each in _pod(replica).containers]
        asked = {"Container": containers, "Pod": [requests.add(containers)]}
        for limit_range in ranges:
            for limit in limit_range.spec.limits or ():
                for words in filter(None, (beyond(limit, each) for each in asked.get(limit.type, ()))):
                    wants, allowed = words
                    resource = wants.rpartition(" ")[2]
                    text = (
                        f"{REFUSED}{replica.role} wants {wants}, LimitRange "
                        f"{limit_range.metadata.name} allows {allowed} a {limit.type.lower()}"
                    )
                    field = _FIELDS.get(resource, "gpus")
                    found.setdefault(text, error(field, text, "ask for an amount within the limits"))
    return list(found.values())


def _pod(replica: Replica) -> PodSpec:
    spec: PodSpec = convert(replica.template.get("spec") or {}, PodSpec, strict=False)
    return spec
