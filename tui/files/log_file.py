"""Logs kept on disk: all of one, byte for byte, with a line wherever some are missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from k8s.logs import Item, LogLine, Mark, printed
from tui.files.private_file import PrivateFile, make_private_folder

_BYTES_AT_ONCE = 1024 * 1024
_WRITTEN_MARKS = (Mark.GAP, Mark.DROPPED, Mark.NOTE)


@dataclass(frozen=True, slots=True)
class SavedLog:
    """A log that was saved."""

    path: Path
    lines: int
    notes: int
    """Lines between them that say what is missing, or where from they are."""


async def save_log(path: Path, items: AsyncIterator[Item], *, with_names: bool) -> SavedLog:
    """Write what comes to a new file, which only its owner may read, and which is there once it is whole.

    Args:
        path: Where; the time is added to its name.
        items: Lines, and markers between them.
        with_names: Put the instance and rank before each line.

    Raises:
        OSError: It could not be written.
        KubeError: It could not be read.
    """
    path = path.with_name(f"{path.stem}-{datetime.now():%Y%m%d-%H%M%S}{path.suffix}")
    make_private_folder(path.parent)
    lines = notes = 0
    chunk = bytearray()
    with PrivateFile(path) as private:
        async for item in items:
            if isinstance(item, LogLine):
                chunk += printed(item, name=with_names)
                lines += 1
            elif item.mark in _WRITTEN_MARKS:
                who = f"{item.source.name}: " if item.source.name else ""
                chunk += f"-- {who}{item.text}\n".encode()
                notes += 1
            if len(chunk) >= _BYTES_AT_ONCE:
                await asyncio.to_thread(private.file.write, bytes(chunk))
                chunk.clear()
        await asyncio.to_thread(private.file.write, bytes(chunk))
        return SavedLog(private.replace(), lines, notes)
