"""Every field of a job: its declaration, its texts, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.job_spec import (
    JOB_FIELDS,
    ConfigFile,
    EnvSource,
    HostMount,
    JobField,
    JobSpec,
    Mount,
    NewClaim,
    PodToleration,
)
from k8s.job_spec.field_types import Duration

EXAMPLES: dict[str, tuple[str, Any]] = {
    "workers": ("4", 4),
    "slots": ("2", 2),
    "running_timeout_s": ("1h30m", 5400),
    "ttl_s": ("7d", 604_800),
    "gang": ("true", True),
    "env": ('A=1\nB="two\\nlines"', {"A": "1", "B": "two\nlines"}),
    "devices": ("rdma/hca=1", {"rdma/hca": "1"}),
    "node_selector": ("gpu=a100", {"gpu": "a100"}),
    "torchrun_options": ("--tee 3 'a b'", ("--tee", "3", "a b")),
    "pull_secrets": ("one\ntwo", ("one", "two")),
    "mounts": (
        "data:/data\ndata/train:/in:ro",
        (Mount("data", "/data"), Mount("data", "/in", "train", True)),
    ),
    "new_claims": (
        "data 1Gi\nout 2Ti fast RWX",
        (NewClaim("data", "1Gi"), NewClaim("out", "2Ti", "fast", "RWX")),
    ),
    "runtime": ("trainingruntime/mine", "trainingruntime/mine"),
    "host_mounts": ("/mnt\n/a:/b", (HostMount("/mnt", "/mnt"), HostMount("/a", "/b"))),
    "config_files": ("a.yaml:/etc/a.yaml", (ConfigFile("a.yaml", "/etc/a.yaml"),)),
    "env_from": (
        "secret/wandb\nKEY=configmap/paths/root",
        (EnvSource(True, "wandb"), EnvSource(False, "paths", "root", "KEY")),
    ),
    "tolerations": (
        "all\ngpu\ngpu=a100:NoSchedule",
        (
            PodToleration(),
            PodToleration("gpu"),
            PodToleration("gpu", "a100", "NoSchedule", "Equal"),
        ),
    ),
}
"""A field, a text for it, and the value of that."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_text_becomes_a_value_and_the_value_that_text(name: str) -> None:
    text, value = EXAMPLES[name]
    declared = JOB_FIELDS[name].type
    assert declared.parse(text) == value
    assert declared.to_text(value) == text
    assert declared.problem(value) == ""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("workers", "two", "whole number"),
        ("workers", "5000", "At most 4,096"),
        ("slots", "x", "whole number"),
        ("running_timeout_s", "1 hour", "duration"),
        ("gang", "yes", "true or false"),
        ("env", "A", "Line 1: expected NAME=value"),
        ("env", "A=1\rA=2", "Line 2: duplicate name A"),
        ("mounts", "data", "Line 1: expected claim:/path"),
        ("mounts", "data:/x:yes", "claim:/path:ro"),
        ("new_claims", "data", "Line 1: expected NAME SIZE"),
        ("new_claims", "data 1Gi RWX RWO", "modes are RWO, RWX, ROX, RWOP"),
        ("new_claims", "data 1Gi fast slow", "NAME SIZE CLASS MODE"),
        ("new_claims", ":1Gi", "NAME SIZE"),
        ("host_mounts", "relative", "expected /host/folder"),
        ("config_files", "a.yaml", "expected local-file:/path"),
        ("env_from", "wandb", "expected secret/NAME"),
        ("env_from", "KEY=secret/wandb", "VARIABLE=secret/NAME/KEY"),
        ("tolerations", "gpu:Never", "NoSchedule"),
        ("torchrun_options", "'open", "No closing quotation"),
    ],
)
def test_a_text_without_a_value_says_what_is_expected(name: str, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        JOB_FIELDS[name].type.parse(text)


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"workers": 0}, "workers", "at least 1"),
        ({"slots": 0}, "slots", "at least 1"),
        ({"cpu": "four"}, "cpu", "not a quantity"),
        ({"memory_request": "0"}, "memory_request", "greater than 0"),
        ({"clean_pods": "Some"}, "clean_pods", "None, Running, All"),
        ({"ttl_s": -1}, "ttl_s", "between 0"),
        ({"env": {"1A": "x"}}, "env", "'1A' is not a valid variable name"),
        ({"env": {"A": "x\ry"}}, "env", "control characters"),
        ({"mounts": (Mount("c", "/a\x07"),)}, "mounts", "control characters"),
        ({"devices": {"gpu": "1"}}, "devices", "'gpu' is not a valid resource name"),
        ({"pull_secrets": ("No",)}, "pull_secrets", "lowercase"),
        ({"new_claims": (NewClaim("data", "much"),)}, "new_claims", "data: 'much' is not a quantity"),
        ({"new_claims": (NewClaim("data", "0"),)}, "new_claims", "data: Must be greater than 0"),
        ({"new_claims": (NewClaim("Data", "1Gi"),)}, "new_claims", "'Data': Use lowercase"),
        ({"new_claims": (NewClaim("data", "1Gi", "Fast!"),)}, "new_claims", "'Fast!': Use lowercase"),
        ({"new_claims": (NewClaim("a", "1Gi"), NewClaim("a", "2Gi"))}, "new_claims", "a stands there twice"),
        ({"runtime": "ns/mine"}, "runtime", "lowercase"),
        ({"queue": "No Such"}, "queue", "lowercase"),
        ({"mounts": (Mount("c", "/a"),), "host_mounts": (HostMount("/a", "/a"),)}, "mounts", "Two volumes"),
        ({"config_files": (ConfigFile("a", "b"),)}, "config_files", "absolute"),
        ({"sync_mode": "git"}, "sync_source", "Required with git"),
        ({"sync_source": "."}, "sync_mode", "Required with a source"),
        ({"sync_branch": "main"}, "sync_branch", "Only with code from git"),
        ({"env": {"GIT_SYNC_PASSWORD": "x"}}, "env", "only with code from git"),
        ({"tensorboard": True}, "log_dir", "Required with TensorBoard"),
        ({"elastic_min": 2}, "elastic_max", "both bounds"),
        ({"elastic_min": 3, "elastic_max": 2}, "elastic_min", "at most 2"),
        ({"elastic_min": 2, "elastic_max": 4}, "workers", "between 2 and 4"),
    ],
)
def test_a_wrong_value_is_said_at_its_field(change: dict[str, Any], field: str, said: str) -> None:
    spec = JobSpec(name="a", image="b", command=("c",), **change)
    assert said in spec.problems()[field]


@pytest.mark.parametrize("text", ["out:2Ti:fast:RWX", "out 2Ti ReadWriteMany fast", " out  2Ti RWX:fast"])
def test_a_claim_may_be_written_in_other_ways(text: str) -> None:
    assert NewClaim.from_text(text) == NewClaim("out", "2Ti", "fast", "RWX")


def test_debug_mode_needs_no_command() -> None:
    assert JobSpec(name="a", image="b", debug=True).problems() == {}
    assert "command" in JobSpec(name="a", image="b").problems()


@pytest.mark.parametrize("declared", JOB_FIELDS.values(), ids=lambda each: each.name)
def test_every_field_is_declared_whole(declared: JobField) -> None:
    assert declared.title[0].isupper() or declared.title in ("torchrun options", "kube-queue", "torchrun")
    assert declared.help and not declared.help.endswith(".")
    assert declared.type.parse(declared.default_text) == declared.default
    assert declared.name == "clean_pods" or declared.type.problem(declared.default) == ""
    assert all(flag.startswith("-") for flag in declared.flags)


def test_no_flag_and_no_title_stands_for_two_fields() -> None:
    flags = Counter(flag for declared in JOB_FIELDS.values() for flag in declared.flags)
    titles = Counter(declared.title for declared in JOB_FIELDS.values())
    assert [name for name, times in (flags + titles).items() if times > 1] == []


@settings(max_examples=200)
@given(st.sampled_from(sorted(JOB_FIELDS)), st.text(max_size=40))
def test_any_text_becomes_a_value_that_can_be_written_or_a_sentence(name: str, text: str) -> None:
    declared = JOB_FIELDS[name].type
    try:
        value = declared.parse(text)
    except ValueError as error:
        assert str(error)
        return
    if not declared.problem(value):
        assert declared.parse(declared.to_text(value)) == value


@settings(max_examples=100)
@given(st.integers(0, 2**31 - 1))
def test_a_duration_is_written_as_it_is_read(seconds: int) -> None:
    assert Duration().parse(Duration().to_text(seconds)) == seconds
