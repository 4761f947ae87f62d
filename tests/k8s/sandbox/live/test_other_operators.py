"""Jobs of TensorStack and TrainJobs in a sandbox: modes, restarts, and nothing left behind."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from k8s.kinds.kubeflow.train_job import TRAIN_JOBS
from k8s.kinds.t9k import T9K_PYTORCH_JOBS
from k8s.models.resources import PODS, SERVICES
from k8s.sandbox.node.torch_loopback import NCCL_REPLACED
from k8s.text.errors import NotFound
from tests import ROOT
from tests.k8s.sandbox.live.running import (
    Manifest,
    Space,
    conditions,
    has,
    marked,
    phase,
    until_marked,
    until_unmarked,
)

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
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "PyTorchTrainingJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": [role], **spec},
    }


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


async def test_nodes_of_a_train_job_share_a_master_address_and_the_job_completes(space: Space) -> None:
    await space.create(TRAIN_JOBS, train_job("nodes", "sh", "-c", SHOW, nodes=2))
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
