"""The home folder in paths that people type."""

from __future__ import annotations

import os
from pathlib import Path


def expand_home(path: str | Path) -> Path:
    """Return a path with the home folder for its `~` or `~user`; as it is where nobody has that name.

    `Path.expanduser` raises `RuntimeError` there, as while a name is still being typed.
    """
    return Path(os.path.expanduser(path))
