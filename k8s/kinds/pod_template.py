"""Pod templates of jobs, from a spec: command, variables, resources, volumes, placement."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from k8s.kinds.base import Manifest
from k8s.kinds.pod_code import add_code, own_environment
from k8s.kinds.pod_labels import ArenaChart, pod_metadata
from k8s.models.quantity import request_and_limit
from k8s.models.resources import Resource

if TYPE_CHECKING:
    from k8s.kinds.job_spec import EnvSource, JobSpec, PodToleration

# Debug mode. The command follows as unused arguments, to be copied from there. A shell that waits
# ends at once when the pod is deleted.
_ASLEEP = ("sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done")
_TORCHRUN = ("python", "-m", "torch.distributed.run")
# The words that follow are a program, not a Python script.
ANY_PROGRAM = "--no-python"
_SCRIPT = ("python", "-u")
_SHELLS = ("sh", "bash", "ash", "dash", "zsh", "ksh")
_SHELL_SYNTAX = re.compile(r"[$`|&;<>()*?\[{~#\n]")
_SECOND_COMMAND = re.compile(r"[|&;\n]")


def command_of(spec: JobSpec) -> list[str]:
    """Return the argv of the training container; a packaged trainer starts its processes itself."""
    words = list(spec.command)
    if spec.torchrun and not spec.trainer and words:
        words = [*_TORCHRUN, *spec.torchrun_options, ANY_PROGRAM, *_program(torchrun_program(spec))]
    return [*_ASLEEP, *words] if spec.debug else words


def is_script(command: tuple[str, ...]) -> bool:
    """Return True if a command begins with a Python script or `-m`, which torchrun starts itself."""
    return bool(command) and (command[0].endswith(".py") or command[0] == "-m")


def shell_argv(line: str, shell: str = "sh") -> tuple[str, ...]:
    """Return the argv for a shell line; a line that is itself `sh -c "…"` becomes that argv."""
    # Wrapped in another shell, its variables would be expanded too early.
    words = _split_line(line)
    if len(words) == 3 and _is_shell(words) and not re.search(r"\\[$`]", line):
        return words
    return (shell, "-c", line)


def torchrun_program(spec: JobSpec) -> tuple[str, ...]:
    """Return the program for torchrun; a quoted line that begins with a Python script is split."""
    command = spec.command
    if len(command) == 3 and _is_shell(command):
        line = command[2]
    elif len(command) == 1 and " " in command[0].strip():
        line = command[0]
    else:
        return command
    words = _split_line(line)
    if not is_script(words):
        return command
    if not _SHELL_SYNTAX.search(line):
        return words
    # Only a shell expands the variables and globs in its arguments. `exec` would drop a second command.
    start = "" if _SECOND_COMMAND.search(line) else "exec "
    return (*(command[:2] if len(command) == 3 else ("sh", "-c")), f"{start}{' '.join(_SCRIPT)} {line}")


def _split_line(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line))
    except ValueError:  # an open quote: the shell says so
        return ()


def _is_shell(words: tuple[str, ...]) -> bool:
    is_option = re.fullmatch(r"-[a-z]*c", words[1]) is not None
    return PurePosixPath(words[0]).name in _SHELLS and is_option


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    return (*_SCRIPT, *command) if is_script(command) else command


# Entries of a container's `env`.
Env = Sequence[Manifest]
# Built into torchrun; the other backends need a server.
DYNAMIC = "c10d"
_BACKEND, _ENDPOINT, _MAX_RESTARTS = "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_MAX_RESTARTS"


def environment(spec: JobSpec) -> dict[str, str]:
    """Return the variables of every pod: those that label each rank's output, then the user's.

    Source: torchrun's `--tee 3` and TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE.
    """
    ours = {
        "PYTHONUNBUFFERED": "1",
        "PET_TEE": "3",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: ",
    }
    # NVIDIA's container runtime shows all GPUs to containers that request none.
    if not spec.gpus and not spec.devices and not spec.device_claim:
        ours["NVIDIA_VISIBLE_DEVICES"] = "void"
    if spec.trainer:  # else a `trainer.py` in the working directory would be imported instead
        ours["PYTHONSAFEPATH"] = "1"
    return {**ours, **own_environment(spec)}


def variable(name: str, value: str) -> Manifest:
    """Return an entry of `env`."""
    return {"name": name, "value": value}


def variable_from_field(name: str, path: str) -> Manifest:
    """Return an entry of `env` that is filled from a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def env_entries(spec: JobSpec, extra: Env = ()) -> list[Manifest]:
    """Return the variables of a container; the user's replace those of the kind, `extra`."""
    plain = environment(spec)
    chosen = {*spec.env, *(each.name for each in spec.env_from)}
    return [
        *(variable(name, value) for name, value in plain.items()),
        *(each for each in extra if each["name"] not in chosen),
        *(_reference(each) for each in spec.env_from if each.name),
    ]


def env_sources(spec: JobSpec) -> list[Manifest]:
    """Return the Secrets and ConfigMaps of which a container gets every key."""
    return [
        {"secretRef" if each.is_secret else "configMapRef": {"name": each.source}}
        for each in spec.env_from
        if not each.name
    ]


def _reference(source: EnvSource) -> Manifest:
    key = "secretKeyRef" if source.is_secret else "configMapKeyRef"
    return {"name": source.name, "valueFrom": {key: {"name": source.source, "key": source.key}}}


def rendezvous_env(spec: JobSpec, endpoint: str) -> list[Manifest]:
    """Return the variables, which torchrun and packaged trainers read.

    `endpoint` is `host:port` for c10d; for etcd the user sets it.
    """
    found = []
    if spec.max_restarts:
        found.append(variable(_MAX_RESTARTS, str(spec.max_restarts)))
    if spec.rdzv_backend:
        found.append(variable(_BACKEND, spec.rdzv_backend))
    if spec.rdzv_backend == DYNAMIC and endpoint:
        found.append(variable(_ENDPOINT, endpoint))
    return found


# Resource of pods that are placed by the links between GPUs.
TOPOLOGY_RESOURCE = "aliyun.com/gpu"
_RDMA, _CLAIM = "rdma/", "devices"
_SHARED_MEMORY = "/dev/shm"
_HOSTNAME = "kubernetes.io/hostname"


def pod_template(
    spec: JobSpec,
    container_name: str,
    app: str,
    chart: ArenaChart | None = None,
    *,
    env: Env = (),
    job: JobSpec | None = None,
) -> Manifest:
    """Return the template of a pod that runs `spec`, with the kind's variables `env`.

    `app` and `chart` are those of `pod_metadata`. `job` is the full job if this pod runs only a part of it,
    such as a launcher.
    """
    pod_spec = placed_by_topology(spec) if spec.gpu_topology else spec
    container: Manifest = {"name": container_name, "image": spec.image}
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
    meta = pod_metadata(job or spec, app, chart)
    return {"metadata": meta, "spec": pod} if meta else {"spec": pod}


def job_object(resource: Resource, metadata: Manifest, body: Manifest) -> Manifest:
    """Return a job's object."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": body}


def placed_by_topology(spec: JobSpec) -> JobSpec:
    """Return the spec of pods with GPU topology: as in Arena, without a memory volume."""
    namespaces = with_network(spec)
    return replace(spec, gpu_resource=TOPOLOGY_RESOURCE, host_namespaces=namespaces, shared_memory="")


def with_network(spec: JobSpec) -> tuple[str, ...]:
    """Return the namespaces of the node that the pods use, its network among them."""
    return tuple(dict.fromkeys((*spec.host_namespaces, "network")))


def run_limits(spec: JobSpec) -> Manifest:
    """Return the fields, equal in most kinds, that limit a job's time or create it suspended."""
    found = {
        "activeDeadlineSeconds": spec.running_timeout_s,
        "ttlSecondsAfterFinished": spec.ttl_s,
        "suspend": spec.suspend,
    }
    return {name: value for name, value in found.items() if value}


def restarts(spec: JobSpec) -> str:
    """Return the restart policy of a role."""
    return spec.restart_policy or ("OnFailure" if spec.retries else "Never")


def _add_resources(pod: Manifest, container: Manifest, spec: JobSpec) -> None:
    devices = {spec.gpu_resource: str(spec.gpus)} if spec.gpus else {}
    devices |= spec.devices
    if any(name.startswith(_RDMA) for name in spec.devices):
        # Lets a process pin the memory that RDMA reads.
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    cpu, memory = request_and_limit(spec.cpu), request_and_limit(spec.memory)
    requests, limits = (devices | _given(cpu=cpu[part], memory=memory[part]) for part in (0, 1))
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
        "hostNetwork": "network" in spec.host_namespaces,
        "dnsPolicy": "ClusterFirstWithHostNet" if "network" in spec.host_namespaces else "",
        "hostIPC": "ipc" in spec.host_namespaces,
        "hostPID": "pid" in spec.host_namespaces,
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
