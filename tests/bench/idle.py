"""Cost of an idle console: bytes to the terminal, CPU, and requests to the API."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from tests.bench.figures import Figure, console_env
from tests.load.running import LoadServer
from tests.load.screen import PAINTED_S, Cost, TimedTerminal, under_cursor

NODES, JOBS = 20, 400
SETTLED_S, IDLE_S = 12.0, 30.0


def idle(is_smoke: bool) -> Iterator[Figure]:
    """Leave the console alone in a terminal over SSH."""
    with LoadServer(NODES, JOBS, log_lines=0) as server, console_env(SSH_CONNECTION="10.0.0.1") as env:
        command = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", str(server.kubeconfig)]
        with TimedTerminal(command, columns=80, lines=24, env=env) as terminal:
            terminal.wait_for(under_cursor, PAINTED_S)
            _let_pass(terminal, 1 if is_smoke else SETTLED_S)
            written, requests = len(terminal.output), server.count()["requests"]
            before = Cost.of(terminal.pid)
            _let_pass(terminal, 2 if is_smoke else IDLE_S)
            after = Cost.of(terminal.pid)
            asked = server.count()["requests"] - requests
            took_s = after.at_s - before.at_s
            rate, cpu = (len(terminal.output) - written) / took_s, (after.cpu_s - before.cpu_s) / took_s
    yield Figure("idle console over SSH, to the terminal", rate, promised="< 200 B/s", unit="B/s")
    yield Figure("  share of a core, in percent", cpu * 100, promised="< 2", unit="%")
    yield Figure("  requests to the API", asked / took_s * 60, promised="no polling", unit="/min")


def _let_pass(terminal: TimedTerminal, duration_s: float) -> None:
    until_s = time.monotonic() + duration_s
    while (left_s := until_s - time.monotonic()) > 0:
        terminal.read_some(left_s)
    terminal.catch_up()
