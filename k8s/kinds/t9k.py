"""Job kinds of TensorStack, `batch.tensorstack.dev/v1beta1`: PyTorchTrainingJob and MPIJob.

Source: the T9k user manuals, "PyTorchTrainingJob" and "MPIJob", and their API reference; the CRDs are not
public. Pods are found by their owner: the label `tensorstack.dev/owner-name` is on other pods too.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from k8s.kinds import building
from k8s.kinds import job_spec as job_specs
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, ElasticSize, Manifest, Replica
from k8s.kinds.parse import (
    JobOutcome,
    count_of,
    make_replica,
    nested,
    ranks_from,
    read_job,
    read_status,
    replica_count,
    text_of,
)
from k8s.models import Pod, PodSpec, accelerators, convert
from k8s.models.resources import Resource
from k8s.status import Status
from k8s.text.sanitize import parse_integer

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

OWNER_NAME = "tensorstack.dev/owner-name"
_ENDINGS = {"Succeeded": Status.SUCCEEDED, "Failed": Status.FAILED}
_FILESET = "t9k://pvc/"
# Follows the job's name in a pod's name: a hash in some kinds, the role, and its number if any.
_PLACE = re.compile(r"(?:[a-z0-9]{5}-)?([a-z][a-z0-9-]*?)(?:-([0-9]+))?")


def read_t9k_job(obj: Manifest, resource: Resource, replicas: tuple[Replica, ...]) -> DeclaredJob:
    """Read a job with T9k's phase, run mode and scheduler."""
    spec, status = nested(obj, "spec"), nested(obj, "status")
    outcome = _ENDINGS.get(text_of(status.get("phase")))
    last = {found.type: found for found in read_status(obj).conditions or ()}.get(
        "Failed" if outcome is Status.FAILED else "Completed"
    )
    scheduler = nested(spec, "scheduler", "t9kScheduler")
    priority = count_of(scheduler.get("priority"))
    job = read_job(
        obj,
        resource,
        replicas,
        JobOutcome(outcome, (last.message if last else "") or "", last.last_transition_time if last else None)
        if outcome
        else JobOutcome(),
        is_suspended=_is_on(nested(spec, "runMode", "pause")),
        queue=text_of(scheduler.get("queue")),
        priority="" if priority is None else str(priority),
        log_dir=_log_dir(nested(spec, "tensorboardSpec"), replicas),
    )
    started = {found.type: found.last_transition_time for found in job.conditions}.get("Initialized")
    return msgspec.structs.replace(
        job,
        started=started,
        restarts=count_of(status.get("backoffCount")) or 0,
        progress="debug mode: its pods wait for you" if _is_on(nested(spec, "runMode", "debug")) else "",
    )


class T9kPods:
    """Mixin of T9k's kinds: their pods are identified by owner and name."""

    resource: Resource
    pod_names = "-(launcher|master|worker|node)(-[0-9]+)?"

    def pod_selector(self, name: str) -> str:
        """Return the selector of a T9k job's objects."""
        return f"{OWNER_NAME}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the name of the pod's controller if it is of this kind."""
        owner = pod.metadata.controller
        is_this = owner and (owner.kind, owner.api_version) == (self.resource.kind, self.resource.api_version)
        return owner.name if owner and is_this else ""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the role and the number at the end of the pod's name."""
        owner = pod.metadata.controller
        job_name = pod.metadata.label(OWNER_NAME) or (owner.name if owner is not None else "")
        name = pod.metadata.name
        if not job_name or not name.startswith(f"{job_name}-"):
            return None
        found = _PLACE.fullmatch(name[len(job_name) + 1 :])
        index = parse_integer(found[2] or "0") if found else None
        return (found[1], index) if found and index is not None else None


def replica_specs(obj: Manifest) -> list[Mapping[str, Any]]:
    """Return the entries of `replicaSpecs` that have a type."""
    return [each for each in nested(obj, "spec").get("replicaSpecs") or () if text_of(each.get("type"))]


def _is_on(mode: Mapping[str, Any]) -> bool:
    # The manuals use two names for the switch.
    return mode.get("enabled") is True or mode.get("enable") is True


def _log_dir(tensorboard: Mapping[str, Any], replicas: Iterable[Replica]) -> str:
    # The folder in the pods that TensorBoard reads from a volume claim.
    folders = [
        (text_of(claim.get("name")), text_of(path))
        for claim in nested(tensorboard, "logDir").get("pvc") or ()
        for path in claim.get("subPath") or ("",)
    ]
    for address in tensorboard.get("trainingLogFilesets") or ():
        claim, _, path = text_of(address).removeprefix(_FILESET).partition("/")
        folders.append((claim, path))
    for replica in replicas:
        pod = nested(replica.template, "spec")
        volumes = {
            text_of(nested(each, "persistentVolumeClaim").get("claimName")): text_of(each.get("name"))
            for each in pod.get("volumes") or ()
        }
        mounts = {
            text_of(mount.get("name")): text_of(mount.get("mountPath"))
            for container in pod.get("containers") or ()
            for mount in container.get("volumeMounts") or ()
        }
        for claim, path in folders:
            if claim and (root := mounts.get(volumes.get(claim) or "")):
                return "/".join(filter(None, [root.rstrip("/"), path.removeprefix("./").strip("/")]))
    return ""


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
    container = "python"
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
        if spec.elastic is not None:
            body["elastic"] = {
                "enabled": True,
                "minReplicas": spec.elastic[0],
                "maxReplicas": spec.elastic[1],
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
        return building.job_object(
            self.resource,
            building.job_metadata(replace(spec, tensorboard=False), queue_label=False),
            {**body, "replicaSpecs": _replica_specs(spec, arguments)},
        )

    def unsupported(self, spec: JobSpec) -> dict[str, str]:
        """Return unsupported fields; torchrun for scripts in only some roles is one."""
        found = super().unsupported(spec)
        commands = [
            building.torchrun_program(job_specs.role_spec(spec, role.name))
            for role in spec.roles
            if spec.torchrun
        ]
        if len({building.is_script(command) for command in commands}) > 1:
            found.setdefault("roles", "With torchrun, either all roles run Python scripts or none does.")
        return found

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a PyTorchTrainingJob, with T9k's phase and the minimum of an elastic one."""
        limit = count_of(nested(obj, "spec", "runPolicy").get("backoffLimit"))
        return msgspec.structs.replace(
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
                    text_of(spec.get("type")), index, template, is_chief=not found,
                    ranks=ranks_from(first_rank, processes), ranks_proof="assumed",
                    restart_policy=spec.get("restartPolicy"),
                    labels=((OWNER_NAME, name), ("replica-index", str(index))),
                )  # fmt: skip
                found.append(replica)
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
    return building.torchrun_program(spec) if spec.torchrun and not spec.trainer else None


def _torchrun_config(spec: JobSpec, arguments: tuple[str, ...]) -> Manifest:
    options = [] if spec.trainer else list(spec.torchrun_options)
    if arguments and not building.is_script(arguments):
        options.append(building.ANY_PROGRAM)
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
        env = [*building.rendezvous_env(spec, ""), building.variable(_PROCESSES, str(spec.processes))]
    # The operator has a debug mode of its own.
    plain = replace(spec, debug=False, torchrun=False)
    run = plain if arguments is None else replace(plain, command=())
    template = building.pod_template(run, T9kPyTorchJob.container, "pytorchtrainingjob", env=env)
    if arguments:
        template["spec"]["containers"][0]["args"] = list(arguments)
    return {
        "type": name,
        "replicas": replicas,
        "restartPolicy": building.restarts(spec),
        "template": template,
    }


def _tensorboard(spec: JobSpec) -> Manifest:
    # Empty if the event files are in no volume claim.
    for mount in spec.mounts:
        folder = PurePosixPath(posixpath.join(spec.working_dir or "/", spec.log_dir))
        if folder.is_relative_to(mount.path):
            path = PurePosixPath(mount.sub_path) / folder.relative_to(mount.path)
            found: Manifest = {"logDir": {"pvc": [{"name": mount.claim, "subPath": [str(path)]}]}}
            return found | ({"image": spec.tensorboard_image} if spec.tensorboard_image else {})
    return {}


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
            return msgspec.structs.replace(job, outcome_reason="it ended: the launcher's log tells how")
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
                    labels=((OWNER_NAME, name), ("replica-index", str(index))),
                )
                found.append(replica)
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
