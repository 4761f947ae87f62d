"""Breakages are tried once for each tier of tests, and never made in the tree itself."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests import ROOT
from tests.mutants.breakages import breakage_at, count_breakages
from tests.mutants.modules import MODULES, rounds_of
from tests.mutants.runner import copy_tree, read_results, sample_of, try_all

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


def test_every_module_has_tests_and_those_that_import_it_come_first() -> None:
    rounds = {module: rounds_of(ROOT, module) for module in MODULES}
    assert [module for module, found in rounds.items() if not (ROOT / module).exists() or not found] == []
    first, second = rounds["k8s/jobs/create.py"]
    assert "tests/k8s/jobs/test_create.py" in first
    assert "tests/tui/draft/test_job_files.py" in second
    assert any(name.startswith("tests/tui/") for name in rounds["k8s/kinds/job_spec/rules.py"][1])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with a module, of which the tests of each tier see a third."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "module.py").write_text(
        "def is_large(size):\n    return size > 8\n\n\n"
        "def more():\n    return 2\n\n\ndef less():\n    return 4\n"
    )
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['cluster', 'slow']\n")
    (root / "test_module.py").write_text(
        "import pytest\nfrom module import is_large, more\n\n\ndef test_size():\n"
        "    assert [is_large(size) for size in (8, 9)] == [False, True]\n\n\n"
        "@pytest.mark.slow\ndef test_more():\n    assert more() == 2\n"
    )
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


ROUNDS = {"module.py": [["test_module.py"]]}.__getitem__


@pytest.mark.slow
def test_each_tier_notices_its_own_and_nothing_is_tried_twice(project: Path, tmp_path: Path) -> None:
    mutants = sample_of(project, ["module.py"], 10, seed=1)
    assert mutants == sample_of(project, ["module.py"], 10, seed=1)
    folder, results = tmp_path / "copy", tmp_path / "results"
    copy_tree(project, folder)
    lines: list[str] = []
    tiers, until_s = ("quick", "slow"), time.monotonic() + 900
    known = try_all(folder, mutants, ROUNDS, results, tiers=tiers, until_s=until_s, report=lines.append)
    assert {each.breakage.after: [known.get((each.key, tier)) for tier in tiers] for each in mutants} == {
        "size >= 8": [True, None],
        "9": [True, None],
        "3": [False, True],
        "5": [False, False],
    }
    assert "slow: SURVIVES module.py:10: 4  ->  5" in lines
    assert read_results(results) == known
    for path in (project, folder):
        assert "size > 8" in (path / "module.py").read_text()
    again = try_all(folder, mutants, ROUNDS, results, tiers=tiers, until_s=until_s, report=pytest.fail)
    assert again == known


@pytest.mark.slow
def test_tests_that_fail_by_themselves_notice_nothing(project: Path, tmp_path: Path) -> None:
    (project / "test_module.py").write_text("def test_it():\n    assert False\n")
    folder, lines = tmp_path / "copy", list[str]()
    copy_tree(project, folder)
    mutants = sample_of(project, ["module.py"], 1, seed=1)
    until_s = time.monotonic() + 900
    results = tmp_path / "results"
    assert not try_all(
        folder, mutants, ROUNDS, results, tiers=["quick"], until_s=until_s, report=lines.append
    )
    assert lines == ["quick: the tests of module.py fail without any breakage"]
