"""TrainJob as the console makes it: what it says itself, what it patches, and what is its runtime's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from k8s.job_spec import EnvSource, JobSpec
from k8s.kinds.kubeflow.train_job import TrainJob
from tests.support.objects import Object

KIND = TrainJob()
SPEC = JobSpec(name="llama", image="i:1", command=("torchrun", "train.py"), workers=2, gpus=8, processes=8)


def patched(manifest: Object) -> list[Object]:
    """Return the patched replicated jobs, one for each group of pods."""
    (patch,) = manifest["spec"]["runtimePatches"]
    return list(patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"])


def test_the_trainer_section_has_the_command_nodes_and_resources() -> None:
    body = KIND.manifest(SPEC)["spec"]
    assert body["runtimeRef"]["name"] == "torch-distributed"
    assert (body["trainer"]["numNodes"], body["trainer"]["numProcPerNode"]) == (2, 8)
    assert body["trainer"]["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "8"}
    assert body["trainer"]["command"] == ["torchrun", "train.py"]


def test_slots_select_the_mpi_runtime_and_patch_the_launcher() -> None:
    manifest = KIND.manifest(replace(SPEC, slots=4))
    assert manifest["spec"]["runtimeRef"]["name"] == "deepspeed-distributed"
    assert manifest["spec"]["trainer"]["numProcPerNode"] == 4
    assert [each["name"] for each in patched(manifest)] == ["launcher", "node"]


def test_a_working_directory_is_entered_by_the_command() -> None:
    manifest = KIND.manifest(replace(SPEC, working_dir="/workspace"))
    command = manifest["spec"]["trainer"]["command"]
    assert command[:2] == ["sh", "-c"] and command[3:] == ["/workspace", "torchrun", "train.py"]


@pytest.mark.parametrize(
    ("name", "kind", "reference"),
    [
        ("torchtune-llama3", "ClusterTrainingRuntime", "torchtune-llama3"),
        ("trainingruntime/mine", "TrainingRuntime", "mine"),
        ("", "ClusterTrainingRuntime", "torch-distributed"),
    ],
)
@pytest.mark.parametrize("slots", [None, 4])
def test_a_runtime_is_named_and_needed(name: str, kind: str, reference: str, slots: int | None) -> None:
    spec = replace(SPEC, runtime=name, slots=slots, processes=1 if slots else 8)
    manifest = KIND.manifest(spec)
    if slots and not name:
        reference = "deepspeed-distributed"
    expected = {"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": reference}
    assert manifest["spec"]["runtimeRef"] == expected
    ((resource, needed, field),) = KIND.needs(manifest)
    assert (resource.kind, needed, field) == (kind, reference, "runtime")


def test_an_explicit_mpi_runtime_creates_an_mpi_train_job() -> None:
    manifest = KIND.manifest(replace(SPEC, runtime="deepspeed-distributed", processes=2))
    assert [each["name"] for each in patched(manifest)] == ["launcher", "node"]


def test_whole_secrets_cannot_be_named_and_single_keys_can() -> None:
    key, whole = EnvSource(True, "wandb", "k", "WANDB"), EnvSource(True, "all")
    manifest = KIND.manifest(replace(SPEC, env_from=(key, whole)))
    assert "envFrom" not in json.dumps(manifest) and "secretKeyRef" in json.dumps(manifest)
    assert KIND.unsupported(replace(SPEC, env_from=(key,))) == {}
    assert list(KIND.unsupported(replace(SPEC, env_from=(key, whole)))) == ["env_from"]


def test_code_sync_is_unsupported_for_train_jobs() -> None:
    spec = replace(SPEC, sync_mode="git", sync_source="https://host.example/a.git")
    assert KIND.manifest(spec) == KIND.manifest(SPEC)
    assert list(KIND.unsupported(spec)) == ["sync_mode", "sync_source"]
