"""Kubernetes quantities such as `1500m` and `80Gi` as exact numbers."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}))(?:[eE]([+-]?[0-9]{1,2})|([a-zA-Z]{0,2}))"
)


@lru_cache(maxsize=4096)
def parse(text: str | int | float) -> Fraction:
    """Return the exact value of a quantity in its base unit (cores, bytes, devices).

    Raises:
        ValueError: The text is not a quantity.

    Source: grammar of `resource.Quantity` in apimachinery.
    """
    if isinstance(text, (int, float)):
        try:
            return Fraction(text)
        except (OverflowError, ValueError) as error:
            raise ValueError(f"{text!r} is not a quantity") from error
    match = _QUANTITY.fullmatch(text)
    if match is None or (match[3] or "") not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 2, 80Gi")
    number = Fraction(Decimal(match[1]))
    if match[2]:
        return number * Fraction(10) ** int(match[2])
    return number * _SUFFIXES[match[3] or ""]


def count(text: str | int | float) -> int:
    """Return a quantity of whole devices; 0 if the text is not a quantity.

    Fractions are rounded up, as the scheduler does.
    """
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 40:
        return int(text)  # what servers say; the rest is slow, and there are ten thousand pods
    try:
        value = parse(text)
    except ValueError:
        return 0
    return -int(-value // 1)


# Not the sign of an exponent, nor of a negative number.
_BETWEEN = re.compile(r"(?<=[^eE])-")


def request_and_limit(text: str) -> tuple[str, str]:
    """Return the request and the limit of a pod: `4-8`; `4-` has no limit, and of `8` both are the same."""
    request, *limit = _BETWEEN.split(text, 1)
    return request.strip(), limit[0].strip() if limit else request.strip()
