"""The whole console in a terminal during a storm: keys work, and what is painted ends as the truth."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.load.running import LoadServer
from tests.load.screen import COLUMNS, LINES, PAINTED_S, TimedTerminal, demanded, held, press_down, wrong_rows
from tests.support.terminal import Terminal

pytestmark = pytest.mark.slow
LIFETIME_S = 900.0  # limit for the server, so that none outlives its test; far more than a test takes


def test_keys_work_in_a_storm_and_every_painted_row_is_right_after_it(tmp_path: Path) -> None:
    env = {
        **os.environ,
        **{f"XDG_{kind}_HOME": str(tmp_path) for kind in ("DATA", "STATE", "CONFIG")},
        "HOME": str(tmp_path),
        "TERM": "xterm-256color",
    }
    with LoadServer(60, 60, lifetime_s=LIFETIME_S) as server:
        command = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", str(server.kubeconfig)]
        with TimedTerminal(command, columns=COLUMNS, lines=LINES, env=env) as terminal:
            before = server.truth()
            terminal.wait_for("─ live", PAINTED_S)
            terminal.send("o")  # jobs that finished long ago too
            server.storm(1000, 2000, drop=[700], forget=[1200])
            for _ in range(5):
                press_down(terminal)
            truth = server.truth()
            nodes, jobs = demanded(truth)
            assert (nodes, jobs) != demanded(before)
            total = sum(sum(node["holders"].values()) for node in truth["nodes"].values())
            terminal.wait_for(lambda screen: "─ live" in screen and held(screen) == total, PAINTED_S)
            assert wrong_rows(terminal, jobs) == {}
            terminal.send(":nodes\r")
            terminal.wait_for("Nodes (", PAINTED_S)
            assert wrong_rows(terminal, nodes) == {}


CHANGES_PER_S, MINUTE_S = 100, 60
GROWTH_KIB = 32 * 1024  # permitted growth in a minute: far less than the frames that were not written


def test_a_minute_without_reading_loses_nothing_and_costs_no_memory(tmp_path: Path) -> None:
    env = {
        **os.environ,
        **{f"XDG_{kind}_HOME": str(tmp_path) for kind in ("DATA", "STATE", "CONFIG")},
        "HOME": str(tmp_path),
        "TERM": "xterm-256color",
    }
    with LoadServer(60, 60, lifetime_s=LIFETIME_S) as server:
        command = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", str(server.kubeconfig)]
        with Terminal(command, columns=COLUMNS, lines=LINES, env=env) as terminal:
            terminal.wait_for("─ live", PAINTED_S)
            terminal.send("o")  # jobs that finished long ago too
            terminal.wait_for(lambda screen: "older hidden" not in screen, PAINTED_S)
            before_kib = resident_kib(terminal.pid)
            server.storm(CHANGES_PER_S, CHANGES_PER_S * MINUTE_S)
            truth = server.truth()  # comes when the storm is over; nobody reads the terminal until then
            grown_kib = resident_kib(terminal.pid) - before_kib
            nodes, jobs = demanded(truth)
            total = sum(sum(node["holders"].values()) for node in truth["nodes"].values())
            terminal.wait_for(lambda screen: "─ live" in screen and held(screen) == total, PAINTED_S)
            assert wrong_rows(terminal, jobs) == {}
            terminal.send(":nodes\r")
            terminal.wait_for("Nodes (", PAINTED_S)
            assert wrong_rows(terminal, nodes) == {}
    assert grown_kib < GROWTH_KIB


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
