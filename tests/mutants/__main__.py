"""Break the code in small ways, one at a time, and report how many breakages each tier of tests notices."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests import ROOT
from tests.mutants.modules import MODULES, rounds_of
from tests.mutants.runner import MARKS, copy_tree, sample_of, try_all

RESULTS = ROOT / ".mutants.jsonl"  # results so far; remove it to begin again


def main() -> int:
    """Try a sample of breakages, or go on where the last run stopped; return 1 if some could not be tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--sample", type=int, default=200, metavar="N", help="breakages to try (default 200)")
    parser.add_argument("--seed", type=int, default=9, metavar="N", help="chooses which (default 9)")
    parser.add_argument("--minutes", type=float, default=30.0, help="stop after so long (default 30)")
    parser.add_argument(
        "--tier", choices=(*MARKS, "both"), default="both", help="tests to run; both: first the quick ones"
    )
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="only these, e.g. k8s/jobs/create.py")
    flags = parser.parse_args()
    if unknown := set(flags.modules) - set(MODULES):
        parser.error(f"not in tests/mutants/modules.py: {', '.join(sorted(unknown))}")
    tiers = tuple(MARKS) if flags.tier == "both" else (flags.tier,)
    mutants = sample_of(ROOT, flags.modules or MODULES, flags.sample, flags.seed)
    until_s = time.monotonic() + 60 * flags.minutes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_tree(ROOT, folder)
        rounds = partial(rounds_of, folder)
        known = try_all(folder, mutants, rounds, RESULTS, tiers=tiers, until_s=until_s, report=_print)
    left = len(mutants)
    for place, tier in enumerate(tiers):
        noticed = [each for each in mutants if known.get((each.key, tier))]
        _print(f"{'Only the' if place else 'The'} {tier} tier notices {len(noticed)} of {len(mutants)}.")
        left -= len(noticed)
    survivors = [each for each in mutants if all(known.get((each.key, tier)) is False for tier in tiers)]
    _print(f"Not noticed: {len(survivors)}.")
    for each in survivors:
        _print(f"  {each.words}")
    if left := left - len(survivors):
        _print(f"Not tried yet: {left}. To go on, run it again.")
    return 1 if left else 0


def _print(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    sys.exit(main())
