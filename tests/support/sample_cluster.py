"""Sample clusters: a lab at work, with several users and jobs in every state, and few or very many nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.objects import Object, batch_job, node, pod_of, pytorch_job

MPI_JOBS = "/apis/kubeflow.org/v2beta1/mpijobs"  # path of the list of MPIJobs


def ago(**time: float) -> str:
    return (datetime.now(UTC) - timedelta(**time)).isoformat(timespec="seconds").replace("+00:00", "Z")


def lab() -> dict[str, Any]:
    """Return the lab's objects, as `console_on` takes them."""
    jobs = _Jobs()
    more = {MPI_JOBS: [jobs.vit]}
    pods = [_as_told(pod) for pod in _pods(jobs)]
    return {"nodes": _nodes(), "pods": pods, "jobs": jobs.pytorch, "batch": jobs.batch, "more": more}


def _machine(name: str, model: str, *, bad: int = 0, gpus: int = 8, **spec: Any) -> Object:
    found = node(name, gpus - bad, capacity=gpus, **spec)
    memory = "81920" if gpus else "0"
    found["metadata"]["labels"] = (
        {"nvidia.com/gpu.product": model, "nvidia.com/gpu.memory": memory} if gpus else {}
    )
    found["metadata"]["creationTimestamp"] = ago(days=90)
    found["status"]["addresses"] = [{"type": "InternalIP", "address": f"10.0.4.{name.rpartition('-')[2]}"}]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": ago(days=12)}
    found["status"]["conditions"] = [ready]
    return found


def _nodes() -> list[Object]:
    a100 = "NVIDIA-A100-SXM4-80GB"
    only = {"key": "nvidia.com/gpu", "value": "only", "effect": "NoSchedule"}
    nodes = [_machine(f"a100-{number}", a100, taints=[only]) for number in range(1, 8)]
    nodes.append(_machine("a100-8", a100, bad=1, taints=[only]))
    nodes.append(_machine("a100-9", a100, unschedulable=True))
    lost = _machine("h100-1", "NVIDIA-H100-80GB-HBM3")
    lost["status"]["conditions"] = [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": ago(minutes=12),
        }
    ]
    login = _machine("login-1", "", gpus=0)
    login["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": ""}
    return [*nodes, lost, login]


def _job(name: str, workers: int, gpus: int, user: str, made: str, **status: Any) -> Object:
    job = pytorch_job(name, workers, gpus, creationTimestamp=made, labels={"app": name})
    job["metadata"]["annotations"] = {"gpuconsole.dev/user": user}
    if status:
        job["status"] = status
    return job


def _over(
    name: str, gpus: int, user: str, began: str, ended: str, kind: str = "Succeeded", message: str = ""
) -> Object:
    condition = {"type": kind, "status": "True", "lastTransitionTime": ended, "message": message}
    return _job(name, 1, gpus, user, began, startTime=began, completionTime=ended, conditions=[condition])


def _role(replicas: int, container: str, gpus: int = 0) -> Object:
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    return {"replicas": replicas, "template": {"spec": {"containers": [{"name": container, **limits}]}}}


class _Jobs:
    """The lab's jobs, with ages that are right at the moment of their creation."""

    def __init__(self) -> None:
        self.bert = _job("bert-large-ft", 4, 4, "li", ago(hours=2, minutes=15))
        self.llm = _job("llm-70b-eval", 8, 4, "li", ago(minutes=9))
        self.sweep = _job("sweep-lr-3e4", 1, 4, "chen", ago(minutes=32))
        self.segment = _job("segment-anything-distill-worker-bench", 2, 8, "maria", ago(hours=26))
        self.lost = _job("whisper-v3-large", 1, 8, "chen", ago(hours=5))
        why = "PyTorchJob rl-ppo-atari is failed because 1 Master replica(s) failed."
        self.pytorch = [
            *(self.bert, self.llm, self.sweep, self.segment, self.lost),
            _over("rl-ppo-atari", 2, "maria", ago(hours=3), ago(hours=1), "Failed", why),
            _over("resnet50-baseline", 8, "li", ago(days=2), ago(days=1, hours=18)),
            *(_over(f"ablation-{at}", 1, "li", ago(days=20 + at), ago(days=19 + at)) for at in range(1, 4)),
        ]
        self.batch = [batch_job("night-eval", 2, 2, suspend=True)]
        self.batch[0]["metadata"]["creationTimestamp"] = ago(hours=7)
        self.vit: Object = {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {
                "name": "vit-h-pretrain",
                "namespace": "default",
                "uid": "job-vit-h-pretrain",
                "resourceVersion": "1",
                "creationTimestamp": ago(hours=11, minutes=6),
                "annotations": {"gpuconsole.dev/user": "maria"},
            },
            "spec": {
                "slotsPerWorker": 8,
                "mpiReplicaSpecs": {"Launcher": _role(1, "launcher"), "Worker": _role(2, "w", 8)},
            },
            "status": {"startTime": ago(hours=11, minutes=4)},
        }


def _mpi_pod(job: Object, role: str, index: int, on: str, gpus: int) -> Object:
    place = f"{role}-{index}" if role == "worker" else role
    pod = pod_of(job, place, on=on, gpus=gpus, startTime=ago(hours=11, minutes=4))
    pod["metadata"]["labels"] = {
        "training.kubeflow.org/job-name": "vit-h-pretrain",
        "training.kubeflow.org/job-role": role,
        "training.kubeflow.org/operator-name": "mpi-operator",
        **({"training.kubeflow.org/replica-index": str(index)} if role == "worker" else {}),
    }
    if not gpus:
        pod["spec"]["containers"][0]["resources"] = {}
    return pod


def _pods(jobs: _Jobs) -> list[Object]:
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/11 nodes are available: 1 node(s) were unschedulable, 10 Insufficient nvidia.com/gpu.",
    }
    crash = {
        "name": "pytorch",
        "restartCount": 2,
        "state": {
            "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s restarting failed container"}
        },
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": ago(minutes=1)}},
    }
    since = ago(hours=2, minutes=13)
    places = [("master-0", "a100-1"), ("worker-0", "a100-1"), ("worker-1", "a100-2"), ("worker-2", "a100-2")]
    return [
        *(pod_of(jobs.bert, place, on=on, gpus=4, startTime=since) for place, on in places),
        _mpi_pod(jobs.vit, "launcher", 0, "login-1", 0),
        _mpi_pod(jobs.vit, "worker", 0, "a100-3", 8),
        _mpi_pod(jobs.vit, "worker", 1, "a100-7", 8),
        pod_of(
            jobs.sweep, "master-0", on="a100-4", gpus=4, startTime=ago(minutes=31), containerStatuses=[crash]
        ),
        pod_of(jobs.segment, "master-0", on="a100-5", gpus=8, startTime=ago(hours=26)),
        pod_of(jobs.segment, "worker-0", on="a100-6", gpus=8, startTime=ago(hours=26)),
        pod_of(jobs.lost, "master-0", on="h100-1", gpus=8, startTime=ago(hours=5)),
        *(
            pod_of(jobs.llm, place, phase="Pending", gpus=4, conditions=[unschedulable])
            for place in ("master-0", *(f"worker-{index}" for index in range(7)))
        ),
        *(_notebook(user, gpus, on) for user, gpus, on in (("li", 1, "a100-4"), ("chen", 2, "a100-8"))),
    ]


def _as_told(pod: Object) -> Object:
    """Add what a kubelet tells of every pod: since when it is there, and that its container runs."""
    since = pod["status"].get("startTime")
    runs = {"name": "pytorch", "restartCount": 0, "state": {"running": {"startedAt": since}}}
    if since:
        pod["metadata"].setdefault("creationTimestamp", since)
        pod["status"].setdefault("containerStatuses", [runs])
    return pod


def _notebook(user: str, gpus: int, on: str) -> Object:
    return {
        "metadata": {
            "name": f"notebook-{user}",
            "namespace": "default",
            "uid": f"notebook-{user}",
            "resourceVersion": "1",
            "creationTimestamp": ago(days=4),
        },
        "spec": {
            "nodeName": on,
            "containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        },
        "status": {"phase": "Running", "startTime": ago(days=4)},
    }


_MODELS = {
    "a100": "NVIDIA-A100-SXM4-80GB",
    "h100": "NVIDIA-H100-80GB-HBM3",
    "l40s": "NVIDIA-L40S",
    "v100": "Tesla-V100-SXM2-32GB",
}


def cluster_of(nodes: int, *, has_jobs: bool = True) -> dict[str, Any]:
    """Return the objects of a cluster with so many nodes that have GPUs, as `console_on` takes them."""
    if nodes < 3:
        return _small(nodes, has_jobs=has_jobs)
    found = lab()
    some = [_gpu_node(number) for number in range(1, nodes - 9)]
    found["nodes"] += some
    # Of each eight nodes there is a job on four; those that take no pods have none.
    for first in range(0, len(some) - 7, 8):
        job = pytorch_job(f"train-{first // 8 + 1:03}", 4, 8, creationTimestamp=ago(days=1))
        job["metadata"]["annotations"] = {"gpuconsole.dev/user": ("li", "chen", "maria")[first % 3]}
        found["jobs"].append(job)
        for place, on in zip(("master-0", "worker-0", "worker-1", "worker-2"), some[first:], strict=False):
            found["pods"].append(_waiting_or_running(job, place, on["metadata"]["name"], 8))
    return found


def _small(nodes: int, *, has_jobs: bool) -> dict[str, Any]:
    names = [f"gpu-{number + 1}" for number in range(nodes)]
    bert = pytorch_job("bert-large-ft", 2, 4, creationTimestamp=ago(hours=2, minutes=15))
    waits = pytorch_job("llm-70b-eval", 1, 4, creationTimestamp=ago(minutes=9))
    jobs = [each for each in (bert, waits) if has_jobs]
    pods = []
    if has_jobs:
        on = names[0] if names else ""
        pods = [_waiting_or_running(bert, place, on, 4) for place in ("master-0", "worker-0")]
        pods.append(_waiting_or_running(waits, "master-0", "", 4))
    return {"nodes": [node(name, 8) for name in names], "pods": pods, "jobs": jobs}


def _waiting_or_running(job: Object, place: str, on: str, gpus: int) -> Object:
    """Return a pod that runs on a node, or that waits where none is named."""
    if not on:
        return pod_of(job, place, phase="Pending", gpus=gpus, conditions=[_WAITS])
    since = ago(hours=2, minutes=13)
    runs = {"name": "pytorch", "restartCount": 0, "state": {"running": {"startedAt": since}}}
    pod = pod_of(job, place, on=on, gpus=gpus, startTime=since, containerStatuses=[runs])
    pod["metadata"]["creationTimestamp"] = since
    return pod


_WAITS = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no nodes available to schedule pods",
}


def _gpu_node(number: int) -> Object:
    short = ("a100", "a100", "h100", "a100", "h100", "l40s", "a100", "h100", "a100", "v100")[number % 10]
    bad = int(number % 53 == 0)
    found = node(
        f"{short}-{number + 20}", 8 - bad, capacity=8, **({"unschedulable": True} if number % 31 == 5 else {})
    )
    found["metadata"]["labels"] = {"nvidia.com/gpu.product": _MODELS[short]}
    if number % 41 == 7:
        found["status"]["conditions"] = [
            {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        ]
    return found
