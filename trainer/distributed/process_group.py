"""The processes of a job as one torch.distributed group; a lone process works without one."""

import ctypes
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainer.distributed.exchange import check_sizes, decode, encode
from trainer.messages import (
    InvalidArguments,
    TooFewGpus,
    TrainingError,
    duration,
    first_line,
    log,
    port_in_use,
)
from trainer.mpi_address import find_master, request_mpi
from trainer.ranks import MPI_LAUNCHERS, Ranks

# How long one process waits for the others in a collective, once all have joined.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # source: <malloc.h>
_KEPT_BYTES, _LARGEST_MMAP_THRESHOLD = 1 << 30, 32 << 20

T = TypeVar("T")


class ProcessGroup:
    """All ranks of the job, and their collectives."""

    def __init__(self, ranks: Ranks, device: torch.device, wait_s: int, backend: str = "auto") -> None:
        """Choose the backend; `init` joins the group."""
        self.ranks, self.device, self._wait_s = ranks, device, wait_s
        self.backend = _choose_backend(backend, ranks, device)  # of the gradients; "" if alone
        self._master = ""
        self._cpu_group: dist.ProcessGroup | None = None

    def init(self) -> None:
        """Join the process group; waits for all processes, at most `wait_s` seconds."""
        if not self.backend:
            return
        ranks, is_mpi = self.ranks, self.backend == "mpi"
        self._master = "MPI's own" if is_mpi else self._find_master()
        log(
            f"rank {ranks.rank} of {ranks.world_size} ({ranks.launcher})"
            f" joins the process group at {self._master}"
        )
        if is_mpi:
            dist.init_process_group("mpi", timeout=COLLECTIVE_TIMEOUT)
            self._cpu_group = dist.group.WORLD
            return
        try:
            store = self._wait_for_all()
            dist.init_process_group(
                self.backend,
                store=PrefixStore("default_pg", store),
                rank=ranks.rank,
                world_size=ranks.world_size,
                timeout=COLLECTIVE_TIMEOUT,
                device_id=self.device if self.backend == "nccl" else None,
            )
            self._cpu_group = dist.new_group(backend="gloo") if self.backend == "nccl" else dist.group.WORLD
        except (RuntimeError, ValueError, OSError) as error:
            if "Duplicate GPU" in str(error):
                why = f"{str(error).strip().splitlines()[-1]}."
                now = "Give each process a GPU of its own, or use --device cpu."
                raise TooFewGpus("Two processes of the job use the same GPU.", why, now) from error
            others = "other process" if ranks.world_size == 2 else f"other {ranks.world_size - 1} processes"
            raise port_in_use(error) or TrainingError(
                f"Could not reach the {others} at {self._master}.",
                f"{first_line(error)}.",
                "Check that all of them run and that rank 0 can be reached; --wait-for-others waits longer.",
            ) from error

    def _find_master(self) -> str:
        """Set MASTER_ADDR and MASTER_PORT for torch, and return them as `host:port`."""
        if self.ranks.launcher in MPI_LAUNCHERS:
            address, port = find_master(self.ranks, os.environ, lambda: request_mpi(os.environ, self._wait_s))
            os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
        return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"

    def _wait_for_all(self) -> Store:
        ranks, timeout = self.ranks, timedelta(seconds=self._wait_s)
        shared: Store = next(rendezvous("env://", ranks.rank, ranks.world_size, timeout=timeout))[0]
        # torchrun's store outlives a restart, and in it the addresses of ranks that are gone.
        store = PrefixStore(f"attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", shared)
        here = [f"here/{rank}" for rank in range(ranks.world_size)]
        store.set(here[ranks.rank], self.device.type)
        try:
            store.wait(here, timeout)
        except dist.DistStoreError as error:
            missing = [str(rank) for rank, key in enumerate(here) if not store.check([key])]
            raise TrainingError(
                f"Of {ranks.world_size} processes, rank {', '.join(missing[:8])} did not join at"
                f" {self._master} within {duration(self._wait_s)}.",
                now="Look for the reason in its log; --wait-for-others waits longer.",
            ) from error
        devices = [device.decode() for device in store.multi_get(here)]
        if len(set(devices)) > 1:  # nccl here and gloo there would wait for each other
            raise TooFewGpus(
                f"Rank {devices.index('cuda')} computes on a GPU, but rank {devices.index('cpu')} has none.",
                now="Give each process a GPU, or use --device cpu.",
            )
        return store

    @property
    def device_name(self) -> str:
        """Device for the log: `cpu`, or a GPU and its model."""
        is_cpu = self.device.type == "cpu"
        return "cpu" if is_cpu else f"{self.device} ({torch.cuda.get_device_name(self.device)})"

    def destroy(self) -> None:
        """Destroy the process group, if there is one."""
        if self.backend and dist.is_initialized():
            dist.destroy_process_group()

    def all_reduce_sum(self, numbers: Tensor) -> Tensor:
        """Sum `numbers`, on the device, over all ranks, in place."""
        if self.backend:
            dist.all_reduce(numbers)
        return numbers

    def all_reduce_max(self, number: float) -> float:
        """Return the largest `number` of all ranks; waits for the ranks, not for their GPUs."""
        if not self.backend:
            return number
        numbers = torch.tensor([number])
        dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self._cpu_group)
        return float(numbers.item())

    def all_gather(self, mine: T) -> list[T]:
        """Return each rank's value, by rank, of the types that `exchange.encode` accepts."""
        if not self.backend:
            return [mine]
        sizes, body = encode(mine)
        all_sizes = [torch.empty_like(sizes) for _ in range(self.ranks.world_size)]
        dist.all_gather(all_sizes, sizes, group=self._cpu_group)
        longest = max(map(check_sizes, all_sizes))
        bodies = [torch.empty(longest, dtype=torch.uint8) for _ in all_sizes]
        dist.all_gather(bodies, nn.functional.pad(body, (0, longest - len(body))), group=self._cpu_group)
        return [decode(*each) for each in zip(all_sizes, bodies, strict=True)]

    def run_on_rank0(self, work: Callable[[], T]) -> T:
        """Run `work` on rank 0; its result or `TrainingError`, as `exchange` sends it, is every rank's."""
        outcome: Any = _outcome(work) if self.ranks.is_first else None
        if self.backend:
            sizes, body = encode(outcome)
            dist.broadcast(sizes, src=0, group=self._cpu_group)
            if not self.ranks.is_first:
                body = torch.empty(check_sizes(sizes), dtype=torch.uint8)
            dist.broadcast(body, src=0, group=self._cpu_group)
            if not self.ranks.is_first:
                outcome = decode(sizes, body)
        if isinstance(outcome, TrainingError):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def run_on_all(self, work: Callable[[], T]) -> T:
        """Run `work` on every rank; the `TrainingError` of the lowest is every rank's, so that none waits."""
        mine = _outcome(work)
        for error in self.all_gather(mine if isinstance(mine, TrainingError) else None):
            if error is not None:
                raise error
        return mine  # type: ignore[return-value]


def _choose_backend(name: str, ranks: Ranks, device: torch.device) -> str:
    """Return the backend of that `name`, after checking that it can work; "" for a lone process."""
    if name == "nccl" and device.type != "cuda":
        what = "--backend nccl: NCCL needs GPUs, and this rank runs on the CPU."
        raise InvalidArguments(what, now="Use --backend auto.")
    if name == "mpi" and not dist.is_mpi_available():
        raise InvalidArguments("--backend mpi: this torch was built without MPI.", now="Use --backend auto.")
    if ranks.world_size == 1:
        return ""
    if name == "mpi" and ranks.launcher not in MPI_LAUNCHERS:
        what = f"--backend mpi: the ranks come from {ranks.launcher}, which MPI does not know."
        raise InvalidArguments(what, now="Start with mpirun, or use --backend auto.")
    return ("nccl" if device.type == "cuda" else "gloo") if name == "auto" else name


def _outcome(work: Callable[[], T]) -> T | TrainingError:
    try:
        return work()
    except TrainingError as error:
        return error


def choose_device(name: str, ranks: Ranks) -> torch.device:
    """Return this rank's device: the GPU of its local rank, or the CPU."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        now = "Ask for a GPU, or use --device auto."
        raise TooFewGpus("--device cuda: torch finds no GPU here.", now=now)
    gpus = torch.cuda.device_count()
    if ranks.local_world_size > gpus:  # all of them say so: those with a GPU would wait for the others
        there = "is only 1 GPU" if gpus == 1 else f"are only {gpus} GPUs"
        why = "Each needs one of its own."
        now = "Start as many processes as there are GPUs, or use --device cpu."
        raise TooFewGpus(f"The job has {ranks.local_world_size} processes here, but there {there}.", why, now)
    device = torch.device("cuda", ranks.local_rank)
    torch.cuda.set_device(device)
    return device


def set_threads(ranks: Ranks) -> int:
    """Give this rank its share of the cores and return its number of threads.

    OMP_NUM_THREADS counts if the user set it, but not the 1 that torchrun sets by itself.
    """
    omp_threads = os.environ.get("OMP_NUM_THREADS", "")
    by_torchrun = ranks.launcher == "torchrun" and ranks.local_world_size > 1 and omp_threads == "1"
    chosen = int(omp_threads) if omp_threads.isdigit() and not by_torchrun else 0
    threads = chosen or max(1, _cores() // ranks.local_world_size)
    torch.set_num_threads(threads)
    return threads


def retain_freed_memory() -> None:
    """Have glibc keep up to `_KEPT_BYTES` that a step frees, for the next one.

    Otherwise the kernel takes large blocks and must clear each page again: a tenth of a step of resnet18.
    """
    library = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)


def _cores() -> int:
    """Return the cores this process may use, by its affinity and the limit of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as limit:
            quota, period = limit.read().split()
        return min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores
