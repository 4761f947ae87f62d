"""PyTorchTrainingJob, `batch.tensorstack.dev/v1beta1`, of TensorStack: see `t9k` for the source.

The first role's first pod is the master. With torchrun each pod runs several processes, and who
gets which rank is settled when they meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from k8s.devices import accelerators
from k8s.job_spec import JobSpec, role_spec
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, ElasticSize, Manifest, Replica
from k8s.kinds.parse import (
    count_of,
    make_replica,
    nested,
    ranks_from,
    replica_count,
    text_of,
)
from k8s.kinds.pods.command import is_script
from k8s.kinds.t9k.common import (
    OWNER_NAME,
    instance_in_t9k,
    job_of_t9k,
    read_t9k_job,
    replica_specs,
)
from k8s.kinds.t9k.pytorch_manifest import RESTARTS, T9K_SHAPE, spec_of_t9k, t9k_manifest
from k8s.models import Pod, PodSpec, convert
from k8s.models.resources import Resource
from k8s.text.numbers import whole_number

T9K_PYTORCH_JOBS = Resource("batch.tensorstack.dev", "v1beta1", "pytorchtrainingjobs", "PyTorchTrainingJob")

_NO_MPI = "A PyTorchTrainingJob has no MPI launcher."


class T9kPyTorchJob(CreatableKind):
    """TensorStack's PyTorchTrainingJob: torchrun in each pod, elastic where it says so."""

    title = "PyTorchTrainingJob"
    word = "t9k"
    aliases = ("pytorchtrainingjob",)
    resource = T9K_PYTORCH_JOBS
    container = T9K_SHAPE.container
    suspend_field = "spec.runMode.pause.enabled"
    operator = "tensorstack"
    runs_tensorboard = True
    lacks: Mapping[str, str] = {
        "slots": _NO_MPI,
        "runtime": NO_RUNTIME,
        "launcher_policy": _NO_MPI,
        "mounts_on_launcher": _NO_MPI,
        "gpu_topology": "Alibaba Cloud's scheduler places MPI jobs by the links between GPUs, no others.",
        "kube_queue": "kube-queue knows no PyTorchTrainingJobs; their own scheduler has queues.",
        "ttl_s": "A PyTorchTrainingJob is kept until it is deleted.",
    }

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the PyTorchTrainingJob that asks for `spec`."""
        return t9k_manifest(self.resource, self.supported(spec))

    def unsupported(self, spec: JobSpec) -> dict[str, str]:
        """Return what such a job cannot have: torchrun for scripts in some roles only too."""
        found = super().unsupported(spec)
        commands = [role_spec(spec, role.name).command for role in spec.roles if spec.torchrun]
        if len({is_script(command) for command in commands}) > 1:
            found.setdefault("roles", "With torchrun all roles run scripts of Python, or none does.")
        return found

    def spec_from_manifest(self, obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
        """Return the spec for a PyTorchTrainingJob like this one, and what it leaves out."""
        return spec_of_t9k(obj)

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a PyTorchTrainingJob, with T9k's phase and the fewest replicas of an elastic one."""
        limit = count_of(nested(obj, "spec", "runPolicy").get("backoffLimit"))
        return replace(
            read_t9k_job(obj, self.resource, self.replicas(obj)),
            enough=count_of(_elastic(obj).get("minReplicas")),
            restarts_allowed=RESTARTS if limit is None else limit,
        )

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods of all roles in their order, an elastic job's as many as it would like."""
        torchrun = nested(obj, "spec", "torchrunConfig")
        expected = _elastic(obj).get("expectedReplicas")
        name = text_of(nested(obj, "metadata").get("name"))
        found: list[Replica] = []
        first_rank = 0
        for spec in replica_specs(obj):
            template = nested(spec, "template")
            processes = _processes(torchrun, template)
            for index in range(
                replica_count(spec.get("replicas") if found or expected is None else expected)
            ):
                replica = make_replica(
                    text_of(spec.get("type")),
                    index,
                    template,
                    is_chief=not found,
                    ranks=ranks_from(first_rank, processes),
                    ranks_proof="assumed",
                    restart_policy=spec.get("restartPolicy"),
                )
                found.append(replace(replica, labels=((OWNER_NAME, name), ("replica-index", str(index)))))
                first_rank += processes
        return tuple(found)

    def elastic_size(self, obj: Manifest) -> ElasticSize | None:
        """Return how many replicas an elastic PyTorchTrainingJob would like."""
        elastic = _elastic(obj)
        if not elastic:
            return None
        expected, least, most = (
            count_of(elastic.get(name)) for name in ("expectedReplicas", "minReplicas", "maxReplicas")
        )
        return ElasticSize("spec.elastic.expectedReplicas", expected, least, most)

    def pod_selector(self, name: str) -> str:
        """Return the selector of what a job of T9k owns."""
        return f"{OWNER_NAME}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the PyTorchTrainingJob's name: that of the pod's controller."""
        return job_of_t9k(pod, self.resource)

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the role and the number in the pod's name."""
        return instance_in_t9k(pod)


def _elastic(obj: Manifest) -> Mapping[str, Any]:
    elastic = nested(obj, "spec", "elastic")
    return elastic if elastic.get("enabled") is True else {}


def _processes(torchrun: Mapping[str, Any], template: Mapping[str, Any]) -> int:
    """Return the training processes of a pod: one, or as many as torchrun starts; 0 if nobody can tell."""
    if torchrun.get("enabled") is not True:
        return 1
    per_node = torchrun.get("procPerNode")
    if per_node == "gpu":
        try:
            spec: PodSpec = convert(nested(template, "spec"), PodSpec, strict=False)
        except msgspec.ValidationError:
            return 0
        found: int | None = accelerators.count(accelerators.of_pod(spec))
    else:
        found = whole_number(text_of(per_node)) or count_of(per_node)
    return found or 0
