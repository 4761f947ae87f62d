"""Idle GPU-hours: counted between readings of the same holder only, unknown where nothing was observed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from k8s.snapshot import Job
from k8s.telemetry.history import LONGEST_GAP
from k8s.telemetry.readings import GpuReading, PodContainer
from tests.support.objects import joined, node, pod_of, pytorch_job
from tests.support.telemetry import reading
from tui.jobs import idle_report
from tui.jobs.idle_report import IdleLedger, format_observed, held_nodes, message_to_owner, usage_by_user

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


def ledger_of(*rounds: Iterable[GpuReading]) -> IdleLedger:
    ledger = IdleLedger()
    for each in rounds:
        ledger.add(each, jobs())
    return ledger


def hours(ledger: IdleLedger) -> dict[str, tuple[float, float]]:
    """Return observed and idle GPU-hours by job."""
    return {key[3]: (round(observed, 4), round(idle, 4)) for key, (observed, idle) in ledger.hours().items()}


def test_time_between_two_readings_is_attributed_to_the_job_holding_the_gpu() -> None:
    ledger = ledger_of(at(0, 1, 90), at(3, 1, 90), at(6, 99, 4.9))
    assert hours(ledger) == {"bert": (0.2, 0.1)}
    assert ledger.observed_s == 360
    assert format_observed(ledger) == "6m since 12:00 UTC"


def test_a_single_repeated_or_widely_spaced_reading_counts_no_time() -> None:
    assert hours(ledger_of(at(0, 1))) == {} and format_observed(ledger_of(at(0, 1))) == ""
    assert hours(ledger_of(at(0, 1), at(0, 1))) == {}
    gap = LONGEST_GAP.total_seconds() / 60 + 0.1
    assert hours(ledger_of(at(0, 1), at(gap, 1))) == {}
    assert hours(ledger_of(at(3, 1), at(0, 1), at(4, 1))) == {"bert": (round(1 / 60, 4), round(1 / 60, 4))}


def test_idle_time_with_unknown_utilisation_or_a_changed_holder_is_not_counted() -> None:
    assert hours(ledger_of(at(0, None), at(3, None))) == {}
    assert hours(ledger_of(at(0, 1), at(3, 1, pod="other-0"))) == {}
    assert hours(ledger_of(at(0, 1, pod=""), at(3, 1, pod=""))) == {}
    assert hours(ledger_of(at(0, 1), at(3, 1, pod="other-0"), at(6, 1, pod="other-0"))) == {
        "other-0": (0.05, 0.05)
    }


def test_pods_sharing_a_gpu_split_its_time_equally() -> None:
    both = (PodContainer("default", "bert-master-0"), PodContainer("speech", "x-0"))
    rounds = [[replace(gpu, holders=both) for gpu in at(minutes, 2)] for minutes in (0, 3)]
    assert hours(ledger_of(*rounds)) == {"bert": (0.025, 0.025), "x-0": (0.025, 0.025)}


def test_gpu_holders_are_taken_from_the_nodes_if_telemetry_omits_them() -> None:
    nodes, found = joined([node("a", 4)], [pod_of(VIT, "master-0", on="a", gpus=4)], [VIT])
    ledger = IdleLedger()
    for minutes in (0, 3):
        ledger.add(at(minutes, 1, pod=""), found.values(), tuple(nodes.values()))
    assert hours(ledger) == {"vit": (0.05, 0.05)}


def test_usage_by_user_sums_held_requested_and_idle_gpus() -> None:
    ledger = ledger_of(at(0, 1, 90), at(3, 1, 90))
    li, maria = usage_by_user(jobs(), at(3, 1, 90), ledger)
    assert (li.total.user, li.total.gpus_held, li.total.gpus_requested) == ("li", 4, 4)
    assert (li.total.gpus_seen, li.total.gpus_idle) == (2, 1)
    assert (li.total.observed_hours, li.total.idle_hours) == pytest.approx((0.1, 0.05))
    assert (maria.total.gpus_held, maria.total.gpus_requested) == (0, 4)
    assert maria.total.gpus_idle is None and maria.total.idle_hours is None
    assert [each.job for each in li.jobs] == ["bert"]


def test_without_telemetry_idle_is_not_known_and_not_zero() -> None:
    users = usage_by_user(jobs(), (), IdleLedger())
    assert {each.total.idle_hours for each in users} == {None} == {each.total.gpus_idle for each in users}
    message = message_to_owner(users[0].total, users[0].jobs)
    assert message == (
        "Hi li, your 1 job (bert) holds 4 GPUs; whether they use them is not known. Do they still need them?"
    )


def test_the_message_to_the_owner_states_only_observed_idle_gpus() -> None:
    ledger = ledger_of(at(0, 1, 90), at(3, 1, 90))
    user = usage_by_user(jobs(), at(3, 1, 90), ledger)[0]
    assert message_to_owner(user.jobs[0], observed=format_observed(ledger)) == (
        "Hi li, bert in namespace default holds 4 GPUs; 1 of 2 seen now are idle, and over 3m since 12:00 "
        "UTC 0.05 of 0.10 GPU-hours were idle (below 5 % utilisation). Does it still need them?"
    )


def test_held_nodes_returns_the_nodes_whose_gpus_the_jobs_hold() -> None:
    nodes, found = joined([node("a", 8), node("b", 8)], PODS, [BERT])
    assert held_nodes(found.values(), nodes.values()) == ["a"]


def test_the_idle_ledger_keeps_a_bounded_number_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_report, "MOST_JOBS", 3)
    ledger = IdleLedger()
    for number in range(6):
        for minutes in (number * 10, number * 10 + 3):
            ledger.add(at(minutes, 1, pod=f"pod-{number}"), ())
    assert list(hours(ledger)) == ["pod-3", "pod-4", "pod-5"]
