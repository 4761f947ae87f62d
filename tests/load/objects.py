"""Jobs, pods and nodes of a simulated cluster, as JSON of realistic size: `tests/fixtures/load` filled in."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from string import Template
from typing import Any

import msgspec

from tests import FIXTURES

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8
_NOW = datetime.now(UTC)
# Jobs that ended long ago are hidden, so times are relative.
CREATED, STARTED, CHANGED = (
    f"{_NOW - timedelta(days=3, seconds=-later_s):%Y-%m-%dT%H:%M:%SZ}" for later_s in (0, 27, 86_400)
)
_CONTAINER = {"PyTorchJob": "pytorch", "MPIJob": "mpi", "Job": "main"}


def _read(name: str) -> str:
    content = json.loads((FIXTURES / "load" / f"{name}.json").read_text())
    return json.dumps(content, separators=(",", ":")).replace('"$cordoned"', "$cordoned")


_NODE, _POD_SPEC, _POD_TEMPLATE = (Template(_read(name)) for name in ("node", "pod-spec", "pod-template"))
_MOUNTS = json.loads(_POD_TEMPLATE.template)["spec"]["containers"][0]["volumeMounts"]
_MANAGED_FIELDS = msgspec.Raw(_read("managed-fields").encode())


class JobState(msgspec.Struct, eq=False):
    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    gpus: int  # GPUs of each of its pods
    outcome: str = ""  # `Succeeded` or `Failed` when it is over
    pods: list[PodState] = msgspec.field(default_factory=list)
    version: int = 1


class PodState(msgspec.Struct, eq=False):
    job: JobState
    name: str
    uid: str
    role: str
    index: int
    gpus: int
    node: str = ""
    phase: str = "Pending"
    restarts: int = 0
    is_ready: bool = False
    is_crashing: bool = False  # its container waits to be started again
    is_deleted: bool = False
    version: int = 1
    spec: bytes = b""  # its spec as JSON, made once for each node that it is on

    @property
    def holds(self) -> int:
        """GPUs of its node that no other pod can use."""
        return self.gpus if self.node and self.phase not in ("Succeeded", "Failed") else 0


def pod_json(pod: PodState) -> bytes:
    pod.spec = pod.spec or _pod_spec(pod)
    parts = {"metadata": _pod_metadata(pod), "spec": msgspec.Raw(pod.spec), "status": _pod_status(pod)}
    return msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", **parts})


def _pod_spec(pod: PodState) -> bytes:
    size, short = len(pod.job.pods), pod.uid[:5]
    return _filled(_POD_SPEC, pod.job, pod.gpus, pods=size, index=pod.index, short=short, node=pod.node)


def _pod_template(job: JobState, gpus: int) -> msgspec.Raw:
    return msgspec.Raw(_filled(_POD_TEMPLATE, job, gpus))


def _filled(template: Template, job: JobState, gpus: int, **more: object) -> bytes:
    """Fill in a template; a launcher has no GPUs, and a pending pod no node."""
    container, restart = _CONTAINER[job.kind], "Never" if job.kind == "Job" else "OnFailure"
    names = {"name": job.name, "namespace": job.namespace, "container": container, "restart": restart}
    text = template.substitute(names, gpus=gpus, **more)
    return text.replace(f',"{GPU}":"0"', "").replace('"nodeName":"",', "").encode()


def _pod_metadata(pod: PodState) -> Object:
    job = pod.job
    owner = {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid}
    found: Object = {
        "name": pod.name,
        "generateName": f"{job.name}-",
        "namespace": job.namespace,
        "uid": pod.uid,
        "resourceVersion": str(pod.version),
        "creationTimestamp": CREATED,
        "labels": {"app.kubernetes.io/part-of": "training", "team": job.namespace, **_labels(pod)},
        "annotations": {
            "cni.projectcalico.org/containerID": pod.uid.replace("-", ""),
            "sidecar.istio.io/inject": "false",
            "scheduling.k8s.io/group-name": job.name,
        },
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        "finalizers": [],
        "managedFields": _MANAGED_FIELDS,
    }
    if pod.is_deleted:
        found |= {"deletionTimestamp": CHANGED, "deletionGracePeriodSeconds": 30}
    return found


def _labels(pod: PodState) -> dict[str, str]:
    job = pod.job
    if job.kind == "Job":
        return {
            "batch.kubernetes.io/job-name": job.name,
            "job-name": job.name,
            "batch.kubernetes.io/controller-uid": job.uid,
            "batch.kubernetes.io/job-completion-index": str(pod.index),
        }
    found = {
        "training.kubeflow.org/job-name": job.name,
        "training.kubeflow.org/operator-name": f"{job.kind.lower()}-controller",
        "training.kubeflow.org/replica-type": pod.role,
        "training.kubeflow.org/replica-index": str(pod.index),
    }
    return found | ({"training.kubeflow.org/job-role": "master"} if pod.role == "master" else {})


def _pod_status(pod: PodState) -> Object:
    if not pod.node:
        message = f"0/1000 nodes are available: 1000 Insufficient {GPU}. preemption: 0/1000 nodes."
        return {
            "phase": "Pending",
            "conditions": [_condition("PodScheduled", "False", "Unschedulable", message)],
            "qosClass": "Guaranteed",
        }
    ready = "True" if pod.is_ready else "False"
    address = f"10.{int(pod.uid[:2], 16)}.{int(pod.uid[2:4], 16)}.{int(pod.uid[4:6], 16)}"
    return {
        "phase": pod.phase,
        "conditions": [
            _condition("PodReadyToStartContainers", "True"),
            _condition("Initialized", "True"),
            _condition("Ready", ready, "" if pod.is_ready else "ContainersNotReady"),
            _condition("ContainersReady", ready, "" if pod.is_ready else "ContainersNotReady"),
            _condition("PodScheduled", "True"),
        ],
        "hostIP": "10.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": STARTED,
        "containerStatuses": [_container_status(pod)],
        "qosClass": "Guaranteed",
    }


def _condition(name: str, status: str, reason: str = "", message: str = "") -> Object:
    found: Object = {"type": name, "status": status, "lastProbeTime": None, "lastTransitionTime": CHANGED}
    return found | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})


def _container_status(pod: PodState) -> Object:
    container = f"containerd://{pod.uid.replace('-', '') * 2}"
    died = {"exitCode": 1, "reason": "Error", "startedAt": STARTED, "finishedAt": CHANGED}
    died |= {"containerID": container}
    ended = {"exitCode": 0, "reason": "Completed"} if pod.phase == "Succeeded" else {}
    state: Object = {"running": {"startedAt": STARTED}}
    if pod.phase in ("Succeeded", "Failed"):
        state = {"terminated": died | ended}
    elif pod.is_crashing:
        waits = "back-off 5m0s restarting failed container"
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": waits}}
    return {
        "name": _CONTAINER[pod.job.kind],
        "state": state,
        "lastState": {"terminated": died} if pod.restarts else {},
        "ready": pod.is_ready,
        "started": pod.is_ready,
        "restartCount": pod.restarts,
        "image": f"registry.example.com/{pod.job.namespace}/train:2026.11.2-cu128",
        "imageID": f"registry.example.com/{pod.job.namespace}/train@sha256:{container[-64:]}",
        "containerID": container,
        "volumeMounts": _MOUNTS,
    }


def node_json(name: str, number: int) -> bytes:
    """Return a node as its API server would send it: one in a hundred is cordoned or has lost a GPU."""
    return _NODE.substitute(
        name=name,
        uid=f"{number:08x}-0000-4000-8000-000000000000",
        machine=f"{number:032x}",
        zone=f"zone-{number % 3}",
        cidr=f"10.{number % 250}.0.0/24",
        address=f"10.0.{number // 250}.{number % 250 + 1}",
        healthy=healthy_gpus(number),
        cordoned="true" if number % 100 == 42 else "false",
    ).encode()


def healthy_gpus(number: int) -> int:
    return GPUS_PER_NODE - (number % 100 == 17)


def job_json(job: JobState) -> bytes:
    roles = {role: [pod for pod in job.pods if pod.role == role] for role in _roles(job)}
    return msgspec.json.encode(
        {
            "kind": job.kind,
            "apiVersion": job.api_version,
            "metadata": {
                "name": job.name,
                "namespace": job.namespace,
                "uid": job.uid,
                "resourceVersion": str(job.version),
                "generation": 1,
                "creationTimestamp": CREATED,
                "labels": {"team": job.namespace},
                "annotations": {"arena.kubeflow.org/username": job.namespace},
            },
            "spec": _job_spec(job, {role: len(pods) for role, pods in roles.items()}),
            "status": _job_status(job),
        }
    )


def _roles(job: JobState) -> list[str]:
    return list(dict.fromkeys(pod.role for pod in job.pods))


def _job_spec(job: JobState, counts: dict[str, int]) -> Object:
    if job.kind == "Job":
        counts = dict.fromkeys(("completions", "parallelism"), len(job.pods))
        how = {"completionMode": "Indexed", "backoffLimit": 6, "suspend": False}
        return {**counts, **how, "template": _pod_template(job, job.gpus)}
    replicas = {
        role.capitalize(): {
            "replicas": count,
            "restartPolicy": "OnFailure",
            "template": _pod_template(job, 0 if role == "launcher" else job.gpus),
        }
        for role, count in counts.items()
    }
    policy = {"cleanPodPolicy": "None", "backoffLimit": 3, "suspend": False}
    if job.kind == "MPIJob":
        return {"slotsPerWorker": job.gpus, "runPolicy": policy, "mpiReplicaSpecs": replicas}
    return {"nprocPerNode": str(job.gpus), "runPolicy": policy, "pytorchReplicaSpecs": replicas}


def _job_status(job: JobState) -> Object:
    over = {"Succeeded": "Complete", "Failed": "Failed"} if job.kind == "Job" else {}
    names = [] if job.kind == "Job" else ["Created", "Running"]
    if job.outcome:
        names.append(over.get(job.outcome, job.outcome))
    conditions = [
        {
            "type": name,
            "status": "False" if name == "Running" and job.outcome else "True",
            "reason": f"{job.kind}{name}",
            "message": f"{job.kind} {job.name} is {name.lower()}.",
            **dict.fromkeys(("lastUpdateTime", "lastTransitionTime"), STARTED),
        }
        for name in names
    ]
    ended = {"completionTime": CHANGED} if job.outcome == "Succeeded" else {}
    return {"conditions": conditions, "startTime": STARTED, **ended}
