"""A training step beside the plain loop of PyTorch's tutorial: same network, device, precision and batch.

Runs on a GPU where there is one, at the sizes one trains there, else at sizes that a processor does in
minutes. Each side runs in a process of its own, in turn; a line below says what our own defaults do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests import ROOT
from tests.bench.figures import Figure

ROUNDS = 2  # runs of each side, in turn; the fastest counts, as the least disturbed
NETWORKS = ("resnet50", "vgg16", "gpt")


def step(is_smoke: bool) -> Iterator[Figure]:
    for network in ("smoke",) if is_smoke else NETWORKS:
        ours, plain = [], []
        for _ in range(1 if is_smoke else ROUNDS):
            plain.append(_run(network, "plain"))
            ours.append(_run(network, "ours"))
        best, peer = (min(each, key=lambda run: float(run["step_s"])) for each in (ours, plain))
        defaults = _run(network, "defaults")
        work = f"step of {network}, {best['batch']} {best['samples']}, {best['precision']}"
        yield Figure(work, best["step_s"], "PyTorch's tutorial loop", peer["step_s"], ">= 1.0x")
        work = f"  our defaults: {defaults['how']}, {defaults['device']}"
        yield Figure(work, defaults["step_s"], "PyTorch's tutorial loop", peer["step_s"], "faster")


def _run(network: str, side: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.step_side", network, side],
        check=True, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
