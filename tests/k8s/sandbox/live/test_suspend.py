"""A job suspended and resumed in a running sandbox, as the console does it and shows it."""

from __future__ import annotations

import os

import pytest

from k8s.client.client import Client
from k8s.jobs.create import delete_job
from k8s.jobs.modify import suspend_job, why_not
from k8s.kinds import JobRef
from k8s.kinds.batch_job import BatchJob
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import Resource
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from tests.k8s.sandbox.live.running import Manifest, batch_job, marked, pytorch_job
from tests.real_cluster.feed import feed_of, job_called
from tui.commands.support.confirm import wait_until_gone
from tui.jobs.delete_plan import delete_plan
from tui.jobs.leftovers import leftover_lines

GPUS = 8
"""All that the sandbox has."""


def a_job(resource: Resource, name: str, mark: str) -> Manifest:
    """Return a job of two pods that needs all GPUs of the sandbox."""
    if resource == PyTorchJob.resource:
        return pytorch_job(name, "sleep", "300", gpus=GPUS // 2, env={"MARK": mark})
    job = batch_job(name, "sleep", "300", parallelism=2, completions=2, completionMode="Indexed")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"nvidia.com/gpu": str(GPUS // 2)}}
    container["env"] = [{"name": "MARK", "value": mark}]
    return job


@pytest.mark.parametrize("kind", [PyTorchJob(), BatchJob()], ids=lambda kind: kind.title)
async def test_a_suspended_job_frees_its_gpus_for_others_and_a_resumed_one_starts_again(
    client: Client, kind: PyTorchJob | BatchJob
) -> None:
    resource, mark = kind.resource, f"yields-{kind.title}-{os.getpid()}"
    first = await client.create(resource, a_job(resource, "yields", mark), "default")
    ref = JobRef("default", "yields", resource.kind, resource.api_version)
    uid = first["metadata"]["uid"]

    def shown(snapshot: ClusterSnapshot, name: str) -> Job | None:
        return job_called(snapshot, resource.kind, name)

    def is_so(name: str, status: Status, gpus: int) -> bool:
        job = shown(feed.newest, name)
        return job is not None and (job.status, job.gpus_allocated) == (status, gpus)

    async with feed_of(client, "default") as feed:
        running = await feed.until(lambda _: is_so("yields", Status.RUNNING, GPUS))
        before = shown(running, "yields")
        assert before is not None and marked(mark)
        await suspend_job(client, ref, uid, is_suspended=True)
        asleep = await feed.until(
            lambda now: (
                is_so("yields", Status.SUSPENDED, 0)
                and not any(each.pod for job in now.jobs if job.ref == ref for each in job.instances)
            )
        )
        assert marked(mark) == []
        assert asleep.gpus_free == GPUS
        job = shown(asleep, "yields")
        assert job is not None and why_not(job, is_suspended=False) == ""
        await client.create(resource, a_job(resource, "gains", f"{mark}-other"), "default")
        await feed.until(lambda _: is_so("gains", Status.RUNNING, GPUS))
        await suspend_job(client, ref, uid, is_suspended=False)
        snapshot = await feed.until(lambda _: is_so("yields", Status.PENDING, 0))
        plan = delete_plan(snapshot, [JobRef("default", "gains", resource.kind, resource.api_version)])
        await delete_job(client, plan.jobs[0].ref, plan.jobs[0].uid)
        assert leftover_lines(await wait_until_gone(client, "default", plan), 1.0) == ("gains is gone.",)
        resumed = shown(await feed.until(lambda _: is_so("yields", Status.RUNNING, GPUS)), "yields")
        assert resumed is not None and resumed.uid == uid
        assert not {each.pod_uid for each in before.instances} & {each.pod_uid for each in resumed.instances}
        plan = delete_plan(feed.newest, [ref])
        await delete_job(client, ref, uid)
        await wait_until_gone(client, "default", plan)
