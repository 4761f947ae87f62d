"""Lines of a log into its view, as fast as it takes them, with keys pressed meanwhile."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from tests.bench.figures import Figure, console_env, spent
from tests.bench.logs import ONE_POD
from tests.load.running import LoadServer
from tests.load.screen import COLUMNS, LINES, PAINTED_S, Cost, TimedTerminal

# Lines of a log; of Textual's widgets, which are slower, a share of them
LOG_LINES, SMOKE_LINES, SOME_LINES = 1_000_000, 20_000, 50_000
STREAMS = 64  # pods with eight ranks each: 512 ranks
REST_S = 0.1
LONGEST_S = 900.0  # limit for all lines of one log, on a slow machine
_DONE = re.compile(r"done (\d+) ([\d.]+)")
_FAST, _RICH = "Textual's Log", "Textual's RichLog"


class _Flooded(NamedTuple):
    rate: float
    search_s: float
    p99_s: float
    peak_mib: float


def view(is_smoke: bool) -> Iterator[Figure]:
    """Compare with `kubectl logs -f` to a pipe, and with Textual's widgets."""
    lines, some = (SMOKE_LINES, SMOKE_LINES) if is_smoke else (LOG_LINES, SOME_LINES)
    with console_env() as env:
        kubectl = _kubectl_rate(env, lines)
        one, many = _flood(env, "LogView", 1, lines), _flood(env, "LogView", STREAMS, lines)
        fast, rich = _flood(env, "Log", 1, some), _flood(env, "RichLog", 1, some)
    work = f"{lines:,} lines into the view, one stream"
    yield Figure(work, one.rate, "kubectl logs -f to a pipe", kubectl, "its rate", "lines/s")
    yield Figure("  beside", one.rate, _RICH, rich.rate, unit="lines/s")
    yield Figure("  beside", one.rate, _FAST, fast.rate, unit="lines/s")
    yield Figure("  key-press to paint meanwhile, p99", one.p99_s, _FAST, fast.p99_s, "< 100 ms")
    yield Figure("  peak memory", one.peak_mib, _FAST, fast.peak_mib, "bounded", "MiB")
    yield Figure("  filter what is held", one.search_s)
    work = f"{lines:,} lines of {8 * STREAMS} ranks"
    yield Figure(work, many.rate, "kubectl logs -f to a pipe", kubectl, "its rate", "lines/s")
    yield Figure("  key-press to paint meanwhile, p99", many.p99_s, promised="< 100 ms")
    yield Figure("  peak memory", many.peak_mib, promised="bounded", unit="MiB")


def _kubectl_rate(env: Mapping[str, str], lines: int) -> float | None:
    if not shutil.which("kubectl"):
        return None
    words = ["kubectl", "-n", ONE_POD[0], "logs", "-f", f"{ONE_POD[1]}-master-0"]
    with LoadServer(20, 40, whole_log=lines) as server:
        return lines / spent(words, {**env, "KUBECONFIG": str(server.kubeconfig)}).wall_s


def _flood(env: Mapping[str, str], widget: str, streams: int, lines: int) -> _Flooded:
    """Press a key now and then until all lines are shown."""
    words = [sys.executable, "-P", "-m", "tests.bench.view_app", widget, str(streams), str(lines)]
    presses: list[float] = []
    with TimedTerminal(words, columns=COLUMNS, lines=LINES, env=env) as terminal:
        terminal.wait_for("step ", PAINTED_S)
        end_s = time.perf_counter() + LONGEST_S
        while not (found := _DONE.search(terminal.text)):
            began_s = time.perf_counter()
            if began_s > end_s:
                raise AssertionError(f"{widget} has not shown {lines:,} lines within {LONGEST_S:g} s")
            terminal.send("x")
            terminal.wait_for(partial(_is_counted, len(presses) + 1), PAINTED_S)
            presses.append(terminal.came_at_s - began_s)
            until_s = time.perf_counter() + REST_S
            while (left_s := until_s - time.perf_counter()) > 0:
                terminal.read_some(left_s)
        peak_mib = Cost.of(terminal.pid).peak_mib
    presses.sort()
    p99_s = presses[int(len(presses) * 0.99)] if presses else float("nan")
    return _Flooded(float(found[1]), float(found[2]), p99_s, peak_mib)


def _is_counted(presses: int, screen: str) -> bool:
    return f"key {presses};" in screen
