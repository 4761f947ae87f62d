"""Failure causes, those of `causes.toml` and the user's own, and what triage takes and gives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, overload

import msgspec

from k8s.status.pod import signal_name

if TYPE_CHECKING:
    from k8s.logs.lines import LogLine


_OPTIONAL = re.compile(r"\[([^\]]*)\]")
_FIELD = re.compile(r"\{(\w+)\}")
# States of a container that was never started: the runtime's message says why, and there is no log.
NEVER_STARTED = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "ContainerCannotRun",
)


class FailureCause(msgspec.Struct, frozen=True):
    """A known cause of failures, how to recognise it, and what helps."""

    name: str
    """Shown to the user: `CUDA out of memory`."""
    pattern: str
    """Regular expression, searched in the culprit's error, then in the lines around it; empty for none."""
    sentence: str
    """Template: `{group}` is a group found; a part in brackets is left out if its groups were not found."""
    remedy: str
    states: tuple[str, ...] = ()
    """States of the container or pod that prove it: `OOMKilled`, `Evicted`, `SIGBUS`, `exit 127`."""
    details: tuple[str, ...] = ()
    """Further patterns, searched in the whole error for groups of the sentence."""
    can_retry_help: bool = False
    """The same job may well succeed when run again."""
    is_decisive: bool = False
    """A line near the error proves it, whatever the error itself says."""
    is_collateral: bool = False
    """Ranks print it after another one failed."""

    @property
    def is_ending(self) -> bool:
        """Return True if it describes how a process ended rather than why."""
        return any(state.startswith("SIG") for state in self.states)

    def fill(self, groups: Mapping[str, str]) -> str:
        """Return the sentence with the groups filled in."""

        def part(found: re.Match[str]) -> str:
            return found[1] if all(groups.get(name) for name in _FIELD.findall(found[1])) else ""

        return _FIELD.sub(lambda found: groups.get(found[1]) or "?", _OPTIONAL.sub(part, self.sentence))


@lru_cache(1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern of a cause."""
    return re.compile(pattern)


class PackagedCauses(Sequence[FailureCause]):
    """The causes of `causes.toml`, the more specific first; read on first use."""

    @overload
    def __getitem__(self, index: int) -> FailureCause: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FailureCause]: ...
    def __getitem__(self, index: int | slice) -> FailureCause | Sequence[FailureCause]:
        return _packaged()[index]

    def __len__(self) -> int:
        return len(_packaged())


@cache
def _packaged() -> tuple[FailureCause, ...]:
    import tomllib
    from importlib.resources import files  # slow to import, and only what has failed needs it

    table = tomllib.loads(files(__package__).joinpath("causes.toml").read_text("utf-8"))
    return tuple(
        FailureCause(
            entry["name"],
            "|".join(entry.get("pattern", ())),
            entry["sentence"],
            entry["remedy"],
            tuple(entry.get("states", ())),
            tuple(entry.get("details", ())),
            entry.get("retry", False),
            entry.get("decisive", False),
            entry.get("collateral", False),
        )
        for entry in table["cause"]
    )


CAUSES = PackagedCauses()


class ContainerLog(msgspec.Struct, frozen=True):
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
    is_init: bool = False
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


class Triage(msgspec.Struct, frozen=True):
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
