"""Every field of a job: its declaration, its texts, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.kinds.job_spec import (
    JOB_FIELDS,
    LONGEST_NAME,
    ConfigFile,
    EnvSource,
    HostMount,
    JobSpec,
    Mount,
    NewClaim,
    PodToleration,
    Role,
    problems_of,
)
from k8s.kinds.job_spec.field_types import Duration

EXAMPLES: dict[str, tuple[str, Any]] = {
    "workers": ("4", 4),
    "slots": ("2", 2),
    "running_timeout_s": ("1h30m", 5400),
    "ttl_s": ("7d", 604_800),
    "gang": ("true", True),
    "elastic": ("2-8", (2, 8)),
    "host_namespaces": ("network\npid", ("network", "pid")),
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
        "data:1Gi\nout:2Ti:fast:RWX",
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
        (PodToleration(), PodToleration("gpu"), PodToleration("gpu", "a100", "NoSchedule", "Equal")),
    ),
}
"""A field, a text for it, and the value of that."""


def test_a_text_becomes_a_value_and_the_value_that_text() -> None:
    for name, (text, value) in EXAMPLES.items():
        declared = JOB_FIELDS[name].type
        found = (declared.parse(text), declared.to_text(value), declared.problem(value))
        assert (name, *found) == (name, value, text, "")


GOOD = JobSpec(name="bert-base-1", image="pytorch/pytorch:2.6", command=("python", "train.py"))
INVALID_TEXTS = (
    ("workers", "two", "whole number"),
    ("workers", "5000", "At most 4,096"),
    ("slots", "x", "whole number"),
    ("running_timeout_s", "1 hour", "duration"),
    ("gang", "yes", "true or false"),
    ("elastic", "2", "a minimum and a maximum"),
    ("elastic", "2-", "whole number"),
    ("env", "A", "Line 1: expected NAME=value"),
    ("env", "A=1\rA=2", "Line 2: duplicate name A"),
    ("mounts", "data", "Line 1: expected claim:/path"),
    ("mounts", "data:/x:yes", "claim:/path:ro"),
    ("new_claims", "data", "Line 1: expected NAME:SIZE"),
    ("new_claims", "data 1Gi RWX RWO", "modes are RWO, RWX, ROX, RWOP"),
    ("new_claims", "data 1Gi fast slow", "NAME:SIZE:CLASS:MODE"),
    ("new_claims", ":1Gi", "NAME:SIZE"),
    ("host_mounts", "relative", "expected /host/folder"),
    ("config_files", "a.yaml", "expected local-file:/path"),
    ("env_from", "wandb", "expected secret/NAME"),
    ("env_from", "KEY=secret/wandb", "VARIABLE=secret/NAME/KEY"),
    ("tolerations", "gpu:Never", "NoSchedule"),
    ("torchrun_options", "'open", "No closing quotation"),
)


def test_an_invalid_field_text_is_rejected_with_the_expected_form() -> None:
    for name, text, expected in INVALID_TEXTS:
        with pytest.raises(ValueError, match=expected):
            JOB_FIELDS[name].type.parse(text)


INVALID_VALUES: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"name": ""}, "name", "Required, e.g."),
    ({"name": "a" * (LONGEST_NAME + 1)}, "name", f"this has {LONGEST_NAME + 1}"),
    ({"name": "Bert"}, "name", "lowercase letters"),
    ({"name": "1bert"}, "name", "start with a letter"),
    ({"name": "bert-"}, "name", "do not end with '-'"),
    ({"name": "bert\n"}, "name", "lowercase letters"),
    ({"name": "bert[/b]"}, "name", "lowercase letters"),
    ({"image": ""}, "image", "Required, e.g."),
    ({"image": "a b"}, "image", "not contain spaces"),
    ({"gpus": -1}, "gpus", "at least 0"),
    ({"processes": 0}, "processes", "at least 1"),
    ({"retries": -1}, "retries", "at least 0"),
    ({"command": ()}, "command", "Required: a command"),
    ({"cpu": "0"}, "cpu", "greater than 0"),
    ({"memory": "-1Gi"}, "memory", "greater than 0"),
    ({"memory": "32 Gi"}, "memory", "is not a quantity"),
    ({"shared_memory": "lots"}, "shared_memory", "is not a quantity"),
    ({"env": {"A=B": ""}}, "env", "not a valid variable name"),
    ({"mounts": (Mount("a", "data"),)}, "mounts", "absolute"),
    ({"mounts": (Mount("a", "/"),)}, "mounts", "absolute"),
    ({"mounts": (Mount("a", "/x"), Mount("b", "/x"))}, "mounts", "Two volumes mounted at /x"),
    ({"working_dir": "work"}, "working_dir", "absolute"),
    ({"workers": 0}, "workers", "at least 1"),
    ({"slots": 0}, "slots", "at least 1"),
    ({"cpu": "four"}, "cpu", "not a quantity"),
    ({"memory": "0-1Gi"}, "memory", "greater than 0"),
    ({"memory": "10"}, "memory", "10 without a unit is 10 bytes: write e.g. 10Gi."),
    ({"memory": "10k-1Gi"}, "memory", "Must be at least 1Mi, e.g. 32Gi."),
    ({"shared_memory": "9e30"}, "shared_memory", "Must be at most 1Ei, e.g. 32Gi."),
    ({"cpu": "1e99"}, "cpu", "Must be at most 100k, e.g. 4 or 500m."),
    ({"roles": (Role("worker", memory="10"),)}, "roles", "worker: memory: 10 without a unit"),
    ({"labels": {"a b": "c"}}, "labels", "'a b' is not a valid label name: use at most 63 letters"),
    ({"labels": {"a": "b c"}}, "labels", "'b c' is not a valid label value: use at most 63"),
    ({"labels": {"a/": "b"}}, "labels", "'a/' is not a valid label name"),
    ({"labels": {"a" * 64: "b"}}, "labels", "is not a valid label name"),
    ({"node_selector": {"gpu": "-"}}, "node_selector", "'-' is not a valid label value"),
    ({"annotations": {"a b": "c"}}, "annotations", "'a b' is not a valid annotation name"),
    ({"new_claims": (NewClaim("data", "100", "", "RWX"),)}, "new_claims", "data: 100 without a unit"),
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
    ({"new_claims": (NewClaim("a", "1Gi"), NewClaim("a", "2Gi"))}, "new_claims", "a is listed twice"),
    ({"runtime": "ns/mine"}, "runtime", "lowercase"),
    ({"queue": "No Such"}, "queue", "lowercase"),
    ({"mounts": (Mount("c", "/a"),), "host_mounts": (HostMount("/a", "/a"),)}, "mounts", "Two volumes"),
    ({"config_files": (ConfigFile("a", "b"),)}, "config_files", "absolute"),
    ({"sync_mode": "git"}, "sync_source", "Required with git"),
    ({"sync_source": "."}, "sync_mode", "Required with a source"),
    ({"sync_mode": "git", "sync_source": "fd::17"}, "sync_source", "Such a URL can run programs"),
    ({"sync_mode": "git", "sync_source": " ext::sh -c x"}, "sync_source", "Such a URL can run programs"),
    ({"sync_branch": "main"}, "sync_branch", "Only with code from git"),
    ({"env": {"GIT_SYNC_PASSWORD": "x"}}, "env", "only with code from git"),
    ({"tensorboard": True}, "log_dir", "Required with TensorBoard"),
    ({"cpu": "1-2-3"}, "cpu", "'2-3' is not a quantity"),
    ({"elastic": (0, 2)}, "elastic", "at least 1"),
    ({"elastic": (3, 2)}, "elastic", "at most 2, the maximum"),
    ({"elastic": (2, 4)}, "workers", "between 2 and 4"),
    ({"host_namespaces": ("uts",)}, "host_namespaces", "'uts' is not one of network, ipc, pid."),
)


def test_a_good_spec_has_no_problems() -> None:
    assert problems_of(GOOD) == {}
    full = replace(
        GOOD,
        workers=4,
        gpus=8,
        cpu="500m",
        memory="80Gi",
        working_dir="/workspace",
        env={"LR": "1e-4", "_X1": ""},
        mounts=(Mount("a", "/data"), Mount("a", "/logs")),
    )
    assert problems_of(full) == {}


def test_an_invalid_value_is_reported_at_its_field() -> None:
    for change, field, expected in INVALID_VALUES:
        problems = problems_of(replace(GOOD, **change))
        fields = ["mounts", "host_mounts"] if "host_mounts" in change else [field]
        assert list(problems) == fields and expected in problems[field], (change, problems)


def test_all_invalid_fields_are_reported_at_once() -> None:
    assert set(problems_of(JobSpec())) == {"name", "image", "command"}


def test_the_longest_job_name_leaves_room_for_the_operator_suffix() -> None:
    assert problems_of(replace(GOOD, name="a" * LONGEST_NAME)) == {}
    assert len("a" * LONGEST_NAME + "-worker-123") <= 63


def test_a_new_claim_is_parsed_from_several_notations() -> None:
    for text in ("out:2Ti:fast:RWX", "out 2Ti rwx fast", "out 2Ti ReadWriteMany fast", " out  2Ti RWX:fast"):
        assert NewClaim.from_text(text) == NewClaim("out", "2Ti", "fast", "RWX")


def test_debug_mode_needs_no_command() -> None:
    assert problems_of(JobSpec(name="a", image="b", debug=True)) == {}
    assert "command" in problems_of(JobSpec(name="a", image="b"))


def test_every_field_is_declared_in_full() -> None:
    for declared in JOB_FIELDS.values():
        name, title = declared.name, declared.title
        assert title[0].isupper() or title in ("torchrun options", "kube-queue", "torchrun"), name
        assert declared.help and not declared.help.endswith("."), name
        assert declared.type.parse(declared.default_text) == declared.default, name
        assert name == "clean_pods" or declared.type.problem(declared.default) == "", name
        assert all(flag.startswith("-") for flag in declared.flags), name


def test_flags_and_titles_of_job_fields_are_unique() -> None:
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
def test_a_duration_survives_a_round_trip_through_text(seconds: int) -> None:
    assert Duration().parse(Duration().to_text(seconds)) == seconds
