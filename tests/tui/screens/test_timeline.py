"""The timeline in a console: rows, bars, gaps, what enter opens, live changes, and news at the start."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.guide_runs import guide
from tests.support.night import CHANGE, HOUR, OBSERVED, journal_of
from tests.support.playground import Playground
from tests.tui.settings.keys.world import PODS, Desk, titled, typed, world
from tui.runs.journal.database import Journal
from tui.runs.journal.history import Timeline
from tui.screens.lists import timeline
from tui.screens.lists.timeline import PhaseBars
from tui.verbs import notices

NOW_S = float(int(time.time()))


@pytest.fixture(autouse=True)
def the_journal_is_polled_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "POLL_S", 0.1)
    monkeypatch.setattr(notices, "NEWS_S", 600.0)
    monkeypatch.setenv("LOGNAME", "li")


@asynccontextmanager
async def console_after_a_night(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[Desk, Journal]]:
    """Open a console on the small cluster, where the job `sweep` of the night is called `bert`."""
    journal = journal_of(tmp_path / "state", now_s=NOW_S)
    rename = "UPDATE jobs SET uid = 'job-bert', name = 'bert', namespace = 'default' WHERE name = 'sweep'"
    journal.write(("UPDATE jobs SET name = 'gone' WHERE name = 'bert'",), (rename,))
    async with world(tmp_path, **options) as play:
        yield play, journal


def rows(play: Playground) -> list[str]:
    """Return job and event of each row; of a gap, its text."""
    places = [column.key for column in play.table.columns]
    cells = [dict(zip(places, row.cells, strict=True)) for row in play.table.shown_rows]
    return [f"{row['name'].text} {row['event'].text}".strip() or row["reason"].text for row in cells]


async def test_the_timeline_shows_rows_bars_and_gaps_and_opens_jobs_at_an_event(tmp_path: Path) -> None:
    async with console_after_a_night(tmp_path, size=(80, 24)) as (play, journal):
        await play.until(lambda: "; ^t shows them" in play.text)
        news = next(line for line in play.text.splitlines() if "shows them" in line)
        assert " Since " in news and "1 failed, " in news and not news.startswith("!")
        await play.press("ctrl+t")
        await play.until(lambda: "gone – deleted" in rows(play))
        found = rows(play)
        assert {"gone ✕ lost a node", "bert ✕ failed", "vit ! printed NaN", "llm ○ queued"} <= {*found}
        (gap,) = {each for each in found if "(3h00m)" in each}
        assert gap.startswith("— not observed ") and found.index(gap) > 0
        lines = play.text.splitlines()
        assert [line.split()[0] for line in lines[2:6]] == ["queued", "running", "waiting", "failed"]
        assert "···" in lines[3] and lines[3].split()[-2:] == ["max", "2"] and lines[5].split()[-1] == "2"

        await select(play, gap)
        await play.press("enter", shows="Neither a console nor gpuconsole record ran then.")
        await select(play, "gone ✕ lost a node")
        await play.press("l", shows="This job is gone; enter shows what was kept of it.")
        await play.press("enter", shows="The job is gone, and no run of it was recorded.")
        play.console.context.runs.add(guide()[0].__class__("uid-bert", "gone", nodes=("a",)))
        await play.press("enter")
        await play.until(titled(play, "Past runs › gone"))
        await play.press("escape")

        await select(play, "bert ✕ failed")
        await play.press("enter")
        await play.until(titled(play, "› bert › logs"))
        await play.until(lambda: play.cluster.asked(f"{PODS}/bert-master-0/log"))
        since = {each.query.get("sinceTime") for each in play.cluster.asked(f"{PODS}/bert-master-0/log")}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW_S - 3.8 * HOUR - 60))
        assert at in since
        await play.press("escape")
        await play.until(titled(play, "Jobs › bert   "))
        await play.press("escape")

        journal.write(
            (CHANGE, 3, time.time(), None, "Succeeded", "", "", "", 0, ""),
            ("UPDATE jobs SET last_change = (SELECT max(id) FROM changes) WHERE id = 3",),
        )
        await play.until(lambda: "vit ✓ ended" in rows(play))


async def select(play: Playground, row: str) -> None:
    play.table.move_to(play.table.shown_rows[rows(play).index(row)].key)
    await play.pilot.pause()


async def test_the_timeline_of_all_users_names_them_and_is_filtered(tmp_path: Path) -> None:
    async with console_after_a_night(tmp_path) as (play, _):
        await play.press(*typed("timeline all"))
        await play.until(lambda: "notebook ↻ preempted" in rows(play) and " chen " in play.text)
        await play.press(*typed("timeline /NaN"))
        await play.until(lambda: rows(play) == ["vit ! printed NaN"])
        assert " chen " not in play.text and "(1 of " in play.text


async def test_earlier_events_are_listed_once_the_cursor_is_on_the_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "LISTED", 1)
    async with console_after_a_night(tmp_path) as (play, journal):
        await play.until(lambda: play.session.recorder and play.session.recorder.caught_up.is_set())
        journal.write((CHANGE, 3, time.time(), None, "Deleted", "no event", "", "", 0, ""))  # the newest
        await play.press("ctrl+t")
        await play.until(lambda: rows(play) and "earlier ones follow the last row" in play.text)
        assert "gone ▸ started" not in rows(play) and "max 2" in play.text
        await play.press("G")
        await play.until(lambda: "vit ! printed NaN" in rows(play))
        await play.press("G")
        await play.until(lambda: "gone ▸ started" in rows(play))
        await play.press(*typed("timeline /queued"))
        await play.until(lambda: rows(play) == ["llm ○ queued"])
        assert "earlier ones" not in play.text


@pytest.mark.parametrize("kind", ["quiet", "first"])
async def test_without_news_nothing_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(timeline, "POLL_S", 600.0)  # the timeline is read when it is opened
    if kind == "quiet":
        Journal(tmp_path / "state").write((OBSERVED, "lab", "", "console 5@h", NOW_S - HOUR, NOW_S + HOUR))
    async with world(tmp_path) as play:
        await play.until(lambda: play.session.recorder and play.session.recorder.caught_up.is_set())
        await play.until_idle()
        assert "shows them" not in play.text
        await play.press("ctrl+t", shows="Timeline (")


async def test_bars_are_ascii_and_fit_the_smallest_terminal(tmp_path: Path) -> None:
    async with console_after_a_night(tmp_path, size=(60, 15), is_ascii=True) as (play, _):
        await play.press("ctrl+t")
        await play.until(lambda: "bert ✕ failed" in rows(play))
        bars = play.console.screen.query_one(PhaseBars)
        assert bars.size.height == 5 and play.text.isascii()
        *lines, times = bars.render().plain.splitlines()
        assert len(lines) == 4 and max(map(len, (*lines, times))) < 60 and ":" in times[-6:]
        bars.timeline = Timeline(until_s=1.0)
        assert "max 0" in bars.render().plain
