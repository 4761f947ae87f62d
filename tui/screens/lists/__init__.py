"""The views that are one table: of jobs, nodes, events, notices and the like.

They show what they are given and ask the app for everything else. Their keys and commands are declared
here, free of Textual: the console imports a view when it is first shown.
"""

from __future__ import annotations

from tui.settings.keys import EVERYWHERE, Action, Key, On, ViewDeclaration

JOBS = ViewDeclaration(
    "jobs",
    "Jobs",
    keys=(
        Key("jobs.mine", "M", "turn('mine')", "Only my jobs (toggle)", "mine"),
        Key("jobs.faults", "F", "faults", "Only failed, restarting, silent or stuck jobs (toggle)", "faults"),
        Key("jobs.older", "o", "turn('older')", "Include jobs that finished more than 7 days ago (toggle)"),
        Key("jobs.loss", "x", "loss", "Show the loss of running jobs (toggle)"),
        Key("jobs.nodes_pane", "1", "focus_pane('nodes')", "Go to the node bar"),
        Key("jobs.list_pane", "2", "focus_pane('list')", "Go to the list"),
        Key("jobs.job_pane", "3", "focus_pane('job')", "Go to the job pane"),
        Key("jobs.layout", "z", "layout", "Layout: full, or the list alone"),
    ),
    command=Action(
        "jobs",
        "Jobs: all (old too), NAMESPACE, /FILTER; job NAME: open",
        "navigate",
        commands=("jobs", "job", "j"),
        argument="filter",
    ),
    next_view="nodes",
    has_job_rows=True,
)
PODS = ViewDeclaration(
    "pods",
    "Pods",
    keys=(Key("pods.mine", "M", "turn('pods.all_users')", "Only pods of my jobs (toggle)", "mine"),),
    command=Action(
        "pods", "Pods of my jobs, or of all", "navigate", commands=("pods", "pod", "po"), argument="filter"
    ),
    next_view="jobs",
    has_job_rows=True,
)
NODES = ViewDeclaration(
    "nodes",
    "Nodes",
    keys=(
        Key("nodes.largest_job", "o", "largest_job", "Open the job that holds most of the node", "its job"),
    ),
    command=Action(
        "nodes",
        "Nodes and the holders of their GPUs",
        "navigate",
        commands=("nodes", "node", "no"),
        argument="filter",
    ),
    next_view="events",
)
GPUS = ViewDeclaration(
    "gpus",
    "GPUs of a node or a job",
    keys=(
        Key("gpus.open", "enter,d", "open", "Open the holder's job, or show the GPU's readings", "open"),
        Key("gpus.next_pane", "tab", "next_pane", "Readings of the node's GPUs; again: holders", "GPUs"),
    ),
    has_job_rows=True,
)
USERS = ViewDeclaration(
    "users",
    "Users",
    command=Action(
        "users",
        "Users: GPUs held, requested and idle, by user and job",
        "navigate",
        on=(On("nodes", "u"),),
        commands=("users", "user", "idle"),
        argument="filter",
    ),
    has_job_rows=True,
)
EVENTS = ViewDeclaration(
    "events",
    "Events",
    keys=(
        Key(
            "events.open_event", "enter,d", "open_event", "Open the event's job, otherwise the event", "open"
        ),
        Key("events.whole_event", "v", "whole_event", "Show the event in full", "whole"),
        Key("events.warnings", "F", "turn('events.warnings')", "Only warnings (toggle)", "warnings"),
    ),
    command=Action("events", "Events", "navigate", commands=("events", "event", "ev"), argument="filter"),
    next_view="volumes",
    has_job_rows=True,
)
VOLUMES = ViewDeclaration(
    "volumes",
    "Volumes",
    command=Action(
        "volumes", "Volume claims", "navigate", commands=("volumes", "pvc", "data"), argument="filter"
    ),
    next_view="jobs",
)
NAMESPACES = ViewDeclaration(
    "namespaces",
    "Namespaces and contexts",
    command=Action(
        "ns",
        "Switch to a namespace, or all; alone: list them",
        "context",
        commands=("ns", "namespace", "namespaces"),
        argument="namespace",
    ),
    next_view="jobs",
)
NOTICES = ViewDeclaration(
    "notices",
    "Notices",
    command=Action(
        "notices",
        "Notices: jobs that ended, failed, restarted, started, or fell silent",
        "notices",
        commands=("notices", "notifications"),
    ),
    has_job_rows=True,
)
RUNS = ViewDeclaration(
    "runs",
    "Past runs",
    keys=(Key("runs.compare", "C", "request_marked('compare')", "Compare the marked runs", "compare"),),
    command=Action(
        "runs", "Past runs, also of jobs that are gone", "runs", commands=("runs", "run"), argument="filter"
    ),
    has_job_rows=True,
)
TIMELINE = ViewDeclaration(
    "timeline",
    "Timeline",
    command=Action(
        "timeline",
        "Timeline: what happened to your jobs; of all users: all",
        "notices",
        on=(On(EVERYWHERE, "ctrl+t"),),
        commands=("timeline", "tl"),
        argument="filter",
    ),
    has_job_rows=True,
)
COMPARE = ViewDeclaration("compare", "Comparison", has_job_rows=True)
VIEWS = (JOBS, PODS, NODES, GPUS, USERS, EVENTS, VOLUMES, NAMESPACES, NOTICES, TIMELINE, RUNS, COMPARE)
