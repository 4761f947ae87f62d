"""Runs of the tests against breakages in a copy of the tree; results are kept."""

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
from pathlib import Path

import msgspec

from tests.mutants.breakages import Breakage, breakage_at, count_breakages

# A breakage that makes a test hang is noticed.
LONGEST_TEST_S = 100
LONGEST_S = 900.0
# Tests of each tier, by their marks
MARKS = {"quick": "not slow and not cluster", "slow": "slow and not cluster"}


class Mutant(msgspec.Struct, frozen=True):
    module: str
    breakage: Breakage
    key: str  # hash of the breakage and its source, by which results are found again

    @property
    def words(self) -> str:
        return f"{self.module}:{self.breakage.line}: {self.breakage.before}  ->  {self.breakage.after}"


def sample_of(root: Path, modules: Iterable[str], size: int, seed: int) -> list[Mutant]:
    """Return so many mutants at most, the same for the same sources and the same seed."""
    sources = {module: (root / module).read_text() for module in sorted(modules)}
    places = [(module, place) for module, text in sources.items() for place in range(count_breakages(text))]
    chosen = random.Random(seed).sample(places, min(size, len(places)))
    return [_mutant(module, place, sources[module]) for module, place in sorted(chosen)]


def _mutant(module: str, place: int, source: str) -> Mutant:
    key = hashlib.sha256(f"{module}\0{place}\0{source}".encode()).hexdigest()[:20]
    return Mutant(module, breakage_at(source, place), key)


def read_results(path: Path) -> dict[tuple[str, str], bool]:
    """Return by key of the mutant and tier if the mutant was noticed; those not tried yet are not in it."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(each["key"], each["tier"]): each["noticed"] for each in map(json.loads, lines)}


def copy_tree(root: Path, folder: Path) -> None:
    """Copy what git knows or would take, so that nothing is ever broken in the tree itself."""
    listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(listed).decode().split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    # By hash: a breakage may have the size of the source, and be written in the same second.
    compileall.compile_dir(folder, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def are_green(folder: Path, tests: Sequence[str], tier: str) -> bool:
    words = [sys.executable, "-m", "pytest", "-x", "-q", f"--timeout={LONGEST_TEST_S}", "-m", MARKS[tier]]
    # The limit of the quick tier is no property of the code: a busy machine would notice every breakage.
    words += ["-p", "no:cacheprovider", "-p", "no:tests.tiers", *tests]
    child = subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return child.wait(LONGEST_S) in (0, 5)  # 5: none of them belongs to the tier
    except subprocess.TimeoutExpired:
        return False
    finally:
        if child.poll() is None:
            os.killpg(child.pid, 9)
            child.wait()


def try_all(
    folder: Path,
    mutants: Iterable[Mutant],
    rounds_of: Callable[[str], Sequence[Sequence[str]]],
    results: Path,
    *,
    tiers: Sequence[str],
    until_s: float,
    report: Callable[[str], None],
) -> dict[tuple[str, str], bool]:
    """Try mutants until the time is up, each with further tiers until one notices it; return all results.

    Args:
        folder: A copy of the tree.
        mutants: Mutants to try; what is known of them from `results` is not tried again.
        rounds_of: Returns the rounds of tests of a module; a round is run if those before notice nothing.
        results: File to which each result is appended at once.
        tiers: Tiers to run, by their names in `MARKS`.
        until_s: End of the time, by `time.monotonic`.
        report: Called with a line for each result, and for each that tests failing by themselves prevent.
    """
    known = read_results(results)
    proven: set[tuple[str, ...]] = set()
    for mutant in mutants:
        for tier in tiers:
            if time.monotonic() > until_s:
                return known
            if (mutant.key, tier) not in known:
                noticed = _is_noticed(folder, mutant, tier, rounds_of(mutant.module), proven)
                if noticed is None:
                    report(f"{tier}: the tests of {mutant.module} fail without any breakage")
                    break
                known[mutant.key, tier] = noticed
                line = {"key": mutant.key, "tier": tier, "noticed": noticed, "words": mutant.words}
                with results.open("a") as noted:
                    noted.write(json.dumps(line) + "\n")
                report(f"{tier}: {'noticed ' if noticed else 'SURVIVES'} {mutant.words}")
            if known[mutant.key, tier]:
                break
    return known


def _is_noticed(
    folder: Path, mutant: Mutant, tier: str, rounds: Sequence[Sequence[str]], proven: set[tuple[str, ...]]
) -> bool | None:
    """Return True if a round of tests fails with the breakage, None if it fails without one, too."""
    path = folder / mutant.module
    source = path.read_text()
    try:
        path.write_text(mutant.breakage.text)
        failed = next((tests for tests in rounds if not are_green(folder, tests, tier)), None)
    finally:
        path.write_text(source)
    if failed is None:
        return False
    # Twice: a busy machine may spoil one run.
    if (tier, *failed) not in proven and not any(are_green(folder, failed, tier) for _ in range(2)):
        return None
    proven.add((tier, *failed))
    return True
