"""The versions that a figure depends on: of the cluster, the driver, CUDA, NCCL and torch."""

import json
import os
import re
import ssl
import subprocess
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

import torch

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""What a pod has to ask its API server with."""

DRIVER_FILE = Path("/proc/driver/nvidia/version")
"""Where the kernel module says its version."""

_DRIVER = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_WAIT_S = 2.0

NONE, UNKNOWN = "", "unknown"
"""What is not there, and what is there but does not say its version."""


def read_versions(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the version of each part by its name: `NONE` where it is not there."""
    return {
        "Kubernetes": kubernetes_version(os.environ if env is None else env),
        "NVIDIA driver": driver_version(),
        "CUDA": torch.version.cuda or NONE,
        "NCCL": _nccl_version(),
        "torch": torch.__version__,
    }


def versions_line(versions: Mapping[str, str]) -> str:
    """Say the versions in one line.

    >>> versions_line({"Kubernetes": "1.28.3", "NVIDIA driver": "", "CUDA": "unknown", "torch": "2.6.0"})
    'Versions: Kubernetes 1.28.3, no NVIDIA driver, CUDA unknown, torch 2.6.0'
    """
    parts = (f"{name} {version}" if version else f"no {name}" for name, version in versions.items())
    return f"Versions: {', '.join(parts)}"


def kubernetes_version(env: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> str:
    """Ask the API server of this pod's cluster; `NONE` outside a pod.

    Over ssh, as mpirun starts the ranks of a worker, the variables of the pod are not there: its name
    in the cluster's DNS is then asked. Without the cluster's certificate nobody is asked.
    """
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    authority = account / "ca.crt"
    if not authority.exists():
        return UNKNOWN if host else NONE
    try:
        token = (account / "token").read_text().strip() if (account / "token").exists() else ""
        trusted = ssl.create_default_context(cafile=str(authority))
        server = HTTPSConnection(
            host or "kubernetes.default.svc", int(port), timeout=_WAIT_S, context=trusted
        )
        with closing(server):
            server.request("GET", "/version", headers={"Authorization": f"Bearer {token}"} if token else {})
            said = json.loads(server.getresponse().read(65_536))
        return _plain(str(said["gitVersion"]).removeprefix("v"))
    except (HTTPException, OSError, ValueError, KeyError, TypeError):
        return UNKNOWN


def driver_version(file: Path = DRIVER_FILE) -> str:
    """Return the version of NVIDIA's driver, as its kernel module or nvidia-smi says it."""
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return _from_nvidia_smi()
    found = _DRIVER.search(text)
    return found[1] if found else UNKNOWN


def _from_nvidia_smi() -> str:
    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10 * _WAIT_S,
        )
    except OSError:
        return NONE
    except subprocess.TimeoutExpired:
        return UNKNOWN
    lines = asked.stdout.split()
    return _plain(lines[0]) if asked.returncode == 0 and lines else UNKNOWN


def _nccl_version() -> str:
    if not (torch.distributed.is_available() and torch.distributed.is_nccl_available()):
        return NONE
    return ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]


def _plain(text: str) -> str:
    """Return a version that came from outside, if it looks like one."""
    return text if re.fullmatch(r"[\w.+-]{1,60}", text) else UNKNOWN
