"""Paths in JSON, in kubectl's syntax, and the errors of what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.text.jsonpath import find, parse_path, text_of

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
