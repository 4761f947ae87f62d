"""Keys of the views that are a list."""

from __future__ import annotations

from tui.keys.key import Key

JOBS = (
    Key("jobs.open", "enter,d", "open", "Open the job: instances, conditions, events", "job"),
    Key("jobs.logs", "l", "logs", "Logs, live", "logs", right="logs"),
    Key("jobs.curves", "m", "curves", "Curves: loss and whatever else it writes", "curves"),
    Key("jobs.new", "n", "new_job", "New job", "new", True),
    Key("jobs.delete", "ctrl+d", "delete", "Delete, after a question", "delete", True, right="delete"),
    Key("jobs.why", "W", "why", "Why it waits, fails or restarts, and what would help"),
    Key("jobs.yaml", "y", "yaml", "The job's object as YAML"),
    Key("jobs.all_namespaces", "0", "all_namespaces", "All namespaces, and back"),
    Key("jobs.sort_name", "N", "sort('name')", "Sort by name; again turns it round"),
    Key("jobs.sort_age", "A", "sort('age')", "Sort by age"),
    Key("jobs.sort_status", "S", "sort('status')", "Sort by status"),
    Key("jobs.next_view", "tab", "next_view", "Nodes", "nodes"),
)
"""In the list of jobs."""

NODES = (
    Key("nodes.sort_name", "N", "sort('name')", "Sort by name; again turns it round"),
    Key("nodes.sort_free", "1", "sort('free')", "Sort by free GPUs", "by free"),
    Key("nodes.next_view", "tab", "next_view", "Jobs", "jobs"),
)
"""In the list of nodes."""

CONTEXTS = (Key("contexts.sort_name", "N", "sort('name')", "Sort by name; again turns it round"),)
"""In the list of contexts."""
