"""Filters for jobs of the user, at fault or too old, and for silent ranks."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s.snapshot import NO_SIGNS, CurveAlert, LifeSigns, Silence, Straggler
from k8s.status import BEING_READ, Status
from tests.support.objects import joined, node, pod_of, pytorch_job
from tests.tui.screens.test_jobs import NOW, job
from tui.settings.options import FINISHED_DAYS
from tui.tables.column import values_of
from tui.tables.filters import filter_jobs, is_fault, own_names, silent_ranks
from tui.tables.jobs import COLUMNS, JobsNow, job_row
from tui.text.format import NOTHING, Clock


@pytest.mark.parametrize(
    ("user", "found"),
    [
        ("li", {"li"}),
        ("li@lab.org", {"li@lab.org", "li"}),
        ("oidc:li@lab.org", {"oidc:li@lab.org", "oidc:li", "li"}),
        ("", set()),
    ],
)
def test_a_user_also_matches_without_oidc_prefix_and_domain(user: str, found: set[str]) -> None:
    assert own_names(user) - own_names("") == found - own_names("")


def test_the_mine_filter_matches_the_user_and_shows_all_jobs_if_none_match() -> None:
    jobs = [job("a", user="li"), job("b", user="chen")]
    chosen = filter_jobs(jobs, {"li"}, NOW, only_mine=True)
    assert ([each.ref.name for each in chosen.jobs], chosen.is_mine) == (["a"], True)
    chosen = filter_jobs(jobs, {"nobody"}, NOW, only_mine=True)
    assert ([each.ref.name for each in chosen.jobs], chosen.is_mine) == (["a", "b"], False)


@given(st.integers(-3, 20), st.sampled_from(Status))
def test_old_finished_jobs_are_hidden_unless_requested(days: int, status: Status) -> None:
    each = job("a", status=status, finished=NOW - timedelta(days=days))
    is_old = status.is_final and days > FINISHED_DAYS
    assert filter_jobs([each], (), NOW).older == int(is_old)
    assert len(filter_jobs([each], (), NOW).jobs) == int(not is_old)
    assert filter_jobs([each], (), NOW, with_older=True).jobs == [each]


def test_a_job_without_a_known_end_is_not_hidden() -> None:
    assert filter_jobs([job("a", status=Status.SUCCEEDED, finished=None)], (), NOW).older == 0


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (Status.RUNNING, "", False),
        (Status.RUNNING, "worker-1 exit 1, restarted once", True),
        (Status.PENDING, "", False),
        (Status.PENDING, "0/2 nodes are available", True),
        (Status.FAILED, "", True),
        (Status.RESTARTING, "", True),
        (Status.UNKNOWN, "", True),
        (Status.UNKNOWN, BEING_READ, False),
        (Status.SUSPENDED, "by its owner", False),
        (Status.SUCCEEDED, "done", False),
    ],
)
def test_failed_restarting_unknown_and_stuck_jobs_are_faults(
    status: Status, reason: str, expected: bool
) -> None:
    assert is_fault(replace(job("a", status=status), reason=reason), NO_SIGNS) is expected


SILENT = LifeSigns(Silence(NOW - timedelta(seconds=300), 2.0))
BEHIND = LifeSigns(stragglers=(Straggler("rank 3", "worker-1", 12),))
HIGH, NAN = CurveAlert("diverged", "its loss is high"), CurveAlert("nan", "its loss is broken")


@pytest.mark.parametrize(
    ("status", "reason", "signs", "words", "silent"),
    [
        (Status.RUNNING, "", NO_SIGNS, "", None),
        (Status.RUNNING, "", SILENT, "no line for 5m, usually every 2s", 300),
        (Status.RUNNING, "3 of 4 pods", SILENT, "no line for 5m, us…; 3 of 4 pods", 300),
        (Status.RUNNING, "", LifeSigns(alerts=(NAN, HIGH)), "its loss is broken", None),
        (Status.RUNNING, "", LifeSigns(alerts=(HIGH,)), "its loss is high", None),
        (Status.RUNNING, "", BEHIND, "rank 3 12 steps behind", None),
        (Status.SUCCEEDED, "", NO_SIGNS, "", None),
        (Status.SUCCEEDED, "", LifeSigns(alerts=(HIGH,)), "its loss is high", None),
        (Status.FAILED, "exit 1", LifeSigns(alerts=(NAN,)), "exit 1; its loss is broken", None),
    ],
)
def test_colour_row_json_and_filter_show_the_same_trouble_of_a_job(
    status: Status, reason: str, signs: LifeSigns, words: str, silent: int | None
) -> None:
    each = replace(job("a", status=status), reason=reason)
    now = JobsNow(Clock(NOW), signs=lambda _: signs)
    row = job_row(
        each, [column for column in COLUMNS if column.key in ("status", "reason")], now, has_detail=True
    )
    values = values_of(each, now, COLUMNS)
    pattern = ".*".join(map(re.escape, words.split("…")))
    assert re.fullmatch(pattern, str(values["reason"])), "JSON and CSV"
    assert re.fullmatch(pattern, row.cells[1].text.replace(NOTHING, "")), "the column"
    assert is_fault(each, signs) == bool(words) == (row.detail is not None), "the filter and the second line"
    is_chosen = filter_jobs([each], (), NOW, signs=now.signs, only_faults=True, with_older=True).jobs == [
        each
    ]
    assert is_chosen == bool(words)
    healthy = {Status.RUNNING: "running", Status.SUCCEEDED: "done"}
    expected = "failed" if status is Status.FAILED else "pending" if words else healthy[status]
    assert row.cells[0].style == expected
    assert (values["silent"], values["silent_s"]) == (silent is not None, silent)


def test_ranks_on_an_unreachable_node_are_silent() -> None:
    lost = node("b")
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    bert = pytorch_job("bert", workers=2, gpus=4)
    pods = [pod_of(bert, "master-0", on="a", gpus=4), pod_of(bert, "worker-0", on="b", gpus=4)]
    assert silent_ranks(joined([node("a"), lost], pods, [bert])[1]["bert"]) == 4


def test_ranks_of_a_finished_job_without_pods_are_not_silent() -> None:
    ended = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    bert = pytorch_job("bert", workers=2, gpus=4) | {"status": {"conditions": [ended]}}
    found = joined([node("a")], [], [bert])[1]["bert"]
    assert {each.status for each in found.instances} == {Status.SUCCEEDED}
    assert silent_ranks(found) == 0
