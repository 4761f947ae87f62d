"""Keys of texts, logs, charts and dialogs: most on the widget alone, some in a console."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.app import ComposeResult

import themes
from k8s.logs import LogLine, LogRequest, Target
from k8s.snapshot import ClusterSnapshot
from tests import ROOT
from tests.support.event_files import job_with_event_files, serve_event_files
from tests.support.hosted_view import FramedApp, hosted
from tests.support.namespace_objects import EVENTS, event, in_namespace, serve
from tests.support.playground import Playground
from tests.support.themed_app import ThemedApp
from tests.tui.settings.keys.world import Desk, changes, seen, title, titled, typed, unseen, world
from trainer.tfevents import EventWriter
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.text import TextView
from tui.screens.job import LOGS
from tui.screens.job.logs import WINDOWS
from tui.terminal import clipboard
from tui.widgets.log.view import LogView


async def test_keys_scroll_a_text_by_lines_pages_and_to_its_ends() -> None:
    async def fetch() -> str:
        return "\n".join(f"note {number}" for number in range(200))

    view = TextView("notes", fetch)
    async with hosted(view, ClusterSnapshot(), size=(80, 20)) as (app, pilot):
        await app.workers.wait_for_complete()
        await pilot.pause()
        reader = view._reader
        page = reader.content_size.height - 1
        last = 200 - reader.content_size.height
        for key, top in (
            *(("j", 1), ("down", 2), ("k", 1), ("up", 0)),
            *(("ctrl+f", page), ("pagedown", 2 * page), ("space", 3 * page), ("ctrl+b", 2 * page)),
            *(("pageup", page), ("g", 0), ("ctrl+d", round(page / 2)), ("ctrl+u", 0)),
            *(("G", last), ("home", 0), ("end", last)),
        ):
            await pilot.press(key)
            assert reader.top_line == top, key


class LogApp(ThemedApp[None]):
    CSS_PATH = [themes.STYLESHEET, ROOT / "tui/screens/job/logs.tcss"]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        yield LogView()


async def test_keys_scroll_a_log_by_lines_pages_columns_and_to_its_ends() -> None:
    pod = Target("lab", "bert-worker-0", instance="worker-0", ranks=(0,))
    async with LogApp().run_test(size=(80, 24)) as pilot:
        view = pilot.app.query_one(LogView)
        view.append(
            [LogLine(number, b"line %d" % number + b"~" * 200, pod, number, 0) for number in range(100)]
        )
        await pilot.press("t", "g")
        page = view.content_size.height - 1
        last = 100 - view.content_size.height
        for key, top in (
            *(("j", 1), ("down", 2), ("k", 1), ("up", 0)),
            *(("ctrl+f", page), ("pagedown", 2 * page), ("space", 3 * page), ("ctrl+b", 2 * page)),
            *(("pageup", page), ("home", 0), ("ctrl+d", page // 2), ("ctrl+u", 0)),
            *(("G", last), ("g", 0), ("end", last)),
        ):
            await pilot.press(key)
            assert view.render_line(0).text.startswith(f"line {top}~"), key
            assert view.follows == (top == last)
        for key, is_at_left in (("l", False), ("h", True), ("right", False), ("left", True)):
            await pilot.press(key)
            assert view.render_line(0).text.startswith("line") == is_at_left, key


def test_each_digit_of_logs_requests_the_part_that_its_help_names() -> None:
    parts = {
        "Last 2,000 lines of each rank": LogRequest(tail=2_000),
        "From the start; reads on as you scroll": LogRequest(),
        "Last minute": LogRequest(since_s=60),
        "Last 5 minutes": LogRequest(since_s=300),
        "Last 15 minutes": LogRequest(since_s=900),
        "Last 30 minutes": LogRequest(since_s=1_800),
        "Last hour": LogRequest(since_s=3_600),
    }
    digits = [key for key in LOGS.keys if key.action.startswith("window(")]
    assert [(key.keys, key.action) for key in digits] == [(str(n), f"window({n})") for n in range(7)]
    assert {key.help: WINDOWS[int(key.keys)][1] for key in digits} == parts


def saved_lines(state: Path) -> int:
    """Return the number of lines of the one saved log; 0 while there is none."""
    files = list((state / "logs").glob("*.log"))
    return len(files[0].read_text().splitlines()) if files else 0


async def test_keys_of_logs_pick_ranks_search_and_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCONSOLE_CLIPBOARD", "file")
    async with world(tmp_path, size=(110, 20)) as play:
        state = tmp_path / "state"
        await play.press("N", "g", "l")
        await play.until(lambda: title(play).endswith("ranks 0 · follow · last 2,000 lines"))
        await play.until(seen(play, "line 99 of bert-master-0"))
        await play.see("w", seen(play, "~ END"), "w")
        copied = state / "clipboard.txt"
        await play.see("c", lambda: copied.is_file() and "line 99 of" in copied.read_text())
        assert "line 0 of" not in copied.read_text()
        await play.see("ctrl+s", lambda: saved_lines(state) == 100)
        await play.see("f", unseen(play, "Jobs › bert"), "f")
        await play.see("full_stop", titled(play, "ranks 1 ·"), "comma")
        await play.see("r", seen(play, "RANK  INSTANCE"), "r")
        await play.press("slash", *"line 4", "enter")
        await play.until(titled(play, "/line 4  11 "))
        await play.see("n", titled(play, "/line 4  1 of 11"))
        await play.press("escape")
        await play.see("s", titled(play, "ranks 0 1 ·"))
        await play.see("a", seen(play, "all ranks, by time"))
        assert changes(play) == []


POINTS = 50
"""Points of each of the three curves of `curves`."""


@asynccontextmanager
async def curves(tmp_path: Path) -> AsyncIterator[Desk]:
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


@pytest.mark.slow
async def test_keys_of_curves_go_from_chart_to_chart_and_read_zoom_and_clip_one(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        footer = play.text.splitlines()[-1]
        assert all(words in footer for words in ("j next", "h read", "x axis", "+ smooth"))
        await play.press("ctrl+s")
        await play.until(lambda: [*tmp_path.rglob("*.csv")])
        (saved,) = tmp_path.rglob("*.csv")
        assert len(saved.read_text().splitlines()) == 1 + 3 * POINTS
        await play.see("enter", unseen(play, "val/accuracy"))
        await play.see("j", seen(play, "val/accuracy"), "k")
        await play.see("k", seen(play, "weights"), "j")
        await play.see("h", lambda: step_read(play) == POINTS - 1, "0")
        await play.see("shift+right", lambda: 0 < step_read(play) < 20, "0")
        await play.see("equals_sign", seen(play, "smooth 0.3"), "minus")
        await play.press("h")
        await play.see("x", seen(play, "after "), "x", "x")
        await play.see("i", seen(play, " zoom│"), "o")
        await play.see("O", seen(play, " no outliers│"))


def step_read(play: Playground) -> int:
    """Return the step at which a chart is read; -1 if there is none."""
    found = re.search(r"\bstep (\d+)", play.text)
    return int(found[1]) if found else -1


@pytest.mark.slow
async def test_enter_opens_only_charts_that_the_filter_shows(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        await play.press("slash", *"nothing", "enter", "enter")
        await play.until(seen(play, "No tag matches /nothing; esc shows all."))
        await play.press("escape")
        await play.until(seen(play, "val/accuracy", "train/loss"))
        await play.press("slash", *"acc", "enter", "enter")
        await play.until(lambda: "val/accuracy" in play.text and "train/loss" not in play.text)
        await play.press("escape", "escape")
        await play.until(seen(play, "val/accuracy", "train/loss"))
        await play.press("g", "slash", *"acc|loss", "enter", "enter")
        await play.until(lambda: "val/accuracy" in play.text and "train/loss" not in play.text)
        await play.press("slash", "ctrl+u", *"loss")
        await play.until(lambda: "train/loss" in play.text and "val/accuracy" not in play.text)


async def test_a_new_tag_does_not_take_keys_from_the_filter_prompt(tmp_path: Path) -> None:
    async with curves(tmp_path) as play:
        await play.press("slash", *"ac")
        with EventWriter(tmp_path / "volume" / "logs", flush_s=0) as writer:
            writer.write_scalar("lr", 1, 0.5, 1e10)
        await play.until(seen(play, "4 tags"))
        await play.press("c", "enter", "enter")
        await play.until(lambda: "/acc" in play.text and "val/accuracy" in play.text)
        assert "train/loss" not in play.text


@pytest.mark.slow
async def test_keys_of_help_and_of_an_event_in_full_scroll_and_close_it(tmp_path: Path) -> None:
    long = event("long", ("Pod", "p"), "Long", "\n".join(f"word {number}" for number in range(60)))
    async with world(tmp_path, size=(80, 20)) as play:
        await play.press("question_mark")
        await play.until(seen(play, "This view", "Open the job:"))
        await play.see("j", unseen(play, "This view"))
        await play.see("k", seen(play, "This view"))
        await play.see("question_mark", unseen(play, "Open the job:"))
        serve(play.cluster, in_namespace(EVENTS), long)
        await play.press(*typed("events"))
        await play.until(seen(play, "pod/p"))
        await play.press("v")
        await play.until(seen(play, "word 0", "word 1"))
        await play.see("down", unseen(play, "word 0"))
        await play.see("up", seen(play, "word 0"))
        await play.see("enter", unseen(play, "word 9"))
        assert changes(play) == []


async def test_keys_of_a_question_choose_an_answer_and_scroll_its_details() -> None:
    answers = (("keep", "Keep editing"), ("save", "Save draft"), ("drop", "Discard"))
    details = "\n".join(f"change {number}." for number in range(13))
    app = FramedApp()
    async with app.run_test(size=(80, 24)) as pilot:
        given: list[str | None] = []
        for last in (("escape",), ("enter",), ("l", "enter")):
            app.push_screen(ConfirmScreen("Leave?", details, answers=answers), given.append)
            await pilot.pause()
            for key, focused in (
                *(("right", "save"), ("down", "drop"), ("left", "save"), ("up", "keep")),
                *(("l", "save"), ("j", "drop"), ("h", "save"), ("k", "keep")),
            ):
                await pilot.press(key)
                assert app.screen.focused is not None and app.screen.focused.id == focused, key
            for key, number in (("pagedown", 12), ("pageup", 0), ("ctrl+f", 12), ("ctrl+b", 0)):
                await pilot.press(key)
                await pilot.pause()
                assert f"change {number}." in app.text, key
            await pilot.press(*last)
            await pilot.pause()
        assert given == ["keep", "keep", "save"]


@pytest.mark.slow
async def test_the_commands_of_a_job_are_listed_and_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(clipboard.OVERRIDE, "osc52")
    monkeypatch.setenv("TERM", "xterm-256color")
    async with world(tmp_path) as play:
        written: list[str] = []
        monkeypatch.setattr(play.console, "write_to_terminal", written.append)
        await play.press("N", "g", "X")
        await play.until(seen(play, "Commands for PyTorchJob bert"))
        await play.see("q", unseen(play, "Commands for"), "X")
        await play.see("enter", seen(play, "sent to the terminal's clipboard"))
        copied = base64.b64decode(written[0].split(";")[-1].rstrip("\x07")).decode()
        kubeconfig = tmp_path / "kubeconfig"
        assert copied == f"gpuconsole --kubeconfig {kubeconfig} -n default get PyTorchJob/bert"
        await play.press("escape", "enter")
        await play.until(titled(play, "Jobs › bert   "))
        await play.press("j")
        await play.see("X", seen(play, "logs -f PyTorchJob/bert -i worker-0"))
        assert seen(play, "kubectl logs -f bert-worker-0 -c pytorch")()
        assert changes(play) == []
