"""What is wrong with a spec, said before the server is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from k8s.job_spec import LONGEST_NAME, JobSpec, Mount

GOOD = JobSpec(name="bert-base-1", image="pytorch/pytorch:2.6", command=("python", "train.py"))


def test_a_good_spec_has_no_problems() -> None:
    assert GOOD.problems() == {}
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
    assert full.problems() == {}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "", "Required, e.g."),
        ("name", "a" * (LONGEST_NAME + 1), f"this has {LONGEST_NAME + 1}"),
        ("name", "Bert", "lowercase letters"),
        ("name", "1bert", "start with a letter"),
        ("name", "bert-", "do not end with '-'"),
        ("name", "bert\n", "lowercase letters"),
        ("name", "bert[/b]", "lowercase letters"),
        ("image", "", "Required, e.g."),
        ("image", "a b", "not contain spaces"),
        ("workers", 0, "at least 1"),
        ("gpus", -1, "at least 0"),
        ("processes", 0, "at least 1"),
        ("retries", -1, "at least 0"),
        ("command", (), "Required: a command"),
        ("cpu", "four", "is not a quantity"),
        ("cpu", "0", "greater than 0"),
        ("memory", "-1Gi", "greater than 0"),
        ("memory", "32 Gi", "is not a quantity"),
        ("shared_memory", "lots", "is not a quantity"),
        ("env", {"1X": ""}, "not a valid variable name"),
        ("env", {"A=B": ""}, "not a valid variable name"),
        ("mounts", (Mount("a", "data"),), "absolute"),
        ("mounts", (Mount("a", "/"),), "absolute"),
        ("mounts", (Mount("a", "/x"), Mount("b", "/x")), "Two volumes mounted at /x"),
        ("working_dir", "work", "absolute"),
    ],
)
def test_each_mistake_is_said_where_it_is_made(field: str, value: Any, words: str) -> None:
    problems = replace(GOOD, **{field: value}).problems()
    assert list(problems) == [field]
    assert words in problems[field]


def test_all_mistakes_are_said_at_once() -> None:
    assert set(JobSpec().problems()) == {"name", "image", "command"}


def test_the_longest_name_leaves_room_for_what_the_operator_adds() -> None:
    assert replace(GOOD, name="a" * LONGEST_NAME).problems() == {}
    assert len("a" * LONGEST_NAME + "-worker-123") <= 63
