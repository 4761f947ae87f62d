"""The whole console in a terminal during a storm: keys work, and what is painted ends as the truth."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tests.bench.figures import console_env
from tests.load.running import LoadServer
from tests.load.screen import (
    COLUMNS,
    LINES,
    PAINTED_S,
    Cost,
    TimedTerminal,
    demanded,
    press_down,
    until_painted,
    wrong_rows,
)
from tests.support.terminal import Terminal

pytestmark = pytest.mark.slow
LIFETIME_S = 900.0  # limit for the server, so that none outlives its test; far more than a test takes
CHANGES_PER_S, MINUTE_S = 100, 60
WARM_UP_PER_S = 1000
GROWTH_MIB = 32  # permitted growth in a minute: far less than the frames that were not written
Kind = TypeVar("Kind", bound=Terminal)


@contextmanager
def console(kind: type[Kind]) -> Iterator[tuple[LoadServer, Kind]]:
    """Open the console on a load server, with jobs that finished long ago too."""
    with LoadServer(60, 60, lifetime_s=LIFETIME_S) as server, console_env() as env:
        command = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", str(server.kubeconfig)]
        with kind(command, columns=COLUMNS, lines=LINES, env=env) as terminal:
            terminal.wait_for("─ live", PAINTED_S)
            terminal.send("o")
            terminal.wait_for(lambda screen: "older hidden" not in screen, PAINTED_S)
            yield server, terminal


def test_keys_work_in_a_storm_and_every_painted_row_is_right_after_it() -> None:
    with console(TimedTerminal) as (server, terminal):
        before = server.truth()
        server.storm(1000, 2000, drop=[700], forget=[1200])
        for _ in range(5):
            press_down(terminal)
        truth = server.truth()
        assert demanded(truth) != demanded(before)
        until_painted(terminal, truth)
        assert wrong_rows(terminal, truth) == {}


def test_a_minute_without_reading_loses_nothing_and_costs_no_memory() -> None:
    with console(Terminal) as (server, terminal):
        server.storm(WARM_UP_PER_S, CHANGES_PER_S * MINUTE_S)  # caches and the allocator's arenas grow once
        until_painted(terminal, server.truth())
        before = Cost.of(terminal.pid)
        server.storm(CHANGES_PER_S, CHANGES_PER_S * MINUTE_S)
        truth = server.truth()  # comes when the storm is over; nobody reads the terminal until then
        grown_mib = Cost.of(terminal.pid).resident_mib - before.resident_mib
        until_painted(terminal, truth)
        assert wrong_rows(terminal, truth) == {}
    assert grown_mib < GROWTH_MIB
