"""Short texts for numbers, times, names and GPUs.

Pure functions, shared by screens and one-shot commands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from k8s.text.sanitize import sanitize

if TYPE_CHECKING:
    from k8s.snapshot import Job, LifeSigns

MAX_NAMED_RANKS = 3
# `themes/base.tcss` gives each look its colour; empty is plain.
CellStyle: TypeAlias = Literal[
    "",
    "quiet",
    "bright",
    "running",
    "pending",
    "changing",
    "failed",
    "done",
    "gpu-busy",
    "gpu-free",
    "gpu-bad",
    "series-1",
    "series-2",
    "series-3",
    "series-4",
    "series-5",
    "series-6",
]

Run: TypeAlias = tuple[str, CellStyle]

# Stands for an unknown value; an empty cell could be a bug.
NOTHING = "\N{EN DASH}"

# Names that a message lists.
MOST_NAMES = 60

STATUS_STYLES: dict[str, CellStyle] = {
    "Queued": "pending",
    "Pending": "pending",
    "Starting": "changing",
    "Running": "running",
    "Restarting": "changing",
    "Suspended": "quiet",
    "Succeeded": "done",
    "Failed": "failed",
    "Terminating": "changing",
    "Unknown": "pending",
}

# From this number on, restarts are a crash loop.
MANY_RESTARTS = 3
# Clock difference from which ages are marked.
SKEW_S = 5.0
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)$", re.DOTALL)
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_FIRST_TIME_S = 1e9


def age(seconds: float | None) -> str:
    """Format an age coarsely: `45s`, `9m`, `2h15m`, `3d4h`.

    A negative age, caused by clock differences, becomes `0s`.
    """
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    if whole < 100 * _DAY:
        return f"{whole // _DAY}d{whole % _DAY // _HOUR}h"
    return f"{whole // _DAY}d"


def newest_point(newest_s: float, now_s: float, *, old_s: float = _MINUTE) -> str:
    """Return the age of the newest point of curves, as `, newest point 3m ago`.

    Empty if it is unknown or below `old_s`. A time before 2001 is one since the start of a run.
    """
    passed_s = max(0.0, now_s - newest_s)
    is_known = math.isfinite(newest_s) and newest_s > _FIRST_TIME_S and passed_s >= old_s
    return f", newest point {age(passed_s)} ago" if is_known else ""


def is_crash_loop(status: str, reason: str, restarts: int) -> bool:
    """Return True if something restarts repeatedly without coming up."""
    return status in ("Restarting", "Starting") and (restarts >= MANY_RESTARTS or "BackOff" in reason)


def status_run(status: str, reason: str = "", restarts: int = 0) -> Run:
    """Return a status with its look; a crash loop gets a warning mark."""
    if is_crash_loop(status, reason, restarts):
        return f"! {status}", "pending"
    return str(status), STATUS_STYLES[status]


class Clock(NamedTuple):
    """Current time of the server."""

    now: datetime
    # The clocks differ noticeably, so ages are marked with `~`.
    is_rough: bool = False

    @property
    def mark(self) -> str:
        """Return the mark before an age."""
        return "~" if self.is_rough else ""

    @classmethod
    def ahead(cls, offset_s: float) -> Clock:
        """Return the current time of a server whose clock is `offset_s` ahead."""
        return cls(datetime.now(UTC) + timedelta(seconds=offset_s), abs(offset_s) > SKEW_S)

    def age(self, since: datetime | None, until: datetime | None = None) -> str:
        """Format the time since `since`, or from `since` to `until`; see `age`."""
        if since is None:
            return NOTHING
        return (self.mark if until is None else "") + age(((until or self.now) - since).total_seconds())

    def time(self, moment: datetime, form: str = "%H:%M:%S") -> str:
        """Format a time in the zone of this machine, with its day unless that is today: `28 Nov 18:36:10`."""
        local = moment.astimezone()
        day = "" if local.date() == self.now.astimezone().date() else f"{local:%d %b} "
        return f"{day}{local:{form}}"


def duration(seconds: float | None) -> str:
    """Format a duration: `0.4s`, `42s`, `4m12s`, `1h24m`, `3d4h`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if _MINUTE <= whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    return age(whole)


def seconds_since(moment: datetime | None, now: datetime) -> int | None:
    """Return the age of a moment in whole seconds, at least 0 because clocks differ."""
    return None if moment is None else max(0, int((now - moment).total_seconds()))


def timestamp(moment: datetime | None) -> str | None:
    """Format a time as the API does."""
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def local_time(moment: datetime | None) -> str:
    """Format a time in the zone of this machine, `2026-11-20 18:36:10 CET`; empty if unknown."""
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def number(value: float | None) -> str:
    """Format a measured value with three digits: `2.1e-05`, `1.87`, `412`, `24117`, `nan`."""
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if 999.5 <= abs(value) < 999_999.5:
        return f"{value:.0f}"
    return f"{value:.3g}"


def si(value: float) -> str:
    """Format a large number with an SI prefix: `412`, `12k`, `1.25M`."""
    if not math.isfinite(value):
        return number(value)
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{_trimmed(value / size)}{letter}"
    return _trimmed(value)


def count(value: int) -> str:
    """Format a count exactly up to 99,999, then shorter: `1,204`, `1.25M`."""
    return f"{value:,}" if abs(value) < 100_000 else si(value)


def memory(size_bytes: float) -> str:
    """Format bytes in powers of 1024 as Kubernetes does: `612G`, `1.5G`, `80M`."""
    for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if abs(size_bytes) >= 1024**power:
            amount = size_bytes / 1024**power
            return f"{amount:.0f}{letter}" if amount >= 9.95 else f"{_trimmed(amount, 2)}{letter}"
    return f"{size_bytes:.0f}B"


def compact_ranges(names: Iterable[str]) -> str:
    """Format host names as Slurm does: `a100-[1-2,4], b-07`.

    Merges names that differ in one number, the last of their first label. Order and leading zeros are kept.
    """
    return _compact_ranges(tuple(names))


@lru_cache(maxsize=4096)
def _compact_ranges(names: tuple[str, ...]) -> str:
    # Cached, because a job's nodes are formatted again with each of its rows.
    numbers_of: dict[tuple[str, str | None], list[str]] = {}
    for name in dict.fromkeys(names):
        host, dot, domain = name.partition(".")
        found = _NUMBERED.match(host)
        around = (found[1], found[3] + dot + domain) if found else (name, None)
        numbers_of.setdefault(around, []).append(found[2] if found else "")
    return ", ".join(
        start + (f"[{','.join(_runs(numbers))}]" if len(numbers) > 1 else numbers[0]) + (end or "")
        for (start, end), numbers in numbers_of.items()
    )


def _runs(numbers: list[str]) -> list[str]:
    """Return consecutive numbers as `1-3`; other texts unchanged."""
    runs: list[list[str]] = []
    for number in sorted(numbers, key=lambda each: (len(each), each)):
        before = runs[-1][-1] if runs else ""
        if before and number == str(int(before) + 1).zfill(len(before)):
            runs[-1].append(number)
        else:
            runs.append([number])
    return [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def plural(amount: int, noun: str) -> str:
    """Format an amount with its noun: `1 job`, `3 jobs`."""
    return f"{count(amount)} {noun}{'s' * (amount != 1)}"


def devices(amount: int, shares: int) -> str:
    """Format devices, of which some are parts of GPUs: `8 GPUs`, `3 shares of GPUs`, `8 GPUs and 1 share`."""
    whole, parts = plural(amount - shares, "GPU"), plural(shares, "share")
    return whole if not shares else f"{whole} and {parts}" if amount > shares else f"{parts} of GPUs"


def _trimmed(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


def gpu_bar(busy: int, free: int, bad: int = 0, *, width: int = 8) -> str:
    """Draw GPUs as cells: `▮▮▮▯▯✕` for held, free and unhealthy.

    One cell per GPU if they fit into `width`; otherwise shares, with at least one cell for each kind.
    """
    amounts = shares((max(0, busy), max(0, free), max(0, bad)), width)
    return "".join(mark * cells for cells, mark in zip(amounts, "▮▯✕", strict=True))


def shares(amounts: Sequence[int], width: int) -> list[int]:
    """Scale the amounts down to `width` cells; amounts that fit are returned unchanged."""
    total = sum(amounts)
    if total <= width:
        return list(amounts)
    cells = [max(1, amount * width // total) if amount else 0 for amount in amounts]
    while sum(cells) < width:
        missing = [amount * width / total - cell for amount, cell in zip(amounts, cells, strict=True)]
        cells[missing.index(max(missing))] += 1
    while sum(cells) > width and max(cells) > 0:
        cells[cells.index(max(cells))] -= 1
    return cells


def reason_text(job: Job, signs: LifeSigns, clock: Clock) -> str:
    """Return the reason of a job wherever it is shown: of its status, and of trouble in its output."""
    trouble = trouble_text(signs, clock)
    return "; ".join(filter(None, (job.reason, trouble) if job.status == "Failed" else (trouble, job.reason)))


def trouble_text(signs: LifeSigns, clock: Clock) -> str:
    """Describe output that needs attention, as `no line for 5m, usually every 2s`; empty if it is well."""
    silence = signs.silence
    if silence is None and signs.alerts:
        return signs.alerts[0].text
    if silence is None:
        behind = [each for each in signs.stragglers if each.steps_behind]
        return ", ".join(f"{each.writer} {each.text}" for each in behind[:MAX_NAMED_RANKS])
    more = len(silence.writers) - MAX_NAMED_RANKS
    which = f" of {compact_ranges(silence.writers[:MAX_NAMED_RANKS])}" if silence.writers else ""
    which += f" and {more} more" if more > 0 else ""
    interval = age(silence.usual_s) if silence.usual_s >= 1 else f"{silence.usual_s:.2g}s"
    usual = f", usually every {interval}" if silence.usual_s else ""
    return f"no line{which} for {clock.age(silence.since)}{usual}"


def names_there_are(word: str, names: Iterable[str]) -> str:
    """Return the names to choose from, as `Did you mean vision? There are: audio, vision.`."""
    from difflib import get_close_matches  # slow to import, and rarely needed

    known = [sanitize(name) for name in names]
    near = next(iter(get_close_matches(word, known, 1)), "")
    more = f" and {len(known) - MOST_NAMES} more" if len(known) > MOST_NAMES else ""
    if not known:
        return "There are none."
    return (f"Did you mean {near}? " if near else "") + f"There are: {', '.join(known[:MOST_NAMES])}{more}."


def listed(names: Sequence[str], most: int = 10) -> str:
    """Return names as `a, b and c`, or `a, b and 7 more` if there are more than `most`."""
    last = f"{len(names) - most} more" if len(names) > most else names[-1]
    first = names[:most] if len(names) > most else names[:-1]
    return f"{', '.join(first)} and {last}" if first else last


def in_namespace(namespace: str) -> str:
    """Return ` in namespace vision`; empty for all namespaces."""
    return f" in namespace {namespace}" if namespace else ""
