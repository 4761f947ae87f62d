"""A training step beside the plain loop of PyTorch's tutorial: same network, device, precision and batch.

Runs on a GPU where there is one, at the sizes one trains there, else at sizes that
a processor does in minutes: `python -m tests.bench step`. Each side runs in a process
of its own, in turn; after the ratio stand what ours does with its own defaults,
the share of the device's peak where that is known, and where the time goes.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

from tests import ROOT
from tests.bench.figures import Figure

ROUNDS = 2
"""Runs of each side, in turn; the fastest counts, as the least disturbed."""
ARMED_ROUNDS = 5
SMALL = (
    "--epochs",
    "1",
    "--train-images",
    "6400",
    "--val-images",
    "64",
    "--batch-size",
    "32",
    "--log-every",
    "1",
)
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
    armed, unarmed = zip(*((_two_ranks("1"), _two_ranks("0")) for _ in range(ARMED_ROUNDS)), strict=True)
    work = f"step of train_ddp on 2 ranks, debuggable, median of {ARMED_ROUNDS} runs"
    yield Figure(work, statistics.median(armed), "not debuggable", statistics.median(unarmed), ">= 0.95x")
    ratios = " ".join(f"{off / on:.3f}x" for on, off in zip(armed, unarmed, strict=True))
    print(f"    each run beside the other: {ratios}", flush=True)


def _two_ranks(debuggable: str) -> float:
    """Return the median step time of a short run of the packaged trainer, in seconds."""
    words = [*("-m", "trainer.launch", "--nproc-per-node", "2", "-m", "trainer.train_ddp"), *SMALL]
    env = os.environ | {"GPUCONSOLE_DEBUGGABLE": debuggable, "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = str(ROOT)
    with TemporaryDirectory() as folder:  # of the checkpoints
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, env=env, check=True, capture_output=True, text=True
        )
    steps = [float(found) for found in re.findall(r" step (\d+\.\d+)ms", done.stdout)]
    return statistics.median(steps[len(steps) // 4 :]) / 1000


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
