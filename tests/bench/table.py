"""Our table beside Textual's DataTable: from a key to the paint, in a pseudo-terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.bench.figures import Figure
from tests.bench.table_rows import AMOUNT, COLUMNS, SECOND_BY_NODE
from tests.load.screen import COLUMNS as WIDTH
from tests.load.screen import LINES, PAINTED_S, TimedTerminal

PRESSES = 100
REST_S = 0.06
"""Between two presses: longer than a frame, so that each is painted at once."""
_DOWN = "\x1b[B"
_WORKS: tuple[tuple[str, str, str], ...] = (
    (f"fill a table with {AMOUNT:,} rows of {len(COLUMNS)} cells", "1", f"job-{LINES - 3}-"),
    ("  change 1,000 cells", "2", "Failed"),
    ("  a letter of a filter", "3", "job-777-"),
    ("  the filter cleared", "4", f"job-{LINES - 3}-"),
    ("  sort by a column", "5", SECOND_BY_NODE),
)
"""What is done, the key for it, and what is on the screen when it is painted."""


def measure() -> Iterator[Figure]:
    """Let both do the same work, one after the other."""
    ours, theirs = _run("ours"), _run("theirs")
    for (work, _, _), our_s, their_s in zip(_WORKS, ours, theirs, strict=False):
        yield Figure(work, our_s, "Textual's DataTable", their_s, "")
    our_presses, their_presses = ours[len(_WORKS) :], theirs[len(_WORKS) :]
    for name, share, promised in (("median", 0.5, ""), ("p99", 0.99, "< 100 ms")):
        place = int(PRESSES * share)
        work = f"  a key that scrolls, to paint, {name}"
        yield Figure(work, our_presses[place], "", their_presses[place], promised)


def _run(name: str) -> list[float]:
    """Return the seconds of each work, then those of the presses, sorted."""
    command = [sys.executable, "-P", "-m", "tests.bench.table_apps", name]
    env = {**os.environ, "TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none", "PYTHONPATH": os.getcwd()}
    with TimedTerminal(command, columns=WIDTH, lines=LINES, env=env) as terminal:
        terminal.wait_for("ready", PAINTED_S)
        works = []
        for _, key, words in _WORKS:
            terminal.send("g")
            works.append(_timed(terminal, key, partial(_shows, words)))
        for _ in range(LINES):
            terminal.send(_DOWN)
            _rest(terminal)
        presses = [_timed(terminal, _DOWN, _has_scrolled) for _ in range(PRESSES)]
        return [*works, *sorted(presses)]


def _timed(terminal: TimedTerminal, key: str, is_painted: Callable[[str, str], bool]) -> float:
    """Press a key on a screen at rest; return how long it took until the work was painted.

    `is_painted` is asked with the screen as it was before and as it is.
    """
    _rest(terminal)
    is_done = partial(is_painted, terminal.text)
    if is_done(terminal.text):
        raise AssertionError(f"nothing to wait for after {key!r} on:\n{terminal.text}")
    began_s = time.perf_counter()
    terminal.send(key)
    terminal.wait_for(is_done, PAINTED_S)
    return terminal.came_at_s - began_s


def _rest(terminal: TimedTerminal) -> None:
    """Wait until nothing has come for a while."""
    until_s = time.perf_counter() + REST_S
    terminal.wait_for(lambda _: time.perf_counter() >= max(until_s, terminal.came_at_s + REST_S))


def _shows(words: str, _before: str, screen: str) -> bool:
    return words in screen


def _has_scrolled(before: str, screen: str) -> bool:
    return screen.rpartition("\n")[2] != before.rpartition("\n")[2]
