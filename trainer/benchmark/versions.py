"""Versions that a figure depends on: the cluster, the driver, CUDA, NCCL and torch."""

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

# Credentials of a pod for its API server.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

DRIVER_FILE = Path("/proc/driver/nvidia/version")

_DRIVER = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_WAIT_S = 2.0

# For a missing part, and for one whose version is not known.
NONE, UNKNOWN = "", "unknown"


def read_versions(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the version of each part, by name; `NONE` for missing parts."""
    return {
        "Kubernetes": kubernetes_version(os.environ if env is None else env),
        "NVIDIA driver": driver_version(),
        "CUDA": torch.version.cuda or NONE,
        "NCCL": _nccl_version(),
        "torch": torch.__version__,
    }


def versions_line(versions: Mapping[str, str]) -> str:
    """Format the versions in one line.

    >>> versions_line({"Kubernetes": "1.28.3", "NVIDIA driver": "", "CUDA": "unknown", "torch": "2.6.0"})
    'Versions: Kubernetes 1.28.3, no NVIDIA driver, CUDA unknown, torch 2.6.0'
    """
    parts = (f"{name} {version}" if version else f"no {name}" for name, version in versions.items())
    return f"Versions: {', '.join(parts)}"


def kubernetes_version(env: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> str:
    """Return the version of this pod's cluster, from its API server; `NONE` outside a pod.

    Ranks that mpirun starts over ssh do not have the pod's variables: the server's name in the cluster's DNS
    is used then. Without the cluster's certificate no request is sent.
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
    """Return the version of NVIDIA's driver, from its kernel module or nvidia-smi."""
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
    return text if re.fullmatch(r"[\w.+-]{1,60}", text) else UNKNOWN
