"""Of each test of the console: pilots wait until all is dealt with, workers begin their own work."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import textual.app
import textual.pilot
from textual.pilot import Pilot, WaitForScreenTimeout
from textual.worker import Worker

from tests.support import idle
from tui.terminal.driver import PacedApp

WAIT_FOR_WIDGETS_S = 10.0
_TEXTUAL = str(Path(textual.app.__file__).parent)
"""Its input gives a worker a coroutine for each suggestion; that is not ours to change."""


@pytest.fixture(autouse=True)
def waits_until_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pilot wait for messages, not for a process that uses no CPU: on a loaded machine it gets none."""
    monkeypatch.setattr(textual.app, "wait_for_idle", idle.until_handled)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", idle.pause)
    wait_for_screen = Pilot._wait_for_screen

    async def wait_until_drawn(pilot: Pilot[object], timeout: float = 30.0) -> bool:
        try:
            is_handled = await wait_for_screen(pilot, min(timeout, WAIT_FOR_WIDGETS_S))
        except WaitForScreenTimeout:
            # A widget that is removed meanwhile never answers; idle polls those that are left.
            is_handled = True
        await idle.until_drawn()
        return is_handled

    monkeypatch.setattr(Pilot, "_wait_for_screen", wait_until_drawn)


@pytest.fixture(autouse=True)
def bugs_end_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an unexpected exception fail the test; users see a report, and the console goes on."""
    monkeypatch.setattr(PacedApp, "survives_bugs", False)


@pytest.fixture(autouse=True)
def workers_are_given_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a coroutine as a worker's work: nobody awaits it where the worker is cancelled early."""
    prepare = Worker.__init__

    def prepare_function(worker: Worker[Any], node: Any, work: Any, **options: Any) -> None:
        is_ours = inspect.iscoroutine(work) and not work.cr_code.co_filename.startswith(_TEXTUAL)
        if is_ours:
            work.close()
            raise AssertionError(f"{work.__qualname__} was called for a worker; give it a partial")
        prepare(worker, node, work, **options)

    monkeypatch.setattr(Worker, "__init__", prepare_function)
