"""Setup of every console test: pilots wait until all is handled, and sheets are parsed once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest
import textual.app
import textual.pilot
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.worker import Worker

from tests.support import idle
from tests.support.playground import console_on, some_objects
from tui.terminal.driver import PacedApp

# Textual's own input gives a worker a coroutine for each suggestion; that is not ours to change.
_TEXTUAL = str(Path(textual.app.__file__).parent)


@pytest.fixture(autouse=True, scope="session")
def css_is_parsed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share parsed rules among all apps: Textual parses every sheet again for each app, view and theme.

    The first console, which imports and parses most, is opened here: it is no test's own cost.
    """
    parsed: dict[Hashable, list[RuleSet]] = {}
    parse_rules = Stylesheet._parse_rules

    def parse_once(sheet: Stylesheet, css: str, **options: Any) -> list[RuleSet]:
        key = (css, *options.items(), frozenset(sheet._variables.items()))
        if key not in parsed:
            parsed[key] = parse_rules(sheet, css, **options)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        asyncio.run(_open_console(tmp_path_factory.mktemp("first")))
        yield


async def _open_console(folder: Path) -> None:
    async with console_on(folder, **some_objects()):
        pass


@pytest.fixture(autouse=True)
def waits_until_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pilot wait for messages, not for a process that uses no CPU: on a loaded machine it gets none."""
    monkeypatch.setattr(textual.app, "wait_for_idle", idle.until_handled)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", idle.pause)

    async def wait_until_drawn(_: Pilot[object], timeout: float = 0.0) -> bool:
        await idle.until_drawn()
        return True

    monkeypatch.setattr(Pilot, "_wait_for_screen", wait_until_drawn)


@pytest.fixture(autouse=True)
def bugs_end_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an unexpected exception fail the test; users see a report, and the console goes on."""
    monkeypatch.setattr(PacedApp, "survives_bugs", False)


@pytest.fixture(autouse=True)
def workers_are_given_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a coroutine as a worker's work: it is never awaited where the worker is cancelled early."""
    prepare = Worker.__init__

    def prepare_function(worker: Worker[Any], node: Any, work: Any, **options: Any) -> None:
        is_ours = inspect.iscoroutine(work) and not work.cr_code.co_filename.startswith(_TEXTUAL)
        if is_ours:
            work.close()
            raise AssertionError(f"{work.__qualname__} was called for a worker; give it a partial")
        prepare(worker, node, work, **options)

    monkeypatch.setattr(Worker, "__init__", prepare_function)
