"""Jobs of every operator in a running sandbox, from their creation to their end."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from k8s.jobs.create import delete_job
from k8s.jobs.modify import suspend_job, why_not
from k8s.kinds import JobRef
from k8s.kinds.batch_job import BatchJob
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS, PyTorchJob
from k8s.kinds.kubeflow.train_job import TRAIN_JOBS
from k8s.kinds.t9k import T9K_PYTORCH_JOBS
from k8s.models.resources import JOBS, PODS, SERVICES, Resource
from k8s.sandbox.node.torch_loopback import NCCL_REPLACED
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from k8s.text.errors import NotFound
from tests import ROOT
from tests.k8s.sandbox.live.running import (
    Manifest,
    Space,
    batch_job,
    conditions,
    has,
    marked,
    phase,
    pytorch_job,
    until_marked,
    until_unmarked,
)
from tests.real_cluster.feed import feed_of, job_called
from tui.commands.support.confirm import wait_until_gone
from tui.text.change_plans import delete_plan
from tui.verbs.changes import leftover_lines

SHOW = "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"


async def test_a_pytorch_job_runs_to_its_success(space: Space) -> None:
    await space.create(PYTORCH_JOBS, pytorch_job("hello", "sh", "-c", SHOW))
    done = await space.comes(PYTORCH_JOBS, "hello", has("Succeeded"))
    status = done["status"]
    assert conditions(done) == {"Created": "True", "Running": "False", "Succeeded": "True"} or conditions(
        done
    ) == {"Created": "True", "Succeeded": "True"}
    assert {each["reason"] for each in status["conditions"]} >= {"PyTorchJobCreated", "PyTorchJobSucceeded"}
    assert status["replicaStatuses"]["Master"]["succeeded"] == 1
    assert status["startTime"] <= status["completionTime"]
    worker = await space.comes(PODS, "hello-worker-0", phase("Succeeded"))
    master_words = (await space.log("hello-master-0")).split()
    worker_words = (await space.log("hello-worker-0")).split()
    assert master_words[:3] == ["0", "2", "127.0.0.1"]
    assert worker_words[:3] == ["1", "2", "127.0.0.1"]
    assert master_words[3] == worker_words[3]
    assert master_words[3].isdecimal() and master_words[3] != "23456"
    owner = worker["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("PyTorchJob", "hello", True)
    assert worker["metadata"]["labels"]["training.kubeflow.org/replica-type"] == "worker"
    events = await space.events("hello")
    assert {"SuccessfulCreatePod", "PyTorchJobSucceeded"} <= {event["reason"] for event in events}


async def test_a_pod_of_a_job_finds_its_siblings_by_name(space: Space) -> None:
    env = {"PEER": "peers-worker-0:9000", "NAME": "peers", "OTHER": "elsewhere-worker-0"}
    command = "echo $PEER $NAME $OTHER $PET_RDZV_ENDPOINT"
    await space.create(PYTORCH_JOBS, pytorch_job("peers", "sh", "-c", command, env=env))
    await space.comes(PYTORCH_JOBS, "peers", has("Succeeded"))
    assert await space.log("peers-master-0") == "127.0.0.1:9000 peers elsewhere-worker-0\n"


async def test_an_elastic_job_grows_and_shrinks_by_its_last_workers(space: Space) -> None:
    command = "echo $PET_NNODES $PET_RDZV_BACKEND $GPUCONSOLE_RENDEZVOUS_HOST; sleep 300"
    job = pytorch_job("elastic", "sh", "-c", command, workers=2)
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "c10d"}
    await space.create(PYTORCH_JOBS, job)
    first = await space.comes(PODS, "elastic-worker-0", phase("Running"))
    for replicas in (3, 2, 3):
        change = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas}}}}
        await space.patch(PYTORCH_JOBS, "elastic", change)
        if replicas == 2:
            await space.goes(PODS, "elastic-worker-2")
        else:
            await space.comes(PODS, "elastic-worker-2", phase("Running"))
    last = await space.comes(PODS, "elastic-worker-0", phase("Running"))
    assert last["metadata"]["uid"] == first["metadata"]["uid"]
    assert conditions(await space.get(PYTORCH_JOBS, "elastic"))["Running"] == "True"
    assert await space.says("elastic-worker-2", "\n") == "1:4 c10d elastic-worker-0\n"
    await space.delete(PYTORCH_JOBS, "elastic")
    await space.goes(PODS, "elastic-worker-0")


async def test_a_deleted_job_takes_its_pods_and_processes_along(space: Space) -> None:
    mark = space.name
    job = pytorch_job("doomed", "sh", "-c", "(setsid sleep 300 &); sleep 300", env={"MARK": mark})
    await space.create(PYTORCH_JOBS, job)
    await space.comes(PYTORCH_JOBS, "doomed", has("Running"))
    until_marked(mark, 4)
    await space.delete(PYTORCH_JOBS, "doomed")
    await space.goes(PYTORCH_JOBS, "doomed")
    await space.goes(PODS, "doomed-master-0", "doomed-worker-0")
    assert marked(mark) == []


async def test_a_job_made_again_under_its_name_takes_no_old_pods(space: Space) -> None:
    job = pytorch_job("twin", "sh", "-c", "trap '' TERM; sleep 0.5; sleep 300", workers=0)
    await space.create(PYTORCH_JOBS, job)
    first = await space.comes(PODS, "twin-master-0", phase("Running"))
    await space.delete(PYTORCH_JOBS, "twin")
    await space.goes(PYTORCH_JOBS, "twin")
    await space.create(PYTORCH_JOBS, pytorch_job("twin", "true", workers=0))
    await space.comes(PYTORCH_JOBS, "twin", has("Succeeded"))
    second = await space.get(PODS, "twin-master-0")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_finished_job_goes_after_its_time_to_live(space: Space) -> None:
    job = pytorch_job("fleeting", "true", workers=0, ttlSecondsAfterFinished=1)
    await space.create(PYTORCH_JOBS, job)
    await space.comes(PYTORCH_JOBS, "fleeting", has("Succeeded"))
    await space.goes(PYTORCH_JOBS, "fleeting")
    await space.goes(PODS, "fleeting-master-0")


async def test_all_pods_of_a_job_that_does_not_fit_stay_unschedulable_with_the_reason(space: Space) -> None:
    big = pytorch_job("big", "sleep", "300", workers=2, gpus=4)
    await space.create(PYTORCH_JOBS, big)
    for name in ("big-master-0", "big-worker-0", "big-worker-1"):
        waits = await space.comes(PODS, name, lambda each: each["status"].get("conditions"))
        said = waits["status"]["conditions"][0]
        assert not waits["spec"].get("nodeName")
        assert (said["status"], said["reason"]) == ("False", "Unschedulable")
        assert said["message"].startswith("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    events = await space.events("big-master-0")
    assert [event["reason"] for event in events] == ["FailedScheduling"]


async def test_an_indexed_job_gives_each_pod_its_number(space: Space) -> None:
    command = "echo index $JOB_COMPLETION_INDEX"
    job = batch_job("numbers", "sh", "-c", command, completions=3, parallelism=2, completionMode="Indexed")
    await space.create(JOBS, job)
    done = await space.comes(JOBS, "numbers", has("Complete"))
    assert (done["status"]["succeeded"], done["status"]["completedIndexes"]) == (3, "0-2")
    assert done["status"].get("active") is None
    pods = await space.objects(PODS)
    names = sorted(each["metadata"]["name"] for each in pods)
    assert [name.rsplit("-", 1)[0] for name in names] == ["numbers-0", "numbers-1", "numbers-2"]
    assert [await space.log(name) for name in names] == ["index 0\n", "index 1\n", "index 2\n"]


GPUS = 8
"""All GPUs of the sandbox."""


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
    space: Space, kind: PyTorchJob | BatchJob
) -> None:
    resource, mark = kind.resource, f"yields-{space.name}"
    first = await space.create(resource, a_job(resource, "yields", mark))
    ref = JobRef(space.name, "yields", resource.kind, resource.api_version)
    uid = first["metadata"]["uid"]

    def shown(snapshot: ClusterSnapshot, name: str) -> Job | None:
        return job_called(snapshot, resource.kind, name)

    def is_so(name: str, status: Status, gpus: int) -> bool:
        job = shown(feed.newest, name)
        return job is not None and (job.status, job.gpus_allocated) == (status, gpus)

    async with feed_of(space.client, space.name) as feed:
        running = await feed.until(lambda _: is_so("yields", Status.RUNNING, GPUS))
        before = shown(running, "yields")
        assert before is not None and marked(mark)
        await suspend_job(space.client, ref, uid, is_suspended=True)
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
        await space.create(resource, a_job(resource, "gains", f"{mark}-other"))
        await feed.until(lambda _: is_so("gains", Status.RUNNING, GPUS))
        await suspend_job(space.client, ref, uid, is_suspended=False)
        snapshot = await feed.until(lambda _: is_so("yields", Status.PENDING, 0))
        plan = delete_plan(snapshot, [JobRef(space.name, "gains", resource.kind, resource.api_version)])
        await delete_job(space.client, plan.jobs[0].ref, plan.jobs[0].uid)
        assert leftover_lines(await wait_until_gone(space.client, space.name, plan), 1.0) == (
            "gains is gone.",
        )
        resumed = shown(await feed.until(lambda _: is_so("yields", Status.RUNNING, GPUS)), "yields")
        assert resumed is not None and resumed.uid == uid
        assert not {each.pod_uid for each in before.instances} & {each.pod_uid for each in resumed.instances}
        plan = delete_plan(feed.newest, [ref])
        await delete_job(space.client, ref, uid)
        await wait_until_gone(space.client, space.name, plan)


TUTORIAL = ROOT / "tests" / "fixtures" / "t9k"
SCALARS = ("val/loss", "val/accuracy", "test/loss", "test/accuracy")


def t9k_job(name: str, *command: str, replicas: int = 1, mark: str = "", **spec: object) -> Manifest:
    """Return a job whose pods run a command; `spec` adds to it."""
    container = {
        "name": "python",
        "image": "busybox",
        "command": list(command),
        "env": [{"name": "MARK", "value": mark}],
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    role = {"type": "worker", "replicas": replicas, "restartPolicy": "ExitCode", "template": template}
    return {"metadata": {"name": name}, "spec": {"replicaSpecs": [role], **spec}}


def is_in(*phases: str):  # type: ignore[no-untyped-def]
    return lambda job: (job.get("status") or {}).get("phase") in phases


def write_digits(folder: Path, train: int, test: int) -> None:
    """Write MNIST's four files with so many images, of noise."""
    folder.mkdir(parents=True)
    for part, count in (("train", train), ("t10k", test)):
        pixels = os.urandom(count * 28 * 28)
        images = struct.pack(">IIII", 2051, count, 28, 28) + pixels
        labels = struct.pack(">II", 2049, count) + bytes(index % 10 for index in range(count))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)


@pytest.mark.slow
async def test_the_tutorials_job_and_script_train_in_two_processes(space: Space) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    folder = await space.claim_folder("mnist")
    script = (TUTORIAL / "torch_mnist_trainingjob.py.txt").read_text()
    # The script splits exactly 60,000 images and reads them ten times: here 64, once.
    script = script.replace("[48000, 12000]", "[48, 16]").replace("epochs = 10", "epochs = 1")
    (folder / "torch_mnist_trainingjob.py").write_text(script)
    write_digits(folder / "data" / "MNIST" / "raw", 64, 16)
    job = (TUTORIAL / "job.yaml").read_text().replace('procPerNode: "4"', 'procPerNode: "2"')
    (folder / "job.yaml").write_text(job)
    await space.gpuconsole("submit", "-f", str(folder / "job.yaml"))
    done = await space.comes(T9K_PYTORCH_JOBS, "mnist", is_in("Succeeded", "Failed"))
    (pod,) = await space.objects(PODS, label_selector="tensorstack.dev/owner-name=mnist")
    said = await space.log(pod["metadata"]["name"])
    assert done["status"]["phase"] == "Succeeded", said
    assert said.count(NCCL_REPLACED) == 1
    assert said.count("Using distributed PyTorch with nccl backend") == 2
    assert said.count("epoch 1/1 with val loss") == 2
    assert (folder / "model_state_dict.pt").is_file()
    assert list((folder / "log").glob("events.out.tfevents.*"))
    assert conditions(done)["Completed"] == "True"
    await space.comes(T9K_PYTORCH_JOBS, "mnist", lambda job: job["status"]["tensorboard"]["ready"])
    curves = (await space.gpuconsole("curves", "mnist", "-o", "csv")).splitlines()
    assert {line.partition(",")[0] for line in curves[1:]} == {*SCALARS}
    board = await space.board_pod("mnist")
    tags = (await space.scalars(board["metadata"]["name"]))["."]
    assert set(tags) == {*SCALARS}
    await space.delete(T9K_PYTORCH_JOBS, "mnist")
    await space.goes(PODS, board["metadata"]["name"])
    with pytest.raises(NotFound):
        await space.get(SERVICES, "mnist-tensorboard")


async def test_pods_know_each_other_with_torchrun_and_without(space: Space) -> None:
    show = "echo $RANK/$WORLD_SIZE $MASTER_ADDR $MASTER_PORT $PET_NODE_RANK/$PET_NNODES $PET_NPROC_PER_NODE"
    await space.create(T9K_PYTORCH_JOBS, t9k_job("plain", "sh", "-c", show, replicas=2))
    await space.comes(T9K_PYTORCH_JOBS, "plain", is_in("Succeeded"))
    said = [(await space.log(pod["metadata"]["name"])).split() for pod in await space.objects(PODS)]
    assert sorted(words[0] for words in said) == ["0/2", "1/2"]
    assert {words[1] for words in said} == {"127.0.0.1"}
    assert len({words[2] for words in said}) == 1 and said[0][2] != "23456"


async def test_a_job_is_paused_resumed_and_debugged_and_leaves_no_process(space: Space) -> None:
    mark = space.name
    await space.create(T9K_PYTORCH_JOBS, t9k_job("modes", "sh", "-c", "echo training; sleep 300", mark=mark))
    await space.comes(T9K_PYTORCH_JOBS, "modes", is_in("Running"))
    name = (await space.objects(PODS))[0]["metadata"]["name"]
    assert name.startswith("modes-") and name.endswith("-worker-0")
    await space.patch(T9K_PYTORCH_JOBS, "modes", {"spec": {"runMode": {"pause": {"enabled": True}}}})
    paused = await space.comes(T9K_PYTORCH_JOBS, "modes", is_in("Paused"))
    assert conditions(paused)["Paused"] == "True"
    assert await space.objects(PODS) == []
    assert marked(mark) == []
    debug = {"runMode": {"pause": {"enabled": False}, "debug": {"enabled": True}}}
    await space.patch(T9K_PYTORCH_JOBS, "modes", {"spec": debug})
    resumed = await space.comes(T9K_PYTORCH_JOBS, "modes", is_in("Running"))
    assert conditions(resumed)["Paused"] == "False"
    assert await space.log(name) == ""
    await space.patch(T9K_PYTORCH_JOBS, "modes", {"spec": {"runMode": {"debug": {"enabled": False}}}})
    await space.comes(PODS, name, lambda pod: pod["spec"]["containers"][0]["command"][0] == "sh")
    await space.comes(PODS, name, phase("Running"))
    until_marked(mark)
    await space.delete(T9K_PYTORCH_JOBS, "modes")
    await space.goes(PODS, name)
    assert marked(mark) == []


async def test_a_job_of_a_name_used_before_fails_by_its_exit_code_and_after_its_retries(space: Space) -> None:
    for command, reason, count in (("exit 3", "ReplicaFailed", 0), ("exit 137", "BackoffLimitExceeded", 1)):
        job = t9k_job("again", "sh", "-c", command, runPolicy={"backoffLimit": 1, "cleanUpPolicy": "All"})
        await space.create(T9K_PYTORCH_JOBS, job)
        failed = await space.comes(T9K_PYTORCH_JOBS, "again", is_in("Failed"))
        (last,) = [each for each in failed["status"]["conditions"] if each["type"] == "Failed"]
        assert last["reason"] == reason
        assert command.replace("exit", "exit code") in last["message"]
        assert failed["status"]["backoffCount"] == count
        for pod in await space.objects(PODS):
            await space.goes(PODS, pod["metadata"]["name"])
        await space.delete(T9K_PYTORCH_JOBS, "again")
        await space.goes(T9K_PYTORCH_JOBS, "again")


SHOW_PET = "echo $PET_NODE_RANK/$PET_NNODES $PET_NPROC_PER_NODE $PET_MASTER_ADDR $PET_MASTER_PORT"


def train_job(
    name: str, *command: str, nodes: int = 1, runtime: str = "torch-distributed", **spec: object
) -> Manifest:
    trainer = {
        "numNodes": nodes,
        "command": list(command),
        "env": [{"name": "MARK", "value": f"{name}-{os.getpid()}"}],
    }
    return {"metadata": {"name": name}, "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer, **spec}}


async def test_nodes_of_a_train_job_share_a_master_address_and_the_job_completes(space: Space) -> None:
    await space.create(TRAIN_JOBS, train_job("nodes", "sh", "-c", SHOW_PET, nodes=2))
    await space.comes(TRAIN_JOBS, "nodes", has("Complete"))
    pods = sorted(await space.objects(PODS), key=lambda pod: str(pod["metadata"]["name"]))
    assert [pod["metadata"]["name"] for pod in pods] == ["nodes-node-0-0", "nodes-node-0-1"]
    said = [(await space.log(pod["metadata"]["name"])).split() for pod in pods]
    assert [words[0] for words in said] == ["0/2", "1/2"]
    assert {(words[1], words[2]) for words in said} == {("auto", "127.0.0.1")}
    assert said[0][3] == said[1][3] != "29500"


async def test_a_train_job_is_suspended_resumed_and_deleted_and_leaves_no_process(space: Space) -> None:
    mark = space.name
    await space.create(TRAIN_JOBS, train_job("held", "sleep", "300", suspend=True))
    held = await space.comes(TRAIN_JOBS, "held", has("Suspended"))
    assert await space.objects(PODS) == []
    assert conditions(held) == {"Suspended": "True"}
    await space.patch(TRAIN_JOBS, "held", {"spec": {"suspend": False}})
    await space.comes(PODS, "held-node-0-0", phase("Running"))
    assert conditions(await space.get(TRAIN_JOBS, "held")) == {"Suspended": "False"}
    await space.patch(TRAIN_JOBS, "held", {"spec": {"suspend": True}})
    for pod in await space.objects(PODS):
        await space.goes(PODS, pod["metadata"]["name"])
    assert marked(mark) == []
    await space.patch(TRAIN_JOBS, "held", {"spec": {"suspend": False}})
    await space.comes(PODS, "held-node-0-0", phase("Running"))
    await space.delete(TRAIN_JOBS, "held")
    await space.goes(PODS, "held-node-0-0")
    until_unmarked(mark)
