"""Output of a benchmark: the lines of Horovod's synthetic benchmark, some more, and versions they depend on.

Bus bandwidth is that of nccl-tests, which can be compared with a link's for any number of ranks: each rank
sends and receives 2 (n - 1) / n of the message.

Sources: examples/pytorch/pytorch_synthetic_benchmark.py of horovod/horovod; doc/PERFORMANCE.md of
NVIDIA/nccl-tests.
"""

import json
import os
import re
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from statistics import fmean, pstdev

import torch

# Credentials of a pod for its API server.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DRIVER_FILE = Path("/proc/driver/nvidia/version")
_DRIVER = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_WAIT_S = 2.0
# For a missing part, and for one whose version is not known.
NONE, UNKNOWN = "", "unknown"
# Standard deviations around the mean that hold 95 % of a normal distribution.
_DEVIATIONS = 1.96


@dataclass(frozen=True)
class AllReduce:
    """Measurement of one message size."""

    size_bytes: int
    seconds: float  # mean of one all-reduce, on the slowest rank
    ranks: int

    @property
    def bus_gb_per_s(self) -> float:
        """Bus bandwidth in 10^9 bytes per second.

        >>> AllReduce(size_bytes=4_000_000, seconds=0.002, ranks=4).bus_gb_per_s
        3.0
        """
        return self.size_bytes / self.seconds * (2 * (self.ranks - 1) / self.ranks) / 1e9


@dataclass(frozen=True)
class Result:
    """Figures of a benchmark."""

    model: str
    batch_size: int
    precision: str
    ranks_by_host: Sequence[int]  # number of ranks on each machine or in each pod, rank 0's first
    unit: str  # device type of a rank: "GPU" or "CPU"
    device: str
    backend: str  # empty for a lone rank
    versions: Mapping[str, str]  # by name; empty for missing parts
    img_per_sec: Sequence[float]  # of rank 0, one value per iteration
    img_per_sec_of_one: float  # of one rank alone; 0 if not measured
    all_reduce: Sequence[AllReduce]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return sum(self.ranks_by_host)

    @property
    def scaling_efficiency(self) -> float:
        """Speed of a rank among all, as a fraction of its speed alone; 0 if unknown."""
        alone = self.img_per_sec_of_one
        return fmean(self.img_per_sec) / alone if alone else 0.0

    def to_json(self) -> dict[str, object]:
        """Return the figures for programs; null for those that were not measured or do not exist."""
        mean, spread = _mean_and_spread(self.img_per_sec)
        return {
            "model": self.model,
            "batch_size": self.batch_size,
            "precision": self.precision,
            "ranks": self.ranks,
            "ranks_by_host": list(self.ranks_by_host),
            "unit": self.unit,
            "device": self.device,
            "backend": self.backend or None,
            "versions": {name: version or None for name, version in self.versions.items()},
            "iterations_img_per_sec": list(self.img_per_sec),
            "img_per_sec": mean,
            "img_per_sec_spread": spread,
            "total_img_per_sec": self.ranks * mean,
            "total_img_per_sec_spread": self.ranks * spread,
            "one_rank_img_per_sec": self.img_per_sec_of_one or None,
            "scaling_efficiency": self.scaling_efficiency or None,
            "all_reduce": [
                {"bytes": each.size_bytes, "seconds": each.seconds, "bus_gb_per_s": each.bus_gb_per_s}
                for each in self.all_reduce
            ],
        }


def bandwidth_lines(measured: Sequence[AllReduce]) -> list[str]:
    """Format the all-reduce bandwidth, one line per message size."""
    return [
        f"All-reduce of {_size(each.size_bytes)}: {each.seconds * 1e3:.2f} ms,"
        f" bus bandwidth {each.bus_gb_per_s:.4f} GB/s"
        for each in measured
    ]


def scaling_line(result: Result) -> str:
    """Format the scaling efficiency."""
    unit, ranks = result.unit, result.ranks
    return (
        f"Scaling efficiency: {100 * result.scaling_efficiency:.1f} %"
        f" ({fmean(result.img_per_sec):.1f} img/sec per {unit} with {ranks},"
        f" {result.img_per_sec_of_one:.1f} with one alone)"
    )


def head_lines(model: str, batch_size: int, ranks: int, device: str) -> list[str]:
    """Format the settings of the benchmark."""
    return [f"Model: {model}", f"Batch size: {batch_size}", f"Number of {device}s: {ranks}"]


def iteration_line(iteration: int, img_per_sec: float, device: str) -> str:
    """Format one measurement of rank 0."""
    return f"Iter #{iteration}: {img_per_sec:.1f} img/sec per {device}"


def result_lines(img_per_sec: Sequence[float], ranks: int, device: str) -> list[str]:
    """Format mean and spread of all measurements, for one rank and for all."""
    mean, spread = _mean_and_spread(img_per_sec)
    return [
        f"Img/sec per {device}: {mean:.1f} +-{spread:.1f}",
        f"Total img/sec on {ranks} {device}(s): {ranks * mean:.1f} +-{ranks * spread:.1f}",
    ]


def _mean_and_spread(img_per_sec: Sequence[float]) -> tuple[float, float]:
    return fmean(img_per_sec), _DEVIATIONS * pstdev(img_per_sec)


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


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
    """Format the versions in one line."""
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
