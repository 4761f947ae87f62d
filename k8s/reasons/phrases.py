"""Building blocks of sentences: names, counts, durations, amounts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fractions import Fraction

from k8s.models import Condition
from k8s.reasons.requests import Amount
from k8s.text.runtime_message import runtime_message, shorten

# Further names are counted.
NAMES_SHOWN = 3
# Characters of a message from the cluster.
MESSAGE_CAP = 400
_BYTES = ("memory", "ephemeral-storage", "storage", "hugepages-")
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def names(found: Iterable[str]) -> str:
    """Join names: `a`, `a and b`, `a, b, c and 5 more`."""
    each = list(dict.fromkeys(found))
    if len(each) > NAMES_SHOWN + 1:
        return f"{', '.join(each[:NAMES_SHOWN])} and {len(each) - NAMES_SHOWN} more"
    return " and ".join([", ".join(each[:-1]), each[-1]] if len(each) > 1 else each)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 pod`, `4 pods`."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def verb(found: Sequence[object], one: str, many: str) -> str:
    """Return the form of a verb for that many subjects."""
    return one if len(found) == 1 else many


def span(seconds: float) -> str:
    """Return a duration in its largest unit: `62 s`, `5 min`."""
    whole = max(0, int(seconds))
    for size, unit in _SPANS:
        if whole >= 2 * size or size == 1:
            return f"{whole // size} {unit}"
    return ""


def seconds_between(earlier: datetime | None, later: datetime) -> float:
    """Return the seconds between two times; 0 if the first is None. Times without a zone are UTC."""
    return (later - _zoned(earlier)).total_seconds() if earlier is not None else 0.0


def clock(moment: datetime | None) -> str:
    """Return a time of day in the zone of this machine, `14:02:11`; empty if unknown."""
    if moment is None:
        return ""
    try:
        return f"{_zoned(moment).astimezone():%H:%M:%S}"
    except OverflowError:  # year 1 or 9999 in another time zone
        return ""


def order(moment: datetime | None) -> float:
    """Return a sort key for times; None comes first."""
    return (_zoned(moment) - _EPOCH).total_seconds() if moment is not None else float("-inf")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _zoned(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def cut(message: str | None) -> str:
    """Return the telling part of a message on one line, without its final full stop, `MESSAGE_CAP` long."""
    return shorten(" ".join(runtime_message(message or "").split()).rstrip("."), MESSAGE_CAP)


def amount(resource: str, number: Amount) -> str:
    """Return an amount with its resource: `8 nvidia.com/gpu`, `1.5 cpu`, `64Gi memory`, `1 pod`."""
    if resource == "pods" and number == 1:
        return "1 pod"
    return f"{bare_amount(resource, number)} {resource}"


def bare_amount(resource: str, number: Amount) -> str:
    """Return an amount without its resource: `8`, `1.5`, `64Gi`."""
    kind = resource.removeprefix("requests.").removeprefix("limits.")
    if not kind.startswith(_BYTES):
        return _decimal(number)
    for size, suffix in ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if not -size < number < size:
            return f"{_decimal(Fraction(number) / size)}{suffix}"
    return _decimal(number)


def _decimal(number: Amount) -> str:
    if number.denominator == 1:
        return str(number.numerator) if abs(number.numerator) < 10**15 else f"{float(number):.3g}"
    return f"{round(number * 1000) / 1000:.3f}".rstrip("0").rstrip(".")


def condition_text(condition: Condition) -> str:
    """Describe a condition: `QuotaReserved is False (Pending): not enough quota`."""
    because = f" ({condition.reason})" if condition.reason else ""
    message = f": {cut(condition.message)}" if condition.message else ""
    return f"{condition.type} is {condition.status}{because}{message}"
