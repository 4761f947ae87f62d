"""A job once more: a name of its own, nothing of the old object's life, what still says the old name."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.jobs.clone import MADE_BY_SERVERS, NotCloned, cleaned, clone, next_name
from k8s.jobs.run_folders import job_of_run, list_runs, moved_folder, moved_to_run, run_name, run_stamp
from k8s.kinds import CREATABLE, KINDS
from k8s.kinds.carried_spec import with_spec
from k8s.kinds.job_spec import JobSpec
from tests.k8s.kinds.operator_objects import SITUATIONS, objects
from tests.support.objects import Object, pytorch_job, recorded


@pytest.mark.parametrize(
    ("name", "taken", "free"),
    [
        ("bert", set(), "bert-2"),
        ("bert-2", set(), "bert-3"),
        ("bert", {"bert-2", "bert-3"}, "bert-4"),
        ("bert-9", set(), "bert-10"),
        ("a.b", set(), "a.b-2"),
        ("x" * 49, set(), "x" * 47 + "-2"),
        ("x" * 63, set(), "x" * 61 + "-2"),
        ("x" * 46 + "-9", set(), "x" * 46 + "-10"),
    ],
)
def test_a_clone_has_the_next_free_name(name: str, taken: set[str], free: str) -> None:
    assert next_name(name, taken) == free


@given(
    name=st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
    numbers=st.sets(st.integers(1, 12)),
)
def test_a_suggested_clone_name_is_free_and_at_most_63_characters(name: str, numbers: set[int]) -> None:
    taken = {name, *(f"{name}-{number}" for number in numbers)}
    for _ in range(12):
        free = next_name(name, taken)
        assert free not in taken
        assert len(free) <= 63
        taken.add(free)


def stored(obj: Object) -> Object:
    """Return an object as a server keeps it."""
    obj, applied = deepcopy(obj), {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    obj["metadata"] |= {
        "uid": "u",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-11-20T10:00:00Z",
        "managedFields": [{"manager": "x"}],
        "ownerReferences": [{"name": "owner", "uid": "o"}],
        "finalizers": ["f"],
        "annotations": obj["metadata"].get("annotations", {}) | applied,
    }
    return {**obj, "status": {"active": 1}}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_clone_has_no_server_set_fields_of_the_old_object(situation: str) -> None:
    obj = stored(objects(situation)[0])
    before = deepcopy(obj)
    found = clone(obj, {"x"})
    assert obj == before
    text = json.dumps(found.manifest)
    assert all(f'"{name}"' not in text for name in (*MADE_BY_SERVERS, "last-applied-configuration", "status"))
    assert found.manifest["metadata"]["name"] == found.name != obj["metadata"]["name"]
    assert [found.manifest[key] for key in ("kind", "apiVersion")] == [obj["kind"], obj["apiVersion"]]


def test_generated_selectors_and_labels_of_a_batch_job_are_dropped_unless_manual() -> None:
    labels = {"controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "job-name": "a"}
    template = {"metadata": {"labels": dict(labels)}, "spec": {"containers": []}}
    obj = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "labels": {**labels, "team": "x"}},
        "spec": {"selector": {"matchLabels": labels}, "template": template, "suspend": True},
    }
    found = cleaned(obj)
    assert found["metadata"]["labels"] == {"team": "x"}
    assert found["spec"] == {"template": {"metadata": {}, "spec": {"containers": []}}}
    obj["spec"] |= {"manualSelector": True}  # type: ignore[operator]
    assert "selector" in cleaned(obj)["spec"]


def test_a_suspended_job_is_cloned_without_suspend() -> None:
    obj = pytorch_job("a")
    obj["spec"]["runPolicy"] = {"suspend": True, "cleanPodPolicy": "None"}
    obj["spec"]["runMode"] = {"pause": {"enabled": True}}
    assert cleaned(obj)["spec"]["runPolicy"] == {"cleanPodPolicy": "None"}
    assert "runMode" not in cleaned(obj)["spec"]


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
def test_a_clone_of_a_trainers_job_gets_a_new_log_dir(kind: object) -> None:
    creatable = next(each for each in CREATABLE if each is kind)
    spec = JobSpec(
        name="bert",
        image="i",
        command=("torchrun", "--log-dir", "/workspace/bert/logs", "--out=/workspace/bert/x", "--tag", "bert"),
        trainer="ddp",
        log_dir="/workspace/bert/logs",
        user="li",
        workers=2,
        rdzv_backend="" if "rdzv_backend" in creatable.lacks else "c10d",
        gang=True,
    )
    obj = stored(with_spec(creatable.manifest(spec), creatable.supported(spec)))
    found = clone(obj, {"bert", "bert-2"}, user="wu")
    assert (found.name, found.lost) == ("bert-3", ())
    assert found.spec is not None
    assert found.spec.name == "bert-3"
    run = found.spec.log_dir.removeprefix("/workspace/").removesuffix("/logs")
    assert run != "bert-3" and job_of_run(run) == "bert-3"
    assert found.spec.command[2:4] == (found.spec.log_dir, f"--out=/workspace/{run}/x")
    assert found.spec.user == "wu"
    assert creatable.manifest(found.spec) == found.manifest
    assert found.mentions_text == "Still refers to bert in: command."


def test_references_to_the_old_job_in_a_foreign_command_are_kept_and_reported() -> None:
    obj = pytorch_job("bert")
    container = obj["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container |= {"command": ["train", "--out", "/data/bert/run"], "env": [{"name": "RUN", "value": "bert"}]}
    found = clone(obj)
    assert "/data/bert/run" in json.dumps(found.manifest)
    assert found.mentions == ("command", "RUN")


def test_clones_of_recorded_jobs_are_yaml_with_the_new_name() -> None:
    listed = [{**each, "apiVersion": "kubeflow.org/v1"} for each in recorded("pytorchjobs")]
    jobs = {each["metadata"]["name"]: each for each in listed}
    git = clone(jobs["pytorch-dist-git"], jobs)
    assert (git.spec, git.kind) == (None, CREATABLE[0])
    policy = {"backoffLimit": 0, "cleanPodPolicy": "Running"}
    expected = json.dumps(jobs["pytorch-dist-git"]["spec"] | {"runPolicy": policy})
    for label in ("release", "master-pod-name"):
        expected = expected.replace(f'"{label}": "pytorch-dist-git', f'"{label}": "pytorch-dist-git-2')
    assert git.manifest["spec"] == json.loads(expected)


@pytest.mark.parametrize(
    "kind", [each for each in KINDS if each not in CREATABLE], ids=lambda kind: kind.title
)
def test_a_job_of_a_kind_without_a_form_is_cloned_as_a_manifest(kind: object) -> None:
    situation = next(name for name in SITUATIONS if (obj := objects(name)[0]) and _is_of(obj, kind))
    found = clone(objects(situation)[0])
    assert (found.kind, found.spec) == (None, None)
    assert found.why_yaml == f"The form has no fields for a {found.resource.kind}."


def _is_of(obj: Object, kind: object) -> bool:
    resource = kind.resource  # type: ignore[attr-defined]
    return (obj["kind"], obj["apiVersion"]) == (resource.kind, resource.api_version)


@pytest.mark.parametrize(
    "spec", [None, "text", [], {"pytorchReplicaSpecs": {"Master": 7}}, {"runPolicy": "x"}]
)
def test_a_malformed_object_is_cloned_as_a_manifest(spec: object) -> None:
    obj = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": spec}
    assert clone(obj).manifest["metadata"] == {"name": "a-2"}


@pytest.mark.parametrize("obj", [{}, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}])
def test_an_object_that_is_not_a_known_job_kind_is_not_cloned(obj: Object) -> None:
    with pytest.raises(NotCloned, match="Could not clone"):
        clone(obj)


NOW = datetime(2026, 11, 22, 8, 20, 33, 417_999, UTC)


def save(volume: Path, run: str, *steps: int, at_s: float = 1000.0) -> None:
    folder = volume / run / "checkpoints"
    folder.mkdir(parents=True)
    for step in steps:
        path = folder / f"step-{step:08d}.pt"
        path.touch()
        os.utime(path, (at_s, at_s))


def test_run_names_of_the_same_job_differ_by_their_time_stamp() -> None:
    stamps = [run_stamp(NOW), run_stamp(NOW + timedelta(milliseconds=1))]
    assert stamps == ["20261122-082033-417", "20261122-082033-418"]
    names = [run_name("digits-1", stamp) for stamp in stamps]
    assert names == ["digits-1-20261122-082033-417", "digits-1-20261122-082033-418"]
    assert [job_of_run(name) for name in (*names, "digits-1")] == ["digits-1"] * 3


def test_runs_with_checkpoints_are_listed_newest_first(tmp_path: Path) -> None:
    save(tmp_path, "digits-20261122-082033-417", 150, 520, 90, at_s=2000)
    save(tmp_path, "digits", 7, at_s=3000)
    save(tmp_path, "empty")
    (tmp_path / "digits" / "checkpoints" / ".step-00000900.pt.partial").touch()
    (tmp_path / "digits" / "checkpoints" / "step-x.pt").touch()
    (tmp_path / "file").touch()
    found = [(run.name, run.job, run.step, run.saved_s) for run in list_runs(tmp_path)]
    assert found == [("digits", "digits", 7, 3000), ("digits-20261122-082033-417", "digits", 520, 2000)]
    assert list_runs(tmp_path / "gone") == []


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        ("/workspace/bert/logs", "/workspace/RUN/logs"),
        ("/workspace/bert-20261122-082033-417/logs", "/workspace/RUN/logs"),
        ("/workspace/other-20261122-082033-417/logs-bert-20261122-082034-000", "/workspace/RUN/logs"),
        ("/mnt/saved", "/mnt/saved/RUN"),
        ("/mnt/saved/", "/mnt/saved/RUN"),
        ("/mnt/saved/bert-20261122-082033-417", "/mnt/saved/RUN"),
        ("saved", "saved/RUN"),
    ],
)
def test_a_folder_path_is_moved_to_the_new_run(path: str, moved: str) -> None:
    assert moved_folder(path, "bert", "RUN", "logs") == moved


def test_a_resumed_command_is_moved_to_a_new_run_without_resume_must() -> None:
    words = [
        "python", "--epochs", "3", "--log-dir=/w/a-20261122-082033-417/logs-bert-20261122-082034-000",
        "--checkpoint-dir", "/w/a-20261122-082033-417/checkpoints", "--resume", "must", "--out=/w/bert/x",
        "--data", "/w/bert/mnist", "--resume=must", "--resume", "never", "--log-dir",
    ]  # fmt: skip
    assert moved_to_run(words, "bert", "bert-2-S") == [
        "python", "--epochs", "3", "--log-dir=/w/bert-2-S/logs",
        "--checkpoint-dir", "/w/bert-2-S/checkpoints", "--out=/w/bert-2-S/x",
        "--data", "/w/bert-2-S/mnist", "--resume", "never", "--log-dir",
    ]  # fmt: skip
