"""A column is declared once: the console, commands and JSON follow."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from k8s.status import BEING_READ, Status
from tests.support.evidence import NOW, instance, job_of
from tests.support.objects import pytorch_job, read_jobs
from tui.commands.support.output import write_list
from tui.tables import events, jobs, nodes, pods, users, volumes
from tui.tables.column import Cell, ListColumn, console_columns, output_columns, pick, values_of
from tui.tables.jobs import JobsNow
from tui.text.format import Clock

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
