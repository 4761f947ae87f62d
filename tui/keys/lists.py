"""Keys of the views that are a list."""

from __future__ import annotations

from tui.keys.key import Key

JOBS = (
    Key("jobs.open", "enter,d", "open", "Open the job: instances, conditions, events", "job"),
    Key("jobs.logs", "l", "logs", "Logs, live", "logs", right="logs"),
    Key("jobs.previous", "p", "previous", "Logs of the run before the last restart", right="logs"),
    Key("jobs.why", "W", "why", "Why it waits, fails or restarts, and what would help", "why"),
    Key("jobs.events", "v", "events", "What happened to the job and its pods"),
    Key("jobs.curves", "m", "curves", "Curves: loss and whatever else it writes", "curves"),
    Key("jobs.new", "n", "new_job", "New job", "new", True, right="new"),
    Key("jobs.clone", "b", "clone", "New job like this one", "clone", True, right="clone"),
    Key("jobs.delete", "ctrl+d", "delete", "Delete, after a question", "delete", True, right="delete"),
    Key("jobs.mine", "M", "mine", "Mine only, or all", "mine"),
    Key(
        "jobs.faults",
        "F",
        "faults",
        "Only what failed, restarts, is silent or has a reason to wait",
        "faults",
    ),
    Key("jobs.older", "o", "older", "Also jobs that finished more than 7 days ago, or not"),
    Key("jobs.yaml", "y", "yaml", "The job's object as YAML", right="yaml"),
    Key("jobs.shell", "s", "shell", "A shell in one of its pods", "", True, right="shell"),
    Key("jobs.forward", "f", "forward", "Forward its TensorBoard to this machine", right="forward"),
    Key("jobs.hold", "H", "hold", "Hold: suspend, after a question", "", True, right="suspend"),
    Key("jobs.resume", "R", "resume", "Resume what is suspended, after a question", "", True, right="resume"),
    Key("jobs.all_namespaces", "0", "all_namespaces", "All namespaces, and back"),
    Key("jobs.sort_name", "N", "sort('name')", "Sort by name; again turns it round"),
    Key("jobs.sort_age", "A", "sort('age')", "Sort by age"),
    Key("jobs.sort_status", "S", "sort('status')", "Sort by status"),
    Key("jobs.next_view", "tab", "next_view", "Nodes", "nodes"),
)
"""In the list of jobs."""

NODES = (
    Key("nodes.holders", "enter,d", "holders", "Who holds each GPU of the node, and since when", "holders"),
    Key("nodes.owner", "o", "owner", "Open the job that holds most of it", "its job"),
    Key("nodes.sort_free", "1", "sort('free')", "Sort by free GPUs", "by free"),
    Key("nodes.sort_name", "N", "sort('name')", "Sort by name; again turns it round"),
    Key("nodes.next_view", "tab", "next_view", "Events", "events"),
)
"""In the list of nodes."""

HOLDERS = (
    Key("holders.open", "enter,d", "open", "Open the job of the pod", "job"),
    Key("holders.logs", "l", "logs", "Logs of the pod, live", "logs", right="logs"),
    Key("holders.why", "W", "why", "Why the job waits, fails or restarts", "why"),
    Key("holders.sort_since", "A", "sort('since')", "Sort by since when it is held"),
)
"""In the list of who holds the GPUs of a node."""

CONTEXTS = (
    Key("contexts.open", "enter,d", "open", "Go to its cluster", "go there"),
    Key("contexts.sort_name", "N", "sort('name')", "Sort by name; again turns it round"),
)
"""In the list of contexts."""

EVENTS = (
    Key("events.open", "enter,d", "open", "The job it is about, else all that it says", "open"),
    Key("events.whole", "v", "whole", "All that the event says", "whole"),
    Key("events.warnings", "F", "warnings", "Only warnings, or all", "warnings"),
    Key("events.all_namespaces", "0", "all_namespaces", "All namespaces, and back"),
    Key("events.sort_age", "A", "sort('age')", "Sort by age; again turns it round"),
    Key("events.sort_about", "N", "sort('about')", "Sort by what they are about"),
    Key("events.sort_type", "S", "sort('type')", "Sort by type"),
    Key("events.next_view", "tab", "next_view", "Volumes", "volumes"),
)
"""In the list of events."""

VOLUMES = (
    Key("volumes.open", "enter,d", "open", "All that is known of it, and which pods use it", "open"),
    Key("volumes.all_namespaces", "0", "all_namespaces", "All namespaces, and back"),
    Key("volumes.sort_name", "N", "sort('name')", "Sort by name; again turns it round"),
    Key("volumes.sort_age", "A", "sort('age')", "Sort by age"),
    Key("volumes.sort_status", "S", "sort('status')", "Sort by status"),
    Key("volumes.next_view", "tab", "next_view", "Jobs", "jobs"),
)
"""In the list of volume claims."""

NAMESPACES = (
    Key("namespaces.open", "enter,d", "open", "Show its jobs", "its jobs"),
    Key("namespaces.sort_name", "N", "sort('name')", "Sort by name; again turns it round"),
    Key("namespaces.sort_age", "A", "sort('age')", "Sort by age"),
    Key("namespaces.sort_held", "1", "sort('held')", "Sort by GPUs held", "by GPUs"),
    Key("namespaces.next_view", "tab", "next_view", "Jobs", "jobs"),
)
"""In the list of namespaces."""
