"""Keys and `:` commands of the last release that are gone, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping

REMOVED: Mapping[str, str] = {
    "ctrl+g": "ctrl+g is gone: tab and shift+tab move the focus.",
    "f2": "f2 is gone: a template is a YAML file with fields of the form, see :help jobs.",
    "nodes.z": "The list of nodes has no preview any more: enter shows the node and who holds its GPUs.",
    **{
        f"{view}.1": "1 is gone: . and , select a column, and O sorts by it."
        for view in ("pods", "nodes", "users", "namespaces", "runs", "compare", "gpus")
    },
    ":bundle": "Use gpuconsole info --json, and W, T and l on the job.",
}
"""By the key in Textual's name, with its view if others use it, or the `:` command."""
