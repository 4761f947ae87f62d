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
    aliases: tuple[str, ...] = ()
    """Arena's words for it."""


COMMANDS: tuple[Command, ...] = (
    Command("top", "top", "Show the GPUs of nodes or jobs"),
    Command("list", "list", "List jobs of every kind", ("ls",)),
    Command("get", "get", "Show a job and its instances"),
    Command("describe", "describe", "Describe a node: its GPUs, how they are linked, who holds them"),
    Command("why", "why", "Explain why a job waits, fails or restarts, and what would help"),
    Command("events", "events", "Show the events of a job and its pods"),
    Command("logs", "logs", "Print the logs of a job", ("log",)),
    Command("curves", "curves", "Plot the scalars of a job, or of event files in a folder"),
    Command("submit", "submit", "Create a job"),
    Command("templates", "templates", "List the templates that submit can start from"),
    Command("clone", "clone", "Create a copy of a job under a new name"),
    Command("delete", "delete", "Delete jobs and their pods", ("del",)),
    Command("suspend", "suspend", "Suspend jobs: delete their pods and keep the jobs"),
    Command("resume", "suspend", "Resume suspended jobs"),
    Command("scale", "scale", "Give an elastic job more or fewer replicas"),
    Command("scalein", "scale_by", "Remove replicas from an elastic job, as Arena does"),
    Command("scaleout", "scale_by", "Add replicas to an elastic job, as Arena does"),
    Command("label", "label", "Have a node's GPUs given by their links, or as usual (Alibaba Cloud)"),
    Command("prune", "prune", "Delete jobs that finished long ago"),
    Command("shell", "shell", "Open a shell or run a command in a pod of a job", ("attach",)),
    Command("forward", "forward", "Forward a local port to a job's TensorBoard or to one of its pods"),
    Command("bundle", "bundle", "Write a support bundle for a job, with secrets redacted"),
    Command("data", "data", "List volume claims"),
    Command("sandbox", "sandbox", "Manage the sandbox, a cluster on this machine"),
    Command("info", "info", "Show versions, file locations and your permissions"),
)
"""Every command, in the order of the help."""

_TRAINING_ONLY = "Models are not served, stored or evaluated here: gpuconsole is for training jobs."
NOT_HERE: dict[str, str] = {
    **dict.fromkeys(("serve", "model", "evaluate", "llm"), _TRAINING_ONLY),
    "cron": "Jobs are not made on a schedule here: use a CronJob that creates them.",
    "logviewer": "There is no log viewer on the web: use logs, or open the console and press l.",
    "whoami": "Use info: it says who you are for the cluster, and what you may do.",
    "version": "Use --version; info tells that of the cluster too.",
    "completion": "There is no completion for shells; the console completes what is typed after ':'.",
}
"""Commands that Arena has and we have not, and what to do instead."""
