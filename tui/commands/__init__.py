"""One-shot commands: each is a module with `add_arguments(parser)` and `run(options, flags)`.

A command queries the cluster once and prints. Only the module of the command that runs is
imported, because its dependencies are slow to load.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """One command and its module."""

    name: str
    module: str
    words: str
    aliases: tuple[str, ...] = ()


COMMANDS: tuple[Command, ...] = (
    Command("top", "top", "Show the GPUs of nodes or jobs"),
    Command("list", "list", "List jobs of every kind", ("ls",)),
    Command("get", "get", "Show a job and its instances"),
    Command("describe", "describe", "Describe a node with its GPUs, their links and their holders; or a job"),
    Command("why", "why", "Explain why a job waits, fails or restarts, and what would help"),
    Command("diagnose", "diagnose", "Report who failed first, or what each rank of a running job does"),
    Command("events", "events", "Show the events of a job and its pods"),
    Command("wait", "wait", "Wait until jobs have ended, run or fall silent, and exit as they do"),
    Command("logs", "logs", "Print the logs of a job", ("log",)),
    Command("curves", "curves", "Plot the scalars of jobs and folders, several over each other"),
    Command("compare", "compare", "Compare jobs, past runs and folders: what differs, and their values"),
    Command("runs", "runs", "List past runs, also of jobs that are gone"),
    Command("timeline", "timeline", "List what happened to your jobs, also while you were away"),
    Command("record", "record", "Record what happens to jobs, without a screen, until ctrl+c"),
    Command("tensorboard", "tensorboard", "Serve the event files of jobs and folders in a TensorBoard here"),
    Command("submit", "submit", "Create a job"),
    Command("templates", "templates", "List the templates that submit can start from"),
    Command("clone", "clone", "Create a copy of a job under a new name"),
    Command("edit", "edit", "Edit a job with kubectl edit"),
    Command("delete", "delete", "Delete jobs and their pods", ("del",)),
    Command("suspend", "suspend", "Suspend jobs: delete their pods and keep the jobs"),
    Command("resume", "suspend", "Resume suspended jobs"),
    Command("scale", "scale", "Give an elastic job more or fewer replicas", ("scalein", "scaleout")),
    Command("prune", "prune", "Delete jobs that finished long ago"),
    Command("shell", "shell", "Open a shell or run a command in a pod of a job", ("attach",)),
    Command("forward", "forward", "Forward a local port to a job's TensorBoard or to one of its pods"),
    Command("data", "data", "List volume claims"),
    Command("sandbox", "sandbox", "Manage the sandbox, a cluster on this machine"),
    Command("info", "info", "Show versions, file locations and your permissions", ("version",)),
    Command("completion", "completion", "Print the completion script of a shell"),
    Command("help", "help", "Read the manual"),
)

_TRAINING_ONLY = "Only training is supported: models are not served, stored or evaluated."
# Arena's commands without a counterpart here and those of the last release, and what to do instead.
NOT_HERE: dict[str, str] = {
    **dict.fromkeys(("serve", "model", "evaluate", "llm"), _TRAINING_ONLY),
    "cron": "Scheduled jobs are not supported: use a CronJob that creates them.",
    "logviewer": "There is no web log viewer: use logs, or open the console and press l.",
    "whoami": "Use info: it shows your user and permissions.",
    "label": "Use kubectl label, or press t on the node in the console.",
    "bundle": "Support bundles are gone: use info --json, and why, diagnose and logs for the job.",
}
_JQ = "use -o json with jq (see help scripts)"
# Flags of the last release, and what to use instead.
REMOVED_FLAGS: dict[str, str] = {
    "--field-selector": _JQ,
    "-o jsonpath": _JQ,
    "-o custom-columns": _JQ,
    "--observe": "use top users --since 7d, which has the idle GPU-hours that consoles saw",
    "edit --yes": "kubectl applies the change when the editor is left",
    "--cpu-request": "use --cpu REQUEST-LIMIT, as in --cpu 2-4",
    "--memory-request": "use --memory REQUEST-LIMIT, as in --memory 8Gi-16Gi",
    "--elastic-min": "use --elastic MIN-MAX",
    "--elastic-max": "use --elastic MIN-MAX",
    "--client": "use gpuconsole --version",
    "--exec": "use wait JOB && COMMAND",
    "--allow-open-rendezvous": "with torch 2.5 or newer, c10d works in the sandbox without it",
}
