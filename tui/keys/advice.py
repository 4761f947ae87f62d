"""Advice names commands; in the console it names the key, or the `:` command, that does the same."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tui.keys.actions import ACTIONS
from tui.keys.key import remapped

_SAME = (
    (r"gpuconsole logs \S+( -i (?P<instance>\S+))?( -c \S+)? --previous\b", "previous_logs"),
    (r"gpuconsole logs \S+( -i (?P<instance>\S+))?( -c \S+)?", "logs"),
    (r"gpuconsole why( \S+)?", "why"),
    (r"gpuconsole resume \S+", "resume"),
    (r"gpuconsole data list", ":volumes"),
    (r"kubectl describe pvc \S+", ":volumes"),
    (r"gpuconsole list -A", ":ns all"),
)
"""Commands, and what does the same in the console: a key of the list of jobs, or what is typed."""


def console_advice(text: str, keymap: Mapping[str, str]) -> str:
    """Return advice with keys in place of the commands for which there is one.

    Args:
        text: As it is said on the command line.
        keymap: The user's own keys, by their ids.
    """
    shown = {key.id: key.shown for key in remapped(ACTIONS.keys("jobs"), keymap)}
    for command, same in _SAME:
        key = shown.get(f"jobs.{same}", same)

        def said(found: re.Match[str], key: str = key) -> str:
            instance = found.groupdict().get("instance")
            return f"{key} on {instance}" if instance else key

        text = re.sub(command, said, text)
    return text
