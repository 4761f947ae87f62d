"""Reads scalars out of progress lines, for jobs that write no event files."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable

from k8s.logs import LogLine
from trainer.tfevents import Columns, ScalarSeries

_STEP = re.compile(rb"\b(?:global_)?(?:step|iter|iteration)s?\s*[ =:]\s*\[?(\d{1,18})\b", re.IGNORECASE)
_PAIR = re.compile(
    rb"(?<![\w.])([A-Za-z][A-Za-z0-9_/.-]{0,60})\s*[ =:]\s*"
    rb"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|-?inf)(?![\w/%.:]*[\w/:])",
    re.IGNORECASE,
)
_NAMES = re.compile(
    rb"loss|acc|lr|learning_rate|ppl|perplexity|norm|reward|error|img|images|tokens", re.IGNORECASE
)
_LONGEST_BYTES = 2000


def read_log_points(lines: Iterable[LogLine]) -> dict[str, ScalarSeries]:
    """Return the scalars of lines such as `step 40/800 loss 1.87 lr 0.003`, by name.

    A line counts when it names a step and, after it, a loss or an accuracy.
    """
    found: dict[str, ScalarSeries] = {}
    add_log_points(found, lines)
    return found


def add_log_points(found: dict[str, ScalarSeries], lines: Iterable[LogLine]) -> bool:
    """Add the scalars of further lines to those found before; return whether there were any."""
    has_news = False
    for line in lines:
        text = line.text[:_LONGEST_BYTES]
        step = _STEP.search(text)
        if step is None:
            continue
        pairs = [pair.groups() for pair in _PAIR.finditer(text) if _NAMES.search(pair[1])]
        if not any(b"loss" in name.lower() or b"acc" in name.lower() for name, _ in pairs):
            continue
        for name, value in pairs:
            tag = name.decode("ascii")
            where = array("q", [int(step[1])]), array("d", [line.stamp_ns / 1e9]), array("d", [float(value)])
            found.setdefault(tag, ScalarSeries()).extend(Columns(tag, *where))
            has_news = True
    return has_news
