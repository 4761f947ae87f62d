"""PyTorchTrainingJob, `batch.tensorstack.dev/v1beta1`, of TensorStack: see `t9k_job` for the source.

The first pod of the first role is the master. With torchrun the operator writes its command line, so that
containers only have the script and its arguments; each pod runs several processes, which get their ranks at
the rendezvous.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from k8s.kinds import job_spec as job_specs
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, ElasticSize, Manifest, Replica
from k8s.kinds.parse import (
    count_of,
    make_replica,
    nested,
    ranks_from,
    replica_count,
    text_of,
)
from k8s.kinds.pod_template import (
    PodShape,
    job_object,
    pod_template,
    restarts,
)
from k8s.kinds.pods.command import ANY_PROGRAM, is_script, torchrun_program
from k8s.kinds.pods.env import rendezvous_env, variable
from k8s.kinds.pods.labels import job_metadata
from k8s.kinds.t9k.t9k_job import OWNER_NAME, T9kPods, read_t9k_job, replica_specs
from k8s.models import PodSpec, accelerators, convert
from k8s.models.resources import Resource
from k8s.text.sanitize import parse_integer

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

T9K_SHAPE = PodShape(container="python", app="pytorchtrainingjob")
RESTARTS = 3
_PROCESSES = "PET_NPROC_PER_NODE"
# The command of a packaged trainer begins so; torchrun starts what follows.
_PACKAGED = ("python", "-P", "-m", "trainer.launch")
_CLEAN_PODS = {"None": "None", "Running": "Unfinished", "All": "All"}
T9K_PYTORCH_JOBS = Resource("batch.tensorstack.dev", "v1beta1", "pytorchtrainingjobs", "PyTorchTrainingJob")

_NO_MPI = "A PyTorchTrainingJob has no MPI launcher."


class T9kPyTorchJob(T9kPods, CreatableKind):
    """PyTorchTrainingJob of TensorStack: torchrun in each pod, optionally elastic."""

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
        "gpu_topology": "Alibaba Cloud's scheduler supports GPU topology for MPI jobs only.",
        "kube_queue": "kube-queue does not support PyTorchTrainingJobs; their own scheduler has queues.",
        "ttl_s": "A PyTorchTrainingJob is kept until it is deleted.",
    }

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the PyTorchTrainingJob that requests `spec`; workers with their own image are a role."""
        spec = self.supported(spec)
        body: Manifest = {}
        if spec.tensorboard and (tensorboard := _tensorboard(spec)):
            body["tensorboardSpec"] = tensorboard
        # All roles share torchrun's options.
        arguments = _arguments(job_specs.role_spec(spec, spec.roles[0].name) if spec.roles else spec)
        if arguments is not None:
            body["torchrunConfig"] = _torchrun_config(spec, arguments)
        if spec.elastic_min is not None:
            body["elastic"] = {
                "enabled": True,
                "minReplicas": spec.elastic_min,
                "maxReplicas": spec.elastic_max,
                "expectedReplicas": spec.workers,
            }
        modes = {"debug": spec.debug, "pause": spec.suspend}
        if any(modes.values()):
            body["runMode"] = {name: {"enabled": True} for name, is_on in modes.items() if is_on}
        policy: Manifest = {"backoffLimit": spec.retries, "cleanUpPolicy": _CLEAN_PODS[spec.clean_pods]}
        if spec.running_timeout_s:
            policy["activeDeadlineSeconds"] = spec.running_timeout_s
        body["runPolicy"] = policy
        if spec.queue:
            body["scheduler"] = {"t9kScheduler": {"queue": spec.queue}}
        return job_object(
            self.resource,
            job_metadata(replace(spec, tensorboard=False), queue_label=False),
            {**body, "replicaSpecs": _replica_specs(spec, arguments)},
        )

    def unsupported(self, spec: JobSpec) -> dict[str, str]:
        """Return unsupported fields; torchrun for scripts in only some roles is one."""
        found = super().unsupported(spec)
        commands = [
            torchrun_program(job_specs.role_spec(spec, role.name)) for role in spec.roles if spec.torchrun
        ]
        if len({is_script(command) for command in commands}) > 1:
            found.setdefault("roles", "With torchrun, either all roles run Python scripts or none does.")
        return found

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a PyTorchTrainingJob, with T9k's phase and the minimum of an elastic one."""
        limit = count_of(nested(obj, "spec", "runPolicy").get("backoffLimit"))
        return replace(
            read_t9k_job(obj, self.resource, self.replicas(obj)),
            min_instances=count_of(_elastic(obj).get("minReplicas")),
            restarts_allowed=RESTARTS if limit is None else limit,
        )

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods of all roles in order; of an elastic job the number it requests."""
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
        """Return the size of an elastic PyTorchTrainingJob."""
        elastic = _elastic(obj)
        if not elastic:
            return None
        expected, least, most = (
            count_of(elastic.get(name)) for name in ("expectedReplicas", "minReplicas", "maxReplicas")
        )
        return ElasticSize("spec.elastic.expectedReplicas", expected, least, most)


def _elastic(obj: Manifest) -> Mapping[str, Any]:
    elastic = nested(obj, "spec", "elastic")
    return elastic if elastic.get("enabled") is True else {}


def _processes(torchrun: Mapping[str, Any], template: Mapping[str, Any]) -> int:
    # 0 if unknown.
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
        found = parse_integer(text_of(per_node)) or count_of(per_node)
    return found or 0


def _arguments(spec: JobSpec) -> tuple[str, ...] | None:
    # None if the command starts its processes itself.
    if spec.trainer and spec.command[: len(_PACKAGED)] == _PACKAGED:
        return spec.command[len(_PACKAGED) :]
    return torchrun_program(spec) if spec.torchrun and not spec.trainer else None


def _torchrun_config(spec: JobSpec, arguments: tuple[str, ...]) -> Manifest:
    options = [] if spec.trainer else list(spec.torchrun_options)
    if arguments and not is_script(arguments):
        options.append(ANY_PROGRAM)
    found: Manifest = {
        "enabled": True,
        "maxRestarts": spec.max_restarts,
        "procPerNode": str(spec.processes),
        "rdzvBackend": spec.rdzv_backend,
        "extraOptions": options,
    }
    return {key: value for key, value in found.items() if value != ""}


def _replica_specs(spec: JobSpec, arguments: tuple[str, ...] | None) -> list[Manifest]:
    # The first pod of the first role decides the outcome of the job.
    if spec.roles:
        sizes = zip(spec.roles, job_specs.role_sizes(spec.roles, spec.workers), strict=True)
        found = [(role, job_specs.role_spec(spec, role.name), size) for role, size in sizes]
        return [_role(of_role, role.name, size, _arguments(of_role)) for role, of_role, size in found]
    if not spec.worker_image or spec.workers == 1:
        return [_role(spec, "node", spec.workers, arguments)]
    workers = job_specs.role_spec(spec, "worker")
    return [_role(spec, "master", 1, arguments), _role(workers, "worker", spec.workers - 1, arguments)]


def _role(spec: JobSpec, name: str, replicas: int, arguments: tuple[str, ...] | None) -> Manifest:
    env = []
    if arguments is None:
        env = [*rendezvous_env(spec, ""), variable(_PROCESSES, str(spec.processes))]
    # The operator has a debug mode of its own.
    plain = replace(spec, debug=False, torchrun=False)
    template = pod_template(plain if arguments is None else replace(plain, command=()), T9K_SHAPE, env=env)
    if arguments:
        template["spec"]["containers"][0]["args"] = list(arguments)
    return {"type": name, "replicas": replicas, "restartPolicy": restarts(spec), "template": template}


def _tensorboard(spec: JobSpec) -> Manifest:
    # Empty if the event files are in no volume claim.
    for mount in spec.mounts:
        folder = PurePosixPath(posixpath.join(spec.working_dir or "/", spec.log_dir))
        if folder.is_relative_to(mount.path):
            path = PurePosixPath(mount.sub_path) / folder.relative_to(mount.path)
            found: Manifest = {"logDir": {"pvc": [{"name": mount.claim, "subPath": [str(path)]}]}}
            return found | ({"image": spec.tensorboard_image} if spec.tensorboard_image else {})
    return {}
