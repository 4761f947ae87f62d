"""Logs of containers and jobs: followed over restarts, split into ranks, merged by time.

Uses bounded memory and draws nothing. Lines are raw bytes; sanitize them before showing them. The modules are
imported on first use: a command that reads the end of a log needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from k8s.logs.follow import Follower, LogRequest
    from k8s.logs.hub import LogHub, Subscription
    from k8s.logs.job import JobLogs, RankRow
    from k8s.logs.line_queue import EVERYTHING, LineQueue, LogSelection, failed_selection
    from k8s.logs.lines import Item, LogLine, Mark, Marker, Target, in_time_order, targets_of, write_stamp
    from k8s.logs.read import LinePrinter, Options, choose
    from k8s.logs.tail import JobRanks, find_ranks
else:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            for module in ("lines", "tail", "line_queue", "follow", "hub", "job", "read"):
                found = import_module(f"k8s.logs.{module}")
                if hasattr(found, name):
                    return getattr(found, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "EVERYTHING", "Follower", "Item", "JobLogs", "JobRanks", "LinePrinter", "LineQueue", "LogHub", "LogLine",
    "LogRequest", "LogSelection", "Mark", "Marker", "Options", "RankRow", "Subscription", "Target", "choose",
    "failed_selection", "find_ranks", "in_time_order", "targets_of", "write_stamp",
]  # fmt: skip
