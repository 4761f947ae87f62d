"""An unexpected exception anywhere in the console is reported, and everything else goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from textual.widget import Widget

from k8s.text.errors import Unreachable
from tests.support.playground import Playground, console_on, some_objects
from tui.screens.lists.jobs import JobsView
from tui.screens.lists.nodes import NodesView
from tui.settings.console_log import ConsoleLog, start_log
from tui.terminal.driver import PacedApp
from tui.widgets.home.job_pane import JobPane
from tui.widgets.table.table import Table


class Bug(Exception):
    """An unexpected error."""


def fail(words: str = "token=hunter2secret") -> None:
    raise Bug(words)


async def fail_later() -> None:
    fail()


def in_a_worker(widget: Widget) -> None:
    widget.run_worker(fail_later, exclusive=True)  # type: ignore[arg-type]


def in_a_thread(widget: Widget) -> None:
    widget.run_worker(fail, thread=True)


def in_a_timer(widget: Widget) -> None:
    widget.set_timer(0.01, fail)


def in_an_interval(widget: Widget) -> None:
    widget.set_interval(0.01, fail, repeat=5)


def after_refresh(widget: Widget) -> None:
    widget.call_after_refresh(fail)


def later(widget: Widget) -> None:
    widget.call_later(fail)


def next_time(widget: Widget) -> None:
    widget.call_next(fail)


WAYS = (in_a_worker, in_a_thread, in_a_timer, in_an_interval, after_refresh, later, next_time)


@pytest.fixture
def survives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PacedApp, "survives_bugs", True)


def log_of(play: Playground) -> str:
    path = play.console.options.log_file
    return path.read_text() if path.exists() else ""


@pytest.mark.usefixtures("survives")
async def test_an_unexpected_exception_is_logged_and_the_view_keeps_working(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        screen = play.console.screen
        for way, where in product(WAYS, (screen, screen.query_one(Table), screen.query_one(JobPane))):
            before = log_of(play).count("Bug: ")
            way(where)
            await play.until(lambda before=before: log_of(play).count("Bug: ") > before)  # type: ignore[misc]
            assert isinstance(play.console.screen, JobsView), (way, where)
        assert "hunter2secret" not in log_of(play)
        assert play.console.options.log_file.stat().st_mode & 0o777 == 0o600
        await play.until(lambda: "Unexpected error" in play.text)
        await play.press("j", "tab", shows=NodesView)
    assert play.console.return_code in (None, 0)


@pytest.mark.usefixtures("survives")
async def test_the_same_bug_is_shown_once(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        for _ in range(20):
            play.console.screen.call_later(fail)
        await play.until(lambda: log_of(play).count("Bug: ") >= 20)
        assert [each.title for each in play.console._notifications].count("Unexpected error") == 1


@pytest.mark.usefixtures("survives")
async def test_a_crashed_feed_marks_the_snapshot_stale_and_can_be_reconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from k8s.cluster.cluster_mirror import ClusterMirror

    async def run(self: ClusterMirror, publish: Callable[..., None]) -> None:
        fail("joined badly")

    async with console_on(tmp_path, **some_objects()) as play:
        with monkeypatch.context() as patch:
            patch.setattr(ClusterMirror, "run", run)
            play.console.connect()
            await play.until(lambda: "ctrl+r connects again" in play.console.snapshot.stale)
        await play.press("ctrl+r")
        await play.until(lambda: not play.console.snapshot.stale and "bert" in play.text)


@pytest.mark.usefixtures("survives")
def test_an_unwritable_bug_log_still_returns_the_error_location(tmp_path: Path) -> None:
    from tui.settings.console_log import LARGEST_LOG_BYTES, log_bug

    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    try:
        fail()
    except Bug as error:
        assert log_bug(tmp_path / "link", error).endswith("in fail")
        assert not (tmp_path / "elsewhere").exists()
        log = tmp_path / "log"
        log.write_bytes(b"x" * (LARGEST_LOG_BYTES + 1))
        log_bug(log, error)
        assert log.stat().st_size < LARGEST_LOG_BYTES


@pytest.mark.usefixtures("survives")
def test_a_full_log_is_rotated_and_one_old_log_is_kept(tmp_path: Path) -> None:
    from tui.settings.console_log import LARGEST_LOG_BYTES, append_to_log

    log = tmp_path / "gpuconsole.log"
    for text in "abc":
        append_to_log(log, text * LARGEST_LOG_BYTES)
    assert [path.read_text()[25] for path in sorted(tmp_path.iterdir())] == ["c", "b"]


@pytest.mark.parametrize(
    ("error", "is_bug"), [(Unreachable("Could not list pods.", "No answer."), False), (TypeError("x"), True)]
)
def test_only_bugs_leave_tracebacks_in_the_log(tmp_path: Path, error: Exception, is_bug: bool) -> None:
    start_log(tmp_path / "gpuconsole.log", 0, is_on_stderr=False)
    try:
        logging.getLogger("asyncio").error("Task exception was never retrieved", exc_info=error)
    finally:
        (handler,) = (each for each in logging.getLogger().handlers if isinstance(each, ConsoleLog))
        logging.getLogger().removeHandler(handler)
    written = (tmp_path / "gpuconsole.log").read_text()
    assert (str(error) in written, "Traceback" in written or "TypeError" in written) == (True, is_bug)
