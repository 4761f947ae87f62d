"""Parser for the Prometheus text format.

Source: Prometheus, "Exposition formats", text-based format 0.0.4; OpenMetrics 1.0 differs only in
parts that are skipped here (comments, exemplars, timestamps).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

# Sample lines of exporters have a few hundred bytes; longer lines are skipped.
MAX_LINE_BYTES = 16 * 1024
_NAME = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*(\{)?")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(,|(?=\}))')
_END = re.compile(r"[ \t]*\}")
_ESCAPED = re.compile(r"\\(.)")
_MEANINGS = {"n": "\n"}


class Sample(NamedTuple):
    """One sample: a metric, its labels and its value, which may be infinite or NaN."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_samples(text: bytes, wanted: Iterable[str] | None = None) -> Iterator[Sample]:
    """Yield the samples of a text, or only those of the `wanted` metrics.

    Malformed lines are skipped, so one bad field hides no other, and HTML yields nothing.
    """
    names = None if wanted is None else frozenset(wanted)
    for line in text.split(b"\n"):
        if not line or line[0] == 35 or len(line) > MAX_LINE_BYTES:  # 35: a comment's #
            continue
        sample = _sample(line.decode("utf-8", "replace"), names)
        if sample is not None:
            yield sample


def _sample(line: str, wanted: frozenset[str] | None) -> Sample | None:
    start = _NAME.match(line)
    if start is None or (wanted is not None and start[1] not in wanted):
        return None
    labels: dict[str, str] = {}
    place = start.end()
    if start[2]:
        while found := _LABEL.match(line, place):
            value = found[2]
            labels[found[1]] = _ESCAPED.sub(_meaning, value) if "\\" in value else value
            place = found.end()
        end = _END.match(line, place)
        if end is None:
            return None
        place = end.end()
    fields = line[place:].split(None, 1)
    if not fields:
        return None
    try:
        return Sample(start[1], labels, float(fields[0]))
    except ValueError:
        return None


def _meaning(escaped: re.Match[str]) -> str:
    return _MEANINGS.get(escaped[1], escaped[1])


def known(value: float) -> float | None:
    """Return a value, or None for one of DCGM's blank values.

    Blanks are near 2^31, 2^47 and 2^63 (`DCGM_INT32_BLANK`, `DCGM_FP64_BLANK`, `DCGM_INT64_BLANK`,
    each followed by not-found, not-supported and not-permitted); no GPU metric is that large.
    """
    if not math.isfinite(value) or value < 0:
        return None
    for blank in _BLANKS:
        if blank <= value <= blank + 16:
            return None
    return None if value >= _TOO_LARGE else value


_BLANKS = (0x7FFFFFF0, 2.0**47)
_TOO_LARGE = 2.0**62
