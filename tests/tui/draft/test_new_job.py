"""The new-job form without a screen: values to a spec and back, the preflight, the draft."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import JobSpec, Mount
from k8s.kinds.job_spec.field_types import LONGEST_TEXT
from k8s.snapshot import SANDBOX_VERSION, ClusterSnapshot
from k8s.text.yaml_writer import to_yaml
from tests.support.new_job_form import cluster, command, form_values, job, node, values_from_spec
from trainer.catalogue import TRAINERS, find
from tui.draft.fields import COMMAND, JOB_FORM_FIELDS, default_values, trainer_fields
from tui.draft.form_model import FormModel
from tui.draft.job_draft import base_name, field_key, parse_values
from tui.draft.preflight import preflight

KEYS = sorted(default_values())
WORDS = ["", "0", "1", "8", "-1", "9" * 400, "٣", "workspace", "A=1\nB=2", "[/b]", "\ud800", '"', "=", "a:/b"]
TEXT = st.text(max_size=60) | st.sampled_from([*WORDS, COMMAND])


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), TEXT))
def test_any_form_values_produce_a_spec_or_a_message_per_invalid_field(values: dict[str, str]) -> None:
    result = parse_values(values, "li")
    assert all(sentence for sentence in result.problems.values())
    assert set(result.problems) <= {*KEYS, *values, "command", "run"}
    assert preflight(result, ClusterSnapshot())
    if "\ud800" not in "".join(values.values()):
        assert to_yaml(result.kind.manifest(result.spec))


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(KEYS), TEXT))
def test_a_valid_job_is_unchanged_by_cloning(values: dict[str, str]) -> None:
    result = parse_values(form_values(**values), "li")
    if not result.problems:
        assert parse_values(values_from_spec(result.spec, result.kind), "li").spec == result.spec


@settings(max_examples=50)
@given(
    env=st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text(max_size=30)),
    words=st.lists(st.text(alphabet="ab '\"$\\-=", min_size=1, max_size=8), min_size=1, max_size=5),
)
def test_any_environment_survives_a_clone(env: dict[str, str], words: list[str]) -> None:
    spec = JobSpec(name="a", image="i", command=("sh", "-c", "echo " + "".join(words).strip()), env=env)
    again = parse_values(values_from_spec(spec, CREATABLE[0])).spec
    assert again.env == env


@pytest.mark.parametrize(
    ("values", "key", "expected"),
    [
        *(
            (form_values(env=f"A=1{end}B=two words{end}"), "env", {"A": "1", "B": "two words"})
            for end in ("\r", "\n", "\r\n")
        ),
        (
            form_values(more_volumes="a:/a\r\nb:/b"),
            "mounts",
            (Mount("workspace", "/workspace"), Mount("a", "/a"), Mount("b", "/b")),
        ),
        (
            command("x", env='A=1,B=2\n\n B = two words \nC="a\\nb"\nD="open'),
            "env",
            {"A": "1,B=2", "B": " two words", "C": "a\nb", "D": '"open'},
        ),
        (form_values(gpus="4"), "processes", 4),
        (form_values(gpus="0"), "processes", 1),
        (form_values(gpus="4", processes="2"), "processes", 2),
        (
            command('sh -c "for i in 1 2; do echo $i; done"'),
            "command",
            ("sh", "-c", "for i in 1 2; do echo $i; done"),
        ),
        (command("cd src\npython train.py"), "command", ("sh", "-c", "cd src\npython train.py")),
        (command("x", log_dir="/workspace/tb"), "log_dir", "/workspace/tb"),
        (command("x"), "trainer", ""),
    ],
)
def test_values_become_fields_of_the_job(values: dict[str, str], key: str, expected: object) -> None:
    assert getattr(parse_values(values).spec, key) == expected


@pytest.mark.parametrize(
    ("values", "key", "sentence"),
    [
        *(
            (form_values(workers=text), "workers", "Must be a whole number, e.g. 2.")
            for text in ("", "two", "1.5", "٣", "1e3", "0x2", "1_000")
        ),
        (form_values(workers="9" * 5000), "workers", "At most 4,096."),
        (form_values(workers="-1"), "workers", "At least 1."),
        (form_values(gpus="1025"), "gpus", "At most 1,024."),
        (command("  \n "), COMMAND, "Required: a command"),
        (form_values(env="A"), "env", "Line 1: expected NAME=value."),
        (form_values(env="A=1\n=2"), "env", "Line 2: expected NAME=value."),
        (form_values(env="A=1\nA=2"), "env", "Line 2: duplicate name A."),
        (form_values(env="1A=1"), "env", "'1A' is not a valid variable name: use letters, digits and '_'."),
        (form_values(claim="a b"), "claim", "Use lowercase letters"),
        (form_values(mount_path="data"), "mount_path", "'data' is not a mount path"),
        (form_values(more_volumes="scratch"), "more_volumes", ""),
        (form_values(more_volumes="scratch:data"), "more_volumes", ""),
        (form_values(**{"ddp.epochs": "many"}), "ddp.epochs", "'many' is not"),
        (form_values(**{"ddp.lr": "-1"}), "ddp.lr", "-1 is "),
        (form_values(**{"ddp.dataset": "cats"}), "ddp.dataset", "'cats' is "),
        (form_values(**{"ddp.batch-size": "0"}), "ddp.batch-size", "0 is not 1 or more."),
        (form_values(**{"ddp.batch-size": "auto"}), "ddp.batch-size", "'auto' is not a whole number."),
    ],
)
def test_an_invalid_value_is_reported_at_its_field(values: dict[str, str], key: str, sentence: str) -> None:
    problem = parse_values(values).problems[key]
    assert problem.startswith(sentence) and (problem == sentence or not sentence.endswith("."))


def test_the_mnist_dataset_requires_a_data_folder() -> None:
    result = parse_values(form_values(**{"ddp.dataset": "mnist", "ddp.data": ""}))
    assert "directory" in result.problems["ddp.data"]


def test_defaults_with_a_name_are_ready_to_be_created() -> None:
    result = parse_values(form_values())
    assert result.problems == {}
    assert result.spec.trainer == TRAINERS[0].name
    assert result.spec.mounts == (Mount("workspace", "/workspace"),)
    assert result.spec.working_dir == "/workspace"
    assert result.spec.log_dir == "/workspace/bert-1/logs"
    words = result.spec.command
    assert words[words.index("--log-dir") + 1] == "/workspace/bert-1/logs"
    assert words[words.index("--checkpoint-dir") + 1] == "/workspace/bert-1/checkpoints"


@pytest.mark.parametrize("folder", ["", "/data", "/root"])
@pytest.mark.parametrize("claim", ["", "data"])
def test_a_cloned_job_keeps_its_working_directory_with_or_without_a_claim(folder: str, claim: str) -> None:
    mounts = (Mount(claim, "/data"),) if claim else ()
    spec = JobSpec(name="a", image="i", command=("true",), working_dir=folder, mounts=mounts)
    again = parse_values(values_from_spec(spec, CREATABLE[0]))
    assert (again.spec.working_dir, again.spec.mounts, again.problems) == (folder, mounts, {})


def test_a_trainer_in_the_images_own_directory_writes_to_its_claim() -> None:
    result = parse_values(form_values(working_dir=" image "))
    assert (result.problems, result.spec.working_dir) == ({}, "")
    assert result.spec.log_dir == "/workspace/bert-1/logs"
    alone = parse_values(form_values(working_dir="image", claim=""))
    assert (alone.problems, alone.spec.working_dir, alone.spec.log_dir) == ({}, "", "logs")


def test_relative_data_paths_are_not_resolved_in_the_images_own_directory() -> None:
    digits = {"ddp.dataset": "mnist", "ddp.data": "mnist"}
    assert parse_values(form_values(**digits)).mnist == "/workspace/mnist"
    assert parse_values(form_values(working_dir="image", **digits)).mnist == ""


def test_without_a_claim_a_trainer_writes_to_its_scratch_folder() -> None:
    spec = parse_values(form_values(claim="")).spec
    assert spec.mounts == ()
    assert spec.log_dir == "logs"
    assert "--log-dir" not in spec.command
    assert spec.working_dir == ""


def test_the_mpi_benchmark_runs_under_torchrun_and_is_cloned_as_a_trainer() -> None:
    values = form_values(run="mpi", **{"mpi.model": "vgg16", "mpi.fp16-allreduce": "true"})
    result = parse_values(values)
    assert result.problems == {}
    assert (result.spec.trainer, result.spec.log_dir) == ("mpi", "/workspace/bert-1/logs")
    assert list(result.spec.command) == [
        *("python", "-P", "-m", "trainer.launch", "-m", "trainer.train_mpi"),
        *("--model", "vgg16", "--fp16-allreduce", "--log-dir", "/workspace/bert-1/logs"),
    ]
    again = values_from_spec(result.spec, result.kind)
    assert {key: again[key] for key in ("run", "mpi.model", "mpi.fp16-allreduce")} == {
        "run": "mpi", "mpi.model": "vgg16", "mpi.fp16-allreduce": "true",
    }  # fmt: skip
    assert base_name(values) == "mpi"


def test_an_mpi_job_form_starts_ranks_with_mpirun_and_is_cloned_as_a_trainer() -> None:
    values = form_values(run="mpi", kind="MPIJob", workers="2", gpus="0", slots="2", **{"mpi.model": "tiny"})
    result = parse_values(values)
    assert result.problems == {}
    assert " ".join(result.spec.command) == (
        "mpirun --allow-run-as-root --tag-output -np 4 python -P -m trainer.train_mpi"
        " --model tiny --log-dir /workspace/bert-1/logs"
    )
    again = values_from_spec(result.spec, result.kind)
    assert (again["run"], again["mpi.model"]) == ("mpi", "tiny")
    assert parse_values({**again, "workers": "3"}).spec.command[4] == "6"
    assert parse_values({**values, "gpus": "8", "slots": ""}).spec.command[4] == "16"


def test_the_benchmark_writes_event_files_only_where_they_outlive_the_pod() -> None:
    result = parse_values(form_values(run="mpi", claim="", working_dir=""))
    assert result.spec.log_dir == ""
    assert "--log-dir" not in result.spec.command


def test_the_folders_of_a_trainer_have_no_form_field() -> None:
    keys = [each.key for part in trainer_fields(find("mpi")) for each in part]
    assert "mpi.model" in keys and "mpi.log-dir" not in keys


def test_only_arguments_that_differ_from_the_default_are_in_the_command() -> None:
    assert default_values()["ddp.batch-size"] == "64"
    for key, text, words in (
        ("batch-size", "64", []),
        ("batch-size", "32", ["--batch-size", "32"]),
        ("checkpoint-every", "off", []),
        ("checkpoint-every", "0", []),
        ("epochs", "many", []),
    ):
        command = parse_values(form_values(**{f"ddp.{key}": text}), "li").spec.command
        assert [each for each in command if each in (f"--{key}", text)] == words


def test_the_gpt_model_sets_its_default_batch_size_unless_the_user_set_one() -> None:
    model = FormModel("vision")
    model.set_value("name", "a")
    for name, batch in (("gpt", "8"), ("resnet50", "64"), ("gpt", "8")):
        model.set_value("ddp.model", name)
        assert model.values["ddp.batch-size"] == batch
    model.set_value("ddp.batch-size", "64")
    model.set_value("ddp.model", "gpt")
    assert model.values["ddp.batch-size"] == "64"


def test_an_overlong_command_is_rejected_and_an_extra_volume_is_accepted() -> None:
    assert "20,000" in parse_values(command("x" * (LONGEST_TEXT + 1))).problems[COMMAND]
    assert parse_values(command("x" * LONGEST_TEXT)).problems == {}
    assert parse_values(form_values(more_volumes="scratch:/scratch")).problems == {}


def test_spec_field_names_map_to_form_fields() -> None:
    assert field_key("mounts", form_values()) == "claim"
    assert field_key("command", form_values()) == "run"
    assert field_key("command", command("x")) == COMMAND
    assert field_key("image", form_values()) == "image"


def test_the_suggested_name_is_unused_in_the_namespace() -> None:
    state = FormModel("default")
    assert state.values["name"] == "ddp-digits-1"
    state.suggest(cluster(jobs=(job("ddp-digits-1"), job("ddp-digits-3"), job("ddp-digits-2", "vision"))))
    assert state.values["name"] == "ddp-digits-2"
    state.set_value("run", COMMAND)
    state.suggest(cluster())
    assert state.values["name"] == "train-1"
    assert base_name(form_values()) == "ddp-digits"


@pytest.mark.parametrize(
    ("gpus", "version", "workers"),
    [(2, SANDBOX_VERSION, ["2", "1"]), (1, SANDBOX_VERSION, ["1", "1"]), (2, "v1.36.0", ["1", "1"])],
)
def test_in_a_sandbox_with_two_free_gpus_a_trainer_gets_two_workers(
    gpus: int, version: str, workers: list[str]
) -> None:
    state = FormModel("default", snapshot=ClusterSnapshot())
    state.suggest(cluster(node("a", gpus), server_version=version))
    state.suggest(cluster(server_version=version))  # what was suggested stays, though the GPUs are gone
    found = [state.values["workers"]]
    state.set_value("run", COMMAND)
    assert [*found, state.values["workers"]] == workers


def test_every_form_field_has_a_label_help_and_valid_default() -> None:
    fields = list(JOB_FORM_FIELDS)
    for trainer in TRAINERS:
        fields += [each for part in trainer_fields(trainer) for each in part]
    assert len({field.key for field in fields}) == len(fields)
    for field in fields:
        assert field.label and field.help and not field.help.endswith(".")
        assert not field.choices or field.default in dict(field.choices) or field.key == "claim"


def test_a_job_with_a_custom_command_can_be_cloned_into_the_form() -> None:
    spec = JobSpec(name="x", image="i", command=("python", "a b.py", "--x=1"), processes=3, gpus=1)
    values = values_from_spec(spec, CREATABLE[1])
    assert values["kind"] == CREATABLE[1].title
    assert values[COMMAND] == "python 'a b.py' --x=1"
    assert values["processes"] == "3"


def test_a_trainer_with_unknown_arguments_is_cloned_as_a_command() -> None:
    spec = replace(parse_values(form_values()).spec, command=(*TRAINERS[0].command(), "--newer", "1"))
    values = values_from_spec(spec, CREATABLE[0])
    assert values["run"] == COMMAND
    assert values[COMMAND].endswith("--newer 1")


def test_script_style_flags_are_cloned_as_trainer_arguments() -> None:
    result = parse_values(form_values(run="ddp"))
    command = (*result.spec.command[:6], "--logdir", "/mnt/logs", "--no_cuda")
    again = values_from_spec(replace(result.spec, command=command), result.kind)
    assert {key: again[key] for key in ("run", "ddp.log-dir", "ddp.device")} == {
        "run": "ddp", "ddp.log-dir": "/mnt/logs", "ddp.device": "cpu",
    }  # fmt: skip
