"""Filters: k9s' grammar, and columns beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.text.filter_query import matcher, parse_filter

COLUMNS = ("NAME", "STATUS", "GPUS")
PLACES = {title.lower(): index for index, title in enumerate(COLUMNS)}
LABELS = {"team": "nlp", "tier": "prod"}


def passes(typed: str, *cells: str, labels: dict[str, str] = LABELS) -> bool:
    found = parse_filter(typed, COLUMNS)
    return found is None or found.accepts(cells, PLACES, labels)


@pytest.mark.parametrize(
    ("typed", "is_shown"),
    [
        ("bert", True),
        ("BERT", True),
        ("be.t-l", True),
        ("running 8", True),
        ("!bert", False),
        ("!gpt", True),
        ("(", False),
        ("-f brtlrg", True),
        ("-f brtxx", False),
        ("-f", True),
        ("status:run", True),
        ("status:^8", False),
        ("gpus:^8", True),
        ("status:pend status:run", True),
        ("status:run gpus:16", False),
        ("!status:run", False),
        ("!status:pend large", True),
        ("nocolumn:run", False),
        ("-l team=nlp", True),
        ("-l team==nlp,tier!=dev", True),
        ("-l team", True),
        ("-l !team", False),
        ("-l owner", False),
        ("-l team=cv", False),
        ("-l", True),
        ("", True),
        ("!", True),
    ],
)
def test_a_row_is_shown_when_the_filter_says_so(typed: str, is_shown: bool) -> None:
    assert passes(typed, "bert-large", "Running", "8/8") is is_shown


def test_a_selector_that_makes_no_sense_hides_nothing_and_says_so() -> None:
    found = parse_filter("-l team = = x", COLUMNS)
    assert found is not None
    assert "'team = = x' is no label" in found.problem
    assert found.accepts(("a", "b", "c"), PLACES, {})


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("gpus:>1", "> compares nothing: gpus: takes a regular expression, such as gpus:^2."),
        ("bogus:x", "There is no column bogus: name, status, gpus."),
        ("[unclosed", "'[unclosed' is no regular expression (unterminated character set at position 0)"),
        ("![unclosed", "'[unclosed' is no regular expression"),
        ("status:(", "'(' is no regular expression"),
        ("bert.* status:run -l", ""),
        ("", ""),
        ("12:30", ""),
    ],
)
def test_a_filter_by_which_nothing_may_match_says_why(typed: str, hint: str) -> None:
    found = parse_filter(typed, COLUMNS)
    assert (found.hint if found else "").startswith(hint)
    assert bool(found and found.hint) is bool(hint)


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_filter_takes_or_leaves_any_row(typed: str, name: str) -> None:
    assert passes(typed, name, "Running", "8/8") in (True, False)


@given(st.text(min_size=1, max_size=20), st.text(max_size=40))
def test_leaving_out_is_the_opposite(words: str, text: str) -> None:
    takes, leaves = matcher(words.strip().lstrip("!")), matcher("!" + words.strip().lstrip("!"))
    if takes is not None and leaves is not None:
        assert takes(text) is not leaves(text)
