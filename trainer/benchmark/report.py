"""Output of a benchmark: exactly the lines of Horovod's synthetic benchmark, and some more.

Bus bandwidth is that of nccl-tests, which can be compared with a link's for any number of ranks: each rank
sends and receives 2 (n - 1) / n of the message.

Sources: examples/pytorch/pytorch_synthetic_benchmark.py of horovod/horovod; doc/PERFORMANCE.md of
NVIDIA/nccl-tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

# Standard deviations around the mean that hold 95 % of a normal distribution.
_DEVIATIONS = 1.96


@dataclass(frozen=True)
class AllReduce:
    """Measurement of one message size."""

    size_bytes: int
    seconds: float
    """Mean of one all-reduce, on the slowest rank."""
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
    ranks_by_host: Sequence[int]
    """Number of ranks on each machine or in each pod, rank 0's first."""
    unit: str
    """Device type of a rank: "GPU" or "CPU"."""
    device: str
    backend: str
    """Empty for a lone rank."""
    versions: Mapping[str, str]
    """By name; empty for missing parts."""
    img_per_sec: Sequence[float]
    """Of rank 0, one value per iteration."""
    img_per_sec_of_one: float
    """Of one rank alone; 0 if not measured."""
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
    """Format the all-reduce bandwidth, one line per message size.

    >>> bandwidth_lines([AllReduce(size_bytes=4 << 20, seconds=0.002, ranks=4)])
    ['All-reduce of 4 MiB: 2.00 ms, bus bandwidth 3.1457 GB/s']
    """
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
    """Format the settings of the benchmark.

    >>> head_lines("vgg16", 64, 4, "GPU")
    ['Model: vgg16', 'Batch size: 64', 'Number of GPUs: 4']
    """
    return [f"Model: {model}", f"Batch size: {batch_size}", f"Number of {device}s: {ranks}"]


def iteration_line(iteration: int, img_per_sec: float, device: str) -> str:
    """Format one measurement of rank 0.

    >>> iteration_line(0, 205.14, "GPU")
    'Iter #0: 205.1 img/sec per GPU'
    """
    return f"Iter #{iteration}: {img_per_sec:.1f} img/sec per {device}"


def result_lines(img_per_sec: Sequence[float], ranks: int, device: str) -> list[str]:
    """Format mean and spread of all measurements, for one rank and for all.

    >>> result_lines([204.0, 206.0], 4, "GPU")
    ['Img/sec per GPU: 205.0 +-2.0', 'Total img/sec on 4 GPU(s): 820.0 +-7.8']
    """
    mean, spread = _mean_and_spread(img_per_sec)
    return [
        f"Img/sec per {device}: {mean:.1f} +-{spread:.1f}",
        f"Total img/sec on {ranks} {device}(s): {ranks * mean:.1f} +-{ranks * spread:.1f}",
    ]


def _mean_and_spread(img_per_sec: Sequence[float]) -> tuple[float, float]:
    return fmean(img_per_sec), _DEVIATIONS * pstdev(img_per_sec)


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"
