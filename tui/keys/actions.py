"""The action table: what the console's views can do, one row each.

Add a row here and its function in `tui.actions`; bindings, footer, help, palette, `:`, completion,
refusals, `--readonly` and the README follow. The letters are k9s' where k9s has one.
"""

from __future__ import annotations

from tui.keys.action import EVERYWHERE, Action, ActionTable, On

ACTIONS = ActionTable(
    (
        # Everywhere
        Action(
            name="back",
            help="Back; clears the filter first",
            footer="back",
            function="window:back",
            on=(On(EVERYWHERE, "escape"),),
        ),
        Action(
            name="filter",
            help="Filter (syntax below)",
            footer="filter",
            method="filter",
            on=(On(EVERYWHERE, "slash"),),
            opens_prompt=True,
        ),
        Action(
            name="command",
            help="Run a command",
            footer="command",
            method="command",
            on=(On(EVERYWHERE, "colon"),),
            opens_prompt=True,
        ),
        Action(
            name="help",
            help="Help",
            footer="help",
            function="window:show_help",
            on=(On(EVERYWHERE, "question_mark"),),
            commands=("help", "h"),
        ),
        Action(
            name="last_view",
            help="Previous view (toggle)",
            function="window:last_view",
            on=(On(EVERYWHERE, "minus"),),
        ),
        Action(
            name="palette", help="Command palette", function="window:palette", on=(On(EVERYWHERE, "ctrl+p"),)
        ),
        Action(
            name="jump",
            help="Jump to a pane by its letter",
            function="window:jump",
            on=(On(EVERYWHERE, "ctrl+g"),),
        ),
        Action(
            name="copy",
            help="Copy the name of the row, or of all marked rows",
            function="export:copy",
            on=(On(EVERYWHERE, "c"),),
        ),
        Action(
            name="save", help="Save the table as CSV", function="export:save", on=(On(EVERYWHERE, "ctrl+s"),)
        ),
        Action(
            name="preview",
            help="Toggle the preview of jobs and nodes (from 140 columns)",
            method="preview",
            on=(On(EVERYWHERE, "z"),),
        ),
        Action(
            name="refresh", help="Refresh now", function="context:refresh", on=(On(EVERYWHERE, "ctrl+r"),)
        ),
        Action(
            name="quit_or_back",
            help="Back; from the jobs list, quit",
            function="window:quit_or_back",
            on=(On(EVERYWHERE, "q"),),
        ),
        Action(
            name="suspend_process",
            help="Suspend gpuconsole (fg resumes it)",
            method="app.suspend_process",
            on=(On(EVERYWHERE, "ctrl+z"),),
        ),
        Action(
            name="interrupt",
            help="Cancel the prompt or dialog; otherwise quit at once (jobs keep running)",
            method="interrupt",
            on=(On(EVERYWHERE, "ctrl+c"),),
            opens_prompt=True,
        ),
        # Lists
        Action(
            name="jobs",
            help="Jobs; jobs all includes those that finished long ago",
            function="navigate:jobs",
            commands=("jobs", "job", "j"),
        ),
        Action(
            name="nodes",
            help="Nodes and who holds their GPUs",
            function="navigate:nodes",
            commands=("nodes", "node", "no"),
        ),
        Action(name="events", help="Events", function="navigate:events", commands=("events", "event", "ev")),
        Action(
            name="volumes",
            help="Volume claims",
            function="navigate:volumes",
            commands=("volumes", "pvc", "data"),
        ),
        Action(
            name="ns",
            help="Switch to a namespace, or all; alone: list them",
            function="context:ns",
            commands=("ns", "namespace", "namespaces"),
            argument="namespace",
        ),
        Action(
            name="ctx",
            help="Switch to a context; alone: list them",
            function="context:ctx",
            commands=("ctx", "context", "contexts"),
            argument="context",
        ),
        # One job
        Action(
            name="open_job",
            help="Open the job: instances, conditions, events",
            footer="job",
            function="navigate:open_job",
            on=(On("jobs", "enter,d"), On("node_gpus", "enter,d", "Open the pod's job")),
        ),
        Action(
            name="logs",
            help="Logs of a job",
            footer="logs",
            function="navigate:logs",
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
            name="previous_logs",
            help="Logs of the previous run (before the last restart)",
            function="navigate:previous_logs",
            on=(On("jobs", "p"), On("job", "p")),
            permission="get pods/log",
        ),
        Action(
            name="curves",
            help="Curves of a job",
            footer="curves",
            function="navigate:curves",
            on=(
                On("jobs", "m", "Curves: loss and whatever else it logs"),
                On("job", "m", "Curves: loss and whatever else it logs"),
            ),
            commands=("curves", "curve"),
            argument="job",
        ),
        Action(
            name="why",
            help="Why a job waits, fails or restarts, and what would help",
            footer="why",
            function="navigate:why",
            on=(On("jobs", "W"), On("node_gpus", "W"), On("job", "W")),
            commands=("why",),
            argument="job",
        ),
        Action(
            name="job_events",
            help="Events of the job and its pods",
            function="navigate:job_events",
            on=(On("jobs", "v"),),
        ),
        Action(
            name="yaml",
            help="YAML of a job, pod/NAME, secret/NAME…",
            footer="yaml",
            function="navigate:yaml",
            on=(
                On("jobs", "y", "YAML of the job", ""),
                On("job", "y", "YAML of the selected pod; from other panes, of the job"),
            ),
            commands=("yaml", "y"),
            argument="job",
            permission="get job",
        ),
        Action(
            name="job_yaml",
            help="YAML of the job",
            function="navigate:job_yaml",
            on=(On("job", "Y"),),
            permission="get job",
        ),
        Action(
            name="shell",
            help="Shell into one of its pods",
            footer="shell",
            function="pods:shell",
            on=(On("jobs", "s", footer=""), On("job", "s", "Shell into the selected instance")),
            permission="get pods/exec",
            changes_cluster=True,
        ),
        Action(
            name="port_forward",
            help="Port-forward TensorBoard (toggle)",
            function="pods:port_forward",
            on=(On("jobs", "f"), On("job", "F")),
            permission="get pods/portforward",
        ),
        Action(
            name="bundle",
            help="Write a support bundle: all that is known of a job, secrets removed",
            function="export:bundle",
            commands=("bundle",),
            argument="job",
        ),
        Action(
            name="new",
            help="New job",
            footer="new",
            function="jobs:new",
            on=(On("jobs", "n"),),
            commands=("new", "submit"),
            permission="create any job",
            changes_cluster=True,
        ),
        Action(
            name="clone",
            help="Clone: a new job like this one",
            footer="clone",
            function="jobs:clone",
            on=(On("jobs", "b"), On("job", "b")),
            permission="create job",
            changes_cluster=True,
        ),
        Action(
            name="delete",
            help="Delete (asks first)",
            footer="delete",
            function="jobs:delete",
            on=(On("jobs", "ctrl+d"), On("job", "ctrl+d")),
            permission="delete job",
            changes_cluster=True,
            takes_many=True,
        ),
        Action(
            name="suspend",
            help="Suspend (asks first)",
            function="jobs:suspend",
            on=(On("jobs", "H"), On("job", "H")),
            permission="patch job",
            changes_cluster=True,
            takes_many=True,
        ),
        Action(
            name="resume",
            help="Resume (asks first)",
            function="jobs:resume",
            on=(On("jobs", "R"), On("job", "R")),
            permission="patch job",
            changes_cluster=True,
            takes_many=True,
        ),
        # Where lists lead
        Action(
            name="node_gpus",
            help="Who holds each GPU of the node, and since when",
            footer="GPUs",
            function="navigate:node_gpus",
            on=(On("nodes", "enter,d"),),
        ),
        Action(
            name="volume",
            help="Describe the volume claim, and which pods use it",
            footer="open",
            function="navigate:volume",
            on=(On("volumes", "enter,d"),),
        ),
        Action(
            name="switch_namespace",
            help="Switch to the namespace and show its jobs",
            footer="its jobs",
            function="context:switch_namespace",
            on=(On("namespaces", "enter,d"),),
        ),
        Action(
            name="switch_context",
            help="Switch to the context",
            footer="switch",
            function="context:switch_context",
            on=(On("contexts", "enter,d"),),
        ),
        Action(
            name="all_namespaces",
            help="All namespaces (toggle)",
            function="context:all_namespaces",
            on=(On("jobs", "0"), On("events", "0"), On("volumes", "0")),
        ),
        Action(
            name="next_view",
            help="Next view",
            function="navigate:next_view",
            on=(
                On("jobs", "tab", "Next view: nodes", "nodes"),
                On("nodes", "tab", "Next view: events", "events"),
                On("events", "tab", "Next view: volumes", "volumes"),
                On("volumes", "tab", "Next view: jobs", "jobs"),
                On("namespaces", "tab", "Next view: jobs", "jobs"),
            ),
        ),
        Action(
            name="info",
            help="Versions, cluster, and your permissions",
            function="info:info",
            commands=("info", "about"),
        ),
        Action(
            name="theme",
            help="Switch theme; alone: choose one to keep",
            function="window:theme",
            commands=("theme",),
            argument="theme",
        ),
        Action(name="quit", help="Quit", function="window:leave", commands=("quit", "q", "q!")),
    )
)
"""Every action of the console's views."""
