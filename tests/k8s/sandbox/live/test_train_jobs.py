"""TrainJobs and JobSets in a running sandbox: their pods and variables, suspension, failure, nothing left."""

from __future__ import annotations

import os

import pytest

from k8s.errors import NotFound
from k8s.kinds.job_set import JOB_SETS
from k8s.kinds.kubeflow.train_job import TRAIN_JOBS
from k8s.models.resources import JOBS, PODS
from tests.k8s.sandbox.live.running import Manifest, Space, conditions, has, marked, until_unmarked

SHOW = "echo $PET_NODE_RANK/$PET_NNODES $PET_NPROC_PER_NODE $PET_MASTER_ADDR $PET_MASTER_PORT"


def train_job(
    name: str, *command: str, nodes: int = 1, runtime: str = "torch-distributed", **spec: object
) -> Manifest:
    trainer = {
        "numNodes": nodes,
        "command": list(command),
        "env": [{"name": "MARK", "value": f"{name}-{os.getpid()}"}],
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer, **spec},
    }


async def pods_of(space: Space, name: str) -> list[Manifest]:
    return await space.objects(PODS, label_selector=f"jobset.sigs.k8s.io/jobset-name={name}")


async def test_the_nodes_of_a_train_job_know_each_other_and_its_end_is_told(space: Space) -> None:
    await space.create(TRAIN_JOBS, train_job("nodes", "sh", "-c", SHOW, nodes=2))
    done = await space.comes(TRAIN_JOBS, "nodes", has("Complete"))
    assert done["status"]["jobsStatus"] == [
        {"name": "node", "active": 0, "failed": 0, "ready": 0, "succeeded": 1, "suspended": 0}
    ]
    pods = sorted(await pods_of(space, "nodes"), key=lambda pod: str(pod["metadata"]["name"]))
    assert [pod["metadata"]["name"].rpartition("-")[0] for pod in pods] == [
        "nodes-node-0-0",
        "nodes-node-0-1",
    ]
    assert pods[1]["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    said = [(await space.log(pod["metadata"]["name"])).split() for pod in pods]
    assert [words[0] for words in said] == ["0/2", "1/2"]
    assert {(words[1], words[2]) for words in said} == {("auto", "127.0.0.1")}
    assert said[0][3] == said[1][3] != "29500"
    job_set = await space.get(JOB_SETS, "nodes")
    assert (job_set["status"]["terminalState"], job_set["status"]["restarts"]) == ("Completed", 0)


async def test_a_train_job_is_suspended_resumed_and_deleted_and_leaves_no_process(space: Space) -> None:
    mark = space.name
    await space.create(TRAIN_JOBS, train_job("held", "sleep", "300", suspend=True))
    held = await space.comes(TRAIN_JOBS, "held", has("Suspended"))
    await space.comes(JOB_SETS, "held", has("Suspended"))
    assert await pods_of(space, "held") == []
    assert conditions(held) == {"Suspended": "True"}
    await space.patch(TRAIN_JOBS, "held", {"spec": {"suspend": False}})
    await space.comes(
        TRAIN_JOBS, "held", lambda job: (job["status"].get("jobsStatus") or [{}])[0].get("ready")
    )
    assert conditions(await space.get(TRAIN_JOBS, "held")) == {"Suspended": "False"}
    await space.patch(TRAIN_JOBS, "held", {"spec": {"suspend": True}})
    for pod in await pods_of(space, "held"):
        await space.goes(PODS, pod["metadata"]["name"])
    assert marked(mark) == []
    await space.patch(TRAIN_JOBS, "held", {"spec": {"suspend": False}})
    await space.comes(JOBS, "held-node-0", lambda job: job["status"].get("ready"))
    await space.delete(TRAIN_JOBS, "held")
    for resource, name in ((JOB_SETS, "held"), (JOBS, "held-node-0")):
        await space.goes(resource, name)
    until_unmarked(mark)


async def test_a_train_job_of_a_name_used_before_fails_with_its_node(space: Space) -> None:
    for _ in range(2):
        await space.create(TRAIN_JOBS, train_job("fails", "sh", "-c", "exit 3"))
        failed = await space.comes(TRAIN_JOBS, "fails", has("Failed"))
        (last,) = [each for each in failed["status"]["conditions"] if each["type"] == "Failed"]
        assert last["reason"] == "FailedJobs"
        assert "fails-node-0" in last["message"]
        assert failed["status"]["jobsStatus"][0]["failed"] == 1
        await space.delete(TRAIN_JOBS, "fails")
        for resource, name in ((TRAIN_JOBS, "fails"), (JOB_SETS, "fails"), (JOBS, "fails-node-0")):
            await space.goes(resource, name)


async def test_a_runtime_that_is_not_there_is_told(space: Space) -> None:
    await space.create(TRAIN_JOBS, train_job("lost", "true", runtime="mpi-distributed"))
    failed = await space.comes(TRAIN_JOBS, "lost", has("Failed"))
    assert failed["status"]["conditions"][-1]["message"].startswith(
        "ClusterTrainingRuntime mpi-distributed does not exist"
    )
    with pytest.raises(NotFound):
        await space.get(JOB_SETS, "lost")
