"""Templates of jobs: those of the package, the user's own, and what they fill into a form."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import Mount
from trainer.catalogue import TRAINERS
from tui.draft.fields import default_values
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
