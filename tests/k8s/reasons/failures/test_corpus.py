"""Causes of failures: of whole logs written after public reports, and of single last lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.reasons.failures import Triage, triage
from tests.support.failures import container_log, read_cases

CASES = read_cases(Path(__file__).parent / "corpus")


def mistakes(case: dict[str, Any]) -> list[str]:
    """Return the differences between the expected and the found triage."""
    expected = case["expect"]
    found = triage([container_log(**log) for log in case["logs"]])
    if expected is None or found is None:
        return [] if found is expected else [f"found {found.reason if found else None}"]
    return [problem for problem in _differences(expected, found) if problem]


def _differences(expected: dict[str, Any], found: Triage) -> list[str]:
    name = found.cause.name if found.cause else ""
    return [
        "" if expected.get("rank", found.rank) == found.rank else f"rank {found.rank}: {found.reason}",
        "" if expected.get("instance", found.instance) == found.instance else f"instance {found.instance}",
        "" if expected.get("cause", name) == name else f"cause {name or None}, saw {found.saw}",
        "" if re.search(expected.get("phrase", ""), found.reason) else f"reason {found.reason}",
        "" if expected.get("sentence", "") in found.sentence else f"sentence {found.sentence}",
        "" if re.search(expected.get("others", ""), "; ".join(found.others)) else f"others {found.others}",
        "" if bool(found.remedy) == bool(name) and found.saw else "no remedy, or nothing seen",
        ""
        if found.cause is None
        or expected.get("retry", found.cause.can_retry_help) == found.cause.can_retry_help
        else "retry",
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_triage_names_culprit_and_cause(case: dict[str, Any]) -> None:
    assert mistakes(case) == []


def test_the_corpus_is_broad_and_names_its_sources() -> None:
    failures = [case for case in CASES if case["expect"] is not None]
    assert len(failures) >= 60
    assert len({case["name"] for case in CASES}) == len(CASES)
    assert all(re.fullmatch(r"\w[\w.-]*/[\w.-]+(#\d+)?|https://.+", case["source"]) for case in failures)


TRACEBACK = 'Traceback (most recent call last):\n  File "/src/run.py", line 5, in <module>\n    main()\n'
LINES = yaml.safe_load(Path(__file__).with_name("lines.yaml").read_text())


@pytest.mark.parametrize(
    ("cause", "line"),
    [(cause, line) for cause, lines in LINES.items() for line in lines],
    ids=lambda each: each[:40],
)
def test_the_last_line_of_a_failed_rank_names_the_cause(cause: str, line: str) -> None:
    is_exception = re.match(r"[\w.]+(?:Error|Exception|Pool)\b", line) is not None
    for text in (line, f"{TRACEBACK}{line}") if is_exception else (line,):
        found = triage([container_log(f"step 1 loss 0.5\n{text}", ranks=(3,), exit=1, finished=9)])
        assert found is not None
        assert (found.cause.name if found.cause else "") == cause, found
        assert found.rank == 3
        # What was recognised is shown, whichever part of a long line it was.
        assert set(re.findall(r"\w+", f"{found.error} {found.saw}")) & set(re.findall(r"\w+", line))
