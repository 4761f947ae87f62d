"""Tries breakages in a copy of the tree against the tests that should notice; keeps what came out."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.breakages import Breakage, breakage_at, count_breakages

LONGEST_S = 300.0
"""A breakage that makes the tests hang is noticed."""


@dataclass(frozen=True)
class Mutant:
    """One breakage of one module."""

    module: str
    breakage: Breakage
    key: str
    """The same for the same breakage of the same source: what came out of it is not found out twice."""

    @property
    def words(self) -> str:
        return f"{self.module}:{self.breakage.line}: {self.breakage.before}  ->  {self.breakage.after}"


class BaselineFails(Exception):
    """The tests of a module fail without any breakage, so that they would notice nothing."""


def sample_of(root: Path, modules: Iterable[str], size: int, seed: int) -> list[Mutant]:
    """Return so many mutants at most, the same for the same sources and the same seed."""
    sources = {module: (root / module).read_text() for module in sorted(modules)}
    places = [(module, place) for module, text in sources.items() for place in range(count_breakages(text))]
    chosen = random.Random(seed).sample(places, min(size, len(places)))
    return [_mutant(module, place, sources[module]) for module, place in sorted(chosen)]


def _mutant(module: str, place: int, source: str) -> Mutant:
    key = hashlib.sha256(f"{module}\0{place}\0{source}".encode()).hexdigest()[:20]
    return Mutant(module, breakage_at(source, place), key)


def read_results(path: Path) -> dict[str, bool]:
    """Return which mutants were tried already, and whether they were noticed."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {each["key"]: each["noticed"] for each in map(json.loads, lines)}


def copy_tree(root: Path, folder: Path) -> None:
    """Copy what git knows or would take, so that nothing is ever broken in the tree itself."""
    listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(listed).decode().split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def are_green(folder: Path, tests: Sequence[str], longest_s: float = LONGEST_S) -> bool:
    """Run tests in a copy, and tell whether all pass."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not cluster",
        *tests,
    ]
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    child = subprocess.Popen(
        words,
        cwd=folder,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return child.wait(longest_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if child.poll() is None:
            os.killpg(child.pid, 9)
            child.wait()


def try_all(
    folder: Path,
    mutants: Iterable[Mutant],
    tests: Mapping[str, Sequence[str]],
    results: Path,
    *,
    until_s: float,
    tell: Callable[[str], None],
) -> dict[str, bool]:
    """Try the mutants that were not tried yet, until the time is up, and return what is known of all.

    Args:
        folder: A copy of the tree.
        mutants: What to try.
        tests: The tests that should notice, by module.
        results: Where each result is noted as it comes.
        until_s: When to stop, by `time.monotonic`.
        tell: Is told of each.

    Raises:
        BaselineFails: They fail without a breakage.
    """
    known = read_results(results)
    proven: set[str] = set()
    for mutant in mutants:
        if mutant.key in known or time.monotonic() > until_s:
            continue
        # Twice: a busy machine may spoil one run, and would end all.
        if mutant.module not in proven and not any(are_green(folder, tests[mutant.module]) for _ in range(2)):
            raise BaselineFails(f"The tests of {mutant.module} fail without any breakage.")
        proven.add(mutant.module)
        path = folder / mutant.module
        source = path.read_text()
        try:
            path.write_text(mutant.breakage.text)
            noticed = not are_green(folder, tests[mutant.module])
        finally:
            path.write_text(source)
        known[mutant.key] = noticed
        with results.open("a") as noted:
            noted.write(json.dumps({"key": mutant.key, "noticed": noticed, "words": mutant.words}) + "\n")
        tell(f"{'noticed ' if noticed else 'SURVIVES'} {mutant.words}")
    return known
