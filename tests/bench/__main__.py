"""Run all comparisons, or those that are named: `python -m tests.bench curves start`."""

from __future__ import annotations

import importlib
import os
import platform
import sys

NAMES = ("start", "terminal", "scale", "home", "table", "logs", "curves", "trainer", "topology", "life")


def main(names: list[str]) -> int:
    """Measure and print, a line as soon as it is known."""
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {cores} cores, load {load:.1f} before\n")
    print(f"{'work':<46} {'ours':>10}   {'peer':<36} {'peer':>10}   {'ratio':>8}   promised")
    for name in names or NAMES:
        module = importlib.import_module(f"tests.bench.{name}")
        for figure in module.measure():
            print(figure, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
