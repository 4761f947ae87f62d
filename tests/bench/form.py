"""CPU time of the form for a new job: to open it, to open it again, and for each key typed in it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial

from tests.bench.figures import Figure, console_env
from tests.load.running import LoadServer
from tests.load.screen import PAINTED_S, TimedTerminal, under_cursor

NODES, JOBS = 20, 40
# Time without output after which the console rests, on start and between two works
STARTED_S, RESTED_S = 5.0, 0.5
ROUNDS = 5
NAME = "whisper-large-v3-finetune"


def form(is_smoke: bool) -> Iterator[Figure]:
    """Open it in several consoles; the cheapest run counts."""
    first, again, key = [], [], []
    with LoadServer(NODES, JOBS, log_lines=0) as server, console_env() as env:
        command = [sys.executable, "-P", "-m", "tui", "-n", "biology", "--kubeconfig", str(server.kubeconfig)]
        for _ in range(1 if is_smoke else ROUNDS):
            with TimedTerminal(command, env=env) as terminal:
                terminal.wait_for(under_cursor, PAINTED_S)
                _rest(terminal, 0.5 if is_smoke else STARTED_S)
                first.append(_cpu_of(terminal, "n", "New job"))
                key.append(_cpu_of(terminal, NAME, NAME) / len(NAME))
                terminal.send("\x1b", "Discard")
                terminal.send("\t\r", lambda screen: "New job" not in screen)
                _rest(terminal, RESTED_S)
                again.append(_cpu_of(terminal, "n", "New job"))
    yield Figure("the form, first opened, CPU", min(first), promised="<= 0.25 s")
    yield Figure("  opened again", min(again), promised="<= 0.25 s")
    yield Figure("  each key typed in it", min(key), promised="<= 16 ms")


def _cpu_of(terminal: TimedTerminal, keys: str, shows: str) -> float:
    """Press keys one by one and wait until the console rests; return the CPU time of its process."""
    clock = ~terminal.pid << 3 | 2  # as clock_getcpuclockid(3) has it
    before_s = time.clock_gettime(clock)
    for each in keys:
        terminal.catch_up()
        terminal.send(each, partial(_has_more, terminal, len(terminal.output)))
    terminal.wait_for(shows, PAINTED_S)
    _rest(terminal, RESTED_S)
    return time.clock_gettime(clock) - before_s


def _has_more(terminal: TimedTerminal, seen: int, _screen: str) -> bool:
    return len(terminal.output) > seen


def _rest(terminal: TimedTerminal, quiet_s: float) -> None:
    """Read until nothing was written for some time."""
    last_s = time.monotonic()
    while time.monotonic() < last_s + quiet_s:
        seen = len(terminal.output)
        terminal.read_some(0.05)
        if len(terminal.output) > seen:
            last_s = time.monotonic()
