"""Each key of the curves of a job, and of one chart, does what the table says."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.event_files import job_with_event_files, serve_event_files
from tests.support.playground import Playground
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import changes, seen, typed, unseen, world
from trainer.tfevents import EventWriter

POINTS = 50


@asynccontextmanager
async def curves(tmp_path: Path) -> AsyncIterator[Playground]:
    """Open three curves of a job: a loss that falls in waves, and two that rise."""
    learns = job_with_event_files("learns")
    with EventWriter(tmp_path / "volume" / "logs", flush_s=0) as writer:
        for step in range(POINTS):
            writer.write_scalar("train/loss", step, 2.0 - step / POINTS + 0.2 * (step % 2))
            for tag in ("val/accuracy", "weights"):
                writer.write_scalar(tag, step, 0.5 + step / 200)
    async with world(tmp_path, jobs=[learns], batch=[], size=(120, 32)) as play:
        serve_event_files(play.cluster, learns, tmp_path / "volume")
        await play.press(*typed("curves learns"))
        await play.until(seen(play, f"3 tags, {3 * POINTS} points", "train/loss", "val/accuracy"))
        yield play
        assert changes(play) == []


def step_read(play: Playground) -> int:
    """Return the step at which a chart is read; -1 where none is."""
    found = re.search(r"\bstep (\d+)", play.text)
    return int(found[1]) if found else -1


@proves("curves.next", "curves.previous", "curves.full")
async def test_keys_of_curves_go_from_chart_to_chart(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        hands = Hands.on(play)
        await hands.press("curves.full", unseen(play, "val/accuracy"), undo=["enter"])
        await play.press("enter")
        await play.until(unseen(play, "val/accuracy"))
        await hands.press("curves.next", seen(play, "val/accuracy"), undo=["k"])
        await hands.press("curves.previous", seen(play, "weights"), undo=["j"])


async def test_the_footer_names_keys_of_a_chart_and_all_points_are_saved(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        footer = play.text.splitlines()[-1]
        assert all(words in footer for words in ("j next", "h read", "x axis", "+ smooth"))
        await play.press("ctrl+s")
        await play.until(lambda: [*tmp_path.rglob("*.csv")])
        (saved,) = tmp_path.rglob("*.csv")
        assert len(saved.read_text().splitlines()) == 1 + 3 * POINTS


@proves("chart.left", "chart.right", "chart.far_left", "chart.far_right", "chart.reset")
async def test_keys_read_the_values_of_a_chart(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        hands, afresh = Hands.on(play), ["0"]
        await hands.press("chart.left", lambda: step_read(play) == POINTS - 1, undo=afresh)
        await hands.press("chart.right", lambda: step_read(play) == 0, undo=afresh)
        await hands.press("chart.far_left", lambda: 30 < step_read(play) < 45, undo=afresh)
        await hands.press("chart.far_right", lambda: 5 < step_read(play) < 20, undo=afresh)
        await play.press("h")
        await hands.press("chart.reset", lambda: step_read(play) == -1)


@proves("chart.x_axis", "chart.log", "chart.smoother", "chart.rougher")
async def test_keys_change_how_a_chart_is_drawn(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        hands = Hands.on(play)
        await hands.press("chart.smoother", seen(play, "smooth 0.3"), undo=["minus"])
        await play.press("plus", "plus")
        await play.until(seen(play, "smooth 0.6"))
        await hands.press("chart.rougher", seen(play, "smooth 0.3"))
        await play.press("h")
        await hands.press("chart.x_axis", seen(play, "after "), undo=["x", "x"])
        await hands.press("chart.log", seen(play, " log│"), undo=["y"])


@proves("chart.zoom_in", "chart.zoom_out", "chart.clip")
async def test_keys_show_a_part_of_a_chart(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        hands = Hands.on(play)
        await hands.press("chart.zoom_in", seen(play, " zoom│"), undo=["0"])
        await play.press("i")
        await hands.press("chart.zoom_out", unseen(play, " zoom│"), undo=["i"])
        await hands.press("chart.clip", seen(play, "outliers beyond the axis"))


async def test_enter_never_opens_a_chart_that_the_filter_hides(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        await play.press("slash", *"acc", "enter", "enter")
        await play.until(lambda: "val/accuracy" in play.text and "train/loss" not in play.text)
        await play.press("escape", "escape")
        await play.until(lambda: "val/accuracy" in play.text and "train/loss" in play.text)


async def test_the_chart_that_had_the_focus_has_it_after_a_filter_that_shows_it(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        await play.press("j", "slash", *"acc|loss", "enter", "enter")
        await play.until(lambda: "val/accuracy" in play.text and "train/loss" not in play.text)
        await play.press("slash", "ctrl+u", *"loss")
        await play.until(lambda: "train/loss" in play.text and "val/accuracy" not in play.text)


async def test_a_filter_that_hides_all_charts_says_so_and_enter_opens_none(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        await play.press("slash", *"nothing", "enter", "enter")
        await play.until(seen(play, "No tag matches /nothing; esc shows all."))
        await play.press("escape")
        await play.until(lambda: "val/accuracy" in play.text and "train/loss" in play.text)
        await play.press("enter")
        await play.until(lambda: "train/loss" in play.text and "val/accuracy" not in play.text)


async def test_a_tag_that_comes_while_a_filter_is_typed_takes_no_key(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        await play.press("slash", *"ac")
        with EventWriter(tmp_path / "volume" / "logs", flush_s=0) as writer:
            writer.write_scalar("lr", 1, 0.5, 1e10)
        await play.until(seen(play, "4 tags"))
        await play.press("c", "enter", "enter")
        await play.until(lambda: "/acc" in play.text and "val/accuracy" in play.text)
        assert "train/loss" not in play.text
