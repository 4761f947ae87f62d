"""Hung jobs in the sandbox: their rows, `why`, the filter of faults, and which rank hangs at which line."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.kinds.job_spec import JobSpec
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS, PyTorchJob
from k8s.models.resources import PODS
from k8s.reasons.gather import answer_why
from k8s.reasons.stacks import StackReport, inspect_ranks
from k8s.snapshot import ClusterSnapshot, Job
from tests.k8s.sandbox.live.running import PATIENCE_S, Space, marked, pytorch_job
from tests.trainer.jobs import SMALL
from trainer.catalogue import find
from tui.commands.support.connect import read_jobs
from tui.draft.job_files import create_with_files
from tui.session.life_feed import LifeFeed
from tui.settings.options import ConsoleOptions
from tui.tables.filters import is_fault
from tui.tables.jobs import COLUMNS, JobsNow, job_row
from tui.text.format import Clock

HAS_TORCH = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs torch, which gpuconsole[trainer] brings"
)
SILENT = """
import time
for step in range(20):
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.1)
time.sleep(1000)
"""
SCRIPT = """
import time
import torch.distributed as dist
from torch import ones

def load_batch():
    time.sleep(1000)

dist.init_process_group("gloo")
for step in range(9):
    if step == 5 and dist.get_rank() == 1:
        load_batch()
    dist.all_reduce(ones(4))
"""


@pytest.mark.end_to_end
async def test_a_hung_job_is_reported_in_its_row_in_why_and_among_the_faults(space: Space) -> None:
    await space.create(PYTORCH_JOBS, pytorch_job("silent", "python", "-c", SILENT, workers=1))
    feed = ClusterMirror(space.client, space.name)
    life = LifeFeed(
        space.client, None, lambda: feed.all_jobs, on_signs=feed.publish_soon, least_s=1.2, read_s=0.5
    )
    feed.evidence, feed.life = life.evidence, life.signs
    found: asyncio.Queue[tuple[Job, ClusterSnapshot]] = asyncio.Queue()

    def take(snapshot: ClusterSnapshot) -> None:
        for job in snapshot.jobs:
            if job.ref.name == "silent" and snapshot.signs(job).silence is not None:
                found.put_nowait((job, snapshot))

    life.life.watch("test", lambda: feed.all_jobs)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        running = [group.create_task(feed.run(take)), group.create_task(life.run())]
        job, snapshot = await found.get()
        for each in running:
            each.cancel()
    assert is_fault(job, snapshot.signs(job))
    row = job_row(job, COLUMNS, JobsNow(Clock.ahead(0), signs=snapshot.signs), has_detail=True)
    assert row.detail is not None and re.match(r"└ no line for .*usually every \d\.\ds", row.detail)
    assert (await answer_why(space.client, job, snapshot)).sentence.startswith("It runs, but no line for ")


async def submit(space: Space, spec: JobSpec) -> None:
    await create_with_files(space.client, PyTorchJob(), replace(spec, namespace=space.name, image="x"))


async def running_job(space: Space, name: str) -> Job | None:
    snapshot = await read_jobs(ConsoleOptions(), space.client)
    return next((job for job in snapshot.jobs if job.ref.name == name and job.status == "Running"), None)


async def report_of(space: Space, name: str, is_so: Callable[[StackReport], object]) -> StackReport:
    """Ask the ranks of a job until the report is as claimed."""
    report = StackReport()
    async with asyncio.timeout(PATIENCE_S):
        while not is_so(report):
            await asyncio.sleep(0.2)
            if job := await running_job(space, name):
                report = await inspect_ranks(space.client, job)
    return report


@pytest.mark.slow
@HAS_TORCH
async def test_a_debuggable_job_names_the_rank_its_line_and_the_collective(
    space: Space, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = ("python", f"{tmp_path}/train.py")
    await submit(space, JobSpec(name="hung", workers=2, command=command, debuggable=True))
    report = await report_of(space, "hung", lambda found: found.collectives)
    assert [(each.who, each.place, each.code) for each in report.groups] == [
        ("rank 0", "all_reduce (train.py:13)", "dist.all_reduce(ones(4))"),
        ("rank 1", "load_batch (train.py:7)", "time.sleep(1000)"),
    ]
    assert "Rank 1 never entered all_reduce #6: rank 0 waits in it for " in report.sentence
    assert report.problems == ()
    for pid in marked(f"GPUCONSOLE_POD_UID={(await space.get(PODS, 'hung-worker-0'))['metadata']['uid']}"):
        os.kill(pid, signal.SIGSTOP)
    report = await report_of(space, "hung", lambda found: "(stopped)" in found.sentence)
    assert (
        "worker server: timed out; faulthandler: the process did not handle the signal" in report.problems[0]
    )


@pytest.mark.slow
@HAS_TORCH
async def test_a_packaged_trainer_gives_its_stacks_and_a_plain_script_gets_a_debuggable_hint(
    space: Space, tmp_path: Path
) -> None:
    words = find("ddp").command([*SMALL, "--epochs", "2000"])
    await submit(space, JobSpec(name="trained", processes=2, trainer="ddp", command=tuple(words)))
    (tmp_path / "train.py").write_text("import time\ntime.sleep(1000)\n")
    await submit(space, JobSpec(name="plain", command=("python", f"{tmp_path}/train.py")))
    report = await report_of(space, "plain", lambda found: "hrtimer_nanosleep" in found.sentence)
    assert report.sources == ("/proc",)
    assert "Submit with --debuggable" in report.problems[0]
    report = await report_of(space, "trained", lambda found: "torch's flight recorder" in found.sources)
    assert {rank for each in report.groups for rank in each.ranks} == {0, 1}
