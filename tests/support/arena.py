"""Rules by which Arena 0.15.2 finds a job and its parts, each with its place in the source.

Arena's own program cannot be built where these tests run. `pods_of` and `chief_of` were compared with its
functions, compiled from its source, on the pods of every kind here. Source of all: kubeflow/arena v0.15.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]

# The one version that it asks for: `pkg/k8saccesser/k8s_accesser.go`, ListPytorchJobs, ListMPIJobs
SERVED_AS: Mapping[str, str] = {"pytorchjob": "kubeflow.org/v1", "mpijob": "kubeflow.org/v1alpha1"}
# `pkg/apis/types/training.go`, TrainingJobType
TYPES = (
    "tfjob",
    "mpijob",
    "pytorchjob",
    "horovodjob",
    "volcanojob",
    "etjob",
    "sparkjob",
    "deepspeedjob",
    "rayjob",
)
USER_LABEL = "arena.kubeflow.org/uid"
# The container whose log it shows while a pod is in its Init state: `pkg/training/logs.go`, AcceptJobLog
CODE_INIT = "init-code"


def is_listed(job: Object, type_: str, user_id: str = "") -> bool:
    """Return True if `arena list`, `top job` and `prune` see a job, with `user_id` in an isolated namespace.

    `pkg/training/trainer.go`, GetTrainingJobLabels: the selector `app=TYPE,release`.
    """
    labels = job["metadata"].get("labels") or {}
    is_of_user = not user_id or labels.get(USER_LABEL) == user_id
    return (
        job["apiVersion"] == SERVED_AS[type_] and labels.get("app") == type_ and "release" in labels
    ) and is_of_user


def pods_of(job: Object, type_: str, pods: Iterable[Object]) -> list[Object]:
    """Return its pods: `pkg/apis/utils/training.go`, IsPyTorchPod and IsMPIPod."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]

    def is_of_it(labels: Mapping[str, str]) -> bool:
        if labels.get("release") != name or labels.get("app") != type_:
            return False
        if type_ == "mpijob":
            return labels.get("group_name") == "kubeflow.org"
        return (
            labels.get("group-name") == "kubeflow.org"
            or labels.get("training.kubeflow.org/operator-name") == "pytorchjob-controller"
        )

    return [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == namespace and is_of_it(pod["metadata"].get("labels") or {})
    ]


def chief_of(type_: str, pods: Sequence[Object]) -> Object | None:
    """Return the pod that `logs` and `attach` choose.

    `pkg/training/trainer_pytorch.go` and `trainer_mpi.go`, isChiefPod; `logs.go`, getInstanceName: a lone pod
    is always chosen.
    """

    def is_chief(labels: Mapping[str, str]) -> bool:
        if type_ == "mpijob":
            return labels.get("mpi_role_type") == "launcher"
        return "master" in (
            labels.get("pytorch-replica-type"),
            labels.get("training.kubeflow.org/replica-type"),
        )

    if len(pods) == 1:
        return pods[0]
    return next((pod for pod in pods if is_chief(pod["metadata"]["labels"])), None)


def requested_gpus(pods: Sequence[Object]) -> int:
    """Return the GPUs that it shows: `pkg/training/gpu.go`, an annotation before what is asked for."""
    for pod in pods:
        if said := (pod["metadata"].get("annotations") or {}).get("requestGPUsOfJobOwner"):
            return int(said)
    limits = [
        (container.get("resources") or {}).get("limits") or {}
        for pod in pods
        for container in pod["spec"]["containers"]
    ]
    return sum(int(each.get("nvidia.com/gpu", 0)) for each in limits)


def priority_of(job: Object, type_: str) -> str:
    """Return the class that it shows: GetPriorityClass of both trainers."""
    if type_ == "mpijob":
        return str(job["spec"]["template"]["spec"].get("priorityClassName", ""))
    roles = job["spec"]["pytorchReplicaSpecs"].values()
    return next(filter(None, (each["template"]["spec"].get("priorityClassName") for each in roles)), "")


def tensorboard_port(job: Object, services: Iterable[Object]) -> Object | None:
    """Return the port of its TensorBoard: `pkg/training/tensorboard.go`, `role=tensorboard,release=NAME`."""
    for service in services:
        labels = service["metadata"].get("labels") or {}
        if (labels.get("role"), labels.get("release")) == ("tensorboard", job["metadata"]["name"]):
            port: Object = service["spec"]["ports"][0]
            return port
    return None


def deleted_by(name: str, config_maps: Iterable[Object], user_id: str = "") -> tuple[str, list[str]]:
    """Return the type that `arena delete NAME` takes a job for, and what it gives `kubectl delete`.

    `pkg/training/get_advanced.go`, getTrainingTypes; `pkg/util/kubeclient/configmap.go`,
    CheckJobIsOwnedByUser; `pkg/workflow/workflow.go`, DeleteJob; `pkg/util/kubectl/kubectl.go`.

    Raises:
        LookupError: It says that there is no such job, that there are several, or that it is another's.
    """
    by_name = {each["metadata"]["name"]: each for each in config_maps}
    types = [each for each in TYPES if f"{name}-{each}" in by_name]
    if len(types) != 1:
        raise LookupError(f"{len(types)} jobs of the name {name}")
    record = by_name[f"{name}-{types[0]}"]
    if user_id and record["metadata"]["labels"].get(USER_LABEL) != user_id:
        raise LookupError("no privileges")
    return types[0], [*record["data"]["app"].split("\n"), f"configmap/{record['metadata']['name']}"]
