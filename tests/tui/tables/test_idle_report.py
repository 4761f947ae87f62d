"""GPUs held, requested and idle by user: unknown where nothing was observed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from k8s.gpus.readings import GpuReading, PodContainer
from k8s.snapshot import Job
from tests.support.objects import joined, node, pod_of, pytorch_job
from tests.support.telemetry import reading
from tui.tables.users import held_nodes, message_to_owner, usage_by_user

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BERT = pytorch_job("bert", 2, 2, annotations={"gpuconsole.dev/user": "li"})
VIT = pytorch_job("vit", 1, 4, annotations={"gpuconsole.dev/user": "maria"})
PODS = [pod_of(BERT, "master-0", on="a", gpus=2), pod_of(BERT, "worker-0", on="a", gpus=2)]


def jobs() -> list[Job]:
    _nodes, found = joined([node("a", 8)], PODS, [BERT, VIT])
    return list(found.values())


def at(
    minutes: float, *utilisations: float | None, pod: str = "bert-master-0", **more: Any
) -> list[GpuReading]:
    """Return readings of the node's first GPUs so many minutes after noon."""
    when = NOON + timedelta(minutes=minutes)
    return [
        replace(reading("a", index, utilisation, pod, **more), read_at=when)
        for index, utilisation in enumerate(utilisations)
    ]


def test_usage_by_user_sums_held_requested_and_idle_gpus() -> None:
    li, maria = usage_by_user(jobs(), at(3, 1, 90))
    assert (li.total.user, li.total.gpus_held, li.total.gpus_requested) == ("li", 4, 4)
    assert (li.total.gpus_seen, li.total.gpus_idle) == (2, 1)
    assert (maria.total.gpus_held, maria.total.gpus_requested) == (0, 4)
    assert maria.total.gpus_idle is None
    assert [each.job for each in li.jobs] == ["bert"]


def test_without_telemetry_idle_is_not_known_and_not_zero() -> None:
    users = usage_by_user(jobs(), ())
    assert {each.total.gpus_idle for each in users} == {None}
    message = message_to_owner(users[0].total, users[0].jobs)
    assert message == (
        "Hi li, your 1 job (bert) holds 4 GPUs; whether they use them is not known. Do they still need them?"
    )


def test_the_message_to_the_owner_states_only_observed_idle_gpus() -> None:
    user = usage_by_user(jobs(), at(3, 1, 90))[0]
    assert message_to_owner(user.jobs[0]) == (
        "Hi li, bert in namespace default holds 4 GPUs; 1 of 2 seen are idle now (below 5 % utilisation). "
        "Does it still need them?"
    )


def test_pods_that_share_a_gpu_both_count_it() -> None:
    both = (PodContainer("default", "bert-master-0"), PodContainer("default", "vit-master-0"))
    _nodes, found = joined([node("a", 8)], [*PODS, pod_of(VIT, "master-0", on="a", gpus=4)], [BERT, VIT])
    users = usage_by_user(list(found.values()), [replace(gpu, holders=both) for gpu in at(0, 2)])
    assert [(each.total.user, each.total.gpus_idle) for each in users] == [("li", 1), ("maria", 1)]


def test_gpu_holders_are_taken_from_the_nodes_if_telemetry_omits_them() -> None:
    nodes, found = joined([node("a", 4)], [pod_of(VIT, "master-0", on="a", gpus=4)], [VIT])
    (user,) = usage_by_user(list(found.values()), at(0, 1, pod=""), tuple(nodes.values()))
    assert (user.total.gpus_seen, user.total.gpus_idle) == (1, 1)


def test_held_nodes_returns_the_nodes_whose_gpus_the_jobs_hold() -> None:
    nodes, found = joined([node("a", 8), node("b", 8)], PODS, [BERT])
    assert held_nodes(found.values(), nodes.values()) == ["a"]
