"""Breakages are made where they can be noticed, tried once, and never in the tree itself."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests import ROOT
from tests.mutants.breakages import breakage_at, count_breakages
from tests.mutants.modules import TESTS, importers_of
from tests.mutants.runner import BaselineFails, copy_tree, read_results, sample_of, try_all

SOURCE = '''"""A docstring."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT = 3
def room(free: int, asked: int = 1) -> bool:
    """Tell."""
    print(free)
    return not free < asked and True
'''


def test_each_comparison_constant_and_statement_is_broken_once() -> None:
    breakages = [breakage_at(SOURCE, place) for place in range(count_breakages(SOURCE))]
    found = [(each.line, each.before, each.after) for each in breakages]
    assert sorted(found) == sorted(
        [
            (5, "1", "2"),
            (7, "print(free)", "pass"),
            (8, "not free < asked and True", "not free < asked or True"),
            (8, "not free < asked", "free < asked"),
            (8, "free < asked", "free <= asked"),
            (8, "True", "False"),
        ]
    )
    for each in breakages:
        compile(each.text, "broken", "exec")
        assert each.text != SOURCE


def test_the_modules_and_their_tests_are_there() -> None:
    for module, tests in TESTS.items():
        assert all((ROOT / path).exists() for path in (module, *tests)), module
    assert "tests/tui/jobs/test_job_files.py" in importers_of(ROOT, "k8s/jobs/create.py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with a module, of which half is tested."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "module.py").write_text(
        "def is_large(size):\n    return size > 8\n\n\ndef more():\n    return 2\n"
    )
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['cluster']\n")
    (root / "test_module.py").write_text(
        "from module import is_large\n\n\ndef test_it():\n"
        "    assert [is_large(size) for size in (8, 9)] == [False, True]\n"
    )
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def test_what_no_test_notices_is_told_and_nothing_is_tried_twice(project: Path, tmp_path: Path) -> None:
    mutants = sample_of(project, ["module.py"], 10, seed=1)
    assert mutants == sample_of(project, ["module.py"], 10, seed=1)
    folder, results = tmp_path / "copy", tmp_path / "results"
    copy_tree(project, folder)
    tests = {"module.py": [["test_module.py"], []]}.__getitem__
    said: list[str] = []
    until_s = time.monotonic() + 200
    known = try_all(folder, mutants, tests, results, until_s=until_s, report=said.append)
    assert {each.breakage.after: known[each.key] for each in mutants} == {
        "size >= 8": True,
        "9": True,
        "3": False,
    }
    assert [words for words in said if "SURVIVES" in words] == ["SURVIVES module.py:6: 2  ->  3"]
    assert read_results(results) == known
    for path in (project, folder):
        assert "size > 8" in (path / "module.py").read_text()
    assert try_all(folder, mutants, tests, results, until_s=0.0, report=pytest.fail) == known


def test_tests_that_fail_anyway_notice_nothing(project: Path, tmp_path: Path) -> None:
    (project / "test_module.py").write_text("def test_it():\n    assert False\n")
    copy_tree(project, tmp_path / "copy")
    mutants = sample_of(project, ["module.py"], 1, seed=1)
    tests = {"module.py": [["test_module.py"], []]}.__getitem__
    with pytest.raises(BaselineFails):
        try_all(
            tmp_path / "copy",
            mutants,
            tests,
            tmp_path / "results",
            until_s=time.monotonic() + 99,
            report=print,
        )
