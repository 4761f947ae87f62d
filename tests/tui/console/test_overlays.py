"""Overlays, which show the view behind them, and dialogs, which no notice covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

import pytest
from textual.screen import ModalScreen

from tests.support.playground import Playground
from tests.support.screen_text import text_of
from tests.tui.settings.keys.world import seen, typed, unseen, world
from tui.screens.lists.jobs import JobsView

OVERLAYS: dict[str, tuple[Sequence[str], str]] = {
    "palette": (["ctrl+p"], "Search actions"),
    "themes": (typed("theme"), "THEME"),
    "help": (["question_mark"], "Open the job"),
    "quit": (["q"], "Quit gpuconsole?"),
    "delete": (["ctrl+d"], "Delete 1 job?"),
    "suspend": (["H"], "Suspend "),
    "detail": (["v"], "Image is there."),
}
"""Each overlay: the keys that open it, and words that are on it."""
BELOW: dict[str, tuple[Sequence[str], str]] = {"detail": (typed("events"), "Image is there.")}
"""Keys that open the view below where that is not home, and words on it once it is filled."""
NOTICE = "the server has refused it"


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["gpuconsole-dark", "gpuconsole-mono", "gpuconsole-ansi"])
async def test_an_overlay_shows_the_view_behind_it(tmp_path: Path, theme: str) -> None:
    async with world(tmp_path, size=(120, 40)) as play:
        play.console.theme = theme
        for overlay, (keys, words) in OVERLAYS.items():
            await open_below(play, overlay)
            behind = text_of(play.console).splitlines()
            await play.press(*keys)
            await play.until(opened(play, words))
            shown = text_of(play.console).splitlines()
            lines = zip_longest(behind, shown, fillvalue="")
            kept = sum(was == now != " " for pair in lines for was, now in zip(*pair, strict=False))
            letters = sum(letter != " " for line in behind for letter in line)
            assert kept > letters / 4, f"{overlay}: only {kept} of {letters} letters are left"
            await play.press("escape")


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (60, 15)])
async def test_a_notice_never_covers_a_dialog_and_appears_after_the_dialog_closes(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with world(tmp_path, size=size) as play:
        for overlay, (keys, words) in OVERLAYS.items():
            await open_below(play, overlay)
            await play.press(*keys)
            await play.until(opened(play, words))
            alone = dialog(play)
            await play.press("escape")
            say(play, "earlier")
            await play.until(seen(play, "earlier"))
            await play.press(*keys)
            await play.until(lambda alone=alone: dialog(play) == alone)  # type: ignore[misc]
            say(play, "later")
            await play.rest()
            await play.pilot.pause()
            assert dialog(play) == alone, overlay
            await play.press("escape")
            await play.until(seen(play, "later"))
            play.console.clear_notifications()
            await play.until(unseen(play, NOTICE))


async def test_a_notice_raised_behind_a_dialog_is_shown_on_the_view_afterwards(tmp_path: Path) -> None:
    async with world(tmp_path, size=(80, 24)) as play:
        await play.press("ctrl+d")
        play.console.notify("It was said meanwhile.")
        assert not len(play.console._notifications), "its time runs while nobody sees it"
        await play.press("escape")
        await play.until(seen(play, "It was said meanwhile."))
        assert isinstance(play.console.screen, JobsView)


async def open_below(play: Playground, overlay: str) -> None:
    """Open the view that an overlay lies over, and wait until it is filled: keys act on its rows."""
    keys, words = BELOW.get(overlay, ((), ""))
    await play.press(*keys)
    await play.until(seen(play, words))


def opened(play: Playground, words: str) -> Callable[[], bool]:
    """Return a test of whether a dialog that has these words is on top."""
    return lambda: isinstance(play.console.screen, ModalScreen) and words in play.text


def dialog(play: Playground) -> list[str]:
    lines = [line.ljust(play.console.size.width) for line in play.text.splitlines()]
    parts = [each.region for each in play.console.screen.children if not each.has_class("-textual-system")]
    return [lines[y][part.x : part.right] for part in parts for y in range(part.y, part.bottom)]


def say(play: Playground, when: str) -> None:
    play.console.notify(NOTICE, title=f"{when}:", severity="error", timeout=60)


async def test_a_notice_takes_the_place_of_one_that_is_gone(tmp_path: Path) -> None:
    async with world(tmp_path, size=(80, 24)) as play:
        rows = []
        for when in ("earlier", "later"):
            say(play, when)
            await play.until(seen(play, when))
            rows.append(next(y for y, line in enumerate(play.text.splitlines()) if when in line))
            play.console.clear_notifications()
            await play.until(unseen(play, when))
        assert rows[0] == rows[1]
