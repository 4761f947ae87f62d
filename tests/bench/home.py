"""What home costs with all panes: a key in a storm of updates, an idle screen, a log in its third pane."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tests import ROOT
from tests.bench.figures import Figure
from tests.bench.scale import STORM_S, storm
from tests.bench.terminal import spend
from tests.load.running import LoadServer
from tests.load.screen import PAINTED_S, TimedTerminal, under_cursor

SIZES = ((120, 40), (200, 60))
"""The third pane below the list, and beside it."""
NODES, JOBS = 20, 400
LINES_A_SECOND = 10
IDLE_S, LOG_S, SETTLED_S = 30.0, 15.0, 12.0


def measure() -> Iterator[Figure]:
    """Press keys in a storm with all panes shown; then leave a silent log alone; then let it grow."""
    with tempfile.TemporaryDirectory() as home:
        env = {
            **{name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"},
            **{f"XDG_{kind}_HOME": home for kind in ("DATA", "STATE", "CONFIG", "CACHE")},
            "HOME": home,
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),
        }
        for size in SIZES:
            with LoadServer(lifetime_s=300 + STORM_S, log_lines=LINES_A_SECOND) as server:
                at = f"home {size[0]}x{size[1]}: "
                for figure in storm(server, {**env, "KUBECONFIG": str(server.kubeconfig)}, size):
                    yield replace(figure, work=at + figure.work if figure.work[0] != " " else figure.work)
        with LoadServer(NODES, JOBS, log_lines=0) as server:
            for size in SIZES:
                bytes_a_second, cpu = _watch(server, env, size, IDLE_S)
                work = f"home {size[0]}x{size[1]}, idle, its log silent"
                yield Figure(work, bytes_a_second * IDLE_S, "", None, "0", unit="B")
                yield Figure("  hundredths of a core", cpu * 100, "", None, "", unit="")
        with LoadServer(NODES, JOBS, log_lines=LINES_A_SECOND) as server:
            for size in SIZES:
                for where, more in (("locally", {}), ("over SSH", {"SSH_CONNECTION": "10.0.0.1"})):
                    bytes_a_second, cpu = _watch(server, {**env, **more}, size, LOG_S)
                    work = f"home {size[0]}x{size[1]}, {LINES_A_SECOND} log lines/s, {where}"
                    yield Figure(work, bytes_a_second, "", None, "", unit="B/s")
                    yield Figure("  hundredths of a core", cpu * 100, "", None, "", unit="")


def _watch(
    server: LoadServer, env: Mapping[str, str], size: tuple[int, int], duration_s: float
) -> tuple[float, float]:
    """Open home, wait until its log is there, and let time pass: see `spend`."""
    console = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", str(server.kubeconfig)]
    with TimedTerminal(console, columns=size[0], lines=size[1], env=env, folder=ROOT) as terminal:
        terminal.wait_for(under_cursor, PAINTED_S)
        terminal.send("g")
        terminal.wait_for(lambda screen: "epoch 0 step" in screen, PAINTED_S)
        spend(terminal, SETTLED_S)
        return spend(terminal, duration_s)
