"""MPIJob, `batch.tensorstack.dev/v1beta1`, of TensorStack: see `t9k_job` for the source.

Older ones have one template for all in `worker`, newer ones `replicaSpecs` for launcher and workers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import make_replica, nested, replica_count, text_of
from k8s.kinds.t9k.t9k_job import OWNER_NAME, T9kPods, read_t9k_job, replica_specs
from k8s.models import PodSpec, accelerators, convert
from k8s.models.resources import Resource
from k8s.status import Status

T9K_MPI_JOBS = Resource("batch.tensorstack.dev", "v1beta1", "mpijobs", "MPIJob")
# Workers run this whatever their command: mpirun starts the ranks in them.
_WORKER_COMMAND = ("/usr/sbin/sshd", "-De")


class T9kMPIJob(T9kPods):
    """MPIJob of TensorStack: a launcher, whose log has the output of all ranks, and workers."""

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
        """Return the launcher, which requests no GPUs unless it does so itself, and the workers."""
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
        """Return the number of ranks of each worker: as mpirun's options say, at least one per GPU."""
        workers = [each for each in self.replicas(obj) if not each.is_chief]
        words = _mpirun(obj)
        most = _number_after(words, ("-N", "--npernode", "-npernode"))
        in_all = _number_after(words, ("-np", "-n", "--np", "-c"))
        gpus = 0
        if workers:
            spec: PodSpec = convert(nested(workers[0].template, "spec"), PodSpec, strict=False)
            gpus = accelerators.count(accelerators.of_pod(spec)) or 0
        return max(1, most, -(-in_all // max(1, len(workers))), gpus)


def _mpirun(obj: Manifest) -> list[str]:
    newer, older = nested(obj, "spec", "mpiConfig"), nested(obj, "spec", "worker")
    script = newer.get("script") or older.get("cmd") or []
    if not script:
        return []
    mca: Mapping[str, Any] = newer.get("mca") or nested(obj, "spec", "mca")
    settings = [word for key, value in mca.items() for word in ("--mca", key, value)]
    options = newer.get("extraArgs") or older.get("extraMPIArgs") or []
    return ["mpirun", *map(str, [*settings, *options, *script])]


def _number_after(words: Sequence[str], options: Collection[str]) -> int:
    pairs = pairwise(words)
    return next((int(value) for word, value in pairs if word in options and value.isdecimal()), 0)


def _with_command(template: Mapping[str, Any], command: Sequence[str]) -> Mapping[str, Any]:
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
