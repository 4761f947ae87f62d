"""Each key of the past runs, and of a comparison."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tests.support.guide_runs import guide
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import ordered, seen, titled, typed, world


@proves(
    "jobs.compare",
    "runs.open_run",
    "runs.compare",
    "runs.sort_ended",
    "runs.sort_name",
    "runs.sort_status",
    "runs.sort_loss",
    "compare.sort_name",
    "compare.sort_throughput",
)
async def test_keys_of_runs_sort_open_and_compare_them(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        first, second = guide()[0], guide()[1]
        records = [
            replace(first, name="b", uid="b", ended_s=2e9, status="Succeeded", tags={}),
            replace(second, name="a", uid="a", ended_s=1e9, status="Failed"),
        ]
        for each in records:
            play.console.context.runs.add(each)
        await play.press("g", "space", "j", "space")
        await hands.press("jobs.compare", titled(play, " Compare 2 runs"), undo=["escape"])
        await play.press(*typed("runs"))
        await play.until(ordered(play, "a", "b"))
        await hands.press("runs.sort_ended", ordered(play, "b", "a"))
        await hands.press("runs.sort_name", ordered(play, "a", "b"))
        await play.press("N")
        await play.until(ordered(play, "b", "a"))
        await hands.press("runs.sort_status", ordered(play, "a", "b"))
        await hands.press("runs.sort_loss", seen(play, "LOSS↑"))
        await play.press("N", "g")
        await hands.press("runs.open_run", seen(play, "batch-size"), undo=["escape"])
        await play.press("space", "j", "space")
        await hands.press("runs.compare", titled(play, " Compare 2 runs"))
        await play.until(seen(play, "bars: IMG/S"))
        await hands.press("compare.sort_throughput", seen(play, "IMG/S↓"))
        await hands.press("compare.sort_name", seen(play, "NAME↑"))
