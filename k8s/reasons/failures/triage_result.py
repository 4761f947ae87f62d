"""Values that triage takes and gives; light to import."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from k8s.reasons.failures.causes import FailureCause
from k8s.status.pod import signal_name

if TYPE_CHECKING:
    from k8s.logs.lines import LogLine

# States of a container that was never started: the runtime's message says why, and there is no log.
NEVER_STARTED = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "ContainerCannotRun",
)


@dataclass(frozen=True, slots=True)
class ContainerLog:
    """The end of the log of one container's run, and how the run ended."""

    instance: str
    """Short name: `worker-2`."""
    ranks: tuple[int, ...] = ()
    """Global ranks that it runs, by local rank, as far as known."""
    container: str = ""
    exit_code: int | None = None
    """None while it runs, or if it is not known."""
    end_reason: str = ""
    """Reason of the terminated or waiting state: `OOMKilled`, `Error`, `StartError`, `ImagePullBackOff`."""
    finished: datetime | None = None
    lines: tuple[LogLine, ...] = ()
    message: str = ""
    signal: int = 0
    pod_reason: str = ""
    """Reason of the pod's status: `Evicted`, `Preempting`, `NodeLost`."""
    restarts: int = 0
    is_launcher: bool = False
    """Prints for all ranks: an MPI launcher."""

    @property
    def states(self) -> tuple[str, ...]:
        """States at its end, named as in the causes table, the most specific first."""
        code = self.exit_code or 0
        # A shell adds 128 to a signal; Python's sys.exit(-9) ends as 247.
        number = self.signal or (256 - code if 240 < code < 254 else max(0, code - 128))
        found = (self.pod_reason, self.end_reason, signal_name(number), f"exit {self.exit_code}")
        return tuple(each for each in found if each)


@dataclass(frozen=True, slots=True)
class Triage:
    """Explanation of a failure; all texts are sanitized and bounded."""

    culprit: str
    """`rank 2`, else the instance."""
    rank: int | None
    instance: str
    reason: str
    """`rank 2 exit 1: ValueError: bad shard 7`."""
    error: str
    """`ValueError: bad shard 7`; empty if it printed none."""
    cause: FailureCause | None
    """None for an error of the user's own code."""
    sentence: str
    remedy: str
    saw: str
    """The line or state by which the cause was recognised, or the last line if there was no error."""
    traceback: tuple[str, ...]
    others: tuple[str, ...]
    """Errors of the other ranks, grouped: `63 ranks: NCCL watchdog timeout after rank 17 left`."""
    first_error_at: datetime | None
