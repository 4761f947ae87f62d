"""A step of the packaged trainer beside the plain loop, and workers that share the sandbox's cores."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from k8s.sandbox.node import nodes
from k8s.sandbox.node.containers import ContainerContext, environment
from tests.bench.figures import Figure
from tests.trainer.jobs import Job

ROUNDS = 2
"""Runs of each side, in turn; the fastest counts, as the least disturbed."""
TEN_STEPS = 10
_PLAIN = """
import sys, time, torch
from trainer.ddp.models import make_model
name, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
model = make_model(name)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
images, labels = torch.rand(batch * 8, 1, 28, 28), torch.randint(0, 10, (batch * 8,))
loss_of = torch.nn.CrossEntropyLoss()
for step in range(steps):
    if step % 10 == 0:
        began = time.perf_counter()
    at = (step % 8) * batch
    optimizer.zero_grad()
    loss = loss_of(model(images[at:at + batch]), labels[at:at + batch])
    loss.backward()
    optimizer.step()
    loss.item()
    if step % 10 == 9:
        print(batch * 10 / (time.perf_counter() - began), "images/s")
"""


def measure() -> Iterator[Figure]:
    """Run each side alone, one after the other."""
    for model, batch, steps in (("cnn", 64, 370), ("resnet18", 32, 60)):
        ours, plain = [], []
        for _ in range(ROUNDS):
            plain.append(_middle(_run("-c", _PLAIN, model, str(batch), str(steps))))
            words = ["--model", model, "--batch-size", str(batch), "--train-images", str(batch * steps)]
            words += ["--epochs", "1", "--val-images", "10", "--log-every", str(TEN_STEPS)]
            ours.append(_middle(_run("-m", "trainer.train_ddp", *words)))
        work = f"trainer step, {model}, {batch} images"
        yield Figure(work, batch / max(ours), "plain loop, fused AdamW", batch / max(plain), ">= 1.0x")
    for workers in (2, 4):
        shared = _images_per_s(workers, {"OMP_NUM_THREADS": _threads_in_sandbox(workers)})
        own = _images_per_s(workers, {})
        work = f"{workers} workers on {nodes.cores()} cores, 1,000 images"
        yield Figure(work, 1000 / shared, "threads as torch chooses them", 1000 / own, ">= 1.0x")


def _run(*words: str) -> str:
    """Run Python in a folder of its own; returns what it printed."""
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    env["PYTHONPATH"] = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-P", *words], check=True, capture_output=True, text=True, cwd=folder, env=env
        )
    return done.stdout


def _threads_in_sandbox(workers: int) -> str:
    """Return the OMP_NUM_THREADS that the sandbox gives to each of so many pods on this machine."""
    pod = {"metadata": {"name": "bench-worker-0", "uid": "bench"}, "spec": {}}
    nowhere = Path("/nowhere")
    context = ContainerContext(
        scratch=nowhere,
        bin=nowhere,
        gpus=(),
        is_simulated=True,
        names=(),
        port=0,
        cores=max(1, nodes.cores() // workers),
        python_path=nowhere,
    )
    return environment({}, pod, {}, context)["OMP_NUM_THREADS"]


def _images_per_s(workers: int, env: Mapping[str, str]) -> float:
    """Train with so many processes of one node, each a pod of its own to torch."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        try:
            words = ["trainer.train_ddp", "--epochs", "1", "--train-images", "6400", "--val-images", "10"]
            job.start_ranks(workers, words, **{"OMP_NUM_THREADS": "", **env})
            assert set(job.end()) == {0}, job.lines
        finally:
            for process in job.processes:
                process.kill()
                process.communicate()
        return _middle("\n".join(job.lines[0]))


def _middle(said: str) -> float:
    """Return the median of the rates in lines of progress, without the first: it warms up."""
    return median([float(rate) for rate in re.findall(r"([\d.]+) images/s", said)][1:])
