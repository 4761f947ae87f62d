"""Reading ranks from the logs of a real kubelet."""

from __future__ import annotations

import pytest

from k8s.client.client import Client
from k8s.errors import NotFound
from k8s.logs import LogLine, Options, Target, read, targets_of
from k8s.models.resources import JOBS
from k8s.snapshot import ClusterSnapshot
from k8s.status import Status
from tests.real_cluster import operator_objects
from tests.real_cluster.feed import feed_of, job_called

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def texts(client: Client, targets: tuple[Target, ...], rank: int) -> list[str]:
    items = [item async for item in read(client, targets, Options(rank=rank))]
    return [item.text.decode() for item in items if isinstance(item, LogLine)]


async def test_a_rank_that_no_pod_declares_is_in_the_lines_or_is_an_error(admin: Client) -> None:
    command = "echo torchrun; echo '[rank2]: two'; echo '[rank3]: three'"
    template = {"spec": operator_objects.pod_spec("main", 0, command)}
    async with feed_of(admin) as feed:
        await operator_objects.make(admin, JOBS, "plain", {"template": template})

        def is_over(snapshot: ClusterSnapshot) -> bool:
            job = job_called(snapshot, "Job", "plain")
            return job is not None and job.status is Status.SUCCEEDED

        job = job_called(await feed.until(is_over), "Job", "plain")
    assert job is not None
    targets = targets_of(job)
    assert await texts(admin, targets, 2) == ["torchrun", "two"]
    for rank in (7, 9):
        with pytest.raises(NotFound, match=f"no line of rank {rank}") as raised:
            await texts(admin, targets, rank)
        assert "name ranks 2, 3" in raised.value.why
