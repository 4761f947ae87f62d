"""Where the time of the steps between two lines of progress goes, over all ranks, and what their GPUs do."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer.distributed.gpu_telemetry import FIELDS, GpuTelemetry, scalars_by_rank
from trainer.distributed.process_group import ProcessGroup

MOST_OFTEN_STEPS = 10
"""DDP measures a step's communication no more often: on a GPU it waits for that step."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IntervalMeasured:
    """What the last steps were like; means over the steps and the ranks."""

    loss: float
    """Over all ranks."""
    own_loss: float
    """On this rank."""
    step_s: float
    """Seconds of a step, all in all."""
    wait_s: float
    """Seconds in which it waited for its samples."""
    communication_s: float
    """Seconds in which gradients were under way in the last step that DDP measured; NaN without DDP."""
    exposed_s: float
    """The part of them after the backward pass: what a step waits for the other ranks."""
    gpus: dict[int, list[float]]
    """What NVML told, by rank, as `FIELDS`."""

    @property
    def words(self) -> str:
        """The times as a line of progress ends: `wait 0.3ms step 41.0ms comm 12.1ms`."""
        words = f"wait {self.wait_s * 1000:.1f}ms step {self.step_s * 1000:.1f}ms"
        return words if math.isnan(self.exposed_s) else f"{words} comm {self.exposed_s * 1000:.1f}ms"

    @property
    def scalars(self) -> dict[str, float]:
        """What to draw, by tag."""
        times = {
            "time/wait_ms": self.wait_s * 1000,
            "time/step_ms": self.step_s * 1000,
            "time/communication_ms": self.communication_s * 1000,
            "time/communication_exposed_ms": self.exposed_s * 1000,
        }
        return {tag: value for tag, value in times.items() if not math.isnan(value)} | scalars_by_rank(
            self.gpus
        )


class Interval:
    """Measures the steps from one line of progress to the next."""

    def __init__(
        self,
        model: nn.Module,
        group: ProcessGroup,
        telemetry: GpuTelemetry | None,
        log_every: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Prepare to measure; every rank must call this, with its own GPU's `telemetry`."""
        self._group = group
        self._telemetry = telemetry
        self._has_telemetry = bool(group.all_reduce_max(telemetry is not None))
        self._clock = clock
        self._ddp = next(
            (each for each in model.modules() if isinstance(each, DistributedDataParallel)), None
        )
        if self._ddp is not None:
            self._ddp._set_ddp_runtime_logging_sample_rate(  # type: ignore[no-untyped-call]
                max(log_every, MOST_OFTEN_STEPS)
            )
        self._losses = torch.zeros((), device=group.device)
        self._steps = 0
        self._wait_s = 0.0
        self._started = clock()

    def start(self) -> None:
        """Begin anew: what was before, such as a validation, belongs to no step."""
        self._losses.zero_()
        self._steps = 0
        self._wait_s = 0.0
        self._started = self._clock()

    def timed(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield `batches`, and note how long each let the step wait."""
        waiting = iter(batches)
        while True:
            asked = self._clock()
            try:
                batch = next(waiting)
            except StopIteration:
                return
            self._wait_s += self._clock() - asked
            yield batch

    def add(self, loss: Tensor) -> None:
        """Count a step that was taken; `loss` may still be under way on the device."""
        self._losses += loss
        self._steps += 1

    def measure(self) -> IntervalMeasured:
        """Say what the steps since the start were like, and begin anew; all ranks must call this."""
        own_loss = self._losses.item() / self._steps  # first: it waits for the device
        seconds = self._clock() - self._started
        ranks = self._group.ranks
        own = [own_loss, seconds / self._steps, self._wait_s / self._steps, *self._communication()]
        slots = [0.0] * len(FIELDS) * ranks.world_size * self._has_telemetry
        if slots:
            at = ranks.rank * len(FIELDS)
            read = self._telemetry.read() if self._telemetry is not None else [math.nan] * len(FIELDS)
            slots[at : at + len(FIELDS)] = read
        shared = torch.tensor([*own, *slots], dtype=torch.float64, device=self._group.device)
        summed = self._group.all_reduce_sum(shared).tolist()
        loss, step_s, wait_s, communication_s, exposed_s = (
            each / ranks.world_size for each in summed[: len(own)]
        )
        by_gpu = summed[len(own) :]
        gpus = {at // len(FIELDS): by_gpu[at : at + len(FIELDS)] for at in range(0, len(by_gpu), len(FIELDS))}
        self.start()
        return IntervalMeasured(loss, own_loss, step_s, wait_s, communication_s, exposed_s, gpus)

    def _communication(self) -> tuple[float, float]:
        """Return the seconds of communication that DDP measured last, and those not hidden by backward."""
        if self._ddp is None:
            return math.nan, math.nan
        measured = self._ddp._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        whole_ns = measured.get("backward_comm_time", math.nan)
        exposed_ns = whole_ns - measured.get("backward_compute_comm_overlap_time", math.nan)
        return whole_ns / 1e9, exposed_ns / 1e9
