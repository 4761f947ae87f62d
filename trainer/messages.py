"""Log lines of a rank, which the console parses, and the errors that end it, of one line each."""

import errno
import os
import re
import sys
from typing import TextIO


class TrainingError(Exception):
    """A failure that the user can act on; shown without a traceback.

    Any function of a trainer may raise it; `run_to_exit_status` logs it and ends the rank. `what`, `why` and
    `now` are sentences. Other ranks get a copy: see `distributed.exchange`.
    """

    exit_status = 1

    def __init__(self, what: str, why: str = "", now: str = "") -> None:
        super().__init__(what, why, now)

    def __str__(self) -> str:
        return " ".join(part for part in self.args if part)


class InvalidArguments(TrainingError):
    """Arguments or environment are invalid."""

    exit_status = 2


class DamagedCheckpoints(TrainingError):
    """None of the checkpoints can be read."""

    exit_status = 3


class NotFinite(TrainingError):
    """The loss or a weight is NaN or infinite."""

    exit_status = 4


class MissingData(TrainingError):
    """Training files are missing or damaged."""

    exit_status = 5


class TooFewGpus(InvalidArguments):
    """There is no GPU for this rank."""

    exit_status = 6


class PortInUse(TrainingError):
    """Another process listens on the port of the rendezvous."""

    exit_status = 7


class NothingToTrain(TrainingError):
    """The checkpoint has all epochs already, and was made with other settings."""

    exit_status = 8


def port_in_use(error: BaseException) -> PortInUse | None:
    """Return the error for torch's failure to listen on a port; None for other errors."""
    found = re.search(r"port: (\d+).*EADDRINUSE", str(error))
    return found and PortInUse(
        f"Port {found[1]} of this host is in use, so the ranks cannot meet there.",
        "Another job, or what is left of one, listens on it.",
        f"Choose another MASTER_PORT, or end that process (ss -ltnp 'sport = :{found[1]}' names it).",
    )


class Stopped(TrainingError):
    """The job stopped because of a signal."""

    def __init__(self, what: str, why: str = "", now: str = "", signal: int = 0) -> None:
        super().__init__(what, why, now)
        self.exit_status = 128 + signal


def log(line: str) -> None:
    """Print one line in a single write: `print` may write its end separately, and ranks share the pipe."""
    _write(sys.stdout, line)


def log_error(line: str) -> None:
    """Print one line to stderr, in a single write."""
    _write(sys.stderr, line)


def _write(stream: TextIO, line: str) -> None:
    try:
        stream.write(f"{line}\n")
        stream.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # The terminal hung up, and SIGHUP came with that: without output the checkpoint is still saved.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def duration(seconds: float) -> str:
    """Format a duration in at most two units: 12s, 1m12s, 3h05m."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def ago(seconds: float) -> str:
    """Format an age: 12 s ago, 5 min ago, 3 h ago, 2 days ago."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size or (seconds >= size and unit != "days"):
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"


def first_line(error: BaseException) -> str:
    """Return an error's first sentence without its full stop, C++ frames and source files."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return re.sub(r"^\[[^\]]*\.\w+:\d+\] ", "", lines[0]).split(". ")[0].removesuffix(".")
