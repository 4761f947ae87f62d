"""Our table beside Textual's DataTable: from a key to the paint, in a pseudo-terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.bench.figures import Figure
from tests.bench.table_rows import AMOUNT, COLUMNS, NAMES_BY_NODE, NAMES_FILTERED
from tests.load.screen import COLUMNS as WIDTH
from tests.load.screen import LINES, PAINTED_S, TimedTerminal

PRESSES = 100
REST_S = 0.06
"""Between two presses: longer than a frame, so that each is painted at once."""
_DOWN = "\x1b[B"
_LAST = LINES - 3
"""The place of the row on the last line of the screen, when the first row is on the first."""
_WORKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (f"fill a table with {AMOUNT:,} rows of {len(COLUMNS)} cells", "1", (f"job-{_LAST}-",)),
    ("  change 1,000 cells", "2", ("job-40-", "Failed")),
    ("  a letter of a filter", "3", (NAMES_FILTERED[_LAST],)),
    ("  the filter cleared", "4", (f"job-{_LAST}-",)),
    ("  sort by a column", "5", (NAMES_BY_NODE[_LAST],)),
)
"""What is done, the key for it, and what is on one of the last lines when it is painted."""


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
    """Wait until nothing has come for a while, and all that came is on the screen."""
    came_at_s = -1.0
    while came_at_s != terminal.came_at_s:
        came_at_s, until_s = terminal.came_at_s, time.perf_counter() + REST_S
        terminal.wait_for(partial(_is_past, until_s))
        terminal.catch_up()


def _is_past(until_s: float, _screen: str) -> bool:
    return time.perf_counter() >= until_s


def _shows(words: tuple[str, ...], _before: str, screen: str) -> bool:
    return any(all(word in line for word in words) for line in screen.splitlines())


def _has_scrolled(before: str, screen: str) -> bool:
    return screen.rpartition("\n")[2] != before.rpartition("\n")[2]
