"""The views that are one table: of jobs, nodes, events, notices and the like.

They show what they are given and ask the app for everything else. Their keys and commands are declared
here, free of Textual: the console imports a view when it is first shown.
"""

from __future__ import annotations

from tui.settings.keys import TABLE_FOCUSED, Action, Key, On, ViewDeclaration, sorting_key

JOBS = ViewDeclaration(
    "jobs",
    "Jobs",
    keys=(
        Key("jobs.mine", "M", "mine", "Only my jobs (toggle)", "mine"),
        Key("jobs.faults", "F", "faults", "Only failed, restarting, silent or stuck jobs (toggle)", "faults"),
        Key("jobs.older", "o", "older", "Include jobs that finished more than 7 days ago (toggle)"),
        Key("jobs.loss", "x", "loss", "Show the loss of running jobs (toggle)"),
        Key("jobs.nodes_pane", "1", "focus_pane('nodes')", "Go to the node bar"),
        Key("jobs.list_pane", "2", "focus_pane('list')", "Go to the list"),
        Key("jobs.job_pane", "3", "focus_pane('job')", "Go to the job pane"),
        Key("jobs.layout", "z", "layout", "Layout: full, or the list alone"),
        sorting_key("jobs", "N", "name", "name"),
        sorting_key("jobs", "A", "age", "age"),
        sorting_key("jobs", "S", "status", "status"),
    ),
    focused=TABLE_FOCUSED,
    command=Action(
        "jobs",
        "Jobs: all (old too), NAMESPACE, /FILTER; job NAME: open",
        "navigate",
        commands=("jobs", "job", "j"),
        argument="filter",
    ),
    next_view="nodes",
)
PODS = ViewDeclaration(
    "pods",
    "Pods",
    keys=(
        Key("pods.mine", "M", "mine", "Only pods of my jobs (toggle)", "mine"),
        sorting_key("pods", "1", "restarts", "restarts"),
        sorting_key("pods", "N", "name", "name"),
        sorting_key("pods", "A", "age", "age"),
        sorting_key("pods", "S", "status", "status"),
    ),
    focused=TABLE_FOCUSED,
    command=Action(
        "pods", "Pods of my jobs, or of all", "navigate", commands=("pods", "pod", "po"), argument="filter"
    ),
    next_view="jobs",
)
NODES = ViewDeclaration(
    "nodes",
    "Nodes",
    keys=(
        Key("nodes.largest_job", "o", "largest_job", "Open the job that holds most of the node", "its job"),
        sorting_key("nodes", "1", "free", "free GPUs", "by free"),
        sorting_key("nodes", "N", "name", "name"),
    ),
    focused=TABLE_FOCUSED,
    command=Action(
        "nodes",
        "Nodes and the holders of their GPUs",
        "navigate",
        commands=("nodes", "node", "no"),
        argument="filter",
    ),
    next_view="events",
)
NODE_GPUS = ViewDeclaration(
    "node_gpus",
    "GPUs of a node",
    keys=(
        sorting_key("node_gpus", "A", "since", "holding time"),
        Key("node_gpus.next_pane", "tab", "next_pane", "GPU usage; again: holders", "GPUs"),
    ),
    focused=TABLE_FOCUSED,
)
USERS = ViewDeclaration(
    "users",
    "Users",
    keys=(
        sorting_key("users", "1", "idle", "idle GPUs", "by idle"),
        sorting_key("users", "N", "user", "user"),
    ),
    focused=TABLE_FOCUSED,
    command=Action(
        "users",
        "Users: GPUs held, requested and idle, by user and job",
        "navigate",
        on=(On("nodes", "u"),),
        commands=("users", "user", "idle"),
        argument="filter",
    ),
)
EVENTS = ViewDeclaration(
    "events",
    "Events",
    keys=(
        Key(
            "events.open_event", "enter,d", "open_event", "Open the event's job, otherwise the event", "open"
        ),
        Key("events.whole_event", "v", "whole_event", "Show the event in full", "whole"),
        Key("events.warnings", "F", "warnings", "Only warnings (toggle)", "warnings"),
        sorting_key("events", "A", "age", "age"),
        sorting_key("events", "N", "about", "involved object"),
        sorting_key("events", "S", "type", "type"),
    ),
    focused=TABLE_FOCUSED,
    command=Action("events", "Events", "navigate", commands=("events", "event", "ev"), argument="filter"),
    next_view="volumes",
)
VOLUMES = ViewDeclaration(
    "volumes",
    "Volumes",
    keys=(
        sorting_key("volumes", "N", "name", "name"),
        sorting_key("volumes", "A", "age", "age"),
        sorting_key("volumes", "S", "status", "status"),
    ),
    focused=TABLE_FOCUSED,
    command=Action(
        "volumes", "Volume claims", "navigate", commands=("volumes", "pvc", "data"), argument="filter"
    ),
    next_view="jobs",
)
NAMESPACES = ViewDeclaration(
    "namespaces",
    "Namespaces",
    keys=(
        sorting_key("namespaces", "N", "name", "name"),
        sorting_key("namespaces", "A", "age", "age"),
        sorting_key("namespaces", "1", "held", "GPUs held", "by GPUs"),
    ),
    focused=TABLE_FOCUSED,
    command=Action(
        "ns",
        "Switch to a namespace, or all; alone: list them",
        "context",
        commands=("ns", "namespace", "namespaces"),
        argument="namespace",
    ),
    next_view="jobs",
)
CONTEXTS = ViewDeclaration(
    "contexts",
    "Contexts",
    keys=(sorting_key("contexts", "N", "name", "name"),),
    focused=TABLE_FOCUSED,
    command=Action(
        "ctx",
        "Switch to a context; alone: list them",
        "context",
        commands=("ctx", "context", "contexts"),
        argument="context",
    ),
)
NOTICES = ViewDeclaration(
    "notices",
    "Notices",
    keys=(
        sorting_key("notices", "A", "time", "time"),
        sorting_key("notices", "N", "job", "job"),
        sorting_key("notices", "S", "event", "event"),
    ),
    focused=TABLE_FOCUSED,
    command=Action(
        "notices",
        "Notices: jobs that ended, failed, restarted, started, or fell silent",
        "notices",
        commands=("notices", "notifications"),
    ),
)
RUNS = ViewDeclaration(
    "runs",
    "Past runs",
    keys=(
        Key("runs.compare", "C", "compare_marked", "Compare the marked runs", "compare"),
        sorting_key("runs", "A", "ended", "end"),
        sorting_key("runs", "N", "name", "name"),
        sorting_key("runs", "S", "status", "status"),
        sorting_key("runs", "1", "loss", "loss", "by loss"),
    ),
    focused=TABLE_FOCUSED,
    command=Action(
        "runs", "Past runs, also of jobs that are gone", "runs", commands=("runs", "run"), argument="filter"
    ),
)
COMPARE = ViewDeclaration(
    "compare",
    "Comparison",
    keys=(
        sorting_key("compare", "N", "name", "name"),
        sorting_key("compare", "1", "throughput", "rate", "by rate"),
    ),
    focused=TABLE_FOCUSED,
)
VIEWS = (JOBS, PODS, NODES, NODE_GPUS, USERS, EVENTS, VOLUMES, NAMESPACES, CONTEXTS, NOTICES, RUNS, COMPARE)
