"""Templates of jobs: those of the package, the user's own, and what they fill into a form."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from k8s.job_spec import JOB_FIELDS, JobSpec, Mount
from k8s.kinds import CREATABLE
from trainer.catalogue import TRAINERS
from tui.jobs.new_job.fields import COMMAND, default_values
from tui.jobs.new_job.form_model import FormModel
from tui.jobs.new_job.form_spec import parse_values
from tui.jobs.new_job.job_templates import (
    JobTemplate,
    TemplateError,
    own_templates,
    packaged_templates,
    save_template,
)

PACKAGED = {each.name: each for each in packaged_templates()}


def own(folder: Path, text: str) -> JobTemplate:
    """Return the template that a file with this text is."""
    (folder / "mine.yaml").write_text(text)
    found, problems = own_templates(folder)
    assert problems == []
    return found[0]


def problem(folder: Path, text: str | bytes) -> str:
    """Return the problem of a file with this text."""
    (folder / "bad.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    found, problems = own_templates(folder)
    assert found == []
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


def test_a_saved_template_is_private_and_restores_the_same_spec(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "templates"
    values = {
        **default_values(),
        "name": "a",
        "run": COMMAND,
        COMMAND: "python x.py\necho",
        "workers": "3",
        "claim": "data",
        "env": "A=1\nB= two ",
        "tolerations": "all",
        "running_timeout_s": "1h30m",
        "host_network": "true",
    }
    result = parse_values(values, "li")
    path = save_template(folder, "mine", result, values)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in folder.iterdir()] == ["mine.yaml"]
    assert "name:" not in path.read_text() and "user:" not in path.read_text()
    found, problems = own_templates(folder)
    assert problems == []
    again = parse_values({**default_values(), "name": "a", **found[0].form_values()}, "li")
    assert again.spec == result.spec
    save_template(folder, "mine", parse_values({**values, "workers": "2"}), values)
    assert own_templates(folder)[0][0].fields["workers"] == 2


def test_a_packaged_trainer_is_saved_with_its_arguments(tmp_path: Path) -> None:
    values = {**default_values(), "name": "a", "ddp.epochs": "9", "claim": "workspace"}
    save_template(tmp_path, "mine", parse_values(values), values)
    template = own_templates(tmp_path)[0][0]
    assert template.fields["trainer"] == "ddp" and template.arguments == {"epochs": "9"}
    assert template.form_values()["ddp.epochs"] == "9"
    assert "log_dir" not in template.fields


@pytest.mark.parametrize("run", [COMMAND, "ddp"])
def test_a_template_keeps_the_images_own_working_directory(tmp_path: Path, run: str) -> None:
    values = {**default_values(), "name": "a", "run": run, COMMAND: "true", "claim": "data"}
    values |= {"working_dir": "image"}
    result = parse_values(values)
    save_template(tmp_path, "mine", result, values)
    template = own_templates(tmp_path)[0][0]
    assert template.form_values()["working_dir"] == "image"
    assert template.fields["working_dir"] == "", "what `submit --template` takes"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 64])
def test_an_invalid_template_name_is_rejected(tmp_path: Path, name: str) -> None:
    values = {**default_values(), "name": "a"}
    with pytest.raises(TemplateError, match="Use letters"):
        save_template(tmp_path, name, parse_values(values), values)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    values = {**default_values(), "name": "a"}
    with pytest.raises(TemplateError, match="Could not save"):
        save_template(tmp_path / "file", "x", parse_values(values), values)
    assert own_templates(tmp_path / "none") == ([], [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workers: [", "line 1:"),
        ("- a", "must be a mapping"),
        ("", "must be a mapping"),
        ("wrokers: 2", "there is no field wrokers"),
        ("workers: two", "workers: Must be a whole number"),
        ("workers: true", "workers cannot be True"),
        ("gang: 1", "gang cannot be 1"),
        ("workers: {a: 1}", "workers cannot be"),
        ("kind: Cron", "there is no kind Cron"),
        ("trainer: mine", "there is no trainer mine"),
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
    found, problems = own_templates(tmp_path)
    assert [each.name for each in found] == ["good"]
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


def test_packaged_templates_use_only_fields_of_the_job_spec() -> None:
    for template in PACKAGED.values():
        assert set(template.fields) <= set(JOB_FIELDS)
        assert JobSpec(**template.fields)
