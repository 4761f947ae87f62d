"""Choices of the user in the journal: the theme, and the home layout of each context."""

from __future__ import annotations

import json

from k8s.text.errors import KubeError
from tui.runs.journal.database import Journal

# Contexts whose layout is remembered, the most recent ones.
MAX_CONTEXTS = 200
_FIND = "SELECT value FROM choices WHERE name = ?"
_PUT = "INSERT OR REPLACE INTO choices (name, value) VALUES (?, ?)"
_DROP = (
    "DELETE FROM choices WHERE name IN"
    " (SELECT name FROM choices WHERE name LIKE 'layout %' ORDER BY rowid DESC LIMIT -1 OFFSET ?)"
)


def read_theme(journal: Journal, config_theme: str) -> str:
    """Return the chosen theme; that of config.yaml if none was chosen, or if config.yaml changed since."""
    try:
        name, config_theme_then = json.loads(_find(journal, "theme"))
    except (ValueError, RecursionError, TypeError):
        return config_theme
    return name if isinstance(name, str) and config_theme in ("", config_theme_then) else config_theme


def store_theme(journal: Journal, name: str, config_theme: str) -> None:
    """Store the chosen theme, and the one that config.yaml names now.

    Raises:
        KubeError: The journal could not be written.
    """
    if not _put(journal, "theme", json.dumps([name, config_theme])):
        raise KubeError("The theme could not be saved.", "\n".join(journal.problems[-1:]))


def read_layout(journal: Journal, context: str) -> str:
    """Return the layout of a context; empty if none was chosen."""
    return _find(journal, f"layout {context}")


def store_layout(journal: Journal, context: str, layout: str) -> bool:
    """Store the layout of a context; return False if it is remembered only until the console exits."""
    return _put(journal, f"layout {context}", layout)


def _find(journal: Journal, name: str) -> str:
    if not journal.is_begun:  # creating it takes time, before the first frame
        return ""
    return next((str(value) for (value,) in journal.rows(_FIND, name)), "")


def _put(journal: Journal, name: str, value: str) -> bool:
    is_written = journal.write((_PUT, name, value), (_DROP, MAX_CONTEXTS))
    return is_written and (journal.path is None or journal.is_on_disk)
