"""Painting leaves no garbage that only a full collection would free."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from textual.strip import Strip

from tests.support.playground import console_on, some_objects


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep in `gc.garbage` what a full collection finds at the end."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
    finally:
        gc.set_debug(0)
        gc.enable()


async def test_lines_that_were_painted_are_freed_without_a_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.widgets.table.paint.MAX_CACHED_LINES", 4)  # each paint drops some
    async with console_on(tmp_path, **some_objects()) as play:
        await play.press(*"jk" * 3)
        with without_collections():
            await play.press(*"jk" * 10)
            play.table._painter.forget()
            await play.press("j")
        left = [each for each in gc.garbage if type(each) is Strip]
        gc.garbage.clear()
        assert not left
