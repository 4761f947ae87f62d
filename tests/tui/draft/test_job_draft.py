"""Texts to a spec and back: every field of a job, those that are hidden, the arguments of trainers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec, Mount
from k8s.kinds.job_spec.field_types import (
    LONGEST_TEXT,
    Choice,
    Duration,
    Number,
    OptionalNumber,
    Pairs,
    Quantity,
    Switch,
)
from k8s.snapshot import ClusterSnapshot
from k8s.text.yaml_writer import to_yaml
from tests.support.new_job_form import cluster, command, form_values, job, values_from_spec
from trainer.catalogue import TRAINERS, find
from tui.draft.fields import (
    COMMAND,
    JOB_FORM_FIELDS,
    SECTIONS,
    FormField,
    default_values,
    hidden_fields,
    lacking_of,
    trainer_fields,
)
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
        (command("  \n "), COMMAND, "Required: a command"),
        (form_values(env="A"), "env", "Line 1: expected NAME=value."),
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


FORM_KEYS = {"trainer": "run", "mounts": "more_volumes"}
"""Fields of `JobSpec` that the form has under another key."""
BY_KEY = {each.key: each for each in JOB_FORM_FIELDS}
SAMPLES: dict[str, st.SearchStrategy[str]] = {
    "pull_secrets": st.just("one\ntwo"),
    "excluded_nodes": st.just("node-a\nnode-b"),
    "host_mounts": st.sampled_from(["/scratch", "/mnt/fast:/fast\n/b"]),
    "config_files": st.just("conf.yaml:/etc/conf.yaml"),
    "env_from": st.sampled_from(["secret/wandb", "A=secret/wandb/key\nconfigmap/paths"]),
    "tolerations": st.sampled_from(["all", "a=b:NoSchedule", "gpu:NoExecute\nx"]),
    "devices": st.just("rdma/hca=1"),
    "labels": st.sampled_from(["", "team=vision\nexample.com/x="]),
    "node_selector": st.just("gpu=a100"),
    "gpu_resource": st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]),
    "elastic": st.sampled_from(["", "2-8"]),
    "host_namespaces": st.sampled_from(["", "network\nipc"]),
    "roles": st.sampled_from(["", "worker gpus=2 command='a b'", "worker cpu=1 restart=Never"]),
    "new_claims": st.just("data:1Gi\nout:2Ti:fast:RWX"),
    "runtime": st.sampled_from(["", "torch-distributed", "trainingruntime/mine"]),
    "torchrun_options": st.just("--log-dir '/a b'"),
    "log_dir": st.sampled_from(["", "/tb"]),
    "working_dir": st.sampled_from(["", "/root", "image"]),
}
"""Valid texts of fields whose type alone does not tell."""


def texts_of(name: str) -> st.SearchStrategy[str]:
    if name in SAMPLES:
        return SAMPLES[name]
    kind = JOB_FIELDS[name].type
    if isinstance(kind, Choice):
        return st.sampled_from([word for word, _ in kind.choices])
    if isinstance(kind, Switch):
        return st.sampled_from(["true", "false"])
    if isinstance(kind, OptionalNumber | Number):
        return st.integers(1, 40).map(str)
    if isinstance(kind, Duration):
        return st.sampled_from(["", "90s", "1h30m", "2d"])
    if isinstance(kind, Quantity):
        return st.sampled_from(["", "512Mi", "32Gi"] if kind.least else ["", "4", "500m"])
    if isinstance(kind, Pairs):
        return st.dictionaries(st.from_regex("[a-z]{1,4}", fullmatch=True), st.text("a= \n"), max_size=3).map(
            kind.to_text
        )
    return st.from_regex("[a-z]{1,8}", fullmatch=True)


PLAIN = [name for name in JOB_FIELDS if name not in ("trainer", "user", "command", "mounts")]


@settings(max_examples=60)
@given(st.fixed_dictionaries({}, optional={name: texts_of(name) for name in PLAIN}))
def test_any_form_values_survive_a_round_trip_through_the_spec(values: dict[str, str]) -> None:
    values = {"name": "a", "run": COMMAND, COMMAND: "python x.py", **values}
    result = parse_values({**default_values(), **values}, "li")
    again = parse_values(values_from_spec(result.spec, result.kind), "li")
    assert again.spec == result.spec
    assert not {key: text for key, text in result.problems.items() if key not in TOGETHER}


TOGETHER = {"sync_source", "sync_mode", "log_dir", "elastic", "workers", "max_restarts"}
TOGETHER |= {"host_mounts", "config_files", "roles", "sync_path"}
"""Fields that may be wrong though each alone is right."""


@pytest.mark.parametrize("name", [name for name in JOB_FIELDS if name != "user"])
def test_every_job_field_has_a_form_field_with_the_declared_label_and_help(name: str) -> None:
    field = BY_KEY[FORM_KEYS.get(name, name)]
    declared = JOB_FIELDS[name]
    if name not in ("trainer", "mounts", "command"):
        assert (field.label, field.help, field.unit) == (declared.title, declared.help, declared.unit)
    if isinstance(declared.type, Choice):
        assert field.choices == declared.type.choices
    if isinstance(declared.type, Switch):
        assert [value for value, _ in field.choices] == ["false", "true"]


def test_each_form_field_appears_once_and_only_advanced_fields_are_folded() -> None:
    assert len(BY_KEY) == len(JOB_FORM_FIELDS)
    titles = [each.title for each in SECTIONS]
    assert titles == ["Job", "Code", "Resources", "Launch", "Data and environment", "Scheduling", "Lifecycle"]
    folded = {field.key for section in SECTIONS for field in section.more}
    basics = {name for name, each in JOB_FIELDS.items() if each.is_basic}
    assert not basics & folded


def shown(**values: str) -> dict[str, FormField]:
    hidden = hidden_fields({**default_values(), **values})
    return {key: field for key, field in BY_KEY.items() if key not in hidden}


def test_dependent_form_fields_are_shown_only_for_matching_choices() -> None:
    assert not {"sync_source", "sync_branch", "git_secret"} & shown().keys()
    assert {"sync_source", "sync_branch", "git_secret"} <= shown(sync_mode="git").keys()
    assert "sync_source" in shown(sync_mode="rsync") and "git_secret" not in shown(sync_mode="rsync")
    assert "torchrun" not in shown()
    assert "torchrun" in shown(run=COMMAND) and "torchrun_options" not in shown(run=COMMAND)
    assert "torchrun_options" in shown(run=COMMAND, torchrun="true")
    # Variables and elastic policy of the pods say these, whatever starts torchrun.
    assert {"max_restarts", "rdzv_backend"} <= shown().keys() & shown(run=COMMAND).keys()
    assert "max_restarts" not in shown(kind="MPIJob")
    assert "gpu_resource" not in shown(gpus="0")
    assert "gpu_resource" in shown(gpus="0", roles="worker gpus=4")
    assert "tensorboard_image" in shown(tensorboard="true") and "tensorboard_image" not in shown()


def test_a_script_for_torchrun_is_split_into_words_and_a_command_is_a_shell_line() -> None:
    line = "train.py --name 'a b'"
    values = {**default_values(), "name": "a", "run": COMMAND, COMMAND: line}
    assert parse_values(values).spec.command == ("sh", "-c", line)
    spec = parse_values({**values, "torchrun": "true"}).spec
    assert spec.command == ("train.py", "--name", "a b")
    assert values_from_spec(spec, CREATABLE[0])[COMMAND] == line
    wrong = parse_values({**values, COMMAND: "train.py 'open", "torchrun": "true"})
    assert wrong.problems[COMMAND] == "No closing quotation."


class KindWithout:
    """A kind that says what it has no place for."""

    title = "Plain"
    lacks: Mapping[str, str] = MappingProxyType(
        {"rdzv_backend": "it has no torchrun.", "mounts": "it has no volumes"}
    )

    def __getattr__(self, name: str) -> Any:
        return getattr(CREATABLE[0], name)


def test_fields_unsupported_by_a_kind_have_a_reason_for_each_form_field() -> None:
    found = lacking_of(KindWithout())
    assert found["rdzv_backend"] == "it has no torchrun"
    assert {found[key] for key in ("claim", "mount_path", "more_volumes")} == {"it has no volumes"}


def test_a_value_unsupported_by_the_kind_is_reported_as_unused() -> None:
    values = {**default_values(), "name": "a", "kind": "Job", "clean_pods": "All"}
    assert "clean_pods" in hidden_fields(values)
    result = parse_values(values)
    assert result.unused[0].startswith("Clean pods is not used: ")
    assert any(line.text == result.unused[0] for line in preflight(result, ClusterSnapshot()))
    assert parse_values({**values, "clean_pods": "None"}).unused == ()
    assert parse_values({**values, "kind": "PyTorchJob"}).unused == ()
    assert isinstance(parse_values(values).spec, JobSpec)


def test_an_unsupported_value_of_a_supported_field_is_a_problem_of_that_field() -> None:
    values = {**default_values(), "name": "a", "roles": "chief gpus=1", "workers": "2"}
    said = parse_values(values).problems
    assert said == {"roles": "Its roles are master and worker; there is no chief."}
    mpi = {**values, "kind": "MPIJob", "roles": "", "restart_policy": "Always"}
    assert "OnFailure, Never" in parse_values(mpi).problems["restart_policy"]


def test_the_fit_line_counts_each_role() -> None:
    values = {**default_values(), "name": "a", "workers": "3", "gpus": "0", "roles": "worker gpus=4"}
    result = parse_values(values)
    assert result.problems == {}
    said = [line.text for line in preflight(result, ClusterSnapshot(is_synced=True))]
    assert any("no node has nvidia.com/gpu" in line for line in said)
