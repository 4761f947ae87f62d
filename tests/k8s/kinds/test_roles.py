"""Roles that differ: what each kind makes of them, exact copies of such jobs, and facts about their pods."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.batch_job import BatchJob
from k8s.kinds.job_spec import EnvSource, HostMount, JobSpec, Mount, Role
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.kinds.pods_spec import spec_of_pods
from k8s.kinds.t9k import T9kPyTorchJob
from tests.k8s.kinds.example_fields import BASE
from tests.k8s.kinds.operator_objects import SITUATIONS, kind_named, objects

T9K, PYTORCH, MPI = T9kPyTorchJob(), PyTorchJob(), MPIJob()
SPEC = JobSpec(name="bert", image="train:1", command=("python", "train.py"), workers=4, gpus=2)
THREE = (
    Role("master", 1, image="master:1", gpus=0, cpu="2", command=("python", "master.py")),
    Role("ps", 2, gpus=0, memory="32Gi-64Gi", restart_policy="OnFailure"),
    Role("worker", 3, gpus=8, working_dir="/w"),
)


def described(role: dict[str, Any]) -> tuple[Any, ...]:
    container = role["template"]["spec"]["containers"][0]
    gpus = container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu")
    words = container.get("command", container.get("args"))
    return role["replicas"], role["restartPolicy"], container["image"], gpus, words


def test_a_t9k_manifest_has_a_replica_spec_for_each_role() -> None:
    manifest = T9K.manifest(replace(SPEC, workers=6, roles=THREE))
    roles = manifest["spec"]["replicaSpecs"]
    assert [role["type"] for role in roles] == ["master", "ps", "worker"]
    assert [described(role) for role in roles] == [
        (1, "Never", "master:1", None, ["python", "master.py"]),
        (2, "OnFailure", "train:1", None, ["python", "train.py"]),
        (3, "Never", "train:1", "8", ["python", "train.py"]),
    ]
    assert [each.role for each in T9K.replicas(manifest)] == ["master", *["ps"] * 2, *["worker"] * 3]


def test_torchrun_starts_the_command_of_each_role() -> None:
    roles = (Role("master"), Role("worker", command=("other.py", "--x")))
    spec = replace(SPEC, torchrun=True, command=("train.py",), roles=roles)
    master, worker = T9K.manifest(spec)["spec"]["replicaSpecs"]
    assert (described(master)[-1], described(worker)[-1]) == (["train.py"], ["other.py", "--x"])
    assert (master["replicas"], worker["replicas"]) == (1, 3)


def test_with_torchrun_either_all_roles_run_python_scripts_or_none() -> None:
    spec = replace(SPEC, workers=6, roles=THREE, torchrun=True, command=("train.py",))
    expected = "With torchrun, either all roles run Python scripts or none does."
    assert T9K.unsupported(spec) == {"roles": expected}
    assert T9K.unsupported(replace(spec, torchrun=False)) == {}
    assert T9K.unsupported(replace(spec, command=("run", "it"))) == {}


@pytest.mark.parametrize(
    ("kind", "roles", "expected"),
    [
        (PYTORCH, (Role("chief"),), "Its roles are master and worker; there is no chief."),
        (PYTORCH, (Role("master", 2),), "There can only be one master."),
        (PYTORCH, (Role("worker", 4),), "The roles have 5 pods, the job has 4: change one of them."),
        (PYTORCH, (Role("master"), Role("worker", 3)), ""),
        (MPI, (Role("launcher", 3),), "There can only be one launcher."),
        (MPI, (Role("launcher"), Role("worker", 4)), ""),
        (
            MPI,
            (Role("worker", restart_policy="Always"),),
            "worker: restart: must be one of OnFailure, Never.",
        ),
        (T9K, THREE, "The roles have 6 pods, the job has 4: change one of them."),
        (T9K, (Role("any", 1), Role("name")), ""),
        (BatchJob(), (Role("worker"),), "All pods of a Job are alike."),
    ],
)
def test_unsupported_roles_are_refused(kind: CreatableKind, roles: tuple[Role, ...], expected: str) -> None:
    assert kind.unsupported(replace(SPEC, roles=roles)).get("roles", "") == expected


def test_a_worker_role_in_a_one_pod_job_is_rejected() -> None:
    found = PYTORCH.unsupported(replace(SPEC, workers=1, roles=(Role("worker", gpus=1),)))
    assert found == {"roles": "The roles have 2 pods, the job has 1: change one of them."}


def test_workers_are_counted_from_roles() -> None:
    assert T9K.workers_of(THREE) == 6
    assert PYTORCH.workers_of((Role("worker", 3),)) == 4
    assert PYTORCH.workers_of((Role("master", gpus=0),)) == 2
    assert MPI.workers_of((Role("launcher"), Role("worker", 3))) == 3


def test_the_arena_annotation_counts_the_gpus_of_all_roles() -> None:
    roles = (Role("worker", gpus=8),)
    for kind, gpus in ((PYTORCH, "26"), (MPI, "32")):
        meta = kind.manifest(replace(SPEC, roles=roles))["metadata"]
        assert meta["annotations"]["requestGPUsOfJobOwner"] == gpus
    assert MPI.manifest(replace(SPEC, roles=roles))["spec"]["slotsPerWorker"] == 8


def test_roles_are_lacking_only_in_job_trainjob_and_mpijob_v1alpha1() -> None:
    without = {kind.title for kind in CREATABLE if "roles" in kind.lacks}
    assert without == {"Job", "TrainJob", "MPIJob v1alpha1"}


FULL = replace(
    BASE,
    workers=3,
    cpu="4-8",
    memory="16Gi",
    mounts=(Mount("data", "/data", "imagenet", True),),
    host_mounts=(HostMount("/nvme", "/cache"),),
    env_from=(EnvSource(True, "wandb", "key", "WANDB_API_KEY"), EnvSource(False, "settings")),
    pull_secrets=("registry",),
    priority_class="high",
    scheduler="volcano",
    host_namespaces=("network",),
    gang=True,
    labels={"team": "vision"},
    user="li",
    log_dir="/data/logs",
)
SAME = (
    *("name", "namespace", "image", "workers", "gpus", "gpu_resource", "mounts", "host_mounts", "env_from"),
    *("pull_secrets", "priority_class", "scheduler", "host_namespaces", "gang"),
    *("cpu", "memory", "labels", "user", "log_dir", "queue", "suspend"),
)


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
def test_the_spec_of_pods_has_the_fields_that_checks_need(kind: CreatableKind) -> None:
    spec = kind.supported(replace(FULL, mounts_on_launcher=True))
    if kind.word == "trainjob":  # which has single keys only
        spec = replace(spec, env_from=spec.env_from[:1])
    found = spec_of_pods(kind, json.loads(json.dumps(kind.manifest(spec))))
    assert {name: getattr(found, name) for name in SAME} == {name: getattr(spec, name) for name in SAME}


def test_gpus_are_those_of_the_largest_pod() -> None:
    for role in ("master", "worker"):
        spec = replace(BASE, gpus=0, roles=(Role(role, gpus=8),))
        assert spec_of_pods(CREATABLE[0], CREATABLE[0].manifest(spec)).gpus == 8


def test_the_pods_of_other_peoples_jobs_are_read() -> None:
    read = 0
    for situation in SITUATIONS:
        obj = objects(situation)[0]
        kind = next((each for each in CREATABLE if each is kind_named(obj)), None)
        if kind is not None:
            read += spec_of_pods(kind, obj).workers
    assert read > 5
