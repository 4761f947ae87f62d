"""What the console costs a terminal: bytes and CPU while idle and under a log; how soon it answers a key."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests import ROOT
from tests.bench.figures import Figure
from tests.load.logs import LINES_A_SECOND
from tests.load.running import LoadServer
from tests.load.screen import COLUMNS, LINES, PAINTED_S, Cost, TimedTerminal, press_down, under_cursor

NODES, JOBS = 20, 400
IDLE_S, LOG_S = 30.0, 8.0
PRESSES, REST_S = 100, 0.3
SIZES = ((80, 24), (COLUMNS, LINES))
PACES: Mapping[str, Mapping[str, str]] = {
    "locally": {},
    "over SSH": {"SSH_CONNECTION": "10.0.0.1"},
}
"""What the environment says of each."""
PEERS = {"locally": "RichLog", "over SSH": "Log"}
"""Textual knows one pace only; so each stands beside one of its widgets."""


def measure() -> Iterator[Figure]:
    """Leave the console alone, let it follow a log, and press keys."""
    with LoadServer(NODES, JOBS, lifetime_s=600) as server, tempfile.TemporaryDirectory() as home:
        env = {
            **{name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"},
            **{f"XDG_{kind}_HOME": home for kind in ("DATA", "STATE", "CONFIG", "CACHE")},
            "HOME": home,
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),
        }
        console = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", str(server.kubeconfig)]
        with _open(console, env, 80, 24) as terminal:
            terminal.wait_for(under_cursor, PAINTED_S)
            spend(terminal, 5)
            bytes_a_second, cpu = spend(terminal, IDLE_S)
            yield Figure("idle console, to the terminal", bytes_a_second, "", None, "< 200 B/s", unit="B/s")
            yield Figure("  share of a core, in hundredths", cpu * 100, "", None, "< 2", unit="")
            presses = sorted(_press(terminal) for _ in range(PRESSES))
            yield Figure("  key-press to paint, median", presses[PRESSES // 2], "", None, "")
            yield Figure("  key-press to paint, p99", presses[int(PRESSES * 0.99)], "", None, "< 100 ms")
        for columns, lines in SIZES:
            for where, more in PACES.items():
                with _open(console, {**env, **more}, columns, lines) as terminal:
                    terminal.wait_for(under_cursor, PAINTED_S)
                    terminal.send("l")
                    ours, cpu = _follow(terminal)
                peer = [sys.executable, "-P", "-m", "tests.bench.terminal_apps", PEERS[where]]
                with _open(peer, env, columns, lines) as terminal:
                    theirs, their_cpu = _follow(terminal)
                work = f"{LINES_A_SECOND} log lines/s, {columns}x{lines}, {where}"
                beside = f"Textual's {PEERS[where]}, its own pace"
                yield Figure(work, ours / 1024, beside, theirs / 1024, "", unit="KiB/s")
                yield Figure("  hundredths of a core", cpu * 100, "", their_cpu * 100, "", unit="")


@contextmanager
def _open(words: list[str], env: Mapping[str, str], columns: int, lines: int) -> Iterator[TimedTerminal]:
    with TimedTerminal(words, columns=columns, lines=lines, env=env, folder=ROOT) as terminal:
        yield terminal


def _follow(terminal: TimedTerminal) -> tuple[float, float]:
    terminal.wait_for("loss=", PAINTED_S)
    spend(terminal, 2)
    return spend(terminal, LOG_S)


def spend(terminal: TimedTerminal, duration_s: float) -> tuple[float, float]:
    """Let time pass; return bytes written a second, and the share of a core."""
    terminal.catch_up()
    before, written = Cost.of(terminal.pid), len(terminal.output)
    until_s = time.monotonic() + duration_s
    while (left_s := until_s - time.monotonic()) > 0:
        terminal.read_some(left_s)
    after = Cost.of(terminal.pid)
    took_s = after.at_s - before.at_s
    return (len(terminal.output) - written) / took_s, (after.cpu_s - before.cpu_s) / took_s


def _press(terminal: TimedTerminal) -> float:
    took_s = press_down(terminal)
    until_s = time.monotonic() + REST_S
    while (left_s := until_s - time.monotonic()) > 0:
        terminal.read_some(left_s)
    return took_s
