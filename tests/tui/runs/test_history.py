"""The timeline: events between two changes of a job, unobserved times, and numbers over time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from k8s.status import Status
from tests.support.journal import CONTEXT, record_spans
from tests.support.night import CHANGE, HOUR, NOW_S, OBSERVED, journal_of
from tui.runs.journal import history
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
    assert sorted(each for _, was, each in found.steps if not was)[-3:] == ["Running", "Running", "Suspended"]
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
    steps = [(0.0, "", each) for each in ("Running", "Running", "Failed")]
    steps += [(5.0, "", "Pending"), (15.0, "Pending", "Running"), (16.0, "", "Queued")]
    steps += [(35.0, "Running", "Failed")]
    found = Timeline(0, 60, steps=steps, gaps=[Gap(30, 52)]).counts(6)
    assert found == {
        "queued": [0, 1, 1, None, None, 1],
        "running": [2, 3, 3, None, None, 2],
        "waiting": [1, 1, 0, None, None, 0],
        "failed": [0, 0, 0, 1, None, 0],
    }
    assert all(len(each) == 40 for each in Timeline().counts(40).values())


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
    journal = journal_of()
    for query, values in ((history._JOBS, ("lab", 0, True, "", "")), (history._IN_SPAN, (0, 1))):
        plan = [row[3] for row in journal.rows(f"EXPLAIN QUERY PLAN {query}", *values)]
        assert plan and not [line for line in plan if line.startswith("SCAN")]


def test_every_status_has_an_event_or_a_bar() -> None:
    shown = {status for statuses in history.PHASES.values() for status in statuses} | {*history.OVER}
    assert {*map(str, Status)} - {*map(str, shown)} == {"Suspended", "Unknown"}
