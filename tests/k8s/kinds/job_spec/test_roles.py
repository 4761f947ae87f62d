"""Roles of a job: their lines, what is refused, and how many pods each has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.kinds.job_spec import JOB_FIELDS, JobSpec, Role, problems_of, role_sizes, role_spec, wants_gpus

ROLES = JOB_FIELDS["roles"].type
WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8))


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


QUANTITIES = st.sampled_from(["", "4", "500m", "32Gi", "1-2", "1Gi-"])
ROLE = st.builds(
    Role,
    st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True),
    maybe(st.integers(1, 64)),
    image=maybe(st.sampled_from(["", "train:2", "host:5000/a/b@sha256:0"])),
    gpus=maybe(st.integers(0, 16)),
    cpu=maybe(QUANTITIES),
    memory=maybe(QUANTITIES),
    restart_policy=maybe(st.sampled_from(["", "Never", "OnFailure"])),
    working_dir=maybe(st.sampled_from(["", "/w", "/with space"])),
    command=maybe(WORDS.map(tuple)),
)


@settings(max_examples=300)
@given(ROLE)
def test_any_role_survives_a_round_trip_through_one_line(role: Role) -> None:
    line = role.to_text()
    assert Role.from_text(line) == role
    assert ROLES.parse(line) == (role,)


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("master", Role("master")),
        ("worker replicas=3 image=train:2 gpus=8", Role("worker", 3, image="train:2", gpus=8)),
        ("ps gpus=0 cpu= command=", Role("ps", gpus=0, cpu="", command=())),
        (
            """worker command='python train.py --name "a b"'""",
            Role("worker", command=("python", "train.py", "--name", "a b")),
        ),
        ("""w command='["sh", "-c", "a\\nb"]' """, Role("w", command=("sh", "-c", "a\nb"))),
        ("w command='[ -f x ]'", Role("w", command=("[", "-f", "x", "]"))),
        (
            "worker restart=Never working-dir=/w cpu=1- memory=1Gi-2Gi",
            Role("worker", restart_policy="Never", working_dir="/w", cpu="1-", memory="1Gi-2Gi"),
        ),
    ],
)
def test_a_role_line_is_parsed_into_the_overrides_of_the_role(line: str, role: Role) -> None:
    assert Role.from_text(line) == role
    assert role.problem() == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("worker gpu=2", "Line 1: 'gpu' is not a key of a role; keys are replicas, image, gpus"),
        ("worker 3", "'3' is not a key"),
        ("worker gpus=two", "gpus: Must be a whole number"),
        ("worker gpus=1 gpus=2", "gpus is listed twice"),
        ("worker command='open", "No closing quotation: expected ROLE key=value"),
        ("""worker command='["a", 1]'""", "command: a list may only contain strings"),
        ("worker replicas=", "replicas: Must be a whole number"),
    ],
)
def test_a_malformed_role_line_is_rejected_with_the_key(line: str, expected: str) -> None:
    with pytest.raises(ValueError, match="Line 1") as caught:
        ROLES.parse(line)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"roles": (Role("Worker"),)}, "roles", "'Worker' is not a role name"),
        ({"roles": (Role("worker", cpu="much"),)}, "roles", "worker: cpu: 'much' is not a quantity"),
        ({"roles": (Role("worker", 0),)}, "roles", "worker: replicas: Must be at least 1"),
        ({"roles": (Role("worker", restart_policy="Often"),)}, "roles", "worker: restart: Must be one of"),
        ({"roles": (Role("a"), Role("a"))}, "roles", "a is listed twice"),
        ({"roles": (Role("worker"),), "elastic": (1, 2)}, "roles", "elastic job"),
        ({"roles": (Role("worker", image="b"),), "worker_image": "c"}, "worker_image", "also sets an image"),
    ],
)
def test_invalid_roles_are_reported(change: dict[str, Any], field: str, expected: str) -> None:
    assert expected in problems_of(JobSpec(name="a", image="b", command=("c",), **change))[field]


@pytest.mark.parametrize(
    ("replicas", "pods", "sizes"),
    [
        ((1, None), 4, [1, 3]),
        ((None, None), 4, [1, 3]),
        ((None,), 4, [4]),
        ((2, 3), 5, [2, 3]),
        ((None, 3, None), 6, [1, 3, 2]),
        ((None, None), 1, [1, 1]),
    ],
)
def test_the_last_role_gets_the_remaining_workers(
    replicas: tuple[int | None, ...], pods: int, sizes: list[int]
) -> None:
    roles = [Role(f"r{index}", count) for index, count in enumerate(replicas)]
    assert role_sizes(roles, pods) == sizes


def test_a_role_inherits_job_values_that_it_does_not_override() -> None:
    spec = JobSpec(image="a", worker_image="w", gpus=2, cpu="4", roles=(Role("worker", gpus=0, cpu=""),))
    of_worker = role_spec(spec, "worker")
    assert (of_worker.image, of_worker.gpus, of_worker.cpu, of_worker.memory) == ("w", 0, "", "")
    assert role_spec(spec, "master").gpus == 2


def test_gpus_of_a_job_or_of_a_role_are_noticed() -> None:
    job = JobSpec(workers=3, gpus=2, roles=(Role("launcher", cpu="1"), Role("worker", gpus=4)))
    assert wants_gpus(job) and wants_gpus(replace(job, gpus=0)) and not wants_gpus(JobSpec())
