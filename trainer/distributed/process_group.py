"""The processes of a job as one torch.distributed group; a lone process works without one.

Ranks exchange values as JSON and raw tensor bytes. torch's own object collectives unpickle what arrives: on a
machine with several users another account can join an unprotected rendezvous under a free rank, and a pickle
from it would run code here.
"""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainer.messages import (
    InvalidArguments,
    TooFewGpus,
    TrainingError,
    duration,
    first_line,
    log,
    port_in_use,
)
from trainer.ranks import MPI_LAUNCHERS, Ranks, find_master, request_mpi

# How long one process waits for the others in a collective, once all have joined.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)

# Groups, kept until the process ends: DDP's reducer, as the last owner of a gloo group, would destroy it with
# the GIL held, and wait for a thread of the group that waits for the GIL (pytorch/pytorch#56297).
_joined: list[object] = []

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
            _joined.append(self._cpu_group)
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
            _joined.extend((dist.group.WORLD, self._cpu_group))
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


# Of the JSON of one rank; checkpoints of large models have a few hundred kilobytes.
MAX_TEXT_BYTES = 16 << 20
MAX_TENSOR_BYTES = 1 << 37
_DTYPES = {
    str(dtype): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


def encode(value: Any) -> tuple[Tensor, Tensor]:
    """Encode a value made of dicts, lists, tuples, paths, tensors, errors and JSON's own types.

    Returns two sizes, int64, and as many bytes, uint8: JSON, then all tensors.
    """
    tensors: list[Tensor] = []
    text = json.dumps(_to_json(value, tensors)).encode()
    body = torch.cat([torch.frombuffer(bytearray(text), dtype=torch.uint8), *tensors])
    return torch.tensor([len(text), len(body) - len(text)]), body


def check_sizes(sizes: Tensor) -> int:
    """Return the number of bytes that follow `sizes` of another rank; TrainingError if none could be sent."""
    text, tensors = sizes.tolist()
    if not (0 < text <= MAX_TEXT_BYTES and 0 <= tensors <= MAX_TENSOR_BYTES):
        raise _foreign()
    return int(text + tensors)


def decode(sizes: Tensor, body: Tensor) -> Any:
    """Return the value of `encode`, with lists for tuples; TrainingError if another program sent it."""
    text_size = int(sizes[0])
    try:
        tensors = [body[text_size : check_sizes(sizes)]]
        return _from_json(json.loads(body[:text_size].numpy().tobytes()), tensors)
    except (ValueError, LookupError, TypeError, RuntimeError) as error:
        raise _foreign() from error


def _to_json(value: Any, tensors: list[Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        found = value.detach().cpu().contiguous()
        tensors.append(found.reshape(-1).view(torch.uint8))
        return {"tensor": [str(found.dtype), list(found.shape)]}
    if isinstance(value, dict):  # keys may be numbers, which JSON has not
        return {"dict": [[key, _to_json(each, tensors)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return [_to_json(each, tensors) for each in value]
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, TrainingError):
        return {"error": [type(value).__name__, list(value.args), value.exit_status]}
    raise TypeError(f"ranks do not exchange values of type {type(value).__name__}")


def _from_json(found: Any, tensors: list[Tensor]) -> Any:
    """Decode parsed JSON; the only item of `tensors` is the bytes of those that are still to come."""
    if isinstance(found, list):
        return [_from_json(each, tensors) for each in found]
    if not isinstance(found, dict):
        return found
    ((kind, content),) = found.items()
    if kind == "dict":
        return {key: _from_json(each, tensors) for key, each in content}
    if kind == "path":
        return Path(content)
    if kind == "error":
        name, words, status = content
        error = _error_classes()[name](*map(str, words))
        error.exit_status = int(status)
        return error
    if kind != "tensor" or any(each < 0 for each in content[1]):
        raise ValueError(kind)
    dtype, shape = _DTYPES[content[0]], content[1]
    count = torch.Size(shape).numel() * dtype.itemsize
    mine, tensors[0] = tensors[0][:count], tensors[0][count:]
    # A copy, because the slice may start at an address that is not aligned for this type.
    return mine.clone().view(dtype).reshape(shape)


def _error_classes() -> dict[str, type[TrainingError]]:
    found = [TrainingError]
    for each in found:
        found += each.__subclasses__()
    return {each.__name__: each for each in found}


def _foreign() -> TrainingError:
    why = "A rank of another version, or another user of this machine, joined the job."
    now = "Start the job again; on a shared machine give it another MASTER_PORT."
    return TrainingError("Another rank sent a message that no rank of this job sends.", why, now)
