"""Tables of the console, read off its screen, and the cost of its process."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, NamedTuple, Self

from k8s.kinds import KINDS
from tests.support.terminal import Terminal

COLUMNS, LINES = 200, 50
PAINTED_S = 120.0  # longest wait for a screen, on a slow machine
PAGE_S = 10.0  # longest wait for a page of a table
READINGS = 5
_ROW = re.compile(r"[ ●*](?P<cursor>[ ▸>]) (?P<name>[\w-]+) .*?(?P<held>[\d…]+/\d+)\s")
_HELD = re.compile(r"Σ .*?([\d,]+)(?: of [\d,]+)? GPUs held")
_COUNT = re.compile(r"(?:Jobs|Nodes) \(([\d,]+)")


def held(screen: str) -> int | None:
    found = _HELD.search(screen)
    return int(found[1].replace(",", "")) if found else None


def row_count(screen: str) -> int | None:
    found = _COUNT.search(screen)
    return int(found[1].replace(",", "")) if found else None


def shares(screen: str) -> dict[str, str]:
    """Return `held/total` of every row on the screen, by the name in its first column."""
    found = [_ROW.match(line) for line in screen.splitlines()]
    return {match["name"]: match["held"] for match in found if match}


def under_cursor(screen: str) -> str:
    for line in screen.splitlines():
        match = _ROW.match(line)
        if match and match["cursor"] != " ":
            return match["name"]
    return ""


def read_table(terminal: Terminal) -> dict[str, str]:
    """Page through the whole table from its first row, and return what is painted in it."""
    terminal.send("g")
    first = terminal.wait_for(_is_at_top, PAINTED_S)
    found = shares(first)
    wanted = row_count(first) or 0
    while len(found) < wanted:
        before = under_cursor(terminal.text)
        terminal.send("\x06")
        try:
            terminal.wait_for(partial(_has_moved, before), PAGE_S)
        except AssertionError:  # it is the last row
            break
        found |= shares(terminal.text)
    return found


def _wrong_in_table(terminal: Terminal, wanted: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    """Return the rows that are not painted as wanted: what is painted, and what should be.

    Half a frame may be read, so a table that looks wrong is read again a few times.
    """
    wrong: dict[str, tuple[str | None, str]] = {}
    for _ in range(READINGS):
        painted = read_table(terminal)
        wrong = {name: (painted.get(name), share) for name, share in wanted.items()}
        wrong = {name: (shown, share) for name, (shown, share) in wrong.items() if shown != share}
        if not wrong:
            break
    return wrong


def until_painted(terminal: Terminal, truth: dict[str, Any]) -> None:
    """Wait until the console is live, with all GPUs in its line of totals."""
    total = sum(sum(node["holders"].values()) for node in truth["nodes"].values())
    terminal.wait_for(lambda screen: "─ live" in screen and held(screen) == total, PAINTED_S)


def wrong_rows(terminal: Terminal, truth: dict[str, Any]) -> dict[str, tuple[str | None, str]]:
    """Return the rows of jobs, which is open and shows all, and of nodes that differ from the truth."""
    nodes, jobs = demanded(truth)
    wrong = _wrong_in_table(terminal, jobs)
    terminal.send(":nodes\r")
    terminal.wait_for("Nodes (", PAINTED_S)
    return wrong | _wrong_in_table(terminal, nodes)


class TimedTerminal(Terminal):
    """A terminal that takes in what is written at once, and notes when."""

    came_at_s = 0.0  # time at which the newest piece on the screen came

    def __enter__(self) -> Self:
        self._pieces: Queue[tuple[float, bytes]] = Queue()
        Thread(target=self._take_in, daemon=True).start()
        return self

    def catch_up(self) -> None:
        """Put all on the screen that has come."""
        while not self._pieces.empty():
            self._read(0)

    def _take_in(self) -> None:
        while True:
            try:
                piece = os.read(self._fd, 65536)
            except OSError:
                return
            self._pieces.put((time.perf_counter(), piece))

    def _next_piece(self, timeout_s: float) -> bytes:
        try:
            self.came_at_s, piece = (
                self._pieces.get(timeout=timeout_s) if timeout_s else self._pieces.get_nowait()
            )
        except Empty:
            return b""
        return piece


def press_down(terminal: TimedTerminal) -> float:
    """Move the cursor down by one row; return after how many seconds that was written."""
    terminal.catch_up()
    before = under_cursor(terminal.text)
    began_s = time.perf_counter()
    terminal.send("j")
    terminal.wait_for(partial(_has_moved, before), PAINTED_S)
    return terminal.came_at_s - began_s


def _has_moved(before: str, screen: str) -> bool:
    return under_cursor(screen) not in ("", before)


def _is_at_top(screen: str) -> bool:
    rows = list(shares(screen))
    return bool(rows) and under_cursor(screen) == rows[0]


def demanded(truth: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return `held/total` of each node, and of each job of a known kind, that the truth demands."""
    kinds = {kind.resource.kind for kind in KINDS}
    nodes = {
        name: f"{sum(node['holders'].values())}/{node['total']}" for name, node in truth["nodes"].items()
    }
    jobs = {
        job["name"]: f"{job['gpus_allocated']}/{job['gpus_requested']}"
        for job in truth["jobs"].values()
        if job["kind"] in kinds
    }
    return nodes, jobs


class Cost(NamedTuple):
    at_s: float
    cpu_s: float
    resident_mib: float
    peak_mib: float

    @classmethod
    def of(cls, pid: int) -> Cost:
        """Ask the kernel. Source: proc(5)."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        memory = dict(re.findall(r"(Vm\w+):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()))
        return cls(
            time.monotonic(),
            ticks / os.sysconf("SC_CLK_TCK"),
            int(memory["VmRSS"]) / 1024,
            int(memory["VmHWM"]) / 1024,
        )
