"""The sandbox's operators and scheduler on a real kube-apiserver, whose kubelet runs what they decide."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from k8s.client.client import Client
from k8s.kinds.batch_job import BatchJob
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS, PyTorchJob
from k8s.models.resources import EVENTS, NAMESPACES, PODS
from k8s.sandbox.controller_runtime import Informers, run_controller
from k8s.sandbox.controllers.operators import Operators
from k8s.sandbox.controllers.scheduler import NAME, Scheduler
from k8s.text.errors import Conflict
from tests.k8s.sandbox.live.running import PATIENCE_S, comes, conditions, has, log_of, pytorch_job
from tests.support import real_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NAMESPACE = "sandbox-operators"


@pytest.fixture(scope="module")
def kubeconfig() -> str:
    """The admin's kubeconfig of a real cluster of one node."""
    return str(real_cluster.start())


@pytest.fixture
async def client(kubeconfig: str) -> AsyncIterator[Client]:
    """A client of that cluster, on which our operators and our scheduler work meanwhile."""
    async with await Client.connect(kubeconfig) as found:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        with contextlib.suppress(Conflict):
            await found.create(NAMESPACES, namespace)
        informers = Informers(found)
        operators = Operators(informers, (PyTorchJob(), BatchJob()), NAMESPACE)
        scheduler = Scheduler(informers, {NAME})
        working = [
            asyncio.create_task(run_controller(operators, informers.waker(), *operators.informers)),
            asyncio.create_task(run_controller(scheduler, informers.waker(), *scheduler.informers)),
            asyncio.create_task(informers.run()),
        ]
        yield found
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        for job in await found.list(PYTORCH_JOBS, NAMESPACE):
            await found.delete(PYTORCH_JOBS, job["metadata"]["name"], NAMESPACE)


async def test_a_pytorch_job_succeeds_on_a_real_cluster_with_the_sandbox_operators(client: Client) -> None:
    command = "echo $RANK of $WORLD_SIZE at $MASTER_ADDR"
    job = pytorch_job("real", "sh", "-c", command, gpus=1)
    job["metadata"]["namespace"] = NAMESPACE
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["schedulerName"] = NAME
        role["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    await client.create(PYTORCH_JOBS, job, NAMESPACE)
    done = await comes(client, PYTORCH_JOBS, "real", has("Succeeded"), NAMESPACE, within_s=60)
    assert conditions(done)["Created"] == "True"
    assert done["status"]["replicaStatuses"]["Master"]["succeeded"] == 1
    master = await client.get(PODS, "real-master-0", NAMESPACE)
    assert master["spec"]["nodeName"] == "real-node-0"
    assert master["spec"]["schedulerName"] == NAME
    assert await log_of(client, "real-master-0", NAMESPACE) == "0 of 2 at real-master-0\n"
    # A kubelet posts its events behind its status.
    async with asyncio.timeout(PATIENCE_S):
        reasons: set[str] = set()
        while not {"Scheduled", "Started"} <= reasons:
            events = await client.list(EVENTS, NAMESPACE, field_selector="involvedObject.name=real-master-0")
            reasons = {event["reason"] for event in events}


async def test_a_job_that_a_real_cluster_cannot_hold_waits_as_a_whole(client: Client) -> None:
    job = pytorch_job("huge", "true", workers=2, gpus=8)
    job["metadata"]["namespace"] = NAMESPACE
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["schedulerName"] = NAME
    await client.create(PYTORCH_JOBS, job, NAMESPACE)
    for name in ("huge-master-0", "huge-worker-0", "huge-worker-1"):
        waits = await comes(client, PODS, name, lambda each: each["status"].get("conditions"), NAMESPACE)
        assert not waits["spec"].get("nodeName")
        assert "Insufficient nvidia.com/gpu" in waits["status"]["conditions"][0]["message"]
