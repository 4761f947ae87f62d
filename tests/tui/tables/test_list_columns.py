"""Columns and filters of lists, for console, commands and JSON; GPUs held, requested and idle by user."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s.gpus.readings import GpuReading, PodContainer
from k8s.snapshot import NO_SIGNS, CurveAlert, Job, LifeSigns, Silence, Straggler
from k8s.status import BEING_READ, Status
from tests.support.evidence import NOW, instance, job_of
from tests.support.objects import joined, node, pod_of, pytorch_job, read_jobs
from tests.support.telemetry import reading
from tests.tui.screens.test_jobs import job
from tui.commands.support.output import write_list
from tui.settings.options import FINISHED_DAYS
from tui.tables import events, jobs, nodes, pods, users, volumes
from tui.tables.column import Cell, ListColumn, console_columns, output_columns, pick, values_of
from tui.tables.filters import filter_jobs, is_fault, own_names, silent_ranks
from tui.tables.jobs import COLUMNS, JobsNow, job_row
from tui.tables.users import held_nodes, message_to_owner, usage_by_user
from tui.text.format import NOTHING, Clock

LISTS = {"events": events, "jobs": jobs, "nodes": nodes, "pods": pods, "users": users, "volumes": volumes}


def test_a_declared_column_is_in_the_console_in_commands_and_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    restarts: ListColumn[Any, JobsNow] = ListColumn(
        "restarts",
        "RESTARTS",
        align="right",
        cell=lambda job, _: Cell(str(sum(each.restarts for each in job.instances))),
        printed="wide",
        values=lambda job, _: {"restarts": sum(each.restarts for each in job.instances)},
    )
    columns = (*jobs.COLUMNS, restarts)
    job, now = job_of([instance()]), JobsNow(Clock(NOW))
    row = jobs.job_row(job, console_columns(columns), now, has_detail=False)
    assert row.cells[-1].text == "0"
    assert values_of(job, now, columns) == {**values_of(job, now, jobs.COLUMNS), "restarts": 0}
    for is_wide in (False, True):
        write_list(output_columns(columns), [job], now, is_wide=is_wide)
        title, line = capsys.readouterr().out.splitlines()
        assert title.startswith("NAMESPACE   NAME")
        assert (title.endswith("   RESTARTS"), line.endswith("   0".rjust(11))) == (is_wide, is_wide)


@pytest.mark.parametrize("name", LISTS)
def test_keys_are_unique_and_titles_not_empty(name: str) -> None:
    columns: tuple[ListColumn[Any, Any], ...] = LISTS[name].COLUMNS
    keys = [column.key for column in columns]
    assert len(keys) == len(set(keys))
    assert all(column.title for column in columns)


@pytest.mark.parametrize(
    ("keys", "columns"), [(jobs.TOP_KEYS, jobs.COLUMNS), (nodes.PRINTED_FIRST, nodes.COLUMNS)]
)
def test_columns_named_by_a_command_exist_and_are_printed(
    keys: tuple[str, ...], columns: tuple[ListColumn[Any, Any], ...]
) -> None:
    assert set(keys) <= {column.key for column in columns if column.printed}


def test_numbers_of_a_job_whose_pods_are_being_read_are_left_open() -> None:
    (declared,) = read_jobs(pytorch_job("bert", workers=2))
    job = replace(job_of([instance()], Status.UNKNOWN, BEING_READ), replicas=declared.replicas)
    columns = [each for each in jobs.COLUMNS if each.key in ("status", "gpus", "pods")]
    for each, texts in (
        (job, ["reading…", "…/8", "…/2"]),
        (replace(job, replicas=()), ["reading…", "…", "…"]),
    ):
        row = jobs.job_row(each, columns, JobsNow(Clock(NOW)), has_detail=True)
        assert ([cell.text for cell in row.cells], row.detail) == (texts, None)


def test_a_command_prints_the_columns_that_it_picks_without_wide_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job, now = job_of([instance()]), JobsNow(Clock(NOW))
    write_list(pick(jobs.COLUMNS, ("age", "name")), [job], now, is_wide=False)
    assert capsys.readouterr().out.splitlines() == ["AGE   NAME", f" {now.clock.age(job.created)}   bert"]


@pytest.mark.parametrize(
    ("status", "started_s", "finished_s", "more", "spans"),
    [
        (Status.PENDING, None, None, {}, (300, None)),
        (Status.RUNNING, 100, None, {}, (200, 100)),
        (Status.FAILED, 100, 40, {}, (200, 60)),
        (Status.FAILED, None, 40, {}, (260, None)),
        (Status.FAILED, 100, None, {}, (200, None)),
        (Status.FAILED, None, None, {}, (None, None)),
        (Status.SUSPENDED, None, None, {}, (None, None)),
        (Status.RESTARTING, None, None, {"restarts": 1}, (None, None)),
        (Status.RUNNING, 100, None, {"replicas": ()}, (None, 100)),
        (Status.RUNNING, -3, None, {}, (303, 0)),
    ],
)
def test_a_job_is_queued_until_it_runs(
    status: Status,
    started_s: float | None,
    finished_s: float | None,
    more: dict[str, Any],
    spans: tuple[int | None, int | None],
) -> None:
    times = [None if ago is None else NOW - timedelta(seconds=ago) for ago in (started_s, finished_s)]
    (declared,) = read_jobs(pytorch_job("bert"))
    job = replace(
        job_of([instance()], status), replicas=declared.replicas, started=times[0], finished=times[1]
    )
    values = values_of(replace(job, **more), JobsNow(Clock(NOW)), jobs.COLUMNS)
    assert (values["queued_s"], values["duration_s"]) == spans


NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BERT = pytorch_job("bert", 2, 2, annotations={"gpuconsole.dev/user": "li"})
VIT = pytorch_job("vit", 1, 4, annotations={"gpuconsole.dev/user": "maria"})
PODS = [pod_of(BERT, "master-0", on="a", gpus=2), pod_of(BERT, "worker-0", on="a", gpus=2)]


def idle_jobs() -> list[Job]:
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
    li, maria = usage_by_user(idle_jobs(), at(3, 1, 90))
    assert (li.total.user, li.total.gpus_held, li.total.gpus_requested) == ("li", 4, 4)
    assert (li.total.gpus_seen, li.total.gpus_idle) == (2, 1)
    assert (maria.total.gpus_held, maria.total.gpus_requested) == (0, 4)
    assert maria.total.gpus_idle is None
    assert [each.job for each in li.jobs] == ["bert"]


def test_without_telemetry_idle_is_not_known_and_not_zero() -> None:
    users = usage_by_user(idle_jobs(), ())
    assert {each.total.gpus_idle for each in users} == {None}
    message = message_to_owner(users[0].total, users[0].jobs)
    assert message == (
        "Hi li, your 1 job (bert) holds 4 GPUs; whether they use them is not known. Do they still need them?"
    )


def test_the_message_to_the_owner_states_only_observed_idle_gpus() -> None:
    user = usage_by_user(idle_jobs(), at(3, 1, 90))[0]
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
