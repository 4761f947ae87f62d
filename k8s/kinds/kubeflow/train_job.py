"""TrainJob, `trainer.kubeflow.org/v1alpha1`: a JobSet of the same name does its work.

It has a command and a number of nodes, which its runtime creates; other pod fields can only be set where
`runtimePatches` allows it. Its conditions are only Suspended, Complete and Failed.
Source: kubeflow/trainer v2.3.0, `pkg/apis/trainer/v1alpha1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from k8s.kinds import building
from k8s.kinds.base import CreatableKind, DeclaredJob, Manifest, NeededObject, Replica
from k8s.kinds.job_set import SET_NAME, instance_in_set, read_suspendable
from k8s.kinds.parse import count_of, make_replica, nested, ranks_from, replica_count, text_of
from k8s.models import Pod
from k8s.models.resources import TRAINING_RUNTIMES, Resource

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

# Installed with Kubeflow Trainer: for torchrun, and with mpirun and a launcher.
_TORCH_RUNTIME, _MPI_RUNTIME = "torch-distributed", "deepspeed-distributed"
_GROUP = "trainer.kubeflow.org"
# Prefix for a runtime in the job's namespace.
_OF_NAMESPACE = "trainingruntime/"
# Manager of our patch of the runtime.
_MANAGER = "gpuconsole.dev/console"
# Fields of a container, and their names in the trainer.
_TRAINER_FIELDS = {"image": "image", "command": "command", "env": "env", "resources": "resourcesPerNode"}
_POD_PATCHES = ("volumes", "nodeSelector", "affinity", "tolerations", "imagePullSecrets", "securityContext")
# Patches cannot add containers or init containers: they only change those of the runtime.
_CONTAINER_PATCHES = ("volumeMounts", "securityContext")
_PORT = 29500
# Runs a command in a folder, since a TrainJob has no working directory. Folder and command follow.
_IN_FOLDER = ("sh", "-c", 'mkdir -p "$0" && cd "$0" && exec "$@"')
TRAIN_JOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")

_INITIALIZERS = (("dataset", "dataset-initializer"), ("model", "model-initializer"))
_METRICS_TOLD = 2


_OF_RUNTIME = "Set by the runtime of a TrainJob, in the ClusterTrainingRuntime."
_NO_FETCHING = "A TrainJob cannot fetch code: put it into the image or a volume."
_OF_LAUNCHER = "The runtime of a TrainJob defines its launcher."
_NOT_ELASTIC = "The number of nodes of a TrainJob is fixed."


class TrainJob(CreatableKind):
    """TrainJob of Kubeflow Trainer: some nodes with equal processes."""

    title = "TrainJob"
    word = "trainjob"
    aliases = ("train",)
    resource = TRAIN_JOBS
    container = "node"
    pod_names = "-(node|launcher|(dataset|model)-initializer)-[0-9]+-[0-9]+"
    suspend_field = "spec.suspend"
    operator = "trainer"
    lacks: Mapping[str, str] = {
        **dict.fromkeys(
            ("pull_policy", "device_claim", "priority_class", "scheduler", "host_namespaces"), _OF_RUNTIME
        ),
        **dict.fromkeys(("retries", "restart_policy", "clean_pods"), _OF_RUNTIME),
        **dict.fromkeys(("sync_mode", "sync_source", "sync_branch", "sync_revision"), _NO_FETCHING),
        **dict.fromkeys(("sync_path", "git_secret", "sync_image"), _NO_FETCHING),
        "roles": "All nodes of a TrainJob are alike.",
        "worker_image": "All nodes of a TrainJob have the same image.",
        "launcher_policy": _OF_LAUNCHER,
        "mounts_on_launcher": _OF_LAUNCHER,
        "elastic": _NOT_ELASTIC,
        "gpu_topology": "Alibaba Cloud's scheduler supports GPU topology for MPI jobs only.",
        "kube_queue": "kube-queue does not support TrainJobs; Kueue does.",
        "ttl_s": "A TrainJob is kept until it is deleted.",
    }

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the TrainJob that requests `spec`."""
        spec = self.supported(spec)
        env = building.rendezvous_env(spec, _endpoint(spec.name))
        template = building.pod_template(spec, self.container, "trainjob", env=env)
        pod = template["spec"]
        container = pod["containers"][0]
        folder = container.pop("workingDir", "")
        if folder and "command" in container:
            container["command"] = [*_IN_FOLDER, folder, *container["command"]]
        is_mpi = spec.slots is not None or spec.runtime == _MPI_RUNTIME
        runtime, runtime_name = runtime_of(spec)
        body: Manifest = {
            "runtimeRef": {"apiGroup": _GROUP, "kind": runtime.kind, "name": runtime_name},
            "trainer": {
                **{name: container[key] for key, name in _TRAINER_FIELDS.items() if key in container},
                "numNodes": spec.workers,
                "numProcPerNode": spec.processes if spec.slots is None else spec.slots,
            },
        }
        if patch := _patch(template):
            roles = ("launcher", "node") if is_mpi else ("node",)
            body["runtimePatches"] = [_runtime_patch(roles, patch)]
        return building.job_object(
            self.resource, building.job_metadata(spec), {**body, **building.run_limits(spec)}
        )

    def needs(self, obj: Manifest) -> tuple[NeededObject, ...]:
        """Return its runtime: without it a TrainJob fails."""
        reference = nested(obj, "spec", "runtimeRef")
        kind = text_of(reference.get("kind")) or TRAINING_RUNTIMES[0].kind
        known = (each for each in TRAINING_RUNTIMES if each.kind == kind)
        return tuple(NeededObject(each, text_of(reference.get("name")), "runtime") for each in known)

    def unsupported(self, spec: JobSpec) -> dict[str, str]:
        """Return unsupported fields; all keys of a Secret at once are one."""
        found = super().unsupported(spec)
        if any(not each.name for each in spec.env_from):
            found["env_from"] = "A TrainJob supports single keys only: VARIABLE=secret/NAME/KEY."
        return found

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a TrainJob of Kubeflow Trainer v2, and the progress that its trainer reports."""
        job = read_suspendable(obj, self, succeeded="Complete")
        return replace(job, progress=_progress(nested(obj, "status", "trainerStatus")))

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the nodes, then the pods that fetch data and model before.

        Ranks are assumed: the job knows only the name of its runtime, which may be one for MPI.
        """
        trainer = nested(obj, "spec", "trainer")
        container = {"name": self.container, "resources": trainer.get("resourcesPerNode")}
        container |= {key: trainer[key] for key in ("image", "command", "args", "env") if trainer.get(key)}
        node = _patched(obj, container)
        processes = count_of(trainer.get("numProcPerNode")) or 0
        found = [
            make_replica(
                "node",
                index,
                node,
                is_chief=index == 0,
                ranks=ranks_from(index * processes, processes),
                ranks_proof="assumed",
            )
            for index in range(replica_count(trainer.get("numNodes")))
        ]
        initializers = nested(obj, "spec", "initializer")
        found += [make_replica(role, 0, {}) for field, role in _INITIALIZERS if initializers.get(field)]
        return tuple(found)

    def pod_selector(self, name: str) -> str:
        """Return the selector of the pods of the JobSet of the same name."""
        return f"{SET_NAME}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return no name: its pods belong to its JobSet, whose owner it is."""
        return ""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the group in the JobSet, and the number."""
        return instance_in_set(pod)


def _patched(obj: Manifest, container: Manifest) -> Manifest:
    # The template of a node as far as the job itself tells it: the rest is its runtime's.
    template: Manifest = {}
    for patch in nested(obj, "spec").get("runtimePatches") or ():
        for job in nested(patch, "trainingRuntimeSpec", "template", "spec").get("replicatedJobs") or ():
            if job.get("name") == "node":
                template |= nested(job, "template", "spec", "template")
    pod = nested(template, "spec")
    for each in pod.get("containers") or ():
        container = {**each, **container}
    return {**template, "spec": {**pod, "containers": [container]}}


def _progress(trainer_status: Mapping[str, Any]) -> str:
    # E.g. `61 %, 24 min left, loss 0.31`.
    found = []
    if (percent := count_of(trainer_status.get("progressPercentage"))) is not None:
        found.append(f"{percent} %")
    if (left_s := count_of(trainer_status.get("estimatedRemainingSeconds"))) is not None:
        found.append(f"{_duration(left_s)} left")
    metrics = [each for each in trainer_status.get("metrics") or () if text_of(each.get("name"))]
    found += [f"{each['name']} {text_of(each.get('value'))}" for each in metrics[:_METRICS_TOLD]]
    return ", ".join(found)


def _duration(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 3600 else f"{seconds // 3600} h {seconds % 3600 // 60} min"


def runtime_of(spec: JobSpec) -> tuple[Resource, str]:
    """Return the runtime's resource and name."""
    of_cluster, of_namespace = TRAINING_RUNTIMES
    if spec.runtime.startswith(_OF_NAMESPACE):
        return of_namespace, spec.runtime.removeprefix(_OF_NAMESPACE)
    return of_cluster, spec.runtime or (_TORCH_RUNTIME if spec.slots is None else _MPI_RUNTIME)


def _endpoint(name: str) -> str:
    return f"{name}-node-0-0.{name}:{_PORT}"


def _patch(template: Manifest) -> Manifest:
    # Empty if there is nothing to patch.
    pod = template["spec"]
    main = pod["containers"][0]
    patched = {key: main[key] for key in _CONTAINER_PATCHES if key in main}
    found = {key: pod[key] for key in _POD_PATCHES if key in pod}
    if patched:
        found["containers"] = [{"name": main["name"], **patched}]
    parts = {"metadata": template.get("metadata"), "spec": found}
    return {key: value for key, value in parts.items() if value}


def _runtime_patch(roles: tuple[str, ...], patch: Manifest) -> Manifest:
    jobs = [{"name": role, "template": {"spec": {"template": deepcopy(patch)}}} for role in roles]
    return {"manager": _MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
