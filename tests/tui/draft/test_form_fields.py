"""The form has every field of a job: made from its declaration, parsed by its type, and back."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec
from k8s.kinds.job_spec.field_types import Choice, Duration, Number, OptionalNumber, Pairs, Quantity, Switch
from k8s.snapshot import ClusterSnapshot
from tests.support.new_job_form import values_from_spec
from tui.draft.fields import (
    COMMAND,
    JOB_FORM_FIELDS,
    SECTIONS,
    FormField,
    default_values,
    hidden_fields,
    lacking_of,
)
from tui.draft.job_draft import parse_values
from tui.draft.preflight import preflight

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


PLAIN = [name for name in JOB_FIELDS if name not in ("trainer", "user", "command", "mounts", "elastic_min")]


@settings(max_examples=60)
@given(st.fixed_dictionaries({}, optional={name: texts_of(name) for name in PLAIN}))
def test_any_form_values_survive_a_round_trip_through_the_spec(values: dict[str, str]) -> None:
    values = {"name": "a", "run": COMMAND, COMMAND: "python x.py", **values}
    result = parse_values({**default_values(), **values}, "li")
    again = parse_values(values_from_spec(result.spec, result.kind), "li")
    assert again.spec == result.spec
    assert not {key: text for key, text in result.problems.items() if key not in TOGETHER}


TOGETHER = {"sync_source", "sync_mode", "log_dir", "elastic_max", "elastic_min", "workers", "max_restarts"}
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
    assert [each.title for each in SECTIONS] == [
        "Job",
        "Code",
        "Resources",
        "Launch",
        "Data and environment",
        "Scheduling",
        "Lifecycle",
    ]
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
