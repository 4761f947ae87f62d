"""The theme that was chosen in the console, kept in the state folder.

It holds until another one is chosen, or until config.yaml names another than it did then.
"""

from __future__ import annotations

import json
from pathlib import Path

from k8s.errors import KubeError
from tui.files.private_file import write_private_file

FILE = "theme.json"
"""Name of the file in the state folder."""


def keep_theme(state_folder: Path, name: str, config_theme: str) -> None:
    """Remember a theme for the next time, and which one config.yaml names now.

    Raises:
        KubeError: It could not be written.
    """
    path = state_folder / FILE
    try:
        write_private_file(path, json.dumps({"theme": name, "config_theme": config_theme}))
    except OSError as error:
        raise KubeError("The theme could not be saved.", f"{path}: {error.strerror or error}.") from error


def read_theme(state_folder: Path, config_theme: str) -> str:
    """Return the theme that was chosen; that of config.yaml where none was, or it names another since.

    A file that cannot be read is as none: the next choice replaces it.
    """
    try:
        kept = json.loads((state_folder / FILE).read_bytes())
        name, config_theme_then = kept["theme"], kept["config_theme"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return config_theme
    return name if isinstance(name, str) and config_theme in ("", config_theme_then) else config_theme
