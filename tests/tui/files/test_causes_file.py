"""The user's own causes of failures: used before ours, and every invalid entry is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8s.diagnosis.failures import CAUSES, triage
from tests.support.failures import container_log
from tui.files.causes_file import UserCauses, read_causes

LEASE = r"""
- name: lease lost
  pattern: 'lease (?P<number>\d+) lost'
  sentence: Another job took lease {number}.
  remedy: Wait until it has ended.
  retry: true
"""


def read(tmp_path: Path, text: str) -> UserCauses:
    path = tmp_path / "causes.yaml"
    path.write_text(text)
    return read_causes(path)


def test_a_cause_from_the_users_file_is_matched_before_builtin_causes(tmp_path: Path) -> None:
    found = triage(
        [container_log("RuntimeError: lease 7 lost: Connection refused", ranks=(0,), exit=1)],
        read(tmp_path, LEASE).causes,
    )
    assert found is not None
    assert found.cause is not None
    assert (found.cause.name, found.sentence) == ("lease lost", "Another job took lease 7.")
    assert found.cause.can_retry_help


def test_without_a_causes_file_builtin_causes_are_used(tmp_path: Path) -> None:
    assert read_causes(tmp_path / "causes.yaml") == UserCauses(CAUSES)
    assert read(tmp_path, "") == UserCauses(CAUSES)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lease: lost", ": a list of causes is expected, each with name, pattern and sentence."),
        ("- lease", "line 1: a cause is expected, with name, pattern and sentence."),
        ("- {name: a, pattern: b}", "line 1: sentence is missing."),
        ("- {name: a, pattern: b, sentence: c, cure: d}", "line 1: unknown key cure; there are name, "),
        ("- {name: a, pattern: [b], sentence: c}", "line 1: pattern is a text of at most 500 characters."),
        ("- {name: a, pattern: '(', sentence: c}", "the pattern is not a regular expression: missing )"),
        ("- {name: a, pattern: 'x*', sentence: c}", "line 1: the pattern matches an empty line"),
        ("- {name: a, pattern: 'b(x+)+$', sentence: c}", "line 1: the pattern may take too long"),
        ("- {name: a, pattern: 'b.*.*.*.*.*', sentence: c}", "line 1: the pattern may take too long"),
        ("- {name: a, pattern: b, sentence: c, retry: 3}", "line 1: retry is true or false."),
        ("- {name: a", "line 1: "),
        ("- \x00", " cannot be read: "),
        ("[" + "{a: " * 2000, " cannot be read: it is nested too deeply."),
    ],
)
def test_an_invalid_cause_is_reported_and_valid_causes_are_kept(
    text: str, problem: str, tmp_path: Path
) -> None:
    found = read(tmp_path, f"{LEASE}{text}" if text.startswith("- {") and text.endswith("}") else text)
    assert len(found.problems) == 1
    expected = problem if text.startswith(("lease", "[", "- \x00")) else problem.removeprefix("line 1: ")
    assert expected in found.problems[0]
    assert found.problems[0].startswith(str(tmp_path))
    assert any(cause.name == "lease lost" for cause in found.causes) == text.endswith("}")
