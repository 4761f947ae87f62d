"""`make mutants`: breaks the code in small ways, one at a time, and says which the tests did not notice."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT
from tests.mutants.modules import TESTS, importers_of
from tests.mutants.runner import BaselineFails, copy_tree, sample_of, try_all

RESULTS = ROOT / ".mutants.jsonl"
"""What came out so far; remove it to begin anew."""


def main() -> int:
    """Try a sample of breakages, or go on where the last run stopped, and print the share noticed."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--sample", type=int, default=200, metavar="N", help="breakages to try (default 200)")
    parser.add_argument("--seed", type=int, default=9, metavar="N", help="chooses which (default 9)")
    parser.add_argument("--minutes", type=float, default=30.0, help="stop after so long (default 30)")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="only these, e.g. k8s/status/pod.py")
    flags = parser.parse_args()
    if unknown := set(flags.modules) - TESTS.keys():
        parser.error(f"not in tests/mutants/modules.py: {', '.join(sorted(unknown))}")
    mutants = sample_of(ROOT, flags.modules or TESTS, flags.sample, flags.seed)
    until_s = time.monotonic() + 60 * flags.minutes
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(ROOT, Path(folder))
        try:
            known = try_all(Path(folder), mutants, _rounds, RESULTS, until_s=until_s, report=_tell)
        except BaselineFails as error:
            sys.stderr.write(f"{error}\n")
            return 1
    tried = [each for each in mutants if each.key in known]
    survivors = [each for each in tried if not known[each.key]]
    share = 100 * (len(tried) - len(survivors)) // max(len(tried), 1)
    _tell(f"\n{len(tried) - len(survivors)} of {len(tried)} noticed ({share} %).")
    if left := len(mutants) - len(tried):
        _tell(f"{left} not tried yet; run it again to go on.")
    if survivors:
        _tell("Not noticed:")
    for each in survivors:
        _tell(f"  {each.words}")
    return 0


def _rounds(module: str) -> tuple[Sequence[str], Sequence[str]]:
    return TESTS[module], importers_of(ROOT, module)


def _tell(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
