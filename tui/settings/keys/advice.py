"""Translate advice from commands into keys, and name what replaces keys of the last release that are gone."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tui.settings.keys.action import ROW
from tui.settings.keys.actions import JOB_ACTIONS
from tui.settings.keys.key import remapped

# Commands and their equivalents in the console: an action on a job, or a `:` command.
_SAME = (
    (r"gpuconsole logs \S+( -(?P<by>[ir]) (?P<whose>\S+))?( -c \S+)? --previous\b", "previous_logs"),
    (r"gpuconsole logs \S+( -(?P<by>[ir]) (?P<whose>\S+))?( -c \S+)?", "logs"),
    (r"gpuconsole why( \S+)?", "why"),
    (r"gpuconsole diagnose( \S+)?", "diagnose"),
    (r"gpuconsole curves \S+", "curves"),
    (r"gpuconsole resume \S+", "resume"),
    (r"gpuconsole data list", ":volumes"),
    (r"kubectl describe pvc \S+", ":volumes"),
    (r"gpuconsole list -A", ":ns all"),
)


def console_advice(text: str, keymap: Mapping[str, str]) -> str:
    """Return advice with keys in place of commands that have one.

    Args:
        text: Advice as printed on the command line.
        keymap: The user's own keys, by id.
    """
    keys = (action.key(on) for action in JOB_ACTIONS for on in action.on if on.view == ROW)
    shown = {key.id: key.shown for key in remapped(keys, keymap)}
    for command, same in _SAME:
        key = shown.get(f"{ROW}.{same}", same)

        def said(found: re.Match[str], key: str = key) -> str:
            whose = found.groupdict().get("whose")
            rank = "rank " if whose and found["by"] == "r" else ""
            return f"{key} on {rank}{whose}" if whose else key

        text = re.sub(command, said, text)
    return text


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
