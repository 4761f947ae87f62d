"""Choices stored in the state folder: the theme, and the home layout of each context."""

from __future__ import annotations

import json
from pathlib import Path

from k8s.text.errors import KubeError
from k8s.text.home import read_named_file
from tui.settings.private_file import write_private_file

THEME_FILE, LAYOUTS_FILE = "theme.json", "layouts.json"
# Contexts to remember, the most recent ones.
MAX_CONTEXTS = 200


def store_theme(state_folder: Path, name: str, config_theme: str) -> None:
    """Store the chosen theme, and the one that config.yaml names now.

    Raises:
        KubeError: The file could not be written.
    """
    path = state_folder / THEME_FILE
    try:
        write_private_file(path, json.dumps({"theme": name, "config_theme": config_theme}))
    except OSError as error:
        raise KubeError("The theme could not be saved.", f"{path}: {error.strerror or error}.") from error


def read_theme(state_folder: Path, config_theme: str) -> str:
    """Return the chosen theme; that of config.yaml if none was chosen, or if config.yaml changed since.

    An unreadable file counts as missing; the next choice replaces it.
    """
    try:
        stored = json.loads(read_named_file(state_folder / THEME_FILE))
        name, config_theme_then = stored["theme"], stored["config_theme"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return config_theme
    return name if isinstance(name, str) and config_theme in ("", config_theme_then) else config_theme


class StoredLayouts:
    """Chosen layouts by context; without a folder they last until the console exits."""

    def __init__(self, state_folder: Path | None = None) -> None:
        """Read nothing until the first lookup."""
        self._path = state_folder / LAYOUTS_FILE if state_folder is not None else None
        self._layouts: dict[str, str] | None = None

    def find(self, context: str) -> str:
        """Return the layout of a context; empty if none was chosen."""
        return self._read().get(context, "")

    def store(self, context: str, layout: str) -> bool:
        """Remember a layout; return False if it could not be written."""
        layouts = self._read()
        layouts.pop(context, None)
        layouts[context] = layout
        for name in list(layouts)[:-MAX_CONTEXTS]:
            del layouts[name]
        try:
            if self._path is not None:
                write_private_file(self._path, json.dumps(layouts))
        except OSError:
            return False
        return True

    def _read(self) -> dict[str, str]:
        # An unreadable file counts as empty; the next choice replaces it.
        if self._layouts is None:
            try:
                found = json.loads(read_named_file(self._path)) if self._path is not None else {}
            except (OSError, ValueError, RecursionError):
                found = {}
            pairs = found.items() if isinstance(found, dict) else ()
            self._layouts = {name: layout for name, layout in pairs if isinstance(layout, str)}
        return self._layouts
