"""The timeline: events between two changes of a job, unobserved times, and numbers over time."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from k8s.status import Status
from tests.support.journal import CONTEXT, random_journal, record_spans
from tests.support.night import CHANGE, HOUR, NOW_S, OBSERVED, journal_of
from tui.runs.journal import history, ledger
from tui.runs.journal.database import Journal
from tui.runs.journal.history import (
    Entry,
    Gap,
    JobChange,
    Timeline,
    default_since_s,
    events_of,
    find_gaps,
    last_console_s,
    observed_since_s,
    read_timeline,
)
from tui.tables.timeline import gap_text, news_text
from tui.text.format import Clock


def change(status: str, **values: Any) -> JobChange:
    given = {"alerts": "", "reason": "", "cause": "", "restarts": 0, "gpus_waiting": 0, "nodes": "", **values}
    return JobChange(1, 0.0, None, status, **given)


ON_AB, ON_A = {"nodes": "a,b"}, {"nodes": "a"}
LOST = {"reason": "worker-0: its node does not answer", "cause": "node lost"}
PREEMPTED = {"reason": "preempted by a pod of higher priority"}


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (None, change("Pending"), "queued"),
        (None, change("Running"), "started"),
        (None, change("Failed"), "failed"),
        (None, change("Suspended"), "suspended"),
        (None, change("Restarting"), ""),
        (change("Queued"), change("Pending"), ""),
        (change("Starting"), change("Running"), "started"),
        (change("Running"), change("Running", gpus_waiting=1), ""),
        (change("Running"), change("Succeeded"), "ended"),
        (change("Running"), change("Failed", **LOST), "failed"),
        (change("Failed"), change("Failed", reason="exit 1"), ""),
        (change("Running"), change("Deleted"), "deleted"),
        (change("Running"), change("Running", alerts="silent"), "silent"),
        (change("Running", alerts="silent"), change("Running", alerts="silent nan slow new"), "nan slow"),
        (change("Running", alerts="silent"), change("Running"), ""),
        (change("Running"), change("Failed", alerts="nan"), "nan failed"),
        (change("Running"), change("Restarting"), "restarted"),
        (change("Restarting"), change("Running", restarts=1), ""),
        (change("Restarting"), change("Pending"), ""),
        (change("Running"), change("Running", restarts=1), "restarted"),
        (change("Running"), change("Succeeded", restarts=1), "ended"),
        (change("Running", **ON_AB), change("Running", gpus_waiting=4, **ON_A), "node lost"),
        (change("Running", **ON_AB), change("Running", **ON_A), ""),
        (change("Running", **ON_AB), change("Restarting", **LOST), "node lost"),
        (change("Running", **LOST), change("Restarting", **LOST), "restarted"),
        (change("Running"), change("Restarting", **PREEMPTED), "preempted"),
        (change("Running"), change("Pending", **PREEMPTED), "preempted"),
        (change("Running"), change("Queued"), "preempted"),
        (change("Running"), change("Suspended"), "suspended"),
        (change("Running"), change("Suspended", cause="preempted"), "preempted"),
        (change("Running"), change("Pending"), "queued"),
        (change("Suspended"), change("Pending"), "resumed"),
        (change("Suspended"), change("Restarting"), "resumed"),
        (change("Unknown"), change("Running"), ""),
    ],
)
def test_two_changes_of_a_job_show_its_events(
    before: JobChange | None, after: JobChange, events: str
) -> None:
    assert " ".join(events_of(before, after)) == events


@pytest.mark.parametrize(
    ("observed", "gaps", "since_s"),
    [
        ([], [(0, 1000)], None),
        ([(-50, 400), (430, 1000)], [], -50),
        ([(0, 400), (100, 300), (500, 900)], [(400, 500), (900, 1000)], None),
        ([(0, 400), (600, 900), (500, 990)], [(400, 500)], 500),
        ([(100, 2000)], [(0, 100)], 100),
    ],
)
def test_times_without_an_observer_are_gaps(
    observed: list[tuple[float, float]], gaps: list[tuple[float, float]], since_s: float | None
) -> None:
    assert [*find_gaps(sorted(observed), 0, 1000)] == gaps
    journal = Journal()
    record_spans(journal, *observed, namespace="vision")
    found = [observed_since_s(journal, CONTEXT, each, 1000) for each in ("vision", "speech")]
    assert found == [since_s, None]


def names(found: Timeline) -> list[str]:
    return [f"{each.job.name} {each.event}" for each in found.entries]


def test_a_night_is_read_newest_first_with_the_changes_before_it() -> None:
    journal = journal_of()
    found = read_timeline(journal, "lab", NOW_S - 9 * HOUR, NOW_S)
    assert names(found) == [
        "bert deleted",
        "sweep failed",
        "vit nan",
        "llm queued",
        "bert node lost",
    ]
    assert found.gaps == [Gap(NOW_S - 7 * HOUR, NOW_S - 4 * HOUR)]
    assert found.entries[1].change.after_s == NOW_S - 7 * HOUR
    everyone = names(read_timeline(journal, "lab", NOW_S - 9 * HOUR, NOW_S, is_for_all=True))
    assert set(everyone) - {*names(found)} == {"notebook preempted"}
    assert names(read_timeline(journal, "lab", 0, NOW_S, name="vit")) == ["vit nan", "vit started"]
    assert names(read_timeline(journal, "lab", 0, NOW_S, namespace="speech")) == ["llm queued"]
    assert names(read_timeline(journal, "far", 0, NOW_S)) == []


def test_only_observers_of_the_namespace_count_for_it() -> None:
    journal = journal_of()
    journal.write((OBSERVED, "lab", "speech", "record 1@h", NOW_S - 7 * HOUR, NOW_S - 4 * HOUR))
    gaps = [
        len(read_timeline(journal, "lab", NOW_S - 9 * HOUR, NOW_S, namespace=each).gaps)
        for each in ("vision", "speech", "")
    ]
    assert gaps == [1, 0, 0]


def test_the_rows_are_grouped_by_job_and_each_gap_is_shown_once() -> None:
    found = read_timeline(journal_of(), "lab", NOW_S - 9 * HOUR, NOW_S)
    rows = [each.job.name if isinstance(each, Entry) else "gap" for each in found.grouped()]
    assert rows == ["bert", "gap", "bert", "sweep", "vit", "llm"]
    assert [*Timeline(gaps=[Gap(1, 2), Gap(5, 9)]).grouped()] == [Gap(5, 9), Gap(1, 2)]


def test_numbers_over_time_are_maxima_and_unknown_in_gaps() -> None:
    running = [(-inf, 0), (0.0, 1), (0.0, 2), (15.0, 3), (35.0, 2)]
    numbers = {"running": running, "failed": [(-inf, 0), (35.0, 1)]}
    found = Timeline(0, 60, gaps=[Gap(30, 52)], numbers=numbers).counts(6)
    assert found["running"] == [2, 3, 3, None, None, 2] and found["failed"] == [0, 0, 0, 1, None, 0]
    assert all(len(each) == 40 for each in Timeline().counts(40).values())


@pytest.mark.parametrize("seed", range(60))
def test_timelines_and_their_newest_parts_equal_the_changes_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    journal, changes = random_journal(chance)
    record_spans(journal, (-90, 10), (95, 120), context="lab")
    since_s, parts = chance.choice(((0, 6), (-60, 18), (30, 3), (-61, 1), (200, 6)))
    is_for_all, until_s = chance.random() < 0.5, since_s + 10 * parts
    chosen = [(job, new) for job, _, new in changes if is_for_all or job % 2]
    last, events = dict[int, JobChange](), list[tuple[str, str, JobChange]]()
    for job, new in chosen:
        if since_s < new.at_s <= until_s:
            events += [(f"u{job}", event, new) for event in events_of(last.get(job), new)]
        last[job] = new
    found = read_timeline(journal, "lab", since_s, until_s, is_for_all=is_for_all, most=99)
    assert [(each.uid, each.event, each.change) for each in found.entries] == events[::-1]

    def number(phase: str, count: int) -> int:
        statuses = {job: new.status for job, new in chosen[:count]}.values()
        return sum(each in history.PHASES[phase] for each in statuses)

    expected: dict[str, list[int | None]] = {phase: [] for phase in history.PHASES}
    for start_s in range(since_s, until_s, 10):
        first = sum(new.at_s < start_s or new.at_s <= since_s for _, new in chosen)
        end = max(first, sum(new.at_s < start_s + 10 for _, new in chosen))
        for phase in ("queued", "running", "waiting"):
            expected[phase].append(max(number(phase, count) for count in range(first, end + 1)))
        failed = [new.at_s for _, event, new in events if event == "failed"]
        expected["failed"].append(sum(start_s <= at_s < start_s + 10 for at_s in failed))
    assert replace(found, gaps=()).counts(parts) == expected

    for most in (1, 5):
        part = read_timeline(journal, "lab", since_s, until_s, is_for_all=is_for_all, most=most)
        listed = [new for _, new in chosen if part.listed_s < new.at_s <= until_s]
        assert len(listed) <= most and (part.numbers, part.gaps) == (found.numbers, found.gaps)
        assert part.entries == [each for each in found.entries if each.change in listed]
        assert all(row.to_s > part.listed_s for row in part.grouped() if isinstance(row, Gap))
        if part.listed_s > since_s:  # no more of them would have been too many
            assert sum(part.listed_s <= new.at_s <= until_s for _, new in chosen) > most


def test_the_news_are_counted_by_job_without_cleanup_of_finished_ones() -> None:
    journal = journal_of()
    clock = Clock(datetime.fromtimestamp(NOW_S, UTC))
    text = news_text(read_timeline(journal, "lab", NOW_S - 9 * HOUR, NOW_S), clock)
    assert text.endswith(" (9h00m): 1 failed, 1 lost a node, 1 printed NaN, 1 deleted")
    shorter = news_text(read_timeline(journal, "lab", NOW_S - 9 * HOUR, NOW_S), clock, len(text) - 1)
    assert shorter.endswith(": 1 failed, 1 lost a node, …")
    journal.write((CHANGE, 2, NOW_S - 60, None, "Deleted", "", "", "", 0, ""))
    assert news_text(read_timeline(journal, "lab", NOW_S - 120, NOW_S), clock) == ""


def test_a_timeline_starts_a_day_ago_or_when_the_last_console_ended() -> None:
    journal = journal_of()
    assert last_console_s(journal, "lab") == NOW_S - 7 * HOUR
    assert default_since_s(journal, "lab", NOW_S) == NOW_S - 20 * HOUR - 1
    later_s = NOW_S + 60 * HOUR
    assert default_since_s(journal, "lab", later_s) == NOW_S - 7 * HOUR
    assert default_since_s(journal, "lab", later_s, "console 5@h") == later_s - 24 * HOUR
    assert default_since_s(Journal(), "lab", NOW_S) == NOW_S - 1
    assert last_console_s(Journal(), "lab") is None


def test_a_gap_over_midnight_names_its_day() -> None:
    now = datetime(2026, 11, 28, 12).astimezone()
    at_s = [datetime(2026, 11, day, hour).timestamp() for day, hour in ((27, 22), (28, 5))]
    assert gap_text(Gap(*at_s), Clock(now)) == "— not observed 27 Nov 22:00–05:00 (7h00m) —"
    earlier = Gap(at_s[0] - 7200, at_s[0])
    assert gap_text(earlier, Clock(now)) == "— not observed 27 Nov 20:00–22:00 (2h00m) —"


def test_queries_read_changes_by_their_indexes() -> None:
    journal, chosen = journal_of(), ("lab", 0, True, "", "")
    timeline = ((f"SELECT 1{history._JOBS}", chosen), (f"SELECT 1{history._IN_SPAN}", (*chosen, 1)))
    for query, values in (*timeline, (ledger._CHANGES, ("lab", "", 0, 1))):
        plan = [row[3] for row in journal.rows(f"EXPLAIN QUERY PLAN {query}", *values)]
        assert plan and not [line for line in plan if line.startswith("SCAN") or "ORDER BY" in line]


def test_every_status_has_an_event_or_a_bar() -> None:
    shown = {status for statuses in history.PHASES.values() for status in statuses} | {*history.OVER}
    assert {*map(str, Status)} - {*map(str, shown)} == {"Suspended", "Unknown"}
