"""The columns of each list, declared once: cells of the console, texts of commands, values of JSON.

It draws nothing and fetches nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def column_keys() -> Mapping[str, Collection[str]]:
    """Return the keys of the columns of each list that config.yaml may choose."""
    from tui.tables import column, events, jobs, nodes, notices, pods, users, volumes  # slow to import

    columns: Mapping[str, tuple[column.Column, ...]] = {
        "jobs": jobs.COLUMNS,
        "pods": pods.COLUMNS,
        "nodes": nodes.COLUMNS,
        "users": users.COLUMNS,
        "events": events.COLUMNS,
        "volumes": volumes.COLUMNS,
        "notices": notices.COLUMNS,
    }
    return {name: tuple(each.key for each in found) for name, found in columns.items()}
