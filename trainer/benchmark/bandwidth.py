"""Bandwidth of all-reduce between the ranks, by message size.

Bus bandwidth is that of nccl-tests, which can be compared with a link's for any number of ranks: each rank
sends and receives 2 (n - 1) / n of the message. Source: doc/PERFORMANCE.md of NVIDIA/nccl-tests.
"""

import time
from dataclasses import dataclass

import torch

from trainer.distributed.process_group import ProcessGroup

SMALLEST_BYTES = 1 << 10
GROWTH = 4
# Default size of the largest message.
LARGEST_MIB_ON_GPU, LARGEST_MIB_ON_CPU = 256, 16
MEASURED_S = 0.2
# Most all-reduces of one size, after the warm-up.
MOST_TIMES = 100


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


def measure_all_reduce(group: ProcessGroup, largest_mib: int = 0) -> list[AllReduce]:
    """Measure with growing messages; every rank must call this. Empty for a lone rank."""
    ranks = group.ranks.world_size
    if ranks == 1:
        return []
    mib = largest_mib or (LARGEST_MIB_ON_CPU if group.device.type == "cpu" else LARGEST_MIB_ON_GPU)
    numbers = torch.zeros(mib << 18, dtype=torch.float32, device=group.device)
    found = []
    size_bytes = SMALLEST_BYTES
    while size_bytes <= mib << 20:
        message = numbers[: size_bytes // 4]
        _time(group, message, 1)
        one_s = _time(group, message, 1)
        times = max(1, min(MOST_TIMES, int(MEASURED_S / one_s)))
        found.append(AllReduce(size_bytes, _time(group, message, times) / times, ranks))
        size_bytes *= GROWTH
    return found


def _time(group: ProcessGroup, message: torch.Tensor, times: int) -> float:
    group.all_reduce_max(0)
    started = time.perf_counter()
    for _ in range(times):
        group.all_reduce_sum(message)
    if group.device.type == "cuda":
        torch.cuda.synchronize(group.device)
    return max(1e-9, group.all_reduce_max(time.perf_counter() - started))
