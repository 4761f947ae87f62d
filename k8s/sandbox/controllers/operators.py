"""Controller of Deployments and all job kinds: compares each with its pods and applies the plan.

It is an ordinary client of the API and also works on a real kube-apiserver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import msgspec

from k8s.kinds import RUNNABLE, RunnableKind
from k8s.models.resources import CONFIG_MAPS, PODS, TRAINING_RUNTIMES, Resource
from k8s.sandbox.controller_runtime import Informer, Informers, Recorder, by_controller
from k8s.sandbox.controllers import batch, kubeflow, tensorstack, trainer
from k8s.sandbox.controllers.batch import DeploymentKind
from k8s.sandbox.controllers.reconcile import ObservedJob, Plan, apply_plan, attempt_of
from k8s.text.errors import KubeError

# Operators need no more of a kind than its resource and its operator's name.
KINDS = (*RUNNABLE, cast(RunnableKind, DeploymentKind()))
# Backoff after a failed write, per job.
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Operator:
    """Way to run the jobs of some kinds."""

    decide: Callable[[ObservedJob], Plan]
    owns: tuple[Resource, ...] = ()
    reads: tuple[Resource, ...] = ()


OPERATORS: Mapping[str, Operator] = {
    "job-controller": Operator(batch.decide),
    DeploymentKind.operator: Operator(batch.decide_deployment),
    "training-operator": Operator(kubeflow.decide),
    "training-operator-mpi": Operator(kubeflow.decide_mpi, (CONFIG_MAPS,)),
    "trainer": Operator(trainer.decide, reads=TRAINING_RUNTIMES),
    "tensorstack": Operator(tensorstack.decide, tensorstack.OWNED),
    "mpi-operator": Operator(kubeflow.decide_mpi, (CONFIG_MAPS,)),
}


class Operators:
    """Controller of the jobs of all kinds that the sandbox runs."""

    def __init__(
        self, informers: Informers, kinds: Sequence[RunnableKind] = KINDS, namespace: str = ""
    ) -> None:
        """Watch the jobs of `kinds`, in all namespaces or only in `namespace`."""
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
        """Return the informers that must be synced first."""
        owned = [each for found in self._owned.values() for each in found.values()]
        return [self._pods, *self._jobs.values(), *owned, *self._read.values()]

    async def reconcile(self) -> float | None:
        """Reconcile every job."""
        pods_by_owner = by_controller(self._pods)
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
                    children={owned: found.get(uid, ()) for owned, found in by_owner.items()},
                    known=known,
                )
                after_s = await self._reconcile_job(kind, jobs, observed)
                if after_s is not None:
                    requeue_after_s = after_s if requeue_after_s is None else min(requeue_after_s, after_s)
        return requeue_after_s

    async def _reconcile_job(self, kind: RunnableKind, jobs: Informer, observed: ObservedJob) -> float | None:
        job = observed.job
        uid, name = str(job["metadata"]["uid"]), job["metadata"]["name"]
        restarts = max([self._restarts.get(uid, 0), *map(attempt_of, observed.pods)])
        try:
            plan = OPERATORS[kind.operator].decide(
                replace(observed, restarts=restarts, replaced=self._replaced)
            )
        except (msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError):
            log.exception("invalid %s %s", kind.resource.kind, name)
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
