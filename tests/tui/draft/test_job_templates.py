"""Templates and drafts of jobs: what they fill into a form, and whose a draft is."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import Mount
from trainer.catalogue import TRAINERS
from tui.draft.draft import (
    FILE,
    DraftError,
    OpenForm,
    context_folder,
    discard_draft,
    last_image,
    read_draft,
    recover_draft,
    save_last_image,
)
from tui.draft.fields import default_values, without_replaced
from tui.draft.form_model import FormModel
from tui.draft.job_draft import parse_values
from tui.draft.job_templates import JobTemplate, every_template, packaged_templates

PACKAGED = {each.name: each for each in packaged_templates()}


def own(folder: Path, text: str) -> JobTemplate:
    """Return the template that a file with this text is."""
    (folder / "mine.yaml").write_text(text)
    found, problems = every_template(folder)
    assert problems == []
    return found[0]


def problem(folder: Path, text: str | bytes) -> str:
    """Return the problem of a file with this text."""
    (folder / "bad.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    found, problems = every_template(folder)
    assert not any(each.is_own for each in found)
    return problems[0]


def test_every_example_of_the_guides_is_a_template() -> None:
    assert set(PACKAGED) == {
        *("git-gloo", "git-tensorboard", "mpi-vgg16", "mpi-topology-vgg16"),
        *("mpi-resnet50", "mpi-topology-resnet50", "torchrun-t9k"),
        *(f"trainer-{trainer.name}" for trainer in TRAINERS),
    }


@pytest.mark.parametrize("name", PACKAGED)
def test_a_template_of_the_package_fills_a_form_that_can_be_created(name: str) -> None:
    template = PACKAGED[name]
    assert template.description and not template.is_own
    values = {**default_values(), "name": "a", **template.form_values()}
    result = parse_values(values)
    assert not set(result.problems) - {"kind"}
    for key, value in template.fields.items():
        if key not in ("name", "command") and template.kind in (each.title for each in CREATABLE):
            assert getattr(result.spec, key) == value, key


def test_packaged_templates_have_the_values_of_their_tutorials() -> None:
    fields = PACKAGED["torchrun-t9k"].fields
    assert fields["command"] == (
        *("torch_mnist_trainingjob.py", "--log_dir", "log"),
        *("--save_path", "./model_state_dict.pt", "--backend", "nccl"),
    )
    assert (fields["processes"], fields["max_restarts"], fields["restart_policy"]) == (4, 3, "ExitCode")
    assert PACKAGED["git-tensorboard"].fields["mounts"] == (Mount("training-data", "/mnist_data"),)
    assert PACKAGED["mpi-topology-vgg16"].fields["gpu_topology"] is True


def test_a_template_with_a_trainer_fills_its_arguments(tmp_path: Path) -> None:
    template = own(tmp_path, "trainer: ddp\narguments: {epochs: 9}\nworking_dir: ''")
    assert template.fields["trainer"] == "ddp" and template.form_values()["ddp.epochs"] == "9"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workers: [", "line 1:"),
        ("- a", "must be a mapping"),
        ("", "must be a mapping"),
        ("wrokers: 2", "there is no field wrokers"),
        ("rdma: true\nelastic_min: 1", "there is no field rdma, elastic_min; use devices, elastic"),
        ("workers: two", "workers: Must be a whole number"),
        ("workers: true", "workers cannot be True"),
        ("gang: 1", "gang cannot be 1"),
        ("workers: {a: 1}", "workers cannot be"),
        ("kind: Cron", "there is no kind Cron"),
        ("trainer: mine", "There is no trainer 'mine'"),
        ("env:\n  DEBUG: off\n", 'line 2: the value of a variable must be a text: quote it, as "off"'),
        ("env: {MASK: 0x10}", 'line 1: the value of a variable must be a text: quote it, as "0x10"'),
        ("workers: 2\nenv: {TIME: 1:30}", "line 2: the value of a variable must be a text"),
        ("arguments: {epochs: 1}", "arguments must be"),
        ("pull_policy: Perhaps", "pull_policy: Must be one of"),
        (b"\xff\xfe", "can't decode"),
        ("a: &a [*a]", "there is no field a"),
    ],
)
def test_an_invalid_template_file_is_reported_and_skipped(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    sentence = problem(tmp_path, text)
    assert sentence.startswith(f"Template {tmp_path}/bad.yaml:") and words in sentence


def test_valid_templates_are_offered_despite_an_invalid_file(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("workers: 2")
    (tmp_path / "bad.yaml").write_text("x: 1")
    (tmp_path / "notes.txt").write_text("no template")
    found, problems = every_template(tmp_path)
    assert [each.name for each in found if each.is_own] == ["good"]
    assert len(problems) == 1


def test_template_values_are_accepted_as_yaml_or_in_form_syntax(tmp_path: Path) -> None:
    text = "env: {A: 1, B: true}\nmounts: [data:/data]\ncommand: [python, x.py]\ncpu: 4\nttl_s: 7d"
    template = own(tmp_path, text)
    assert template.fields["env"] == {"A": "1", "B": "true"}
    assert template.fields["mounts"] == (Mount("data", "/data"),)
    assert (template.fields["cpu"], template.fields["ttl_s"]) == ("4", 7 * 86_400)
    assert template.fields["command"] == ("python", "x.py")
    assert own(tmp_path, "mounts: data:/data").fields["mounts"] == (Mount("data", "/data"),)


# In the form


def test_a_template_fills_untouched_fields_and_reports_the_changed_fields() -> None:
    state = FormModel("default")
    state.set_value("workers", "7")
    said = state.apply_template(PACKAGED["git-tensorboard"])
    assert state.values["workers"] == "7"
    assert state.values["tensorboard"] == "true"
    assert state.values["name"] == "pytorch-dist-1"
    assert said.startswith("Template git-tensorboard set Image, Code, Source,")
    assert said.endswith("Kept your own: Workers.")
    assert state.result.spec.mounts == (Mount("training-data", "/mnist_data"),)


def test_switching_templates_reverts_the_fields_of_the_previous_one() -> None:
    state = FormModel("default")
    before = dict(state.values)
    state.apply_template(PACKAGED["git-tensorboard"])
    state.set_value("image", "mine:1")
    state.apply_template(PACKAGED["trainer-ddp"])
    assert state.values["tensorboard"] == "false" and state.values["sync_mode"] == ""
    assert (state.values["run"], state.values["workers"], state.values["image"]) == ("ddp", "2", "mine:1")
    assert state.apply_template(None) == ""
    assert state.values == {**before, "image": "mine:1"}


def save_draft(folder: Path, *drafts: dict[str, str]) -> None:
    form = OpenForm(folder)
    try:
        for values in drafts:
            form.save(values)
    finally:
        form.close()


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=10), st.text(max_size=50)))
def test_a_saved_draft_is_restored_unchanged(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("state")
    save_draft(folder, values)
    draft = read_draft(folder)
    assert draft is not None and draft.values == values


def test_a_draft_file_is_private_and_discarded_without_leftovers(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    save_draft(folder, {"name": "a"}, {"name": "b"})
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    draft = read_draft(folder)
    assert draft is not None
    discard_draft(draft)
    discard_draft(draft)
    assert read_draft(folder) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"values": []}',
        b'{"values": {"name": 1}, "saved_s": 1}',
        b'{"values": {}, "saved_s": "soon"}',
        b"[" * 100_000,
        json.dumps({"values": {"name": "x" * 5_000_000}, "saved_s": 1}).encode(),
    ],
)
def test_an_invalid_draft_file_is_renamed_and_reported(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / FILE).write_bytes(raw)
    with pytest.raises(DraftError, match=r"is not valid. It was renamed to new-job-draft.broken-1.json"):
        read_draft(tmp_path)
    assert (tmp_path / "new-job-draft.broken-1.json").read_bytes() == raw
    assert read_draft(tmp_path) is None


def test_values_of_fields_that_were_joined_are_read_from_an_older_draft() -> None:
    assert without_replaced({"cpu": "4", "rdma": "false", "host_pid": "false"}) == {"cpu": "4"}
    joined = {"cpu_request": "2", "memory": "8Gi", "memory_request": "4Gi", "elastic_min": "1"}
    more = {
        "elastic_max": "3",
        "host_network": "true",
        "host_ipc": "true",
        "rdma": "true",
        "devices": "a/b=1",
    }
    assert without_replaced({**joined, **more}) == {
        "cpu": "2-",
        "memory": "4Gi-8Gi",
        "elastic": "1-3",
        "host_namespaces": "network\nipc",
        "devices": "a/b=1\nrdma/hca=1",
    }


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DraftError, match=r"Could not save the draft in .*file"):
        save_draft(tmp_path / "file", {})
    with pytest.raises(DraftError, match="Could not read"):
        read_draft(tmp_path / "file")
    save_last_image(tmp_path / "file", "x")
    assert last_image(tmp_path / "file") == ""


def test_a_closed_form_writes_no_draft(tmp_path: Path) -> None:
    form = OpenForm(tmp_path)
    form.keep({"name": "a"})
    form.close()
    form.keep({"name": "late"})
    assert list(tmp_path.iterdir()) == []


def test_each_context_has_its_own_draft_and_image(tmp_path: Path) -> None:
    sandbox = ClusterConfig(host="https://127.0.0.1:4711", context="gpuconsole-sandbox")
    lab = ClusterConfig(host="https://lab:6443", context="lab")
    folder = context_folder(tmp_path, sandbox)
    save_draft(folder, {"name": "a"})
    save_last_image(folder, "local")
    again = context_folder(tmp_path, replace(sandbox, host="https://127.0.0.1:4712"))
    assert again == folder
    for other in (lab, replace(lab, host="https://other:6443"), replace(lab, context="../../lab/\ud800")):
        elsewhere = context_folder(tmp_path, other)
        assert elsewhere.parent == folder.parent
        assert read_draft(elsewhere) is None
        assert last_image(elsewhere) == ""
        save_draft(elsewhere, {"name": other.context})
    assert len(list(folder.parent.iterdir())) == 4
    draft = read_draft(folder)
    assert draft is not None and draft.values == {"name": "a"}


def test_the_last_image_is_remembered(tmp_path: Path) -> None:
    assert last_image(tmp_path) == ""
    save_last_image(tmp_path, "registry/me:1")
    assert last_image(tmp_path) == "registry/me:1"


def test_the_values_of_a_killed_console_are_the_next_draft(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tui.draft.draft import OpenForm\n"
        "OpenForm(Path(sys.argv[1])).keep({'name': 'lost'}); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    recover_draft(tmp_path)
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "lost"}
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
    recover_draft(tmp_path)


def test_the_values_of_an_earlier_version_are_the_next_draft(tmp_path: Path) -> None:
    before = OpenForm(tmp_path)
    before.keep({"name": "lost"})
    (values,) = tmp_path.glob("*.json")
    values.rename(tmp_path / "new-job-unsaved-another_login_node-1.json")
    recover_draft(tmp_path)
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "lost"}
    before.close()


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_form_open_in_another_console_is_not_offered_and_keeps_its_draft(
    tmp_path: Path, *, is_saved: bool
) -> None:
    other, own = OpenForm(tmp_path), OpenForm(tmp_path)
    (other.save if is_saved else other.keep)({"name": "other"})
    for path in tmp_path.glob("*.json"):
        os.utime(path, (0, 0))  # nothing was typed there for long
    recover_draft(tmp_path)
    assert read_draft(tmp_path) is None
    own.save({"name": "own"})
    own.close()
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "own"}
    other.save({"name": "other"})
    other.close()
    drafts = [json.loads(path.read_text())["texts"]["name"] for path in tmp_path.iterdir()]
    assert sorted(drafts) == ["other", "own"]


def test_a_password_among_variables_or_in_a_url_is_in_no_draft(tmp_path: Path) -> None:
    own = OpenForm(tmp_path)
    env = "A=1\nGIT_SYNC_PASSWORD=hunter2\nB=2"
    for save in (own.save, own.keep):
        save({"sync_source": "https://li:hunter2@host.example/x.git", "env": env})
    saved = [path.read_text() for path in tmp_path.glob("*.json")]
    assert len(saved) == 2
    assert all("hunter2" not in text and "A=1\\nB=2" in text for text in saved)
    own.close()
