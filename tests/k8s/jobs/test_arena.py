"""Jobs made here are found, shown and deleted by Arena 0.15.2, by the conditions in its source."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from k8s.jobs.create import job_objects
from k8s.kinds import CREATABLE, CreatableKind, Manifest
from k8s.kinds.job_spec import JobFiles, JobSpec, Mount
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPIJobV1Alpha1
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from tests.k8s.jobs.bert import arena_object
from tests.support import arena

PYTORCH, MPI = PyTorchJob(), MPIJobV1Alpha1()
SPEC = JobSpec(
    name="bert",
    namespace="vision",
    image="pytorch:1",
    command=("python", "train.py"),
    workers=3,
    gpus=2,
    user="li",
    priority_class="high",
    labels={"team": "nlp"},
    sync_mode="git",
    sync_source="https://host.example/team/code.git",
    env={"GIT_SYNC_PASSWORD": "s3cr3t"},
    mounts=(Mount("data", "/data"),),
    log_dir="/data/logs",
    tensorboard=True,
)
LI = hashlib.md5(b"li", usedforsecurity=False).hexdigest()
arenas_kinds = pytest.mark.parametrize("kind", [PYTORCH, MPI], ids=lambda kind: kind.title)


def made(kind: CreatableKind, spec: JobSpec = SPEC) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for resource, manifest in job_objects(kind, spec, JobFiles()):
        found.setdefault(resource.plural, []).append(manifest)
    return found


def pods(kind: CreatableKind, job: Manifest) -> list[Manifest]:
    """Return the pods that the kind's operator makes of a job."""
    replicas = kind.run_of(job).replicas if isinstance(kind, MPIJobV1Alpha1) else kind.replicas(job)
    found = [
        {
            "metadata": {
                "name": each.name,
                "labels": {**each.template["metadata"]["labels"], **dict(each.labels)},
                "annotations": each.template["metadata"].get("annotations"),
            },
            "spec": each.template["spec"],
        }
        for each in replicas
    ]
    return [in_namespace(job["metadata"]["namespace"], each) for each in found]


def in_namespace(namespace: str, pod: Manifest) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}


def of(kind: CreatableKind, spec: JobSpec = SPEC) -> tuple[str, Manifest, dict[str, list[Manifest]]]:
    """Return Arena's type of a kind, the job, and all objects created for it by plural."""
    objects = made(kind, spec)
    return kind.resource.kind.lower(), objects[kind.resource.plural][0], objects


@arenas_kinds
def test_arena_lists_the_job_and_its_pods_and_nothing_else(kind: CreatableKind) -> None:
    type_, job, objects = of(kind)
    assert arena.is_listed(job, type_)
    assert arena.is_listed(job, type_, LI), "nor does it hide it where users are kept apart"
    own = pods(kind, job)
    assert len(own) == (4 if kind is MPI else 3)
    (board,) = objects["deployments"]
    others = [
        in_namespace("vision", board["spec"]["template"]),
        *(in_namespace("audio", each) for each in own),
    ]
    assert arena.pods_of(job, type_, [*own, *others]) == own
    assert arena.requested_gpus(own) == 6
    assert arena.priority_of(job, type_) == "high"


@arenas_kinds
@pytest.mark.parametrize("workers", [1, 3])
def test_arena_logs_and_attaches_to_the_chief(kind: CreatableKind, workers: int) -> None:
    type_, job, _ = of(kind, replace(SPEC, workers=workers))
    found = arena.pods_of(job, type_, pods(kind, job))
    chief: Any = arena.chief_of(type_, found)
    assert chief["metadata"]["name"] == ("bert-launcher" if kind is MPI else "bert-master-0")
    assert len(chief["spec"]["containers"]) == 1, "it names no container, so there may be one only"
    assert [each["name"] for each in chief["spec"]["initContainers"]] == [arena.CODE_INIT]


def test_arena_finds_no_chief_pod_in_an_elastic_job() -> None:
    """It has no master: `arena logs` lists its pods and wants `-i`."""
    type_, job, _ = of(PYTORCH, replace(SPEC, elastic=(1, 3)))
    found = arena.pods_of(job, type_, pods(PYTORCH, job))
    assert (len(found), arena.chief_of(type_, found)) == (3, None)


def test_arena_finds_the_mpi_launcher_by_name_and_label() -> None:
    """Source: `pkg/training/trainer_mpi.go`, isChiefJob; without it the job is PENDING for ever."""
    _, job, _ = of(MPI)
    launcher = MPI.run_of(job).replicas[0]
    assert launcher.name == "bert-launcher"
    assert dict(launcher.labels)["mpi_job_name"] == "bert"


@arenas_kinds
def test_arena_shows_the_tensorboard(kind: CreatableKind) -> None:
    _, job, objects = of(kind)
    (service,) = objects["services"]
    assert arena.tensorboard_port(job, [service]) is not None
    assert service["spec"]["type"] == "NodePort", "it shows a node's address and this port"


@pytest.mark.parametrize("kind", [PYTORCH, MPI, MPIJob()], ids=lambda kind: kind.title)
def test_arena_deletes_the_job_with_its_tensorboard_and_record(kind: CreatableKind) -> None:
    type_, _, objects = of(kind)
    words = [
        "service/bert-tensorboard",
        "deployment.apps/bert-tensorboard",
        f"{type_}.kubeflow.org/bert",
        f"configmap/bert-{type_}",
    ]
    assert arena.deleted_by("bert", objects["configmaps"]) == (type_, words)
    assert arena.deleted_by("bert", objects["configmaps"], LI) == (type_, words)


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
def test_arena_records_are_created_only_for_kinds_that_arena_supports(kind: CreatableKind) -> None:
    type_, job, objects = of(kind)
    has_record = any(f"bert-{type_}" == each["metadata"]["name"] for each in objects.get("configmaps", ()))
    assert has_record == (type_ in arena.SERVED_AS)
    # Of MPIJobs it lists v1alpha1 alone, whatever labels the others have.
    is_listed = type_ in arena.SERVED_AS and arena.is_listed(job, type_)
    assert is_listed == (kind.title in ("PyTorchJob", "MPIJob v1alpha1"))


def test_a_recorded_arena_job_meets_the_same_conditions() -> None:
    """Check the conditions above on objects that Arena created on a real cluster."""
    job, record = arena_object("pytorch-dist.pytorchjob"), arena_object("pytorch-dist.configmap")
    service = arena_object("pytorch-dist.tensorboard-service")
    assert arena.is_listed(job, "pytorchjob")
    assert len(arena.pods_of(job, "pytorchjob", pods(PYTORCH, job))) == 3
    assert arena.tensorboard_port(job, [service])
    type_, words = arena.deleted_by("pytorch-dist", [record])
    assert type_ == "pytorchjob" and "pytorchjob.kubeflow.org/pytorch-dist" in words
