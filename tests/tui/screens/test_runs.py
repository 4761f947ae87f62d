"""Past runs in the console, and the comparison of marked runs and jobs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.support.guide_runs import GUIDE, guide
from tests.support.playground import console_on, some_objects
from tui.runs.store import RUNS_FILE, RunStore
from tui.screens.documents.text import TextView
from tui.screens.lists.compare import CompareView, RunsView


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_marked_runs_are_compared_with_bars(tmp_path: Path, size: tuple[int, int]) -> None:
    async with console_on(tmp_path, size=size, **some_objects()) as play:
        for each in reversed(guide()):
            play.console.context.runs.add(each)
        await play.press("colon", *"runs", "enter", shows=RunsView)
        assert ("Past runs (4)" in play.text and "1252" in play.text) or size == (80, 24)
        await play.press("C", shows="Two or more are compared.")
        await play.press("g", "space", *["j", "space"] * 3, shows="4 marked")
        await play.press("C")
        await play.until(lambda: "820" in play.text and "bars: IMG/S" in play.text)
        assert isinstance(play.console.screen, CompareView)
        await play.press("1", shows="IMG/S↓")
        rates = [row.key.partition(" ")[2] for row in play.table.shown_rows]
        assert rates == [name for name, *_ in sorted(GUIDE, key=lambda each: -each[-1])]
        bars = [row.cells[-1].text for row in play.table.shown_rows]
        assert [len(bar) for bar in bars] == [16, 11, 10, 6]
        assert "differ in placement, link, model" in play.text
        await play.press("enter", shows="The job of this run is gone")
        await play.press("ctrl+s")
        await play.until(lambda: list(tmp_path.rglob("*.csv")))
        rows = list(csv.reader(next(tmp_path.rglob("*.csv")).read_text().splitlines()))
        assert len(rows) == 5 and {"NAME", "MODEL", "IMG/S"} <= set(rows[0])
        await play.press("escape", "enter", shows="batch-size")
        assert isinstance(play.console.screen, TextView)


async def test_marked_jobs_are_compared_and_a_damaged_record_is_named(tmp_path: Path) -> None:
    async with console_on(tmp_path, size=(160, 50), **some_objects()) as play:
        await play.press("C", shows="Two or more are compared.")
        await play.press("g", "space", "j", "space", "C")
        await play.until(lambda: isinstance(play.console.screen, CompareView) and "bert" in play.text)
        await play.press("escape", "colon", *"compare", "space", *"bert", "space", *"nosuch", "enter")
        await play.until(lambda: "No job or past run nosuch." in play.text)
        store: RunStore = play.console.context.runs
        store.add(guide()[0])
        path = next(tmp_path.rglob(RUNS_FILE))
        path.write_bytes(path.read_bytes() + b'{"uid": 3}\n')
        await play.press("colon", *"runs", "enter")
        await play.until(lambda: "1 record skipped" in play.text and "pytorch-topo-4-vgg16" in play.text)
