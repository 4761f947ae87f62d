"""The action table: what the console's views can do, one row each.

Add a row here and its function in `tui.actions`; bindings, footer, help, palette, `:`, completion,
refusals, `--readonly` and the README follow. The letters are k9s' where k9s has one.
"""

from __future__ import annotations

from tui.keys.action import EVERYWHERE, Action, ActionTable, On


def _everywhere(keys: str) -> tuple[On, ...]:
    return (On(EVERYWHERE, keys),)


_EVERYWHERE = (
    Action("back", "Back; clears the filter first", "window:back", footer="back", on=_everywhere("escape")),
    Action(
        "filter",
        "Filter (syntax below)",
        method="filter",
        footer="filter",
        on=_everywhere("slash"),
        opens_prompt=True,
    ),
    Action(
        "command",
        "Run a command",
        method="command",
        footer="command",
        on=_everywhere("colon"),
        opens_prompt=True,
    ),
    Action(
        "help",
        "Help",
        "window:show_help",
        footer="help",
        on=_everywhere("question_mark"),
        commands=("help", "h"),
    ),
    Action("last_view", "Previous view (toggle)", "window:last_view", on=_everywhere("minus")),
    Action("palette", "Command palette", "window:palette", on=_everywhere("ctrl+p")),
    Action("jump", "Jump to a pane by its letter", "window:jump", on=_everywhere("ctrl+g")),
    Action("copy", "Copy the name of the row, or of all marked rows", "export:copy", on=_everywhere("c")),
    Action("save", "Save the table as CSV", "export:save", on=_everywhere("ctrl+s")),
    Action(
        "preview",
        "Next layout of home; in the list of nodes: preview (toggle)",
        method="preview",
        on=_everywhere("z"),
    ),
    Action("refresh", "Refresh now", "context:refresh", on=_everywhere("ctrl+r")),
    Action("quit_or_back", "Back; from the jobs list, quit", "window:quit_or_back", on=_everywhere("q")),
    Action(
        "suspend_process",
        "Suspend gpuconsole (fg resumes it)",
        method="app.suspend_process",
        on=_everywhere("ctrl+z"),
    ),
    Action(
        "interrupt",
        "Cancel the prompt or dialog; otherwise quit at once (jobs keep running)",
        method="interrupt",
        on=_everywhere("ctrl+c"),
        opens_prompt=True,
    ),
)
_LISTS = (
    Action(
        "jobs",
        "Jobs; jobs all includes those that finished long ago",
        "navigate:jobs",
        commands=("jobs", "job", "j"),
    ),
    Action("nodes", "Nodes and who holds their GPUs", "navigate:nodes", commands=("nodes", "node", "no")),
    Action(
        "users",
        "Users: GPUs held, requested and idle, by user and job",
        "navigate:users",
        on=(On("nodes", "u"),),
        commands=("users", "user", "idle"),
    ),
    Action("events", "Events", "navigate:events", commands=("events", "event", "ev")),
    Action("volumes", "Volume claims", "navigate:volumes", commands=("volumes", "pvc", "data")),
    Action(
        "ns",
        "Switch to a namespace, or all; alone: list them",
        "context:ns",
        commands=("ns", "namespace", "namespaces"),
        argument="namespace",
    ),
    Action(
        "ctx",
        "Switch to a context; alone: list them",
        "context:ctx",
        commands=("ctx", "context", "contexts"),
        argument="context",
    ),
)
_JOB = (
    Action(
        "open_job",
        "Open the job: instances, conditions, events",
        "navigate:open_job",
        footer="job",
        on=(
            On("jobs", "enter,d"),
            On("node_gpus", "enter,d", "Open the pod's job"),
            On("users", "enter,d", "Open the job"),
        ),
    ),
    Action(
        "logs",
        "Logs of a job",
        "navigate:logs",
        footer="logs",
        on=(
            On("jobs", "l", "Logs (live)"),
            On("node_gpus", "l", "Logs of the pod (live)"),
            On("job", "enter,l", "Logs of the selected instance (live)"),
        ),
        commands=("logs", "log"),
        argument="job",
        permission="get pods/log",
    ),
    Action(
        "previous_logs",
        "Logs of the previous run (before the last restart)",
        "navigate:previous_logs",
        on=(On("jobs", "p"), On("job", "p")),
        permission="get pods/log",
    ),
    Action(
        "curves",
        "Curves of a job",
        "navigate:curves",
        footer="curves",
        on=(
            On("jobs", "m", "Curves: loss and whatever else it logs"),
            On("job", "m", "Curves: loss and whatever else it logs"),
        ),
        commands=("curves", "curve"),
        argument="job",
    ),
    Action(
        "why",
        "Why a job waits, fails or restarts, and what would help",
        "navigate:why",
        footer="why",
        on=(On("jobs", "W"), On("node_gpus", "W"), On("job", "W"), On("logs", "W", footer="")),
        commands=("why",),
        argument="job",
    ),
    Action(
        "usage",
        "Usage of a job: the GPU of each rank; CPU, memory, network and storage of each pod",
        "navigate:usage",
        footer="usage",
        on=(On("jobs", "u", footer=""), On("job", "u")),
        commands=("usage",),
        argument="job",
    ),
    Action("job_events", "Events of the job and its pods", "navigate:job_events", on=(On("jobs", "v"),)),
    Action(
        "yaml",
        "YAML of a job, pod/NAME, secret/NAME…",
        "navigate:yaml",
        footer="yaml",
        on=(
            On("jobs", "y", "YAML of the job", ""),
            On("job", "y", "YAML of the selected pod; from other panes, of the job"),
        ),
        commands=("yaml", "y"),
        argument="job",
        permission="get job",
    ),
    Action("job_yaml", "YAML of the job", "navigate:job_yaml", on=(On("job", "Y"),), permission="get job"),
    Action(
        "shell",
        "Shell into one of its pods",
        "pods:shell",
        footer="shell",
        on=(On("jobs", "s", footer=""), On("job", "s", "Shell into the selected instance")),
        permission="get pods/exec",
        changes_cluster=True,
    ),
    Action(
        "port_forward",
        "Port-forward TensorBoard (toggle)",
        "pods:port_forward",
        on=(On("jobs", "f"), On("job", "F")),
        permission="get pods/portforward",
    ),
    Action(
        "bundle",
        "Write a support bundle: all that is known of a job, secrets removed",
        "export:bundle",
        commands=("bundle",),
        argument="job",
    ),
    Action(
        "new",
        "New job",
        "jobs:new",
        footer="new",
        on=(On("jobs", "n"),),
        commands=("new", "submit"),
        permission="create any job",
        changes_cluster=True,
    ),
    Action(
        "clone",
        "Clone: a new job like this one",
        "jobs:clone",
        footer="clone",
        on=(On("jobs", "b"), On("job", "b")),
        permission="create job",
        changes_cluster=True,
    ),
    Action(
        "delete",
        "Delete (asks first)",
        "jobs:delete",
        footer="delete",
        on=(On("jobs", "ctrl+d"), On("job", "ctrl+d")),
        permission="delete job",
        changes_cluster=True,
        takes_many=True,
    ),
    Action(
        "suspend",
        "Suspend (asks first)",
        "jobs:suspend",
        on=(On("jobs", "H"), On("job", "H")),
        permission="patch job",
        changes_cluster=True,
        takes_many=True,
    ),
    Action(
        "resume",
        "Resume (asks first)",
        "jobs:resume",
        on=(On("jobs", "R"), On("job", "R")),
        permission="patch job",
        changes_cluster=True,
        takes_many=True,
    ),
)
_ROWS = (
    Action(
        "node_gpus",
        "Who holds each GPU of the node, and since when",
        "navigate:node_gpus",
        footer="GPUs",
        on=(On("nodes", "enter,d"),),
    ),
    Action(
        "gpu_links",
        "Topology: how the node's GPUs are linked, and which are best together",
        "nodes:gpu_links",
        footer="topology",
        on=(On("nodes", "T"), On("node_gpus", "T", footer="")),
    ),
    Action(
        "gpu_schedule",
        "Give the node's GPUs by their links, or as usual again (ACK's label; asks first)",
        "nodes:gpu_schedule",
        on=(On("nodes", "t"), On("node_gpus", "t")),
        permission="patch nodes",
        changes_cluster=True,
    ),
    Action(
        "volume",
        "Describe the volume claim, and which pods use it",
        "navigate:volume",
        footer="open",
        on=(On("volumes", "enter,d"),),
    ),
    Action(
        "switch_namespace",
        "Switch to the namespace and show its jobs",
        "context:switch_namespace",
        footer="its jobs",
        on=(On("namespaces", "enter,d"),),
    ),
    Action(
        "switch_context",
        "Switch to the context",
        "context:switch_context",
        footer="switch",
        on=(On("contexts", "enter,d"),),
    ),
    Action(
        "all_namespaces",
        "All namespaces (toggle)",
        "context:all_namespaces",
        on=(On("jobs", "0"), On("events", "0"), On("volumes", "0"), On("users", "0")),
    ),
    Action(
        "next_view",
        "Next view",
        "navigate:next_view",
        on=(
            On("jobs", "tab", "Next view: nodes", "nodes"),
            On("nodes", "tab", "Next view: events", "events"),
            On("events", "tab", "Next view: volumes", "volumes"),
            On("volumes", "tab", "Next view: jobs", "jobs"),
            On("namespaces", "tab", "Next view: jobs", "jobs"),
        ),
    ),
    Action("info", "Versions, cluster, and your permissions", "info:info", commands=("info", "about")),
    Action(
        "theme",
        "Switch theme; alone: choose one to keep",
        "window:theme",
        commands=("theme",),
        argument="theme",
    ),
    Action("quit", "Quit", "window:leave", commands=("quit", "q", "q!")),
)

ACTIONS = ActionTable((*_EVERYWHERE, *_LISTS, *_JOB, *_ROWS))
"""Every action of the console's views."""
