"""Pod templates of jobs, from a spec."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from k8s.kinds.base import Manifest
from k8s.kinds.pod_code import add_code
from k8s.kinds.pods.command import command_of
from k8s.kinds.pods.env import Env, env_entries, env_sources
from k8s.kinds.pods.labels import ArenaChart, pod_metadata
from k8s.models.resources import Resource

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec, PodToleration

# Resource of pods that are placed by the links between GPUs.
TOPOLOGY_RESOURCE = "aliyun.com/gpu"
_RDMA_DEVICE, _CLAIM = "rdma/hca", "devices"
_SHARED_MEMORY = "/dev/shm"
_HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """Properties that all pods of a kind have."""

    container: str
    app: str
    chart: ArenaChart | None = None
    """None for a kind that Arena does not have."""


def pod_template(spec: JobSpec, shape: PodShape, *, env: Env = (), job: JobSpec | None = None) -> Manifest:
    """Return the template of a pod that runs `spec`, with the kind's variables `env`.

    `job` is the full job if this pod runs only a part of it, such as a launcher.
    """
    pod_spec = placed_by_topology(spec) if spec.gpu_topology else spec
    container: Manifest = {"name": shape.container, "image": spec.image}
    if spec.pull_policy:
        container["imagePullPolicy"] = spec.pull_policy
    if command := command_of(spec):
        container["command"] = command
    if spec.working_dir:
        container["workingDir"] = spec.working_dir
    container["env"] = env_entries(pod_spec, env)
    if sources := env_sources(spec):
        container["envFrom"] = sources
    pod: Manifest = {"containers": [container]}
    _add_resources(pod, container, pod_spec)
    _add_volumes(pod, container, pod_spec)
    _add_placement(pod, pod_spec)
    add_code(pod, container, pod_spec)
    meta = pod_metadata(job or spec, shape.app, shape.chart)
    return {"metadata": meta, "spec": pod} if meta else {"spec": pod}


def job_object(resource: Resource, metadata: Manifest, body: Manifest) -> Manifest:
    """Return a job's object."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": body}


def placed_by_topology(spec: JobSpec) -> JobSpec:
    """Return the spec of pods with GPU topology: as in Arena, without a memory volume."""
    return replace(spec, gpu_resource=TOPOLOGY_RESOURCE, host_network=True, shared_memory="")


def restarts(spec: JobSpec) -> str:
    """Return the restart policy of a role."""
    return spec.restart_policy or ("OnFailure" if spec.retries else "Never")


def _add_resources(pod: Manifest, container: Manifest, spec: JobSpec) -> None:
    devices = {spec.gpu_resource: str(spec.gpus)} if spec.gpus else {}
    devices |= spec.devices
    if spec.rdma:
        devices[_RDMA_DEVICE] = "1"
        # Lets a process pin the memory that RDMA reads.
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    limits = devices | _given(cpu=spec.cpu, memory=spec.memory)
    requests = devices | _given(cpu=spec.cpu_request or spec.cpu, memory=spec.memory_request or spec.memory)
    resources: Manifest = {
        **({"limits": limits} if limits else {}),
        **({"requests": requests} if requests else {}),
    }
    if spec.device_claim:
        resources["claims"] = [{"name": _CLAIM}]
        pod["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": spec.device_claim}]
    if resources:
        container["resources"] = resources


def _given(**amounts: str) -> dict[str, str]:
    return {name: amount for name, amount in amounts.items() if amount}


def _add_volumes(pod: Manifest, container: Manifest, spec: JobSpec) -> None:
    # One volume per mount: a TrainJob's patches identify mounts by the volume's name.
    mounts: list[Manifest] = []
    volumes: list[Manifest] = []
    for index, mount in enumerate(spec.mounts):
        name = f"claim-{index}"
        mounts.append({"name": name, "mountPath": mount.path})
        if mount.sub_path:
            mounts[-1]["subPath"] = mount.sub_path
        if mount.is_read_only:
            mounts[-1]["readOnly"] = True
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": mount.claim}})
    for index, host in enumerate(spec.host_mounts):
        name = f"host-{index}"
        mounts.append({"name": name, "mountPath": host.path})
        volumes.append({"name": name, "hostPath": {"path": host.host_path}})
    if spec.shared_memory:
        mounts.append({"name": "dshm", "mountPath": _SHARED_MEMORY})
        volumes.append({"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": spec.shared_memory}})
    if mounts:
        container["volumeMounts"] = mounts
        pod["volumes"] = volumes


def _add_placement(pod: Manifest, spec: JobSpec) -> None:
    found: Manifest = {
        "priorityClassName": spec.priority_class,
        "schedulerName": spec.scheduler,
        "nodeSelector": dict(spec.node_selector),
        "affinity": _excluding_nodes(spec.excluded_nodes) if spec.excluded_nodes else None,
        "tolerations": [_toleration(each) for each in spec.tolerations],
        "hostNetwork": spec.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if spec.host_network else "",
        "hostIPC": spec.host_ipc,
        "hostPID": spec.host_pid,
        "securityContext": None if spec.run_as_user is None else {"runAsUser": spec.run_as_user},
        "imagePullSecrets": [{"name": name} for name in spec.pull_secrets],
    }
    pod.update({key: value for key, value in found.items() if value})


def _excluding_nodes(nodes: tuple[str, ...]) -> Manifest:
    term = {"matchExpressions": [{"key": _HOSTNAME, "operator": "NotIn", "values": list(nodes)}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {required: {"nodeSelectorTerms": [term]}}}


def _toleration(each: PodToleration) -> Manifest:
    found = {"key": each.key, "operator": each.operator, "value": each.value, "effect": each.effect}
    return {key: value for key, value in found.items() if value}
