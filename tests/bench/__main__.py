"""Measure all rows, or those that are named: `python -m tests.bench [--smoke] [ROW …]`."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence

from tests.bench.figures import Figure

# Module and function of each row; it takes True for a size of a few seconds
ROWS: Mapping[str, str] = {
    "start": "start.start",
    "commands": "start.commands",
    "pods": "scale.pods",
    "limit": "scale.limit",
    "storm": "scale.storm",
    "logs": "logs.pipe",
    "view": "view.view",
    "events": "curves.events",
    "json": "curves.json_command",
    "draw": "curves.draw_curve",
    "step": "step.step",
    "idle": "idle.idle",
}


def main(words: Sequence[str], rows: Mapping[str, str] = ROWS) -> int:
    """Print each figure as soon as it is known; return 1 if a row failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument(
        "--smoke", action="store_true", help="a tiny size: shows that rows work, not how fast"
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"only these: {', '.join(rows)}")
    flags = parser.parse_args(words)
    if unknown := set(flags.rows) - set(rows):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {cores} cores, load {load:.1f} before\n")
    print(f"{'work':<50} {'ours':>12}   {'peer':<28} {'peer':>13}   {'ratio':>8}   promised", flush=True)
    failed = [name for name in flags.rows or rows if not _is_measured(name, rows[name], flags.smoke)]
    if failed:
        print(f"\nFailed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


def _is_measured(name: str, place: str, is_smoke: bool) -> bool:
    module, _, function = place.rpartition(".")
    try:
        figures: Iterable[Figure] = getattr(importlib.import_module(f"tests.bench.{module}"), function)(
            is_smoke
        )
        for figure in figures:
            print(figure, flush=True)
    except Exception as error:  # whatever it is, the next row is measured
        traceback.print_exc()
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        print(f"{name}: {type(error).__name__}: {error}\n{said or ''}".rstrip(), flush=True)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
