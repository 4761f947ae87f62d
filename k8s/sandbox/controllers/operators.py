"""The operators of all job kinds: they look at every job and its pods, and carry out what is decided.

Clients of the API like any other, so they also serve a real kube-apiserver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from k8s.errors import KubeError
from k8s.kinds import RUNNABLE, RunnableKind
from k8s.models.resources import PODS, TRAINING_RUNTIMES, Resource
from k8s.sandbox.controller_runtime import (
    Informer,
    Informers,
    Recorder,
    by_controller,
    controller_of,
)
from k8s.sandbox.controllers import batch, jobset, mpi, replicated, tensorstack, trainer
from k8s.sandbox.controllers.reconcile import RESTARTS, ObservedJob, Plan, apply_plan

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""Before a job is reconciled again of which a write failed, doubled each time."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Operator:
    """One way to run jobs."""

    decide: Callable[[ObservedJob], Plan]
    """Returns what is to be done for a job."""
    owns: tuple[Resource, ...] = ()
    """What it makes besides pods and looks at again."""
    reads: tuple[Resource, ...] = ()
    """What it looks at besides."""


OPERATORS: Mapping[str, Operator] = {
    "job-controller": Operator(lambda it: batch.decide(it.job, it.pods)),
    "training-operator": Operator(
        lambda it: replicated.decide(it.kind, it.job, it.pods, it.restarts, it.owners)
    ),
    "training-operator-mpi": Operator(mpi.decide_by_pods, mpi.OWNED_BY_PODS),
    "jobset": Operator(jobset.decide, jobset.OWNED),
    "trainer": Operator(trainer.decide, trainer.OWNED, TRAINING_RUNTIMES),
    "tensorstack": Operator(tensorstack.decide, tensorstack.OWNED),
    "mpi-operator": Operator(mpi.decide, mpi.OWNED),
}
"""By the name that kinds call them."""


class Operators:
    """Runs the jobs of every kind that we know."""

    def __init__(
        self, informers: Informers, kinds: Sequence[RunnableKind] = RUNNABLE, namespace: str = ""
    ) -> None:
        """Prepare; with `namespace`, jobs elsewhere are left alone."""
        self._client = informers.client
        self._namespace = namespace
        self._pods = informers.of(PODS)
        self._jobs: Mapping[RunnableKind, Informer] = {kind: informers.of(kind.resource) for kind in kinds}
        self._owned: Mapping[RunnableKind, Mapping[Resource, Informer]] = {
            kind: {each: informers.of(each) for each in OPERATORS[kind.operator].owns} for kind in kinds
        }
        self._read = {each: informers.of(each) for kind in kinds for each in OPERATORS[kind.operator].reads}
        self._recorders = {
            kind: Recorder(informers.client, f"{kind.resource.kind.lower()}-controller") for kind in kinds
        }
        self._restarts: dict[str, int] = {}
        self._replaced: set[str] = set()
        self._failures: dict[str, int] = {}

    @property
    def informers(self) -> list[Informer]:
        """Return everything that must be listed before it may reconcile."""
        owned = [each for found in self._owned.values() for each in found.values()]
        return [self._pods, *self._jobs.values(), *owned, *self._read.values()]

    async def reconcile(self) -> float | None:
        """Do what is missing for every job."""
        pods_by_owner = by_controller(self._pods)
        owners: dict[str, dict[str, str]] = {}
        for pod in self._pods:
            in_namespace = owners.setdefault(str(pod["metadata"]["namespace"]), {})
            in_namespace[str(pod["metadata"]["name"])] = str(controller_of(pod).get("uid", ""))
        requeue_after_s: float | None = None
        for kind, jobs in self._jobs.items():
            by_owner = {owned: by_controller(each) for owned, each in self._owned[kind].items()}
            known = {each: list(self._read[each]) for each in OPERATORS[kind.operator].reads}
            for job in list(jobs):
                meta = job["metadata"]
                if meta.get("deletionTimestamp") or self._namespace not in ("", meta["namespace"]):
                    continue
                uid = str(meta["uid"])
                observed = ObservedJob(
                    kind,
                    job,
                    pods_by_owner.get(uid, []),
                    owners=owners.get(str(meta["namespace"]), {}),
                    children={owned: found.get(uid, ()) for owned, found in by_owner.items()},
                    known=known,
                )
                after_s = await self._reconcile_job(kind, jobs, observed)
                if after_s is not None:
                    requeue_after_s = after_s if requeue_after_s is None else min(requeue_after_s, after_s)
        return requeue_after_s

    async def _reconcile_job(self, kind: RunnableKind, jobs: Informer, observed: ObservedJob) -> float | None:
        """Do what is missing for one job; return when to look again. What fails does not stop the others."""
        job = observed.job
        uid, name = str(job["metadata"]["uid"]), job["metadata"]["name"]
        noted = [int((pod["metadata"].get("annotations") or {}).get(RESTARTS) or 0) for pod in observed.pods]
        restarts = max([self._restarts.get(uid, 0), *noted])
        try:
            plan = OPERATORS[kind.operator].decide(replace(observed, restarts=restarts))
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
