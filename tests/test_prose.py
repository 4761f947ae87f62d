"""Prose of the source: docstrings open with a verb or a noun, and `Raises:` names conditions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

SOURCES = sorted(
    path for package in ("tui", "k8s", "trainer", "themes") for path in (ROOT / package).rglob("*.py")
)
CLAUSE = re.compile(
    r"(What|Which|Whose|Who|How|Why|Where|When|Whether|All that|Whatever|Whoever)\b"
    r"|(Return|Yield|Tell|Say) (what|which|whose|who|how|why|where|when|whether)\b"
)
ODD = re.compile(
    r"\b(That is so|It would not|It is another|[Nn]obody|[Ss]omebody|[Ww]hoever|all that|is meant|are meant"
    r"|in sight|anew|in vain|makes no sense|of it all|was heard)\b"
)
CONDITIONLESS = re.compile(r"^\s+[A-Z]\w+: (That|It|A value|The same|So)\b.{0,25}$", re.M)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring, those below attributes included."""
    for node in ast.walk(ast.parse(path.read_text())):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else ():
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield child.lineno, value.value.strip()


@pytest.mark.parametrize(
    ("finds", "fault"),
    [
        (CLAUSE.match, "opens with a clause"),
        (ODD.search, "has odd wording"),
        (CONDITIONLESS.search, "has an exception without its condition"),
    ],
    ids=["openings", "wording", "raises"],
)
def test_docstrings_are_plain_technical_english(finds: object, fault: str) -> None:
    assert callable(finds)
    found = [
        f"{path.relative_to(ROOT)}:{line} {fault}: {text.splitlines()[0]}"
        for path in SOURCES
        for line, text in docstrings(path)
        if text and finds(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("What it is that fails.", True),
        ("Return whether it is open.", True),
        ("Return the open ports.", False),
        ("Whole pods.", False),
    ],
)
def test_clauses_are_told_from_nouns_and_verbs(text: str, is_found: bool) -> None:
    assert bool(CLAUSE.match(text)) is is_found
