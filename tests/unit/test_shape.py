"""The shape of the project that no linter checks: short files, said purposes, light imports."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from k8s import snapshot, spec
from k8s.kinds import CREATABLE

ROOT = Path(__file__).parents[2]
PACKAGES = ("tui", "k8s", "trainer", "themes")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def test_no_source_file_is_longer_than_400_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_every_module_says_why_it_exists() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
def test_every_kind_has_a_golden_manifest_and_a_test_file(kind: object) -> None:
    resource = type(kind).resource  # type: ignore[attr-defined]
    module = type(kind).__module__.rpartition(".")[2]
    assert (ROOT / "tests" / "golden" / "kinds" / f"{resource.kind.lower()}.yaml").is_file()
    assert (ROOT / "tests" / "kinds" / f"test_{module}.py").is_file()


@pytest.mark.parametrize("module", [snapshot, spec], ids=["snapshot", "spec"])
def test_frozen_values_are_frozen_and_small(module: object) -> None:
    classes = [found for found in vars(module).values() if isinstance(found, type) and is_dataclass(found)]
    assert classes
    for found in classes:
        assert found.__dataclass_params__.frozen, found  # type: ignore[attr-defined]
        assert "__slots__" in vars(found), found
        assert fields(found)


def imported_by(module: str) -> set[str]:
    """Return the top-level names of all modules that importing one brings in, in a fresh interpreter."""
    code = (
        f"import sys, {module}; print(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.skipif(importlib.util.find_spec("tui.__main__") is None, reason="tui.__main__ is not there yet")
def test_the_command_starts_without_what_is_slow_to_import() -> None:
    slow = {"torch", "torchvision", "tensorboard", "kubernetes", "textual", "rich", "numpy", "plotext"}
    assert imported_by("tui.__main__") & slow == set()


@pytest.mark.parametrize(
    "module", ["k8s.client", "k8s.mirror", "k8s.cluster", "k8s.submit", "k8s.files", "k8s.kinds"]
)
def test_what_talks_to_clusters_neither_draws_nor_trains(module: str) -> None:
    assert imported_by(module) & {"textual", "rich", "torch", "kubernetes"} == set()


def test_what_feeds_the_console_does_not_draw() -> None:
    assert imported_by("tui.live") & {"textual", "rich", "torch", "kubernetes"} == set()
