"""MPIJob, `batch.tensorstack.dev/v1beta1`, of TensorStack: see `t9k` for the source.

Older ones have one template for all in `worker`, newer ones `replicaSpecs` for launcher and workers.
That it succeeded only means that it ended: the launcher's log tells how.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from k8s.devices import accelerators
from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import make_replica, nested, replica_count, text_of
from k8s.kinds.t9k.common import OWNER_NAME, instance_in_t9k, job_of_t9k, read_t9k_job, replica_specs
from k8s.models import Pod, PodSpec, convert
from k8s.models.resources import Resource
from k8s.status import Status

T9K_MPI_JOBS = Resource("batch.tensorstack.dev", "v1beta1", "mpijobs", "MPIJob")
_WORKER_COMMAND = ("/usr/sbin/sshd", "-De")
"""What workers run, whatever they say: mpirun starts the ranks in them."""


class T9kMPIJob:
    """TensorStack's job for MPI: a launcher, whose log has what all ranks say, and its workers."""

    title = "T9k MPIJob"
    resource = T9K_MPI_JOBS
    container = "mpi-worker"
    suspend_field = "spec.runMode.pause.enabled"
    operator = "tensorstack"

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read T9k's MPIJob, which counts as succeeded however its launcher ended."""
        job = read_t9k_job(obj, self.resource, self.replicas(obj))
        if job.outcome is Status.SUCCEEDED:
            return replace(job, outcome_reason="it ended: the launcher's log tells how")
        return job

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the launcher, which asks for no GPUs unless it says so itself, and the workers."""
        specs = replica_specs(obj)
        if worker := nested(obj, "spec", "worker"):
            specs = [{**worker, "type": "worker"}, *specs]
        if not any(spec["type"] == "launcher" for spec in specs):
            specs = [{"type": "launcher", "template": _without_resources(worker.get("template"))}, *specs]
        command = _mpirun(obj)
        name = text_of(nested(obj, "metadata").get("name"))
        found = []
        for spec in sorted(specs, key=lambda spec: spec["type"] != "launcher"):
            is_launcher = spec["type"] == "launcher"
            template = _with_command(nested(spec, "template"), command if is_launcher else _WORKER_COMMAND)
            for index in range(replica_count(spec.get("replicas"))):
                replica = make_replica(
                    text_of(spec.get("type")),
                    index,
                    template,
                    is_chief=is_launcher and index == 0,
                    restart_policy=spec.get("restartPolicy"),
                )
                found.append(replace(replica, labels=((OWNER_NAME, name), ("replica-index", str(index)))))
        return tuple(found)

    def slots_of(self, obj: Manifest) -> int:
        """Return how many ranks each worker takes: what mpirun is told, and at least one for each GPU."""
        workers = [each for each in self.replicas(obj) if not each.is_chief]
        words = _mpirun(obj)
        most = _number_after(words, ("-N", "--npernode", "-npernode"))
        in_all = _number_after(words, ("-np", "-n", "--np", "-c"))
        gpus = 0
        if workers:
            spec: PodSpec = convert(nested(workers[0].template, "spec"), PodSpec, strict=False)
            gpus = accelerators.count(accelerators.of_pod(spec)) or 0
        return max(1, most, -(-in_all // max(1, len(workers))), gpus)

    def pod_selector(self, name: str) -> str:
        """Return the selector of what a job of T9k owns."""
        return f"{OWNER_NAME}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the MPIJob's name: that of the pod's controller."""
        return job_of_t9k(pod, self.resource)

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the role and the number in the pod's name."""
        return instance_in_t9k(pod)


def _mpirun(obj: Manifest) -> list[str]:
    """Return the launcher's command; empty when the job says none."""
    newer, older = nested(obj, "spec", "mpiConfig"), nested(obj, "spec", "worker")
    script = newer.get("script") or older.get("cmd") or []
    if not script:
        return []
    mca: Mapping[str, Any] = newer.get("mca") or nested(obj, "spec", "mca")
    settings = [word for key, value in mca.items() for word in ("--mca", key, value)]
    options = newer.get("extraArgs") or older.get("extraMPIArgs") or []
    return ["mpirun", *map(str, [*settings, *options, *script])]


def _number_after(words: Sequence[str], options: Collection[str]) -> int:
    """Return the number that stands behind one of these options; 0 when none does."""
    pairs = pairwise(words)
    return next((int(value) for word, value in pairs if word in options and value.isdecimal()), 0)


def _with_command(template: Mapping[str, Any], command: Sequence[str]) -> Mapping[str, Any]:
    """Return a template whose MPI container runs a command, if there is one to run."""
    spec = nested(template, "spec")
    containers = spec.get("containers") or ()
    named = [each for each in containers if each.get("name") == T9kMPIJob.container]
    chosen = (named or [*containers, None])[0]
    if not command or chosen is None:
        return template
    changed = [
        {**each, "command": list(command), "args": []} if each is chosen else each for each in containers
    ]
    return {**template, "spec": {**spec, "containers": changed}}


def _without_resources(template: Mapping[str, Any] | None) -> Mapping[str, Any]:
    spec = nested(template or {}, "spec")
    containers = [{**each, "resources": {}} for each in spec.get("containers") or ()]
    return {**(template or {}), "spec": {**spec, "containers": containers}}
