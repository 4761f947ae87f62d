"""Kubernetes quantities: exact, and never more than what the grammar allows."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.models.quantity import count, parse


def test_a_quantity_is_exact() -> None:
    for text, value in [
        ("8", Fraction(8)),
        (8, Fraction(8)),
        ("500m", Fraction(1, 2)),
        ("0.1", Fraction(1, 10)),
        ("1Ki", Fraction(1024)),
        ("80Gi", Fraction(80 * 2**30)),
        ("1.5Ei", Fraction(3 * 2**59)),
        ("100n", Fraction(1, 10**7)),
        ("1E", Fraction(10**18)),
        ("1E3", Fraction(1000)),
        ("1e-3", Fraction(1, 1000)),
        ("-2k", Fraction(-2000)),
        ("+5", Fraction(5)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        *((f"1{suffix}", Fraction(1000**power)) for power, suffix in enumerate("kMGTPE", 1)),
        *((f"1{suffix}i", Fraction(1024**power)) for power, suffix in enumerate("KMGTPE", 1)),
        *((f"1{suffix}", Fraction(1, 1000**power)) for power, suffix in enumerate("mun", 1)),
    ]:
        assert parse(text) == value


def test_what_is_no_quantity_says_what_one_looks_like() -> None:
    for text in [
        "",
        ".",
        "m",
        "1 Gi",
        " 1",
        "1\n",
        "1gi",
        "1Kib",
        "1e",
        "0x10",
        "1_000",
        "٣",
        "1e1000",
        float("nan"),
        float("inf"),
    ]:
        with pytest.raises(ValueError, match="is not a quantity"):
            parse(text)


@given(
    st.integers(min_value=-(10**30), max_value=10**30), st.sampled_from(["m", "", "k", "M", "Ki", "Gi", "Ei"])
)
def test_no_digit_of_any_number_is_lost(number: int, suffix: str) -> None:
    unit = parse(f"1{suffix}")
    assert parse(f"{number}{suffix}") == number * unit


@given(st.text() | st.floats() | st.integers())
def test_garbage_is_refused_or_read_but_nothing_else_happens(found: str | float) -> None:
    try:
        parse(found)
    except ValueError:
        assert count(found) == 0


def test_devices_are_whole_and_a_part_of_one_takes_all_of_it() -> None:
    for text, devices in [("8", 8), ("7500m", 8), ("1k", 1000), ("lots", 0)]:
        assert count(text) == devices
    assert (count(8), count(float("inf"))) == (8, 0)
