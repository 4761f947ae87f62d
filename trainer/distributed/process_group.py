"""The processes of a job as one group: torch.distributed, and what a lone process does without it."""

import ctypes
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainer.master import find_master
from trainer.messages import (
    InvalidArguments,
    TooFewGpus,
    TrainingError,
    duration,
    first_line,
    log,
    port_in_use,
)
from trainer.mpi_address import ask_mpi
from trainer.ranks import MPI_LAUNCHERS, WITHOUT_MASTER, Ranks

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""How long one process waits for the others in any collective, once all have joined."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Source: <malloc.h>."""
_KEPT_BYTES = 1 << 30
_LARGEST_MMAP_THRESHOLD = 32 << 20
"""Beyond it mallopt refuses."""

T = TypeVar("T")


class ProcessGroup:
    """All ranks of the job, and what they do together."""

    def __init__(self, ranks: Ranks, device: torch.device, wait_s: int, backend: str = "auto") -> None:
        """Choose what carries the gradients; joins nobody yet.

        Raises:
            InvalidArguments: There is no such `backend` here.
        """
        self.ranks = ranks
        """Which one this process is."""
        self.device = device
        """Where tensors to be summed lie."""
        self.backend = _choose_backend(backend, ranks, device)
        """What carries the gradients; "" when this process is alone."""
        self._master = ""
        self._wait_s = wait_s
        self._join_timeout = timedelta(seconds=wait_s)
        self._cpu_group: dist.ProcessGroup | None = None

    def init(self) -> None:
        """Join the process group; waits until all processes are there, at most `wait_s`.

        Raises:
            PortInUse: Rank 0 cannot listen where they are to meet.
            TrainingError: They cannot be reached.
        """
        if not self.backend:
            return
        ranks = self.ranks
        is_mpi = self.backend == "mpi"
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
                rank=self.ranks.rank,
                world_size=self.ranks.world_size,
                timeout=COLLECTIVE_TIMEOUT,
                device_id=self.device if self.backend == "nccl" else None,
            )
            self._cpu_group = dist.new_group(backend="gloo") if self.backend == "nccl" else dist.group.WORLD
        except (RuntimeError, ValueError, OSError) as error:
            raise port_in_use(error) or TrainingError(
                f"Could not reach the other {self.ranks.world_size - 1} processes at {self._master}.",
                f"{first_line(error)}.",
                "Check that all of them run and that rank 0 can be reached; --wait-for-others waits longer.",
            ) from error

    def _find_master(self) -> str:
        """Put where the ranks meet into the environment, for torch, and return it as `host:port`."""
        if self.ranks.launcher in WITHOUT_MASTER:
            address, port = find_master(
                self.ranks, os.environ, ask_mpi=lambda: ask_mpi(os.environ, self._wait_s)
            )
            os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
        return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"

    def _wait_for_all(self) -> Store:
        ranks = self.ranks
        shared: Store = next(rendezvous("env://", ranks.rank, ranks.world_size, timeout=self._join_timeout))[
            0
        ]
        # torchrun's store outlives a restart, and in it the addresses of ranks that are gone.
        store = PrefixStore(f"attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", shared)
        here = [f"here/{rank}" for rank in range(ranks.world_size)]
        store.set(here[ranks.rank], self.device.type)
        try:
            store.wait(here, self._join_timeout)
        except dist.DistStoreError as error:
            missing = [str(rank) for rank, key in enumerate(here) if not store.check([key])]
            raise TrainingError(
                f"Of {ranks.world_size} processes, rank {', '.join(missing[:8])} did not join at"
                f" {self._master} within {duration(self._join_timeout.total_seconds())}.",
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
        """What computes, in words: `cpu`, or a GPU and its model."""
        if self.device.type == "cpu":
            return "cpu"
        return f"{self.device} ({torch.cuda.get_device_name(self.device)})"

    def destroy(self) -> None:
        """End the process group, if there is one."""
        if self.backend and dist.is_initialized():
            dist.destroy_process_group()

    def all_reduce_sum(self, numbers: Tensor) -> Tensor:
        """Add `numbers`, which lie on the device, over all ranks, in place."""
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
        """Return what each rank brought, by rank."""
        if not self.backend:
            return [mine]
        gathered: list[T | None] = [None] * self.ranks.world_size
        dist.all_gather_object(gathered, mine, group=self._cpu_group)
        return [each for each in gathered if each is not None]

    def run_on_rank0(self, work: Callable[[], T]) -> T:
        """Run `work` on rank 0 and return its result on every rank.

        Raises:
            TrainingError: What `work` raised on rank 0, on every rank.
        """
        outcome: list[T | TrainingError | None] = [None]
        if self.ranks.is_first:
            outcome[0] = _outcome(work)
        if self.backend:
            dist.broadcast_object_list(outcome, src=0, group=self._cpu_group)
        if isinstance(outcome[0], TrainingError):
            raise outcome[0]
        return outcome[0]  # type: ignore[return-value]

    def run_on_all(self, work: Callable[[], T]) -> T:
        """Run `work` on every rank; if one fails, all do, so that none waits for it.

        Raises:
            TrainingError: What `work` raised on the lowest rank where it failed.
        """
        mine = _outcome(work)
        errors = self.all_gather((mine if isinstance(mine, TrainingError) else None,))
        for (error,) in errors:
            if error is not None:
                raise error
        assert not isinstance(mine, TrainingError)
        return mine


def _choose_backend(name: str, ranks: Ranks, device: torch.device) -> str:
    """Return the backend of that `name` if this torch and this launcher have it; "" for a lone process."""
    if ranks.world_size == 1:
        return ""
    if name == "nccl" and device.type != "cuda":
        raise InvalidArguments(
            "--backend nccl: it joins GPUs, and this rank computes on the processor.",
            now="Use --backend auto.",
        )
    if name == "mpi" and not dist.is_mpi_available():
        raise InvalidArguments("--backend mpi: this torch was built without MPI.", now="Use --backend auto.")
    if name == "mpi" and ranks.launcher not in MPI_LAUNCHERS:
        raise InvalidArguments(
            f"--backend mpi: the ranks come from {ranks.launcher}, which MPI does not know.",
            now="Start with mpirun, or use --backend auto.",
        )
    return ("nccl" if device.type == "cuda" else "gloo") if name == "auto" else name


def _outcome(work: Callable[[], T]) -> T | TrainingError:
    try:
        return work()
    except TrainingError as error:
        return error


def is_lost_rank(error: RuntimeError) -> bool:
    """Say whether `error` means that another process of the job is gone."""
    words = str(error)
    return isinstance(error, dist.DistError) or ("gloo" in words and "onnect" in words)


def choose_device(name: str, ranks: Ranks) -> torch.device:
    """Pick this rank's device: the GPU of its local rank, or the processor.

    Raises:
        TooFewGpus: The ranks of this node are more than its GPUs, on each of them; or a GPU is asked for
            and there is none.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise TooFewGpus(
            "--device cuda: torch finds no GPU here.", now="Ask for a GPU, or use --device auto."
        )
    local_rank, gpus = ranks.local_rank, torch.cuda.device_count()
    if ranks.launcher == "Slurm" and gpus == 1:
        local_rank = 0  # --gpus-per-task shows each task its own GPU alone
    elif ranks.local_world_size > gpus:  # all of them say so: those with a GPU would wait for the others
        raise TooFewGpus(
            f"The job has {ranks.local_world_size} processes here,"
            f" but there {'is only 1 GPU' if gpus == 1 else f'are only {gpus} GPUs'}.",
            "Each needs one of its own.",
            "Start as many processes as there are GPUs, or use --device cpu.",
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def set_threads(ranks: Ranks) -> int:
    """Give this rank its share of the cores and return how many threads that makes.

    OMP_NUM_THREADS counts if the user set it; the 1 that torchrun sets by itself does not.
    """
    threads = max(1, _cores() // ranks.local_world_size)
    omp_threads = os.environ.get("OMP_NUM_THREADS", "")
    by_torchrun = ranks.launcher == "torchrun" and ranks.local_world_size > 1 and omp_threads == "1"
    if omp_threads.isdigit() and int(omp_threads) > 0 and not by_torchrun:
        threads = int(omp_threads)
    torch.set_num_threads(threads)
    return threads


def keep_freed_memory() -> None:
    """Have the C library keep what a step frees for the next one (glibc).

    Else it gives large blocks back to the kernel, which must clear each page anew: a tenth of a
    step of resnet18. What stays is at most `_KEPT_BYTES` above what is in use.
    """
    library = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)


def _cores() -> int:
    """Count the cores this process may use: its affinity, and the limit of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as limit:
            quota, period = limit.read().split()
        return min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores
