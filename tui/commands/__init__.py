"""The one-shot commands: each is a file with `add_arguments(parser)` and `run(options, flags)`.

They ask a cluster once and print; nothing here draws on the terminal. Only the module
of the command that is run is imported, because what it needs takes time to load.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command and where it is."""

    name: str
    """As typed."""
    module: str
    """Its file in this package."""
    words: str
    """What it does, for `gpuconsole --help`."""


COMMANDS: tuple[Command, ...] = (
    Command("top", "top", "GPUs of nodes, or of jobs"),
    Command("list", "list", "Jobs of every kind"),
    Command("get", "get", "One job with its instances"),
    Command("why", "why", "Why a job waits, fails or restarts, and what would help"),
    Command("events", "events", "What happened to a job and its pods"),
    Command("logs", "logs", "What a job's processes print"),
    Command("curves", "curves", "Plots of a job's scalars, or of event files in a folder"),
    Command("submit", "submit", "Start a job"),
    Command("clone", "clone", "Start a job like another, under a new name"),
    Command("delete", "delete", "End jobs and remove them"),
    Command("suspend", "suspend", "End the pods of jobs, and keep the jobs to be resumed"),
    Command("resume", "suspend", "Start suspended jobs again"),
    Command("prune", "prune", "Remove jobs that ended long ago"),
    Command("shell", "shell", "A shell or a command in one of a job's pods"),
    Command("forward", "forward", "A job's TensorBoard, or a port of a pod, on this machine"),
    Command("bundle", "bundle", "One file with what is known of a job, without its secrets"),
    Command("data", "data", "Volume claims"),
    Command("sandbox", "sandbox", "The single-machine cluster"),
    Command("info", "info", "Versions, file locations, and what this user may do"),
)
"""Every command, in the order of the help."""
