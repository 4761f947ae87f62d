"""The whole console in a terminal during a storm: keys work, and what is painted ends as the truth."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.load.running import LoadServer
from tests.load.screen import COLUMNS, LINES, PAINTED_S, TimedTerminal, demanded, held, press_down, wrong_rows

pytestmark = pytest.mark.slow


def test_keys_work_in_a_storm_and_every_painted_row_is_right_after_it(tmp_path: Path) -> None:
    env = {
        **os.environ,
        **{f"XDG_{kind}_HOME": str(tmp_path) for kind in ("DATA", "STATE", "CONFIG")},
        "HOME": str(tmp_path),
        "TERM": "xterm-256color",
    }
    with LoadServer(60, 60, lifetime_s=300) as server:
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
