"""Logs saved to disk, byte for byte, with a marker wherever lines are missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import msgspec

from k8s.logs import Item, LinePrinter, LogLine, Mark
from tui.settings.private_file import PrivateFile, make_private_folder

_BYTES_AT_ONCE = 1024 * 1024
_WRITTEN_MARKS = (Mark.GAP, Mark.DROPPED, Mark.NOTE)


class SavedLog(msgspec.Struct, frozen=True):
    """A saved log."""

    path: Path
    lines: int
    markers: int
    """Number of markers between lines: gaps, drops, sources."""


async def save_log(path: Path, items: AsyncIterator[Item], *, with_names: bool) -> SavedLog:
    """Write a log to a new private file, which appears once it is complete.

    Args:
        path: The path; the time is added to its name.
        items: Lines, and markers between them.
        with_names: Prefix each line with its instance and rank.

    Raises:
        OSError: The file could not be written.
        KubeError: The log could not be read.
    """
    path = path.with_name(f"{path.stem}-{datetime.now():%Y%m%d-%H%M%S}{path.suffix}")
    make_private_folder(path.parent)
    lines = markers = 0
    chunk, printer = bytearray(), LinePrinter(name=with_names)
    with PrivateFile(path) as private:
        async for item in items:
            if isinstance(item, LogLine):
                chunk += printer.format([item])
                lines += 1
            elif item.mark in _WRITTEN_MARKS:
                who = f"{item.source.name}: " if item.source.name else ""
                chunk += f"-- {who}{item.text}\n".encode()
                markers += 1
            if len(chunk) >= _BYTES_AT_ONCE:
                await asyncio.to_thread(private.file.write, bytes(chunk))
                chunk.clear()
        await asyncio.to_thread(private.file.write, bytes(chunk))
        return SavedLog(private.replace(), lines, markers)
