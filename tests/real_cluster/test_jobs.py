"""Jobs of every kind on a real cluster, and everything else that holds its GPUs."""

from __future__ import annotations

import pytest

from k8s.client.client import Client
from k8s.models.resources import DEPLOYMENTS, JOBS, PODS
from k8s.snapshot import ClusterSnapshot
from k8s.status import Status
from tests.real_cluster import operator_objects
from tests.real_cluster.feed import feed_of, job_called
from tests.scripted.feed import Feed
from tests.support.real_cluster import NODE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def adds_up(snapshot: ClusterSnapshot) -> bool:
    return sum(job.gpus_allocated for job in snapshot.jobs) == snapshot.gpus_allocated


async def shown(feed: Feed, kind: str, name: str, instances: list[str], gpus: int) -> None:
    """Wait until a job runs with these instances and GPUs."""

    def is_so(snapshot: ClusterSnapshot) -> bool:
        job = job_called(snapshot, kind, name)
        return (
            job is not None
            and job.status is Status.RUNNING
            and [each.name for each in job.instances] == instances
            and (job.gpus_requested, job.gpus_allocated) == (gpus, gpus)
        )

    snapshot = await feed.until(is_so)
    job = job_called(snapshot, kind, name)
    assert job is not None
    assert job.nodes == (NODE,)
    assert adds_up(snapshot), feed.described()


async def test_jobs_of_every_kind_run_and_their_gpus_match_the_node(admin: Client) -> None:
    async with feed_of(admin) as feed:
        await operator_objects.pytorch_job(admin, "torch", workers=2, gpus=1)
        await shown(feed, "PyTorchJob", "torch", ["master-0", "worker-0"], 2)
        await operator_objects.mpi_job(admin, "mpi", workers=1, gpus=1)
        await shown(feed, "MPIJob", "mpi", ["launcher-0", "worker-0"], 1)
        await operator_objects.train_job(admin, "train", nodes=1, gpus=1)
        await shown(feed, "TrainJob", "train", ["node-0"], 1)
        await operator_objects.job_set(admin, "sets", pods=1, gpus=1, role="workers")
        await shown(feed, "JobSet", "sets", ["workers-0"], 1)
        await operator_objects.make(admin, JOBS, "plain", {"template": operator_objects.template("main", 1)})
        await shown(feed, "Job", "plain", ["pod-0"], 1)
        names = {job.ref.name for job in feed.newest.jobs if job.ref.namespace == admin.config.namespace}
        assert names == {"torch", "mpi", "train", "sets", "plain"}, "a part of a job has no row of its own"


async def test_other_gpu_workloads_have_a_row_under_their_topmost_owner(admin: Client) -> None:
    labels = {"app": "notebook"}
    always = operator_objects.template("main", 1, labels)
    always["spec"]["restartPolicy"] = "Always"
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": always}
    async with feed_of(admin) as feed:
        await operator_objects.make(admin, DEPLOYMENTS, "served", spec)
        await operator_objects.make(
            admin, operator_objects.STATEFUL_SETS, "notebook", {**spec, "replicas": 1, "serviceName": "x"}
        )
        await operator_objects.make(admin, PODS, "alone", operator_objects.pod_spec("main", 1))
        for kind, name, gpus in (
            ("Deployment", "served", 2),
            ("StatefulSet", "notebook", 1),
            ("Pod", "alone", 1),
        ):

            def is_so(
                snapshot: ClusterSnapshot, kind: str = kind, name: str = name, gpus: int = gpus
            ) -> bool:
                job = job_called(snapshot, kind, name)
                return job is not None and job.gpus_allocated == gpus and adds_up(snapshot)

            await feed.until(is_so)
        names = {job.ref.name for job in feed.newest.jobs if job.ref.namespace == admin.config.namespace}
        assert names == {"served", "notebook", "alone"}


async def test_a_job_that_does_not_fit_is_pending_with_the_reason_from_why(admin: Client) -> None:
    async with feed_of(admin) as feed:
        await operator_objects.pytorch_job(admin, "huge", workers=1, gpus=16)

        def waits(snapshot: ClusterSnapshot) -> bool:
            job = job_called(snapshot, "PyTorchJob", "huge")
            return job is not None and job.status is Status.PENDING and "Too big" in job.reason

        job = job_called(await feed.until(waits), "PyTorchJob", "huge")
        assert job is not None
        assert (job.gpus_requested, job.gpus_allocated) == (16, 0)
        assert job.reason == "Too big: master-0 needs 16; the largest node has 8"
