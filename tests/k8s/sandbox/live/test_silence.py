"""A job in the sandbox whose rank 1 never enters a collective: its row, `why` and the filter of faults."""

from __future__ import annotations

import asyncio

import pytest

from k8s.client.client import Client
from k8s.diagnosis.gather import answer_why
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.snapshot import ClusterSnapshot, Job
from tests.k8s.sandbox.live.running import pytorch_job
from tui.feeds.cluster_feed import ClusterFeed
from tui.feeds.life_feed import LifeFeed
from tui.jobs.filters import is_fault
from tui.tables.jobs import COLUMNS, JobsNow, job_row
from tui.text.format import Clock

pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")
SCRIPT = """
import time
import torch.distributed as dist
from torch import ones

dist.init_process_group("gloo")
for step in range(1000):
    if step == 20 and dist.get_rank() == 1:
        time.sleep(1000)
    dist.all_reduce(ones(4))
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.1)
"""


@pytest.mark.slow
async def test_a_hung_job_says_so_in_its_row_in_why_and_among_the_faults(client: Client) -> None:
    await client.create(PYTORCH_JOBS, pytorch_job("silent", "python", "-c", SCRIPT, workers=1), "default")
    feed = ClusterFeed(client, "default")
    life = LifeFeed(
        client,
        None,
        lambda: feed.all_jobs,
        on_marks=feed.publish_soon,
        least_s=1.2,
        read_s=0.5,
    )
    feed.overlay = life.overlay
    found: asyncio.Queue[tuple[Job, ClusterSnapshot]] = asyncio.Queue()

    def take(snapshot: ClusterSnapshot) -> None:
        for job in snapshot.jobs:
            if job.ref.name == "silent" and job.silence is not None:
                found.put_nowait((job, snapshot))

    life.watch("test", lambda: feed.all_jobs)
    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        running = [group.create_task(feed.run(take)), group.create_task(life.run())]
        job, snapshot = await found.get()
        for each in running:
            each.cancel()
    assert is_fault(job)
    row = job_row(job, COLUMNS, JobsNow(Clock.ahead(0)), has_detail=True)
    assert row.detail is not None and row.detail.startswith("└ no line for ")
    assert "usually every 0.1s" in row.detail
    assert (await answer_why(client, job, snapshot)).sentence.startswith("It runs, but no line for ")
