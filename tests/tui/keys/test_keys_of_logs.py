"""Each key of the logs of a job, and of their text, does what the table says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.playground import Playground
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import PODS, changes, drawn_otherwise, look_of, seen, title, titled, unseen, world

LOG = f"{PODS}/bert-master-0/log"
WINDOWS = {
    "logs.window_0": ("last 2,000 lines", {"tailLines": "2000"}),
    "logs.window_2": ("last minute", {"sinceSeconds": "60"}),
    "logs.window_3": ("last 5 min", {"sinceSeconds": "300"}),
    "logs.window_4": ("last 15 min", {"sinceSeconds": "900"}),
    "logs.window_5": ("last 30 min", {"sinceSeconds": "1800"}),
    "logs.window_6": ("last hour", {"sinceSeconds": "3600"}),
}
"""What the title says of each part of a log, and what the cluster is asked for it."""


@asynccontextmanager
async def logs(tmp_path: Path) -> AsyncIterator[Playground]:
    """Open the logs of a job: rank 0, a hundred lines, on a screen for fifteen."""
    async with world(tmp_path, size=(110, 20)) as play:
        await play.press("N", "g", "l")
        await play.until(lambda: title(play).endswith("ranks 0 · follow · last 2,000 lines"))
        await play.until(seen(play, "line 99 of bert-master-0"))
        yield play
        assert changes(play) == []


@proves("logs.ranks", "logs.next_rank", "logs.previous_rank", "logs.all", "logs.split", "logs.next_pane")
async def test_keys_of_logs_choose_the_ranks(tmp_path: Path) -> None:
    async with logs(tmp_path) as play:
        hands = Hands.on(play)
        await hands.press("logs.ranks", seen(play, "RANK  INSTANCE"), undo=["r"])
        await hands.press("logs.next_rank", titled(play, "ranks 1 ·"), undo=["comma"])
        await play.press("full_stop")
        await hands.press("logs.previous_rank", titled(play, "ranks 0 ·"), undo=["full_stop"])
        await hands.press("logs.split", titled(play, "ranks 1 2 ·"))
        first = look_of(play, " 1 master-0")
        await hands.press("logs.next_pane", drawn_otherwise(play, " 1 master-0", first), undo=["tab"])
        await hands.press("logs.all", seen(play, "all ranks, by time"))


@proves("logs.full", "logs.previous_run", "logs.window_1", *WINDOWS)
async def test_keys_of_logs_choose_how_much_is_read(tmp_path: Path) -> None:
    async with logs(tmp_path) as play:
        hands = Hands.on(play)
        await hands.press("logs.full", unseen(play, "Jobs › bert"), undo=["f"])
        await hands.press("logs.previous_run", seen(play, "previous run", "it crashed here"), undo=["p"])
        assert any(asked.query.get("previous") == "true" for asked in play.cluster.asked(LOG))
        await hands.press("logs.window_1", asks(play, "all since start", {}))
        for id, (words, query) in WINDOWS.items():
            await hands.press(id, asks(play, words, query))


def asks(play: Playground, words: str, query: dict[str, str]) -> Callable[[], bool]:
    """Return a test of whether the title says so, and the newest request asked for just this part."""

    def is_so() -> bool:
        asked = play.cluster.asked(LOG)[-1].query
        part = {name: asked[name] for name in ("tailLines", "sinceSeconds", "previous") if name in asked}
        return words in title(play) and part == query

    return is_so


@proves(
    "log.down",
    "log.up",
    "log.page_down",
    "log.page_up",
    "log.half_down",
    "log.half_up",
    "log.start",
    "log.end",
    "log.left",
    "log.right",
)
async def test_keys_move_through_a_log(tmp_path: Path) -> None:
    async with logs(tmp_path) as play:
        hands = Hands.on(play)
        await play.press("g")
        await play.until(top(play, 0))
        await hands.press("log.down", top(play, 1), undo=["k"])
        await play.press("j")
        await hands.press("log.up", top(play, 0), undo=["j"])
        await play.press("g")
        await hands.press("log.page_down", top(play, 13), undo=["g"])
        await hands.press("log.half_down", top(play, 6))
        await hands.press("log.half_up", top(play, 0))
        await play.press("pagedown", "pagedown")
        await play.until(top(play, 26))
        await hands.press("log.page_up", top(play, 13), undo=["pagedown"])
        newest = seen(play, "line 99 of bert-master-0", " · follow · ")
        await hands.press("log.end", newest, undo=["g"])
        await play.press("G")
        await hands.press("log.start", top(play, 0), undo=["G"])
        await play.press("G")
        await hands.press("log.right", unseen(play, "line 98"), undo=["h"])
        await play.press("l")
        await hands.press("log.left", seen(play, "line 98"), undo=["l"])


def top(play: Playground, number: int) -> Callable[[], bool]:
    """Return a test of whether this is the first line of the log on the screen."""
    return lambda: (
        next((line for line in play.text.splitlines() if " of bert-" in line), "").split()[1:3]
        == ["line", str(number)]
    )


@proves(
    "log.wrap",
    "log.times",
    "log.context",
    "log.next",
    "log.previous",
    "log.clear",
    "log.mark",
    "log.copy",
    "log.save",
)
async def test_keys_look_closer_at_a_log_and_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCONSOLE_CLIPBOARD", "file")
    async with logs(tmp_path) as play:
        hands, state = Hands.on(play), tmp_path / "state"
        await hands.press("log.wrap", seen(play, "~ END"), undo=["w"])
        await hands.press("log.times", lambda: "\nline 99" in play.text, undo=["t"])
        copied = state / "clipboard.txt"
        await hands.press("log.copy", lambda: copied.is_file() and "line 99 of" in copied.read_text())
        assert "line 0 of" not in copied.read_text()
        await hands.press("log.save", lambda: saved_lines(state) == 100)
        await hands.press("log.mark", seen(play, "mark 1, "))
        await hands.press("log.clear", seen(play, "Cleared; C brings it back."), undo=["C"])
        await play.press("slash", *"line 4", "enter")
        await play.until(titled(play, "/line 4  11 "))
        await play.press("g")
        await hands.press("log.context", seen(play, "line 5 of"), undo=["x"])
        await hands.press("log.next", titled(play, "/line 4  1 of 11"))
        await play.press("n")
        await play.until(titled(play, "/line 4  2 of 11"))
        await hands.press("log.previous", titled(play, "/line 4  1 of 11"))


def saved_lines(state: Path) -> int:
    """Return how many lines the one saved log has; 0 while there is none."""
    files = list((state / "logs").glob("*.log"))
    return len(files[0].read_text().splitlines()) if files else 0
