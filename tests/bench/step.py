"""A training step beside the plain loop of PyTorch's tutorial: same network, device, precision and batch.

Runs on a GPU where there is one, at the sizes one trains there, else at sizes that
a processor does in minutes: `python -m tests.bench step`. Each side runs in a process
of its own, in turn; after the ratio stand what ours does with its own defaults,
the share of the device's peak where that is known, and where the time goes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.bench.figures import Figure

ROUNDS = 2
"""Runs of each side, in turn; the fastest counts, as the least disturbed."""
NETWORKS = ("resnet50", "vgg16", "gpt")


def measure() -> Iterator[Figure]:
    """Run each side alone, one after the other, and print what else is known between the figures."""
    for network in NETWORKS:
        ours, plain = [], []
        for _ in range(ROUNDS):
            plain.append(_run(network, "plain"))
            ours.append(_run(network, "ours"))
        best, peer = (max(each, key=lambda run: float(run["per_s"])) for each in (ours, plain))
        work = f"step of {network}, {best['batch']} {best['samples']}, {best['precision']}"
        yield Figure(work, best["step_s"], "PyTorch's tutorial loop", peer["step_s"], ">= 1.0x")
        defaults = _run(network, "defaults")
        for name, run in (("same as the tutorial", best), ("our defaults", defaults)):
            print(f"    {name}: {_words(run)}", flush=True)


def _words(run: dict[str, Any]) -> str:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in run["shares"].items())
    mfu = f"MFU {run['mfu']:.1%}" if run["mfu"] else "MFU not known of this device"
    return (
        f"{run['per_s']:,.1f} {run['unit']}/s, {mfu}; {shares}"
        f" ({run['device']}, {run['precision']}, batch {run['batch']}, {run['how']})"
    )


def _run(network: str, side: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.step_side", network, side],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
