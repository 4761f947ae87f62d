"""What TensorStack's operator decides for an MPI job: its launcher, its workers, in both of its forms."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.kinds.t9k.mpi_job import T9kMPIJob
from k8s.models.resources import CONFIG_MAPS
from k8s.sandbox.controller_runtime import PROCESSES
from k8s.sandbox.controllers import tensorstack
from k8s.sandbox.controllers.reconcile import ObservedJob
from tests.k8s.sandbox.controllers.test_operators import UID
from tests.k8s.sandbox.controllers.test_tensorstack import there
from tests.k8s.sandbox.live.running import Manifest


def mpi_job(**spec: Any) -> Manifest:
    return {"metadata": {"name": "walk", "namespace": "default", "uid": UID}, "spec": spec, "status": {}}


def worker(gpus: int = 0) -> Manifest:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    container = {
        "name": "mpi-worker",
        "image": "i",
        "resources": {"limits": limits},
        "env": [{"name": "A", "value": "b"}],
    }
    return {"spec": {"containers": [{"name": "beside", "image": "i"}, container]}}


OLDER = {
    "worker": {
        "replicas": 2,
        "extraMPIArgs": ["-N", "3"],
        "cmd": ["./walk", "20"],
        "template": worker(gpus=1),
    },
    "mca": {"btl": "^openib"},
}


NEWER = {
    "mpiConfig": {"mca": {"btl": "^openib"}, "extraArgs": ["-N", "3"], "script": ["./walk", "20"]},
    "replicaSpecs": [
        {"type": "worker", "replicas": 2, "template": worker(gpus=1)},
        {"type": "launcher", "template": {"spec": {"containers": [{"name": "mpi-launcher", "image": "i"}]}}},
    ],
}


@pytest.mark.parametrize("spec", [OLDER, NEWER], ids=["older", "newer"])
def test_a_launcher_runs_mpirun_and_finds_its_workers_by_a_hostfile(spec: Manifest) -> None:
    plan = tensorstack.decide(ObservedJob(T9kMPIJob(), mpi_job(**spec), ()))
    names = [pod["metadata"]["name"] for pod in plan.create]
    prefix = names[0].removesuffix("-launcher-0")
    assert names == [f"{prefix}-launcher-0", f"{prefix}-worker-0", f"{prefix}-worker-1"]
    launcher, *workers = [pod["spec"] for pod in plan.create]
    running = [each for each in launcher["containers"] if each.get("command")]
    assert [each["command"] for each in running] == [
        ["mpirun", "--mca", "btl", "^openib", "-N", "3", "./walk", "20"]
    ]
    assert all(not (each.get("resources") or {}).get("limits") for each in launcher["containers"])
    for each in workers:
        assert [found.get("command") for found in each["containers"]] == [None, ["/usr/sbin/sshd", "-De"]]
        assert each["containers"][1]["env"] == [{"name": "A", "value": "b"}]
    ((resource, config),) = plan.objects
    assert (resource, config["metadata"]["name"]) == (CONFIG_MAPS, f"{prefix}-config")
    assert config["data"] == {"hostfile": f"{prefix}-worker-0 slots=3\n{prefix}-worker-1 slots=3\n"}
    assert plan.create[1]["metadata"]["annotations"][PROCESSES] == "3"
    there = {CONFIG_MAPS: [config]}
    assert tensorstack.decide(ObservedJob(T9kMPIJob(), mpi_job(**spec), (), children=there)).objects == []


@pytest.mark.parametrize(
    ("options", "gpus", "slots"),
    [
        ([], 0, 1),
        ([], 4, 4),
        (["-N", "3"], 0, 3),
        (["-np", "5"], 0, 3),
        (["-np", "2"], 4, 4),
        (["-np", "x"], 0, 1),
    ],
)
def test_a_worker_takes_as_many_ranks_as_mpirun_is_told_or_has_gpus(
    options: list[str], gpus: int, slots: int
) -> None:
    job = mpi_job(worker={"replicas": 2, "extraMPIArgs": options, "cmd": ["x"], "template": worker(gpus)})
    assert T9kMPIJob().slots_of(job) == slots


def test_a_launcher_that_says_its_own_command_keeps_it() -> None:
    own = {"name": "mpi-launcher", "image": "i", "command": ["sh", "-c", "mpirun hostname"]}
    spec = {"replicaSpecs": [{"type": "launcher", "template": {"spec": {"containers": [own]}}}]}
    (pod,) = tensorstack.decide(ObservedJob(T9kMPIJob(), mpi_job(**spec), ())).create
    assert pod["spec"]["containers"][0]["command"] == own["command"]


def test_the_older_switch_ends_the_workers_of_a_finished_job() -> None:
    for switch, kept in ((True, 0), (False, 2), (None, 2)):
        obj = mpi_job(**OLDER, runPolicy={"cleanUpWorkers": switch})
        launcher, *workers = there(tensorstack.decide(ObservedJob(T9kMPIJob(), obj, ())), "Running")
        launcher["status"]["phase"] = "Succeeded"
        plan = tensorstack.decide(ObservedJob(T9kMPIJob(), obj, [launcher, *workers]))
        assert plan.status["phase"] == "Succeeded"
        assert 2 - len(plan.delete) == kept
