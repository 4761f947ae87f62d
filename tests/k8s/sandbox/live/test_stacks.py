"""A hung job in the sandbox: who hangs, at which line, and in which collective the others wait."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from k8s.client.client import Client
from k8s.diagnosis.stacks import StackReport, inspect_ranks
from k8s.job_spec import JobSpec
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS, PyTorchJob
from k8s.snapshot import Job
from tests.k8s.sandbox.live.running import marked
from tests.trainer.jobs import SMALL
from trainer.catalogue import find
from tui.commands.support.connect import read_jobs
from tui.jobs.new_job.job_files import create_with_files
from tui.options import ConsoleOptions

pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")
LONG_S = 120.0
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


async def running_job(client: Client, name: str) -> Job | None:
    """Return a job once it runs."""
    snapshot = await read_jobs(ConsoleOptions(namespace="default"), client)
    return next((job for job in snapshot.jobs if job.ref.name == name and job.status == "Running"), None)


async def report_of(client: Client, name: str, is_so: Callable[[StackReport], object]) -> StackReport:
    """Ask the ranks of a job until the report is as claimed."""
    report = StackReport()
    async with asyncio.timeout(LONG_S):
        while not is_so(report):
            await asyncio.sleep(0.2)
            if job := await running_job(client, name):
                report = await inspect_ranks(client, job)
    return report


@pytest.mark.slow
async def test_a_debuggable_job_names_the_rank_its_line_and_the_collective(
    client: Client, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = ("python", str(script))
    await create_with_files(
        client, PyTorchJob(), JobSpec(name="hung", image="x", workers=2, command=command, debuggable=True)
    )
    report = await report_of(client, "hung", lambda found: found.collectives)
    assert [(each.who, each.place, each.code) for each in report.groups] == [
        ("rank 0", "all_reduce (train.py:13)", "dist.all_reduce(ones(4))"),
        ("rank 1", "load_batch (train.py:7)", "time.sleep(1000)"),
    ]
    assert "Rank 1 never entered all_reduce #6: rank 0 waits in it for " in report.sentence
    assert report.problems == ()
    for pid in marked("HOSTNAME=hung-worker-0"):
        os.kill(pid, signal.SIGSTOP)
    report = await report_of(client, "hung", lambda found: "(stopped)" in found.sentence)
    assert (
        "worker server: timed out; faulthandler: the process did not handle the signal" in report.problems[0]
    )


@pytest.mark.slow
async def test_a_packaged_trainer_answers_and_a_plain_script_says_how_it_would(
    client: Client, tmp_path: Path
) -> None:
    words = find("ddp").command([*SMALL, "--epochs", "2000"])
    spec = JobSpec(name="trained", image="x", workers=1, processes=2, trainer="ddp", command=tuple(words))
    await create_with_files(client, PyTorchJob(), spec)
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(1000)\n")
    plain = JobSpec(name="plain", image="x", workers=1, command=("python", str(script)))
    await create_with_files(client, PyTorchJob(), plain)
    report = await report_of(client, "plain", lambda found: "hrtimer_nanosleep" in found.sentence)
    assert report.sources == ("/proc",)
    assert "Submit with --debuggable" in report.problems[0]
    report = await report_of(client, "trained", lambda found: "torch's flight recorder" in found.sources)
    assert {rank for each in report.groups for rank in each.ranks} == {0, 1}
    await client.delete(PYTORCH_JOBS, "trained", "default")  # it would use the cores of other tests
