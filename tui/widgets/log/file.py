"""Logs kept on disk: what a view holds, byte for byte, readable by its owner only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from k8s.logs import Item, LogLine, printed


def save(path: Path, items: Sequence[Item], *, with_names: bool) -> tuple[Path, int]:
    """Write the lines among `items` to a new file.

    Args:
        path: Where; the time is added to its name.
        items: What is held; markers are left out.
        with_names: Put the instance and rank before each line.

    Returns:
        The file, and how many lines it has.

    Raises:
        OSError: It could not be written.
    """
    path = path.with_name(f"{path.stem}-{datetime.now():%Y%m%d-%H%M%S}{path.suffix}")
    lines = [item for item in items if isinstance(item, LogLine)]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.writelines(printed(line, name=with_names) for line in lines)
    return path, len(lines)
