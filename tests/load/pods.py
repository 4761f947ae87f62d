"""States of jobs and pods of a simulated cluster, and pods as JSON of realistic size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
CREATED, STARTED, CHANGED = "2026-11-02T08:15:04Z", "2026-11-02T08:15:31Z", "2026-11-20T17:02:11Z"
_CONTAINER = {"PyTorchJob": "pytorch", "MPIJob": "mpi", "Job": "main"}
_ENV = {
    "NCCL_DEBUG": "WARN",
    "NCCL_IB_HCA": "mlx5_0,mlx5_1,mlx5_2,mlx5_3",
    "NCCL_SOCKET_IFNAME": "eth0",
    "OMP_NUM_THREADS": "12",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "HF_HOME": "/mnt/dataset/huggingface",
    "WANDB_MODE": "offline",
}
_MOUNTS: list[Object] = [
    {"name": "dataset", "mountPath": "/mnt/dataset", "readOnly": True},
    {"name": "output", "mountPath": "/mnt/output"},
    {"name": "dshm", "mountPath": "/dev/shm"},
]


@dataclass(slots=True, eq=False)
class JobState:
    """A job, and where its pods are to be found."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    gpus: int  # GPUs of each of its pods
    outcome: str = ""  # `Succeeded` or `Failed` when it is over
    pods: list[PodState] = field(default_factory=list)
    version: int = 1


@dataclass(slots=True, eq=False)
class PodState:
    """State of a pod."""

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
    """Return a pod as its API server would send it."""
    if not pod.spec:
        pod.spec = msgspec.json.encode(_pod_spec(pod))
    parts = {"metadata": pod_metadata(pod), "spec": msgspec.Raw(pod.spec), "status": pod_status(pod)}
    return msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", **parts})


def pod_metadata(pod: PodState) -> Object:
    """Return the metadata, managedFields among it."""
    job = pod.job
    labels = {"app.kubernetes.io/part-of": "training", "team": job.namespace, **_labels(pod)}
    owner = {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid}
    found: Object = {
        "name": pod.name,
        "generateName": f"{job.name}-",
        "namespace": job.namespace,
        "uid": pod.uid,
        "resourceVersion": str(pod.version),
        "creationTimestamp": CREATED,
        "labels": labels,
        "annotations": {
            "cni.projectcalico.org/containerID": pod.uid.replace("-", ""),
            "sidecar.istio.io/inject": "false",
            "scheduling.k8s.io/group-name": job.name,
        },
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        "finalizers": [],
        "managedFields": _managed_fields(job.kind, tuple(labels)),
    }
    if pod.is_deleted:
        found |= {"deletionTimestamp": CHANGED, "deletionGracePeriodSeconds": 30}
    return found


def _labels(pod: PodState) -> Mapping[str, str]:
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


@lru_cache(maxsize=64)
def _managed_fields(kind: str, labels: tuple[str, ...]) -> msgspec.Raw:
    """Return the managers of all fields, the same for all pods of a kind."""
    variables = ("MASTER_ADDR", "MASTER_PORT", "NCCL_DEBUG", "PET_NNODES", "RANK", "WORLD_SIZE")
    env = {".": {}, **{f'k:{{"name":"{name}"}}': {".": {}, **_fields("name value")} for name in variables}}
    container = _fields("args command image imagePullPolicy name ports resources") | {"f:env": env}
    volume = {".": {}, **_fields("name persistentVolumeClaim")}
    made = {
        "f:metadata": {
            "f:labels": {".": {}, **_fields(" ".join(labels))},
            "f:ownerReferences": {".": {}, 'k:{"uid":"owner"}': {}},
        },
        "f:spec": {
            **_fields(
                "dnsPolicy enableServiceLinks restartPolicy schedulerName terminationGracePeriodSeconds"
            ),
            "f:containers": {f'k:{{"name":"{_CONTAINER[kind]}"}}': {".": {}, **container}},
            "f:volumes": {".": {}, 'k:{"name":"dataset"}': volume},
        },
    }
    condition = {".": {}, **_fields("lastProbeTime lastTransitionTime status type")}
    names = ("ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready")
    conditions = {f'k:{{"type":"{name}"}}': condition for name in names}
    others = _fields("containerStatuses hostIP phase podIP podIPs startTime")
    kept = {"f:status": {"f:conditions": conditions, **others}}
    return msgspec.Raw(
        msgspec.json.encode([_managed("training-operator", made, ""), _managed("kubelet", kept, "status")])
    )


def _fields(names: str) -> Object:
    return {f"f:{name}": {} for name in names.split()}


def _managed(manager: str, fields: Object, subresource: str) -> Object:
    found: Object = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": CREATED}
    found |= {"fieldsType": "FieldsV1", "fieldsV1": fields}
    return found | ({"subresource": subresource} if subresource else {})


def pod_template(job: JobState, gpus: int) -> Object:
    """Return the pod template in a job's spec; `gpus` may be none, as for a launcher."""
    quantities = {"cpu": "12", "memory": "96Gi", "rdma/hca": "1", **({GPU: str(gpus)} if gpus else {})}
    command = (
        f"python -m torch.distributed.run train.py --config configs/{job.name}.yaml"
        " --data /mnt/dataset --output /mnt/output --precision bf16 --compile"
    )
    container = {
        "name": _CONTAINER[job.kind],
        "image": f"registry.example.com/{job.namespace}/train:2026.11.2-cu128",
        "command": ["bash", "-c", command],
        "env": [{"name": name, "value": value} for name, value in _ENV.items()],
        "resources": {"limits": quantities, "requests": quantities},
        "volumeMounts": [*_MOUNTS],
    }
    return {
        "metadata": {"labels": {"team": job.namespace}, "annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {
            "containers": [container],
            "volumes": [
                {"name": "dataset", "persistentVolumeClaim": {"claimName": "dataset", "readOnly": True}},
                {"name": "output", "persistentVolumeClaim": {"claimName": f"{job.namespace}-output"}},
                {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
            ],
            "restartPolicy": "Never" if job.kind == "Job" else "OnFailure",
        },
    }


EVICTED = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


def _pod_spec(pod: PodState) -> Object:
    job = pod.job
    spec: Object = pod_template(job, pod.gpus)["spec"]
    container = spec["containers"][0]
    size = str(len(job.pods))
    env = {"PYTHONUNBUFFERED": "1", "MASTER_ADDR": f"{job.name}-master-0", "MASTER_PORT": "23456"}
    env |= {"WORLD_SIZE": size, "RANK": str(pod.index), "PET_NNODES": size}
    address = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    container["env"] += [{"name": name, "value": value} for name, value in env.items()]
    container["env"].append({"name": "POD_IP", "valueFrom": address})
    container |= {
        "ports": [{"name": "pytorchjob-port", "containerPort": 23456, "protocol": "TCP"}],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    token = f"kube-api-access-{pod.uid[:5]}"
    container["volumeMounts"].append(
        {"name": token, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    )
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    spec["volumes"].append({"name": token, "projected": {"sources": sources, "defaultMode": 420}})
    return {
        **spec,
        **({"nodeName": pod.node} if pod.node else {}),
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "nodeSelector": {"gpu-pool": "a100"},
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "schedulerName": "volcano",
        "securityContext": {"fsGroup": 1000},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "subdomain": job.name,
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"key": GPU, "operator": "Exists", "effect": "NoSchedule"},
            *({"key": f"node.kubernetes.io/{key}", **EVICTED} for key in ("not-ready", "unreachable")),
        ],
    }


def pod_status(pod: PodState) -> Object:
    """Return the status, as scheduler and kubelet write it."""
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
