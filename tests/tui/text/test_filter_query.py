"""Filters in k9s' grammar, and paths in kubectl's."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.text.filter_query import matcher, parse_filter
from tui.text.jsonpath import find, parse_path, text_of

COLUMNS = ("NAME", "STATUS", "GPUS")
PLACES = {title.lower(): index for index, title in enumerate(COLUMNS)}
LABELS = {"team": "nlp", "tier": "prod"}


def passes(typed: str, *cells: str, labels: dict[str, str] = LABELS) -> bool:
    found = parse_filter(typed, COLUMNS)
    return found is None or found.accepts(cells, PLACES, labels)


SHOWN = (
    *("", "!", "bert", "BERT", "be.t-l", "running 8", "!gpt", "large$", "^run", "-f", "-f brtlrg"),
    *("status:run", "gpus:^8", "status:pend status:run", "!status:pend large", "!gpt large"),
    *("-l", "-l team", "-l team=nlp", "-l team==nlp,tier!=dev", "-l team=nlp,"),
)
HIDDEN = (
    *("!bert", "(", "-f brtxx", "status:^8", "status:run gpus:16", "!status:run", "!status:run !status:pend"),
    *("bert$", "!large$", "!gpt small", "-f brtlrg status:pend", "nocolumn:run"),
    *("-l !team", "-l owner", "-l team=cv", "-l team=nlp status:pend", "-l team= large"),
)


@pytest.mark.parametrize("typed", [*SHOWN, *HIDDEN])
def test_a_row_is_shown_when_it_matches_the_filter(typed: str) -> None:
    assert passes(typed, "bert-large", "Running", "8/8") is (typed in SHOWN)


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("-l team = = x", "'team = = x' is not a label selector; write key=value, key!=value, key in (a, b)"),
        ("-l ==", "'==' is not a label selector"),
        ("status:run -l == bert", "'== bert' is not a label selector"),
        ("-l team in", "'team in' is not a label selector"),
        ("-l team in (nlp", "'team in (nlp' is not a label selector"),
        ("-l team in nlp status:run", "'team in nlp status:run' is not a label selector"),
        ("-l team=nlp, status:run", "'team=nlp, status:run' is not a label selector"),
        ("-l team>5", "'team>5' is not a label selector"),
        ("-l !team=nlp", "'!team=nlp' is not a label selector"),
        ("-l status:run", "'status:run' is not a label selector"),
        ("!bogus:x", "There is no column bogus: name, status, gpus."),
        ("![unclosed", "'[unclosed' is not a valid regular expression"),
        ("bert !status:(", "'(' is not a valid regular expression"),
    ],
)
def test_an_invalid_filter_matches_nothing_and_reports_its_problem(typed: str, problem: str) -> None:
    found = parse_filter(typed, COLUMNS)
    assert found is not None and found.problem.startswith(problem)
    assert not found.accepts(("bert-large", "Running", "8/8"), PLACES, LABELS)


ROWS: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
    (("bert-large", "Running", "8/8"), LABELS),
    (("gpt", "Failed", "0/8"), {"team": "cv"}),
    (("vit-gpt", "Running", "1/1"), {}),
    (("bert", "Pending", "0/2"), {"team": "nlp", "tier": "dev"}),
)
TERMS = (
    ("name:bert", lambda cells, labels: "bert" in cells[0]),
    ("!name:vit", lambda cells, labels: "vit" not in cells[0]),
    ("!name:large", lambda cells, labels: "large" not in cells[0]),
    ("GPUS:8", lambda cells, labels: "8" in cells[2]),
    ("!gpus:^0", lambda cells, labels: not cells[2].startswith("0")),
    ("!gpt", lambda cells, labels: "gpt" not in " ".join(cells)),
    ("!fail", lambda cells, labels: "Fail" not in " ".join(cells)),
    ("-f bl", lambda cells, labels: "l" in cells[0][cells[0].find("b") :] and "b" in cells[0]),
    ("-l team=nlp", lambda cells, labels: labels.get("team") == "nlp"),
    ("-l team = nlp", lambda cells, labels: labels.get("team") == "nlp"),
    ("-l team", lambda cells, labels: "team" in labels),
    ("-l !tier", lambda cells, labels: "tier" not in labels),
    ("-l team!=cv,tier", lambda cells, labels: labels.get("team") != "cv" and "tier" in labels),
    ("-l team in (nlp, cv)", lambda cells, labels: labels.get("team") in ("nlp", "cv")),
    ("-l tier notin (dev),team", lambda cells, labels: labels.get("tier") != "dev" and "team" in labels),
    ("-l team==cv", lambda cells, labels: labels.get("team") == "cv"),
)
"""Terms, and when a row passes each."""


@given(
    st.lists(st.sampled_from(TERMS), unique=True, max_size=4),
    st.sets(st.sampled_from(["run", "pend", "fail"])),
    st.sampled_from(["", "bert", "running 8", "1/1"]),
    st.randoms(use_true_random=False),
)
def test_the_order_of_filter_terms_does_not_matter(
    terms: list[tuple[str, Any]], states: set[str], text: str, random: Random
) -> None:
    typed = [*(term for term, _ in terms), *(f"status:{state}" for state in states), *filter(None, [text])]
    random.shuffle(typed)
    found = parse_filter("  ".join(typed), COLUMNS)
    for cells, labels in ROWS:
        wanted = (
            all(passes(cells, labels) for _, passes in terms)
            and (not states or any(state in cells[1].lower() for state in states))
            and text in " ".join(cells).lower()
        )
        assert (found is None or found.accepts(cells, PLACES, labels)) is wanted, (typed, cells)


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("gpus:>1", "> compares nothing: gpus: takes a regular expression, such as gpus:^2."),
        ("bogus:x", "There is no column bogus: name, status, gpus."),
        (
            "[unclosed",
            "'[unclosed' is not a valid regular expression (unterminated character set at position 0)",
        ),
        ("status:(", "'(' is not a valid regular expression"),
        ("bert.* status:run -l", ""),
        ("", ""),
        ("12:30", ""),
    ],
)
def test_a_filter_that_may_match_nothing_has_a_hint(typed: str, hint: str) -> None:
    found = parse_filter(typed, COLUMNS)
    assert (found.hint if found else "").startswith(hint)
    assert bool(found and found.hint) is bool(hint)


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_filter_can_be_applied_to_any_row(typed: str, name: str) -> None:
    assert passes(typed, name, "Running", "8/8") in (True, False)


@given(st.text(min_size=1, max_size=20), st.text(max_size=40))
def test_a_negated_filter_matches_the_opposite_rows(words: str, text: str) -> None:
    takes, leaves = matcher(words.strip().lstrip("!")), matcher("!" + words.strip().lstrip("!"))
    if takes is not None and leaves is not None:
        assert takes(text) is not leaves(text)


OBJECT = {
    "kind": "List",
    "items": [
        {"kind": "A", "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "n1"}}},
        {"kind": "B", "metadata": {"name": "127.0.0.2"}},
    ],
    "limits": {"cpu": 4, "gpu": {"a100": 2}},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".kind", ["List"]),
        ("kind", ["List"]),
        ("$.kind", ["List"]),
        ("['kind']", ["List"]),
        (".items[*].metadata.name", ["127.0.0.1", "127.0.0.2"]),
        (".items[0].kind", ["A"]),
        (".items[-1].kind", ["B"]),
        (".items[7].kind", []),
        (".limits.*", ["4", '{"a100": 2}']),
        (r".items[0].metadata.labels.kubernetes\.io/hostname", ["n1"]),
        (".items[0].metadata.labels['kubernetes.io/hostname']", ["n1"]),
        ('.items[0]["kind"]', ["A"]),
        (".nothing.at.all", []),
        (".kind.name", []),
    ],
)
def test_a_path_finds_values_as_in_kubectl(path: str, expected: list[str]) -> None:
    assert [text_of(each) for each in find(parse_path(path), OBJECT)] == expected


@pytest.mark.parametrize("path", [".a[", ".a[x]", ".a b", "...", ".a[?(@.b>3)]", ".a[0:2]", "..a"])
def test_text_that_is_no_path_is_rejected(path: str) -> None:
    with pytest.raises(ValueError, match="unexpected"):
        parse_path(path)


@given(st.text("[].*?@'\"\\ab01:,=<>()"))
def test_any_text_is_parsed_as_a_path_or_rejected(path: str) -> None:
    try:
        find(parse_path(path), OBJECT)
    except ValueError as error:
        assert str(error)
