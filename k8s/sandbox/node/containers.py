"""Translation of a container's manifest into a process: command, environment, working folder. No I/O.

There is no image and no mount namespace, so mount paths in arguments, variables and the working folder are
replaced by the folder that stands for the volume.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k8s.client.auth.proxies import with_direct_loopback
from k8s.gpus.nvml import visible_gpus
from k8s.models import quantity
from k8s.sandbox.controller_runtime import PROCESSES
from k8s.sandbox.node.programs import PROGRAMS, image_of
from k8s.sandbox.node.torch_loopback import RENDEZVOUS_HOST, SIMULATED_GPUS
from k8s.sandbox.paths import HOSTS, JOB_PORT, PLAIN_PATH, POD_UID, SANDBOX, TERMINATION_LOG, Launch, rewrite

Manifest = Mapping[str, Any]

# Variables taken over from the sandbox's own environment; none of them can be a secret.
KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME")
LOOPBACK = "127.0.0.1"
# Variables by which gloo, NCCL, RPC, Open MPI, MPICH and torchrun choose where to listen.
ON_LOOPBACK: Mapping[str, str] = {
    **dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), "lo"),
    "OMPI_MCA_btl": "^tcp",
    "HYDRA_IFACE": "lo",
    "FI_TCP_IFACE": "lo",
    "PET_LOCAL_ADDR": LOOPBACK,
}
_ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR")
_PORTS = ("MASTER_PORT", "PET_MASTER_PORT")
_ENDPOINT = "PET_RDZV_ENDPOINT"
_PROCESSES_VARIABLE = "PET_NPROC_PER_NODE"
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][\w.-]*)\))")
_FIELD_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class CannotStart(Exception):
    """Container that cannot run as written; the message is for its owner."""


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """Host paths, devices and limits of the containers of one pod."""

    scratch: Path
    bin: Path
    gpus: tuple[int, ...]
    is_simulated: bool
    names: Collection[str]
    """Pods and services of the same job; all of them resolve to this machine."""
    port: int
    """The job's own MASTER_PORT; 0 keeps the manifest's."""
    cores: int
    python_path: Path
    hosts: Path = Path("/nonexistent")
    """Folder with a link to the container folder of each running pod of the namespace, by pod name."""
    volumes: Mapping[str, Path | None] = field(default_factory=dict)
    """Folder of each volume; None for one whose mount path is used as it is."""
    texts: Mapping[tuple[str, str], Mapping[str, bytes]] = field(default_factory=dict)
    """By (`configMap` or `secret`, name): the files of that object."""


def launch_of(pod: Manifest, container: Manifest, context: ContainerContext) -> Launch:
    """Return the process of a container.

    Raises:
        CannotStart: The container cannot run here, for a reason its owner can change.
    """
    message_file = str(termination_log(container, context))
    path = str(container.get("terminationMessagePath") or "/dev/termination-log")
    mounts = (*mounts_of(container, context.volumes), (path, message_file))
    declared = _declared(pod, container, context)
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        if (image := image_of(container)) is None:
            raise CannotStart("The sandbox has no images, so a container must say its command.")
        entrypoint, env = image
        command = [entrypoint, *command]
        declared = {**env, **declared}
    folder = _folder(container, mounts, context)
    if folder != str(context.scratch):
        # Nothing leads there from the volume's folder, which pods with other code may share.
        here = str(container.get("workingDir")).rstrip("/") + "/"
        mounts += tuple((each.removeprefix(here), real) for each, real in mounts if each.startswith(here))
    argv = [rewrite(expand(str(word), declared), mounts) for word in command]
    argv[:1] = PROGRAMS.get(os.path.basename(argv[0]), (argv[0],))
    own = {name: rewrite(value, mounts) for name, value in declared.items()} | {TERMINATION_LOG: message_file}
    return Launch(tuple(argv), environment(own, pod, container, context), folder, mounts)


def termination_log(container: Manifest, context: ContainerContext) -> Path:
    """Return the file that stands for the container's termination message path."""
    return context.scratch.parent / "termination" / str(container["name"])


def links_of(container: Manifest, launch: Launch, context: ContainerContext) -> dict[Path, str]:
    """Return the links from the pod's scratch folder to mounts below the working folder.

    Needed where the scratch folder stands for a working folder of the image.
    """
    home = str(container.get("workingDir") or "").rstrip("/") + "/"
    if launch.cwd != str(context.scratch) or home == "/":
        return {}
    return {
        context.scratch / path.removeprefix(home): real
        for path, real in launch.mounts
        if path.startswith(home)
    }


def mounts_of(container: Manifest, volumes: Mapping[str, Path | None]) -> tuple[tuple[str, str], ...]:
    """Return pairs of mount path and host path, longest first, without /dev/shm and hostPath mounts.

    Raises:
        CannotStart: The host path would need quotes in a shell's command, where it replaces the mount path.
    """
    found = []
    for mount in container.get("volumeMounts") or ():
        path = str(mount.get("mountPath", "")).rstrip("/")
        root = volumes[mount["name"]]
        if root is None or path in ("", "/dev/shm"):
            continue
        below = os.path.normpath("/" + str(mount.get("subPath") or "")).lstrip("/")
        if not PLAIN_PATH.fullmatch(below):
            raise CannotStart(f"The sandbox cannot mount subPath {below}: a shell would need quotes for it.")
        found.append((path, str(root / below)))
    return tuple(sorted(found, key=lambda pair: -len(pair[0])))


def memory_limit(container: Manifest) -> int:
    """Return a container's memory limit in bytes; 0 for none."""
    return int(quantity.parse(((container.get("resources") or {}).get("limits") or {}).get("memory", 0)))


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by a variable; unknown names stay, and `$$` becomes `$`.

    Source: Kubernetes, "Define dependent environment variables".
    """

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else env.get(match[2], match[0])

    return _REFERENCE.sub(value, text)


def environment(
    own: Mapping[str, str], pod: Manifest, container: Manifest, context: ContainerContext
) -> dict[str, str]:
    """Return the environment of a container's process."""
    home = str(context.scratch)
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    env |= {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": f"{home}/tmp"}
    threads = str(_threads(own, pod, container, context))
    env |= {"HOSTNAME": str(pod["metadata"]["name"]), "OMP_NUM_THREADS": threads, **ON_LOOPBACK}
    env = with_direct_loopback({**env, **own})
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (env.get("PYTHONPATH"), str(context.python_path))))
    env |= {POD_UID: str(pod["metadata"]["uid"]), SANDBOX: str(context.bin.parent)}
    env |= {HOSTS: str(context.hosts), JOB_PORT: str(context.port or "")}
    env["PATH"] = f"{context.bin}{os.pathsep}{env['PATH']}"
    indices = ",".join(str(index) for index in context.gpus)
    if context.is_simulated:
        env["CUDA_VISIBLE_DEVICES"] = ""
        env |= {SIMULATED_GPUS: indices} if indices else {}
        return env
    visible = visible_gpus()
    names = indices if visible is None else ",".join(visible[index] for index in context.gpus)
    # CUDA's own order, the fastest first, is not that of NVML.
    env |= {"CUDA_VISIBLE_DEVICES": names, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return env


def _threads(own: Mapping[str, str], pod: Manifest, container: Manifest, context: ContainerContext) -> int:
    # No cgroup limits a process here: libraries would start a thread for every core of the machine.
    limits = [(each.get("resources") or {}).get("limits") or {} for each in (container, pod["spec"])]
    limit = next((each["cpu"] for each in limits if "cpu" in each), context.cores)
    noted = (pod["metadata"].get("annotations") or {}).get(PROCESSES, "")
    processes = str(own.get(_PROCESSES_VARIABLE) or noted)
    return max(1, int(quantity.parse(limit)) // max(1, int(processes) if processes.isdecimal() else 1))


def _declared(pod: Manifest, container: Manifest, context: ContainerContext) -> dict[str, str]:
    env: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for kind in ("configMap", "secret"):
            if reference := source.get(f"{kind}Ref"):
                texts = _texts(kind, reference, context)
                env |= {f"{source.get('prefix') or ''}{key}": text for key, text in texts.items()}
    for variable in container.get("env") or ():
        name = str(variable.get("name"))
        if origin := variable.get("valueFrom"):
            value = _from_source(origin, pod, container, context)
            if value is None:
                continue
        else:
            value = expand(str(variable.get("value") or ""), env)
        env[name] = _localised(name, value, context)
        if name == _ENDPOINT:
            env[RENDEZVOUS_HOST] = value.partition(":")[0].partition(".")[0]
    return env


def _localised(name: str, value: str, context: ContainerContext) -> str:
    if name in _PORTS and context.port:
        return str(context.port)
    if name in _ADDRESSES and value != "localhost":
        return LOOPBACK
    if name == _ENDPOINT and context.port:
        return f"{LOOPBACK}:{context.port}"
    host, colon, port = value.partition(":")
    if host.split(".", 1)[0] in context.names and (not colon or port.isdecimal()):
        return f"{LOOPBACK}{colon}{port}"
    return value


def _from_source(
    origin: Manifest, pod: Manifest, container: Manifest, context: ContainerContext
) -> str | None:
    for kind in ("configMap", "secret"):
        if reference := origin.get(f"{kind}KeyRef"):
            texts = _texts(kind, reference, context)
            key = str(reference.get("key"))
            if key not in texts and not reference.get("optional"):
                raise CannotStart(f"couldn't find key {key} in {kind} {reference.get('name')}")
            return texts.get(key)
    if reference := origin.get("fieldRef"):
        return _field(str(reference.get("fieldPath")), pod)
    if reference := origin.get("resourceFieldRef"):
        section, _, resource = str(reference.get("resource")).partition(".")
        return str(((container.get("resources") or {}).get(section) or {}).get(resource, ""))
    return ""


def _texts(kind: str, reference: Manifest, context: ContainerContext) -> Mapping[str, str]:
    texts = context.texts.get((kind, str(reference.get("name"))))
    if texts is None and not reference.get("optional"):
        raise CannotStart(f'{kind.lower()} "{reference.get("name")}" not found')
    return {key: text.decode("utf-8", "replace") for key, text in (texts or {}).items()}


def _field(path: str, pod: Manifest) -> str:
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if match := _FIELD_KEY.fullmatch(path):
        return str((meta.get(match[1]) or {}).get(match[2], ""))
    known = {
        "metadata.name": meta.get("name"),
        "metadata.namespace": meta.get("namespace"),
        "metadata.uid": meta.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.podIP": LOOPBACK,
        "status.podIPs": LOOPBACK,
        "status.hostIP": LOOPBACK,
    }
    if path not in known:
        raise CannotStart(f"The sandbox cannot give {path} to a variable.")
    return str(known[path] or "")


def _folder(container: Manifest, mounts: Sequence[tuple[str, str]], context: ContainerContext) -> str:
    folder = str(container.get("workingDir") or "/")
    real = rewrite(folder, mounts)
    if real != folder:
        return real
    if folder.rstrip("/") in ("", "/root"):
        return str(context.scratch)
    for mount in container.get("volumeMounts") or ():
        path = str(mount.get("mountPath", "")).rstrip("/")
        is_left = context.volumes.get(mount.get("name"), context.scratch) is None
        if is_left and (folder + "/").startswith(path + "/"):
            return folder
    command = (*(container.get("command") or ()), *(container.get("args") or ()))
    if any("mpirun" in str(word) for word in command):
        return str(context.scratch)  # each rank starts in its own pod's: see programs/mpirun.py
    raise CannotStart(
        f"workingDir {folder} is in no volume of this pod, and the sandbox has no image that could hold it. "
        "Mount a volume there, or leave workingDir out."
    )
