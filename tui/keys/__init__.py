"""Every key and every `:` command of the console, in one table.

The bindings, the footer, the help, the palette and the README are all made from it, so
they cannot disagree. The letters are k9s' where k9s has one.
"""

from __future__ import annotations

from tui.keys.commands import COMMANDS, PromptCommand, find_command
from tui.keys.everywhere import DELETE, DIALOG, EVERYWHERE, PROMPT, TABLE
from tui.keys.job import CHART, CURVES, JOB, LOG, LOGS
from tui.keys.key import Key, UserKeys, remapped
from tui.keys.lists import CONTEXTS, EVENTS, HOLDERS, JOBS, NAMESPACES, NODES, VOLUMES
from tui.keys.others import CARD, HELP, NEW_JOB, TEXT, YAML

__all__ = [
    "CARD",
    "CHART",
    "COMMANDS",
    "CONTEXTS",
    "CURVES",
    "DELETE",
    "DIALOG",
    "EVENTS",
    "EVERYWHERE",
    "HELP",
    "HOLDERS",
    "JOB",
    "JOBS",
    "LOG",
    "LOGS",
    "NAMESPACES",
    "NEW_JOB",
    "NODES",
    "PLACES",
    "PROMPT",
    "TABLE",
    "TEXT",
    "VOLUMES",
    "YAML",
    "Key",
    "PromptCommand",
    "UserKeys",
    "find_command",
    "remapped",
]

PLACES: tuple[tuple[str, tuple[Key, ...]], ...] = (
    ("Everywhere", EVERYWHERE),
    ("While typing", PROMPT),
    ("In tables", TABLE),
    ("Jobs", JOBS),
    ("Nodes", NODES),
    ("Who holds a node", HOLDERS),
    ("Events", EVENTS),
    ("Volumes", VOLUMES),
    ("Namespaces", NAMESPACES),
    ("Contexts", CONTEXTS),
    ("One job", JOB),
    ("Logs", LOGS),
    ("The text of a log", LOG),
    ("Curves", CURVES),
    ("One chart", CHART),
    ("New job", NEW_JOB),
    ("Text", TEXT),
    ("YAML", tuple(key for key in YAML if key not in TEXT)),
    ("A row in full", CARD),
    ("Questions", DIALOG),
    ("Before deleting", DELETE),
    ("Help", HELP),
)
"""The whole table: where, and its keys there."""
