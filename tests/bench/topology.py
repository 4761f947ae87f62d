"""Gain from placing jobs by the links between GPUs: a simulation of whole jobs on four machines.

Jobs come, wait their turn in order, hold their GPUs and go, as `arrivals.csv` says; that file is made up.
Each is placed once by the sandbox's scheduler and once by first fit: the first machine with enough free
GPUs, and of these the lowest numbers. What is compared is the slowest link between any two GPUs of a job,
in GB/s one way, by NCCL's constants; a ring over all eight GPUs of a DGX-1 avoids its slowest pairs, and
does better than that. How long a job runs does not depend on it here.
"""

from __future__ import annotations

import csv
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, quantiles

from k8s.sandbox.controllers.placement import LinkedGpus, choose_gpus, node_capacity, pending_pod, place
from k8s.topology.gpu_set import GpuSet
from k8s.topology.gpu_set import measure as measure_set
from k8s.topology.links import LinkMatrix, is_nvlink
from k8s.topology.machines import MACHINES

ARRIVALS = Path(__file__).with_name("arrivals.csv")
"""Jobs by arrival, with their GPUs and durations."""
GPU = "nvidia.com/gpu"
CLUSTERS: Mapping[str, tuple[str, ...]] = {
    "4 x DGX-1V": ("dgx-1v",) * 4,
    "4 x DGX A100": ("dgx-a100",) * 4,
    "4 x DGX H100": ("dgx-h100",) * 4,
    "4 x PCIe server": ("pcie",) * 4,
    "2 x PCIe server, 2 x DGX A100": ("pcie", "pcie", "dgx-a100", "dgx-a100"),
}
"""Machines of each cluster, in the order of first fit."""
_WIDTHS = "{:<30} {:>5} {:>12} {:>12} {:>7} {:>12} {:>12} {:>9} {:>9}"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that comes."""

    at_min: int
    gpus: int
    duration_min: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of all jobs under one way to place them."""

    sets: Sequence[GpuSet]
    """The GPUs of each job with more than one."""
    waits_min: Sequence[float]

    @property
    def bottleneck(self) -> float:
        """Return the slowest link of a job on average, GB/s."""
        return mean(each.bottleneck for each in self.sets)

    @property
    def slow_tenth(self) -> float:
        """Return below what the tenth of the jobs is that is linked worst, GB/s."""
        return quantiles([each.bottleneck for each in self.sets], n=10)[0]

    @property
    def nvlink_percent(self) -> float:
        """Return the share of jobs whose GPUs are all linked by NVLink."""
        return 100 * mean(is_nvlink(each.link) for each in self.sets)


Free = dict[str, tuple[int, ...]]
Found = tuple[str, tuple[int, ...]]
Place = Callable[[int, Mapping[str, LinkMatrix], Free], Found | None]
"""Chooses a machine and GPUs of it for a job with so many; None where none has them."""


def read_arrivals(path: Path = ARRIVALS) -> list[Arrival]:
    """Read the jobs, in the order of their arrival."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines)
    return [Arrival(*(int(row[key]) for key in ("arrival_min", "gpus", "duration_min"))) for row in rows]


def first_fit(wanted: int, matrices: Mapping[str, LinkMatrix], free: Free) -> Found | None:
    """Take the lowest free numbers of the first machine that has enough."""
    name = next((name for name in matrices if len(free[name]) >= wanted), None)
    return (name, free[name][:wanted]) if name is not None else None


def by_topology(wanted: int, matrices: Mapping[str, LinkMatrix], free: Free) -> Found | None:
    """Ask what the sandbox's scheduler asks."""
    limits = {"resources": {"limits": {GPU: str(wanted)}}}
    pod = pending_pod({"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "c", **limits}]}})
    nodes = [_node(name, len(free[name])) for name in matrices]
    links = {name: LinkedGpus(matrix, free[name]) for name, matrix in matrices.items()}
    placed, _ = place([pod], [node_capacity(node, ()) for node in nodes], links)
    if not placed:
        return None
    return placed["pod"], choose_gpus([pod], links[placed["pod"]])["pod"]


def _node(name: str, gpus: int) -> dict[str, object]:
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {"allocatable": {GPU: str(gpus), "pods": "110"}, "conditions": ready},
    }


def simulate(arrivals: Sequence[Arrival], machines: Sequence[str], choose: Place) -> Outcome:
    """Place all jobs in the order of their arrival."""
    matrices = {f"{at}-{machine}": MACHINES[machine].matrix() for at, machine in enumerate(machines)}
    free: Free = {name: matrix.gpus for name, matrix in matrices.items()}
    ending: list[tuple[float, int, str, tuple[int, ...]]] = []
    sets: list[GpuSet] = []
    waits: list[float] = []
    now = 0.0
    for number, job in enumerate(arrivals):
        now = max(now, job.at_min)
        while True:
            while ending and ending[0][0] <= now:
                _, _, name, gpus = heapq.heappop(ending)
                free[name] = tuple(sorted((*free[name], *gpus)))
            found = choose(job.gpus, matrices, free)
            if found is not None:
                break
            now = ending[0][0]
        name, gpus = found
        free[name] = tuple(gpu for gpu in free[name] if gpu not in gpus)
        heapq.heappush(ending, (now + job.duration_min, number, name, gpus))
        waits.append(now - job.at_min)
        if job.gpus > 1:
            sets.append(measure_set(matrices[name], gpus))
    return Outcome(sets, waits)


def measure(_is_smoke: bool = False) -> Iterator[str]:
    """Yield the table, a line for each cluster."""
    arrivals = read_arrivals()
    yield f"{len(arrivals)} made-up jobs; slowest link of jobs with several GPUs, GB/s one way:"
    titles = ("first fit", "by topology", "ratio", "worst 10 %", "by topology", "NVLink", "by top.")
    yield _WIDTHS.format("cluster", "jobs", *titles)
    for title, machines in CLUSTERS.items():
        plain, aware = (simulate(arrivals, machines, choose) for choose in (first_fit, by_topology))
        yield _WIDTHS.format(
            title,
            len(aware.sets),
            f"{plain.bottleneck:.1f}",
            f"{aware.bottleneck:.1f}",
            f"{aware.bottleneck / plain.bottleneck:.2f}x",
            f"{plain.slow_tenth:.1f}",
            f"{aware.slow_tenth:.1f}",
            f"{plain.nvlink_percent:.0f} %",
            f"{aware.nvlink_percent:.0f} %",
        )
        waits = f"{mean(plain.waits_min):.0f} and {mean(aware.waits_min):.0f}"
        yield f"{'':<30} waited on average: {waits} minutes"
