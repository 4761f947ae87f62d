"""Prose of source and tests: docstrings open with a verb or a noun, names of tests state behaviour."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8s.text import errors
from tests import ROOT

SOURCES = sorted(
    path
    for package in ("tui", "k8s", "trainer", "themes", "tests")
    for path in (ROOT / package).rglob("*.py")
)
CLAUSE = re.compile(
    r"(What|Which|Whose|Who|How|Why|Where|When|Whether|All that|Whatever|Whoever)\b"
    r"|(Return|Yield|Tell|Say) (what|which|whose|who|how|why|where|when|whether)\b"
)
ODD = re.compile(
    r"\b(That is so|It would not|It is another|[Nn]obody|[Ss]omebody|[Ww]hoever|all that|is meant|are meant"
    r"|in sight|anew|in vain|makes no sense|of it all|was heard)\b"
)
RIDDLE = re.compile(
    r"test_(what|which|whose|who|whom|how|why|whether|whatever|whoever|that|of)_"
    r"|test_.*_(what|whatever|whoever|whom|nobody|nobodys|somebody|somebodys|everybody|anew|told|tells?"
    r"|said|says?|saying|asked|asks?|asking|shall|is_none|as_none|are_none|none_of|of_ours|meant|left_alone"
    r"|in_the_way|believed?|heard|heeded|in_vain|sought|looked_at|nonsense|makes_no_sense|goes_round"
    r"|poked|wished?|as_far_as|all_that|has_to_be|stands?)(_|$)"
)
"""Names of tests that a reader has to solve; the words for messages and requests are in the style guide."""
CONDITIONLESS = re.compile(r"^\s+[A-Z]\w+: (That|It|A value|The same|So)\b.{0,25}$", re.M)


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Return the parsed files, by their paths below the root."""
    return {path.relative_to(ROOT): ast.parse(path.read_text()) for path in SOURCES}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring, those below attributes included."""
    for node in ast.walk(tree):
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
def test_docstrings_are_plain_technical_english(
    trees: dict[Path, ast.Module], finds: object, fault: str
) -> None:
    assert callable(finds)
    found = [
        f"{path}:{line} {fault}: {text.splitlines()[0]}"
        for path, tree in trees.items()
        for line, text in docstrings(tree)
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
def test_clauses_are_distinguished_from_nouns_and_verbs(text: str, is_found: bool) -> None:
    assert bool(CLAUSE.match(text)) is is_found


MESSAGES = {
    *(name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)),
    "WrongUsage",
    "Cause",
}
UNFINISHED = re.compile(r"(?<![.!?…:\0]|\n)$|\.\.|\(\)|  |\s[.,:;]|\.:|: ?\.")
FINISHED_BY_COMMAND = re.compile(r": [^:]*$|e\.g\. gpuconsole [a-z]+$")


def test_sentences_of_errors_and_causes_are_complete(trees: dict[Path, ast.Module]) -> None:
    """Each ends with a full stop, or with a command to paste: they may be joined on one line."""
    found, count = [], 0
    for path, tree in trees.items():
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        for node in calls if path.parts[0] in ("tui", "k8s") else ():
            if ast.unparse(node.func).split(".")[-1] in MESSAGES:
                keywords = [each.value for each in node.keywords if each.arg != "severity"]
                for value in (*node.args, *keywords):
                    parts = value.values if isinstance(value, ast.JoinedStr) else [value]
                    texts = [each.value if isinstance(each, ast.Constant) else "\0" for each in parts]
                    text = "".join(each for each in texts if isinstance(each, str))
                    count += text not in ("", "\0")
                    if text and UNFINISHED.search(text) and not FINISHED_BY_COMMAND.search(text):
                        found.append(f"{path}:{node.lineno}: {text!r}")
    assert found == [] and count > 200


def test_names_of_tests_state_behaviour_in_plain_english(trees: dict[Path, ast.Module]) -> None:
    found = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in trees.items()
        if path.parts[0] == "tests"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and RIDDLE.match(node.name)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "is_found"),
    [
        ("test_what_is_pasted_is_refused", True),
        ("test_a_pod_that_cannot_be_read_is_none", True),
        ("test_a_lost_cluster_keeps_its_rows", False),
        ("test_the_mask_is_none_of_zero", True),
        ("test_masks_are_applied_once", False),
    ],
)
def test_riddles_are_distinguished_from_sentences(name: str, is_found: bool) -> None:
    assert bool(RIDDLE.match(name)) is is_found
