"""Tries breakages in a copy of the tree against the tests that should notice; keeps what came out."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import py_compile
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.breakages import Breakage, breakage_at, count_breakages

# A breakage that makes a test hang is noticed.
LONGEST_TEST_S = 100
LONGEST_S = 300.0


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
    # By hash: a breakage may have the size of the source, and be written in the same second.
    compileall.compile_dir(folder, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


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
        f"--timeout={LONGEST_TEST_S}",
        *tests,
    ]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    child = subprocess.Popen(
        words,
        cwd=folder,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return child.wait(longest_s) in (0, 5)  # 5: all of them need the real cluster
    except subprocess.TimeoutExpired:
        return False
    finally:
        if child.poll() is None:
            os.killpg(child.pid, 9)
            child.wait()


def try_all(
    folder: Path,
    mutants: Iterable[Mutant],
    tests: Callable[[str], Sequence[Sequence[str]]],
    results: Path,
    *,
    until_s: float,
    report: Callable[[str], None],
) -> dict[str, bool]:
    """Try the mutants that were not tried yet until the time is up, and return all known results.

    Args:
        folder: A copy of the tree.
        mutants: Mutants to try.
        tests: Returns the rounds of tests of a module; a round is run if the ones before noticed nothing.
        results: File to which each result is appended at once.
        until_s: When to stop, by `time.monotonic`.
        report: Called with a line for each mutant.

    Raises:
        BaselineFails: A round that noticed a breakage fails without one, too.
    """
    known = read_results(results)
    proven: set[tuple[str, ...]] = set()
    for mutant in mutants:
        if mutant.key in known or time.monotonic() > until_s:
            continue
        path = folder / mutant.module
        source = path.read_text()
        rounds = [tuple(each) for each in tests(mutant.module) if each]
        try:
            path.write_text(mutant.breakage.text)
            failed = next((each for each in rounds if not are_green(folder, each)), None)
        finally:
            path.write_text(source)
        # Twice: a busy machine may spoil one run, and would end all.
        if failed and failed not in proven and not any(are_green(folder, failed) for _ in range(2)):
            raise BaselineFails(f"The tests of {mutant.module} fail without any breakage.")
        proven |= {failed} if failed else set(rounds)
        known[mutant.key] = failed is not None
        with results.open("a") as noted:
            line = {"key": mutant.key, "noticed": known[mutant.key], "words": mutant.words}
            noted.write(json.dumps(line) + "\n")
        report(f"{'noticed ' if failed else 'SURVIVES'} {mutant.words}")
    return known
