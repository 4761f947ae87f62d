"""The operators of all job kinds: they look at every job and its pods, and carry out what is decided.

Clients of the API like any other, so they also serve a real kube-apiserver.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

from k8s.errors import KubeError
from k8s.kinds import CREATABLE, CreatableKind
from k8s.models.resources import JOBS, PODS
from k8s.sandbox.controller_runtime import (
    Informer,
    Informers,
    Manifest,
    Recorder,
    by_controller,
    controller_of,
)
from k8s.sandbox.controllers import batch, replicated
from k8s.sandbox.controllers.reconcile import RESTARTS, apply_plan

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""Before a job is reconciled again of which a write failed, doubled each time."""

log = logging.getLogger(__name__)


class Operators:
    """Runs the jobs of every kind that we know."""

    def __init__(
        self, informers: Informers, kinds: Sequence[CreatableKind] = CREATABLE, namespace: str = ""
    ) -> None:
        """Prepare; with `namespace`, jobs elsewhere are left alone."""
        self._client = informers.client
        self._namespace = namespace
        self._pods = informers.of(PODS)
        self._jobs: Mapping[CreatableKind, Informer] = {kind: informers.of(kind.resource) for kind in kinds}
        self._recorders = {
            kind: Recorder(informers.client, f"{kind.resource.kind.lower()}-controller") for kind in kinds
        }
        self._restarts: dict[str, int] = {}
        self._replaced: set[str] = set()
        self._failures: dict[str, int] = {}

    @property
    def informers(self) -> list[Informer]:
        """Return everything that must be listed before it may reconcile."""
        return [self._pods, *self._jobs.values()]

    async def reconcile(self) -> float | None:
        """Do what is missing for every job."""
        pods_by_owner = by_controller(self._pods)
        owners: dict[str, dict[str, str]] = {}
        for pod in self._pods:
            in_namespace = owners.setdefault(str(pod["metadata"]["namespace"]), {})
            in_namespace[str(pod["metadata"]["name"])] = str(controller_of(pod).get("uid", ""))
        requeue_after_s: float | None = None
        for kind, jobs in self._jobs.items():
            for job in list(jobs):
                meta = job["metadata"]
                if meta.get("deletionTimestamp") or self._namespace not in ("", meta["namespace"]):
                    continue
                pods = pods_by_owner.get(str(meta["uid"]), [])
                taken = owners.get(str(meta["namespace"]), {})
                after_s = await self._reconcile_job(kind, jobs, job, pods, taken)
                if after_s is not None:
                    requeue_after_s = after_s if requeue_after_s is None else min(requeue_after_s, after_s)
        return requeue_after_s

    async def _reconcile_job(
        self,
        kind: CreatableKind,
        jobs: Informer,
        job: Manifest,
        pods: list[Manifest],
        owners: Mapping[str, str],
    ) -> float | None:
        """Do what is missing for one job; return when to look again. What fails does not stop the others."""
        uid, name = str(job["metadata"]["uid"]), job["metadata"]["name"]
        noted = [int((pod["metadata"].get("annotations") or {}).get(RESTARTS) or 0) for pod in pods]
        restarts = max([self._restarts.get(uid, 0), *noted])
        try:
            if kind.resource == JOBS:
                plan = batch.decide(job, pods)
            else:
                plan = replicated.decide(kind, job, pods, restarts, owners)
        except (msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError):
            log.exception("%s %s makes no sense", kind.resource.kind, name)
            return None
        try:
            await apply_plan(plan, kind.resource, job, self._client, self._recorders[kind], jobs)
        except KubeError as error:
            log.warning("%s %s: %s", kind.resource.kind, name, error)
            self._failures[uid] = self._failures.get(uid, -1) + 1
            return min(FIRST_RETRY_S * 2.0 ** self._failures[uid], LONGEST_RETRY_S)
        self._failures.pop(uid, None)
        if fresh := set(plan.replaced) - self._replaced:
            self._replaced |= fresh
            self._restarts[uid] = restarts + len(fresh)
        return plan.requeue_after_s
