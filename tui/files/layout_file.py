"""Which panes home shows in each context, kept in the state folder for the next time."""

from __future__ import annotations

import json
from pathlib import Path

from tui.files.private_file import write_private_file

FILE = "layouts.json"
"""Name of the file in the state folder."""
MOST_KEPT = 200
"""Contexts that are remembered, those that were chosen for last."""


class KeptLayouts:
    """The layouts that were chosen, by context; without a folder they hold while the console runs."""

    def __init__(self, state_folder: Path | None = None) -> None:
        """Read nothing until the first question."""
        self._path = state_folder / FILE if state_folder is not None else None
        self._kept: dict[str, str] | None = None

    def find(self, context: str) -> str:
        """Return the name of the layout that was chosen for a context; empty where none was."""
        return self._read().get(context, "")

    def keep(self, context: str, layout: str) -> bool:
        """Remember a layout; return whether it could be written."""
        kept = self._read()
        kept.pop(context, None)
        kept[context] = layout
        for name in list(kept)[:-MOST_KEPT]:
            del kept[name]
        try:
            if self._path is not None:
                write_private_file(self._path, json.dumps(kept))
        except OSError:
            return False
        return True

    def _read(self) -> dict[str, str]:
        """Return what is kept; a file that cannot be read is as none, and the next choice replaces it."""
        if self._kept is None:
            try:
                found = json.loads(self._path.read_bytes()) if self._path is not None else {}
            except (OSError, ValueError, RecursionError):
                found = {}
            pairs = found.items() if isinstance(found, dict) else ()
            self._kept = {name: layout for name, layout in pairs if isinstance(layout, str)}
        return self._kept
