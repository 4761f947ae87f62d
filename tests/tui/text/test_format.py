"""Numbers, times, names and GPUs as text."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.models import Event, Pod, convert
from k8s.reasons.phrases import clock
from k8s.status import Status
from k8s.status.job import DeclaredStatus, InstanceState, job_status
from k8s.status.pod import pod_status
from tests.support.objects import pod_of, pytorch_job
from tui.jobs.events import FoldedEvent, full_text
from tui.text import format as fmt


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\N{EN DASH}"),
        (math.nan, "\N{EN DASH}"),
        (-5, "0s"),
        (45, "45s"),
        (540, "9m"),
        (8100, "2h15m"),
        (11 * 3600 + 240, "11h04m"),
        (3 * 86400 + 4 * 3600, "3d4h"),
        (400 * 86400, "400d"),
    ],
)
def test_ages_are_coarse_and_never_negative(seconds: float | None, text: str) -> None:
    assert fmt.age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0s"),
        (0.42, "0.4s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (42, "42s"),
        (252, "4m12s"),
        (5040, "1h24m"),
    ],
)
def test_durations_are_finer_than_ages(seconds: float, text: str) -> None:
    assert fmt.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.1e-05, "2.1e-05"),
        (1.87, "1.87"),
        (412.0, "412"),
        (24117.0, "24117"),
        (999.7, "1000"),
        (1e7, "1e+07"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (None, "\N{EN DASH}"),
    ],
)
def test_measured_values_have_three_digits(value: float | None, text: str) -> None:
    assert fmt.number(value) == text


def test_large_numbers_are_short() -> None:
    assert [fmt.si(value) for value in (0, 412, 12_000, 1_250_000)] == ["0", "412", "12k", "1.25M"]
    assert fmt.si(999_999) == "1M"
    assert [fmt.count(value) for value in (31, 1204, 99_999, 1_250_000)] == ["31", "1,204", "99,999", "1.25M"]
    assert [fmt.memory(value) for value in (0, 80 << 20, 3 << 29, 612 << 30)] == ["0B", "80M", "1.5G", "612G"]
    assert [fmt.plural(amount, "job") for amount in (0, 1, 3)] == ["0 jobs", "1 job", "3 jobs"]


@given(st.floats())
def test_any_number_can_be_formatted(value: float) -> None:
    for say in (fmt.number, fmt.si, fmt.age, fmt.duration):
        assert 0 < len(say(value)) < 330


def test_each_gpu_gets_one_cell_while_all_fit() -> None:
    assert fmt.gpu_bar(3, 2, 1) == "▮▮▮▯▯✕"
    assert fmt.gpu_bar(0, 0, 0) == ""


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 5000), st.integers(3, 80))
def test_many_gpus_are_drawn_as_shares_with_every_existing_state_visible(
    busy: int, free: int, bad: int, width: int
) -> None:
    bar = fmt.gpu_bar(busy, free, bad, width=width)
    assert len(bar) == min(width, busy + free + bad)
    assert ("▮" in bar, "▯" in bar, "✕" in bar) == (busy > 0, free > 0, bad > 0)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("a100-1",), "a100-1"),
        (("a100-2", "a100-1"), "a100-[1-2]"),
        (("n-9", "n-10", "n-12", "login"), "n-[9-10,12], login"),
        (("n-08", "n-09", "n-10", "n-7"), "n-[7,08-10]"),
        (("ip-10-0-1-7.ec2.internal", "ip-10-0-1-8.ec2.internal"), "ip-10-0-1-[7-8].ec2.internal"),
        (("a-1", "b-1"), "a-1, b-1"),
    ],
)
def test_nodes_of_a_job_are_written_as_ranges(names: tuple[str, ...], text: str) -> None:
    assert fmt.compact_ranges(names) == text


def expanded(text: str) -> set[str]:
    names = set()
    for start, inside, end in re.findall(r"([^][, ]*)(?:\[([^]]*)\]([^][, ]*))?", text):
        for part in filter(None, inside.split(",")):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            names |= {f"{start}{number:0{len(first)}}{end}" for number in numbers}
        if start and not inside:
            names.add(start)
    return names


HOSTS = st.from_regex(r"\A[a-c]{0,2}-?[0-9]{1,3}[a-b]?(\.x1)?\Z") | st.from_regex(r"\A[a-c]{1,2}\Z")


@given(st.sets(HOSTS, max_size=40))
@pytest.mark.slow
def test_compact_ranges_expand_to_exactly_the_original_names(names: set[str]) -> None:
    assert expanded(fmt.compact_ranges(names)) == names


def test_times_of_day_are_in_the_zone_of_the_machine_wherever_a_person_reads_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = datetime(2026, 11, 20, 18, 36, 9, tzinfo=UTC)
    bad = InstanceState("worker-0", (), Status.FAILED, "exit 3", ended=at)
    made = pytorch_job("bert")
    end = {"exitCode": 3, "finishedAt": "2026-11-20T18:36:09Z"}
    status = {
        "name": "pytorch",
        "restartCount": 1,
        "state": {"running": {}},
        "lastState": {"terminated": end},
    }
    pod = convert(pod_of(made, "master-0", on="a", containerStatuses=[status]), Pod)
    event = convert({"metadata": {"name": "e"}, "lastTimestamp": "2026-11-20T18:36:09Z"}, Event)
    try:
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        texts = [
            fmt.local_time(at),
            clock(at),
            job_status(DeclaredStatus(total=1, outcome=Status.FAILED), [bad])[1],
            pod_status(pod)[1],
            full_text(FoldedEvent(event, "e", 1, at)),
        ]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert texts[:3] == ["2026-11-21 00:06:09 IST", "00:06:09", "worker-0 exit 3, 00:06:09"]
    assert all("00:06:09" in text and "18:36" not in text and "UTC" not in text for text in texts)


def test_every_status_has_a_style() -> None:
    statuses = "Queued Pending Starting Running Restarting Suspended Succeeded Failed Terminating Unknown"
    assert set(fmt.STATUS_STYLES) == set(statuses.split())


def test_an_age_uses_the_server_clock_and_is_marked_on_clock_skew() -> None:
    at = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
    same, rough = fmt.Clock(at), fmt.Clock(at, is_rough=True)
    assert same.age(at - timedelta(minutes=9)) == "9m"
    assert rough.age(at - timedelta(minutes=9)) == "~9m"
    assert rough.age(at + timedelta(hours=1)) == "~0s"  # never negative
    assert rough.age(at - timedelta(minutes=9), at - timedelta(minutes=2)) == "7m"  # both are the server's
    assert rough.age(None) == fmt.NOTHING


@pytest.mark.parametrize(
    ("ahead_s", "is_rough"), [(0.0, False), (-4.0, False), (6.0, True), (3600.0, True), (-3600.0, True)]
)
def test_a_clock_is_marked_inexact_when_it_is_some_seconds_off(ahead_s: float, is_rough: bool) -> None:
    before = datetime.now(UTC)
    clock = fmt.Clock.ahead(ahead_s)
    offset = timedelta(seconds=ahead_s)
    assert before + offset <= clock.now <= datetime.now(UTC) + offset
    assert clock.is_rough is is_rough
