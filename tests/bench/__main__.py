"""Measure all rows, or those that are named: `python -m tests.bench [--smoke] [ROW …]`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
from collections.abc import Mapping, Sequence

from tests.bench.figures import measure

# Module and function of each row; it takes True for a size of a few seconds
ROWS: Mapping[str, str] = {
    "start": "start.start",
    "commands": "start.commands",
    "pods": "scale.pods",
    "limit": "scale.limit",
    "growth": "scale.growth",
    "storm": "scale.storm",
    "logs": "logs.pipe",
    "view": "view.view",
    "form": "form.form",
    "events": "curves.events",
    "json": "curves.json_command",
    "draw": "curves.draw_curve",
    "step": "step.step",
    "idle": "idle.idle",
    "record": "record.record",
    "link": "link.link",
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
    failed = [name for name in flags.rows or rows if _status(name, rows[name], flags.smoke)]
    if failed:
        print(f"\nFailed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


def _status(*row: str | bool) -> int | None:
    """Measure a row in its own process: a child's peak memory includes its parent's on Linux."""
    process = multiprocessing.get_context("spawn").Process(target=measure, args=row)
    process.start()
    process.join()
    return process.exitcode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
