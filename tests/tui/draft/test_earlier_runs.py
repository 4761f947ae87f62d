"""Forms filled from another job: clones, folders, and going on from a checkpoint on request only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from k8s.jobs.clone import clone
from k8s.jobs.pod_files import LOCAL_PATH
from k8s.jobs.run_folders import RunFolder
from k8s.kinds import CREATABLE, CreatableKind, JobRef, Manifest
from k8s.kinds.carried_spec import with_spec
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec, Mount, Role, problems_of
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from tests.k8s.kinds.example_fields import BASE, EXAMPLES, IN_CODE, OF_KIND
from tests.scripted.server import Answer, ScriptedCluster
from trainer.catalogue import TRAINERS
from tui.draft.fields import COMMAND, default_values, hidden_fields
from tui.draft.form_model import FormModel
from tui.draft.job_draft import FormResult, JobDraft, parse_values
from tui.draft.preflight import line_text, preflight
from tui.draft.volume import MNIST_FILES, VolumeContent, earlier_runs, inspect_volume

STAMP = "20261122-082033-417"
OLD = f"digits-{STAMP}"
RUNS = [RunFolder(OLD, "digits", 520, 1000.0), RunFolder("digits", "digits", 7, 900.0)]


def job(name: str, status: Status, log_dir: str) -> Job:
    ref = JobRef("default", name, "PyTorchJob", "kubeflow.org/v1")
    made = Job(ref, "u", status, "", 0, 0, (), 0, "", "", None, None, None, (), "", "")
    return msgspec.structs.replace(made, trainer="ddp", log_dir=log_dir)


def parsed(**values: str) -> FormResult:
    texts = {**default_values(), "name": "digits", "claim": "workspace", **values}
    return parse_values(texts, "li", stamp="20261123-000000-000")


def flag(result: FormResult, name: str) -> str:
    words = list(result.spec.command)
    return words[words.index(f"--{name}") + 1] if f"--{name}" in words else ""


def test_each_new_job_form_gets_a_fresh_checkpoint_folder(tmp_path: Path) -> None:
    folders = set()
    for _ in range(3):
        state = FormModel("default")
        state.set_value("claim", "workspace")
        folders.add(flag(state.result, "checkpoint-dir"))
        assert flag(state.result, "resume") == ""
        # The stamp counts milliseconds, and a form may be opened twice in one.
        while FormModel("default")._stamp == state._stamp:
            pass
    assert len(folders) == 3


def test_a_working_directory_on_an_extra_volume_gets_a_fresh_run_folder() -> None:
    values = {"claim": "", "more_volumes": "data:/data", "working_dir": "/data"}
    result = parsed(**values)
    assert flag(result, "checkpoint-dir") == "/data/digits-20261123-000000-000/checkpoints"
    assert result.spec.log_dir == "/data/digits-20261123-000000-000/logs"


@pytest.mark.parametrize("text", ["/workspace/digits", "/workspace/digits/", "/workspace/digits/checkpoints"])
def test_a_run_can_be_continued_from_a_folder_path(text: str) -> None:
    found = earlier_runs((), RUNS, "/workspace").find(text)
    assert (found.folder, found.words(960.0)) == ("/workspace/digits", "step 7 of digits, saved 1m ago")


def test_a_run_that_was_continued_can_be_continued_again() -> None:
    first = job("first", Status.FAILED, f"/workspace/{OLD}/logs-first-{STAMP}")
    found = earlier_runs([first], RUNS, "/workspace").find("first")
    assert (found.folder, found.step, found.status) == (f"/workspace/{OLD}", 520, "Failed")


def test_without_volume_access_the_run_folder_is_taken_from_the_job_object() -> None:
    ended = job("digits", Status.SUCCEEDED, f"/workspace/{OLD}/logs")
    found = earlier_runs([ended], None, "/workspace").find("digits")
    assert (found.folder, found.words(0)) == (f"/workspace/{OLD}", "digits (Succeeded)")


@pytest.mark.parametrize(
    ("jobs", "runs", "text", "said"),
    [
        ((), RUNS, "bert", "No earlier run of 'bert' on this volume; there is digits."),
        ((), [], "bert", "No earlier run of 'bert' on this volume; there is none."),
        ((), None, "bert", "No job 'bert' here runs a packaged trainer: name its folder"),
        ((), RUNS, "/workspace/bert", "There is no checkpoint in /workspace/bert."),
        ((), RUNS, f"/workspace/x/../../{OLD}", f"There is no checkpoint in /{OLD}."),
        ((Status.RUNNING,), RUNS, "digits", "digits is Running: wait until it has ended, or delete it."),
        ((Status.SUSPENDED,), RUNS, f"/workspace/{OLD}", "digits is Suspended: wait until it has ended"),
    ],
)
def test_an_unusable_run_is_rejected(jobs: tuple[Status, ...], runs: Any, text: str, said: str) -> None:
    there = [job("digits", status, f"/workspace/{OLD}/logs") for status in jobs]
    with pytest.raises(LookupError, match=re.escape(said)):
        earlier_runs(there, runs, "/workspace").find(text)


def test_resume_must_in_the_form_is_rejected_with_the_command_that_continues() -> None:
    assert "gpuconsole submit --continue JOB" in parsed(**{"ddp.resume": "must"}).problems["ddp.resume"]


def test_a_form_clone_of_a_continued_job_starts_from_scratch() -> None:
    result = parsed()
    going_on = replace(result.spec, command=(*result.spec.command, "--resume", "must"))
    state = FormModel("default", clone=clone(with_spec(result.kind.manifest(going_on), going_on)))
    assert state.result.problems == {}
    assert flag(state.result, "resume") == ""
    assert flag(state.result, "checkpoint-dir") != flag(result, "checkpoint-dir")


# Fields that change nothing


_OF_OTHERS = {
    *("sync_source", "sync_branch", "sync_revision", "sync_path", "git_secret", "sync_image"),
    *("torchrun", "max_restarts", "rdzv_backend", "torchrun_options", "tensorboard_image", "runtime"),
}
"""Fields about a thing that was not asked for: code, torchrun, a TensorBoard, a TrainJob."""
_OF_MPI = {"slots", "launcher_policy", "mounts_on_launcher", "gpu_topology"}
"""Fields that jobs for MPI alone have."""

_OF_TOKENS = {*("ddp.vocabulary", "ddp.sequence-length", "ddp.layers", "ddp.heads", "ddp.width")}
"""Arguments that sequences of tokens alone have."""
_OF_OTHER_CHOICES = {
    *("ddp.classes", "ddp.augment", "ddp.workers", "ddp.token-bytes", "ddp.step-epochs", "ddp.gamma"),
    *_OF_TOKENS,
}
"""Arguments of data sets and schedules that are not the usual ones."""


@pytest.mark.parametrize(
    ("values", "hidden"),
    [
        ({"ddp.dataset": "digits"}, {"ddp.data", "ddp.download"}),
        ({"ddp.dataset": "mnist"}, {"ddp.train-images", "ddp.val-images"}),
        ({"claim": ""}, {"mount_path"}),
        ({"gpus": "0"}, {"gpu_resource"}),
        ({"kind": "Job"}, {"clean_pods", "worker_image", "roles", "elastic"}),
        ({"kind": "MPIJob", "gpus": "1"}, {"processes", "elastic", "kube_queue"}),
        ({"run": COMMAND}, set()),
        ({"run": "mpi"}, set()),
    ],
)
def test_fields_that_change_nothing_are_hidden(values: dict[str, str], hidden: set[str]) -> None:
    usual = {"ddp.data", "ddp.download", "ddp.train-images", "ddp.val-images"}
    found = hidden_fields({**default_values(), "claim": "workspace", **values}) - _OF_OTHERS
    is_about_data = "ddp.dataset" in values
    if values.get("kind") != "MPIJob":
        assert found >= _OF_MPI
        found -= _OF_MPI
    assert found >= _OF_OTHER_CHOICES or "run" in values
    assert found - (set() if is_about_data else usual) - _OF_OTHER_CHOICES == hidden


@pytest.mark.parametrize(
    ("values", "shown", "hidden"),
    [
        ({"ddp.dataset": "tokens"}, {*_OF_TOKENS, "ddp.data"}, {"ddp.image-size", "ddp.train-images"}),
        ({"ddp.dataset": "sequences"}, {*_OF_TOKENS, "ddp.val-images"}, {"ddp.data", "ddp.token-bytes"}),
        ({"ddp.dataset": "folder"}, {"ddp.data", "ddp.workers", "ddp.augment"}, {"ddp.classes"}),
        ({"ddp.schedule": "step"}, {"ddp.gamma", "ddp.step-epochs"}, set()),
    ],
)
def test_trainer_arguments_are_shown_only_for_the_chosen_dataset_or_schedule(
    values: dict[str, str], shown: set[str], hidden: set[str]
) -> None:
    found = hidden_fields({**default_values(), **values})
    assert found >= hidden
    assert not found & shown


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
def test_values_of_hidden_fields_are_ignored(kind: Any) -> None:
    values = {**default_values(), "name": "a", "claim": "", "gpus": "0", "kind": kind.title}
    hidden = hidden_fields(values)
    assert hidden
    result = parse_values({**values, **dict.fromkeys(hidden, "\x00 no")})
    assert result.problems == {}
    assert result.spec == parse_values(values).spec


# The volume


async def test_a_local_volume_is_inspected_for_checkpoints_and_mnist_files(tmp_path: Path) -> None:
    checkpoints = tmp_path / OLD / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "step-00000520.pt").touch()
    raw = tmp_path / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    path = "/api/v1/namespaces/default/persistentvolumeclaims/workspace"
    meta = {"name": "workspace", "annotations": {LOCAL_PATH: str(tmp_path)}}
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(path, Answer({"metadata": meta}))

        async def look(mnist: str, claim: str = "workspace") -> VolumeContent:
            return await inspect_volume(client, "default", claim, "/workspace", mnist)

        found = await look("")
        assert [run.step for run in found.runs] == [520]
        assert found.missing_mnist == ""
        for name in MNIST_FILES:
            missing = f"/workspace/mnist/MNIST/raw/{name}"
            assert (await look("/workspace/mnist")).missing_mnist == missing
            assert (await look("mnist/MNIST/raw")).missing_mnist == missing
            (raw / name).touch()
        assert (await look("mnist")).missing_mnist == ""
        assert (await look("/elsewhere")).missing_mnist == ""
        assert await look("mnist", claim="gone") == VolumeContent()
        assert await look("mnist", claim="") == VolumeContent()


def test_the_preflight_reports_missing_mnist_files() -> None:
    result = parsed(**{"ddp.dataset": "mnist"})

    def said(volume: VolumeContent | None) -> list[str]:
        lines = preflight(result, ClusterSnapshot(), volume=volume)
        return [line_text(line, is_marked=True) for line in lines if "MNIST" in line.text]

    assert said(None) == []
    (line,) = said(VolumeContent(True, missing_mnist="/workspace/mnist/MNIST/raw/x"))
    assert line.startswith("✕ would fail: no /workspace/mnist/MNIST/raw/x")
    (line,) = said(VolumeContent())
    assert line == "· reads MNIST from /workspace/mnist, which cannot be checked from here"
    assert said(VolumeContent(True)) == []
    assert parsed(**{"ddp.dataset": "mnist", "ddp.download": "true"}).mnist == ""


GIT = {"sync_mode": "git", "sync_source": "https://host.example/code.git", "working_dir": "/root"}
CODE: dict[str, dict[str, Any]] = {
    "sync_mode": GIT,
    "sync_source": {"sync_mode": "rsync", "sync_source": "host::code", "working_dir": "/root"},
    "sync_branch": {**GIT, "sync_branch": "main"},
    "sync_revision": {**GIT, "sync_revision": "0123abc"},
    "sync_path": {**GIT, "sync_path": "/data/code", "mounts": (Mount("data", "/data"),)},
    "git_secret": {**GIT, "git_secret": "login"},
    "sync_image": {**GIT, "sync_image": "git:2"},
}
WITHOUT_OBJECT = {"config_files", "new_claims"}
"""Fields whose content is in no field of the job's own object."""
_RUN = "/workspace/bert-20261122-082033-417"
_ON_CLAIM: dict[str, Any] = {
    "mounts": (Mount("workspace", "/workspace"),),
    "working_dir": "/workspace",
    "log_dir": f"{_RUN}/logs",
}
SITUATIONS: dict[str, dict[str, Any]] = {
    "own command": {},
    "shell line": {"command": ("bash", "-c", "cd /code\npython train.py\n")},
    "torchrun": {"torchrun": True},
    "elastic": {"elastic": (1, 4)},
    "no GPUs of its own": {"gpus": 0},
    "GPUs of a role": {"gpus": 0, "gpu_resource": "amd.com/gpu", "roles": (Role("worker", gpus=4),)},
    "claim": {"mounts": (Mount("workspace", "/workspace"),), "working_dir": "/workspace"},
    "packaged trainer": {
        "trainer": "ddp",
        "command": ("--checkpoint-dir", f"{_RUN}/checkpoints"),
        **_ON_CLAIM,
    },
    "folders of its own": {"trainer": "ddp", **_ON_CLAIM, "log_dir": "/workspace/saved"},
    "unknown argument": {"trainer": "ddp", "command": ("--newer", "1"), **_ON_CLAIM},
    "without a claim": {"trainer": "ddp", "command": (), "log_dir": "logs"},
}
"""Values of other fields that a field may depend on."""
_STAMP = re.compile(r"-\d{8}-\d{6}-\w+")


def specs(kind: CreatableKind) -> Iterator[tuple[str, JobSpec]]:
    """Yield jobs in which each field has an example value, in every situation that permits it."""
    for name in JOB_FIELDS:
        example: dict[str, Any] = OF_KIND.get(kind.word, {}).get(name) or {**EXAMPLES, **CODE}.get(name, {})
        is_wide = JOB_FIELDS[name].section in ("resources", "launch")
        for title in SITUATIONS if is_wide else ("own command", "packaged trainer"):
            situation = SITUATIONS[title]
            fixed: dict[str, Any] = {key: situation[key] for key in ("log_dir", "roles") if key in situation}
            changes: dict[str, Any] = {"user": "ann", **situation, **example, **fixed}
            spec = replace(BASE, **changes)
            if spec.trainer:
                words = ("--epochs", "3", "--log-dir", spec.log_dir, *situation.get("command", ()))
                draft = JobDraft({"gpus": spec.gpus, "slots": spec.slots}, TRAINERS[0], words)
                spec = replace(spec, command=draft.spec(kind).command)
            if not problems_of(spec) and not set(kind.unsupported(spec)) - set(kind.lacks):
                yield f"{title}, {name}", spec


def undated(manifest: Manifest) -> Any:
    """Return a manifest without the time in the folder of a trainer's run."""
    return json.loads(_STAMP.sub("-STAMP", json.dumps(manifest)))


def test_every_field_has_an_example_to_clone() -> None:
    assert {*EXAMPLES, *CODE} | WITHOUT_OBJECT == set(JOB_FIELDS)
    assert {*CODE, *WITHOUT_OBJECT} == IN_CODE


@pytest.mark.slow
@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
def test_form_and_clone_command_produce_the_same_manifest_for_every_field(kind: CreatableKind) -> None:
    differences: dict[str, Any] = {}
    count = 0
    for title, spec in specs(kind):
        obj = with_spec(kind.manifest(spec), kind.supported(spec))
        found = clone(json.loads(json.dumps(obj)), user="li")
        if found.spec is not None:
            state = FormModel("vision", "li", found)
            made = undated(state.result.kind.manifest(state.result.spec))
            if made != undated(found.manifest) or state.not_carried_over or state.errors:
                differences[title] = (made, undated(found.manifest), state.not_carried_over, state.errors)
            count += 1
    assert list(differences) == []
    assert count > 200
