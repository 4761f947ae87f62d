"""Placement: never more than a node has, all pods of a job or none, on as few nodes as can be."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.sandbox.controllers.placement import PendingPod, Room, asked_by, place, room_of, why_not
from k8s.sandbox.node.nodes import Devices, Shape, neighbours

GPU = "nvidia.com/gpu"


def room(name: str, gpus: int = 4, cpu: int = 64, **rest: Any) -> Room:
    return Room(name, {GPU: Fraction(gpus), "cpu": Fraction(cpu), "pods": Fraction(110)}, **rest)


def wish(name: str, gpus: int = 0, cpu: int = 0, **spec: Any) -> PendingPod:
    limits = {GPU: str(gpus), "cpu": str(cpu)}
    spec["containers"] = [{"name": "c", "resources": {"limits": limits}}]
    return PendingPod(name, asked_by(spec), spec)


gangs = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 16)), min_size=1, max_size=10)
machines = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 32)), min_size=0, max_size=6)


@given(gangs, machines)
def test_a_job_is_placed_as_a_whole_or_not_at_all_and_never_on_what_is_not_there(
    sizes: list[tuple[int, int]], nodes: list[tuple[int, int]]
) -> None:
    rooms = [room(f"n{index}", *size) for index, size in enumerate(nodes)]
    wishes = [wish(f"p{index}", *size) for index, size in enumerate(sizes)]
    before = [dict(each.free) for each in rooms]
    placed, why = place(wishes, rooms)
    assert [each.free for each in rooms] == before
    assert (len(placed) == len(wishes) and not why) or (not placed and why)
    for each in rooms:
        here = [wish for wish in wishes if placed.get(wish.name) == each.name]
        for name, free in each.free.items():
            assert sum((wish.asked.get(name, Fraction(0)) for wish in here), Fraction(0)) <= free


@given(st.integers(1, 8), st.integers(1, 12), st.lists(st.integers(0, 8), max_size=6))
def test_a_job_of_equal_pods_is_placed_whenever_it_fits(size: int, count: int, nodes: list[int]) -> None:
    rooms = [room(f"n{index}", gpus) for index, gpus in enumerate(nodes)]
    placed, _ = place([wish(f"p{index}", size) for index in range(count)], rooms)
    assert bool(placed) == (sum(gpus // size for gpus in nodes) >= count)


def test_a_job_goes_to_the_fullest_node_that_takes_it_all() -> None:
    rooms = [room("empty", 8), room("half", 4), room("nearly", 1)]
    placed, _ = place([wish("a", 2), wish("b", 2)], rooms)
    assert placed == {"a": "half", "b": "half"}


def test_pods_that_may_only_go_to_one_node_get_it_before_the_others() -> None:
    rooms = [room("left", 4, labels={"zone": "a"}), room("right", 4, labels={"zone": "b"})]
    placed, _ = place([wish("any", 4), wish("choosy", 4, nodeSelector={"zone": "a"})], rooms)
    assert placed == {"choosy": "left", "any": "right"}


@pytest.mark.parametrize(
    ("where", "spec", "why"),
    [
        (room("n", 1), {}, "Insufficient nvidia.com/gpu"),
        (room("n", 8, cpu=0), {}, "Insufficient cpu"),
        (room("n", 8, is_unschedulable=True), {}, "node(s) were unschedulable"),
        (room("n", 8, is_ready=False), {}, "node(s) were not ready"),
        (
            room("n", 8),
            {"nodeSelector": {"gpu": "h100"}},
            "node(s) didn't match Pod's node affinity/selector",
        ),
        (
            room("n", 8, taints=[{"key": "team", "value": "nlp", "effect": "NoSchedule"}]),
            {},
            "node(s) had untolerated taint {team: nlp}",
        ),
        (
            room("n", 8, taints=[{"key": "team", "value": "nlp", "effect": "NoSchedule"}]),
            {"tolerations": [{"key": "team", "operator": "Exists"}]},
            "",
        ),
        (room("n", 8, taints=[{"key": "soft", "effect": "PreferNoSchedule"}]), {}, ""),
    ],
)
def test_why_a_pod_cannot_be_on_a_node_is_said_as_kubernetes_says_it(
    where: Room, spec: dict[str, Any], why: str
) -> None:
    assert why_not(wish("p", 4, 1, **spec), where) == why


def test_a_job_that_does_not_fit_says_how_much_of_it_would() -> None:
    wishes = [wish(f"p{index}", 4) for index in range(3)]
    _, why = place(wishes, [room("a"), room("b")])
    assert why == (
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. "
        "All 3 pods of the job start together or none does; 2 would fit."
    )


def test_pods_that_ended_hold_nothing() -> None:
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {GPU: "4", "cpu": "1500m"}}}
    spec = {"containers": [{"resources": {"limits": {GPU: "2"}, "requests": {"cpu": "500m"}}}]}
    pods = [{"spec": spec, "status": {"phase": phase}} for phase in ("Running", "Succeeded", "Failed", "")]
    free = room_of(node, pods).free
    assert (free[GPU], free["cpu"]) == (Fraction(0), Fraction(1, 2))


def test_an_init_container_needs_no_more_than_the_largest() -> None:
    spec = {
        "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
        "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "1"}}}],
    }
    assert asked_by(spec)["cpu"] == 3


@given(st.sets(st.integers(0, 7)), st.integers(0, 8))
def test_gpus_that_are_given_are_free_ones_and_neighbours_where_possible(free: set[int], count: int) -> None:
    if count > len(free):
        return
    chosen = neighbours(free, count)
    assert len(set(chosen)) == count and set(chosen) <= free
    runs = [start for start in free if all(start + step in free for step in range(count))]
    if runs and count:
        assert chosen == tuple(range(chosen[0], chosen[0] + count))


def test_gpus_come_back_and_are_never_held_twice() -> None:
    devices = Devices(Shape(("n",), 4, "x", is_simulated=True))
    assert devices.take("a", "n", 1) == (0,)
    assert devices.take("b", "n", 2) == (1, 2)
    assert devices.take("c", "n", 2) is None
    devices.give_back("a")
    assert devices.take("c", "n", 2) == (0, 3)
    devices.give_back("nobody")
    assert devices.free("n") == 0
