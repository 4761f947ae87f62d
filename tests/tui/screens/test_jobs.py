"""The list of jobs: whose, which of them, what their rows say, and what keys wish for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from k8s.snapshot import ClusterSnapshot, CurveAlert, Job, LifeSigns, Missing
from k8s.status import Status
from tests.support.hosted_view import Hosted, hosted
from tests.support.idle import until
from tests.support.objects import batch_job, joined, node, pod_of, pytorch_job
from tests.support.playground import console_on
from tests.support.sample_cluster import MPI_JOBS, ago, lab
from tests.support.screen_text import resize
from tui.screens.base.request import Route
from tui.screens.lists.jobs import JobsView
from tui.tables.column import console_columns
from tui.tables.filters import gpu_totals
from tui.tables.jobs import COLUMNS, JobsNow, job_row
from tui.text.format import Clock, status_run
from tui.widgets.table.columns import fit_columns, natural_widths
from tui.widgets.table.table import Table

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def job(name: str, **fields: Any) -> Job:
    return replace(joined([], [], [pytorch_job(name)])[1][name], reason="", **fields)


def picture(**fields: Any) -> ClusterSnapshot:
    """Return the lab at work."""
    scene = lab()
    nodes, jobs = joined(
        scene["nodes"], scene["pods"], [*scene["jobs"], *scene["batch"], *scene["more"][MPI_JOBS]]
    )
    shown: dict[str, Any] = {
        "context": "lab",
        "user": "li",
        "namespace": "default",
        "nodes": tuple(nodes.values()),
        "jobs": tuple(jobs.values()),
        "is_synced": True,
        **fields,
    }
    return ClusterSnapshot(**shown)


def names(app: Hosted) -> set[str]:
    return {row.cells[0].text for row in app.screen.query_one(Table).shown_rows}


def line_of(app: Hosted, name: str) -> str:
    return next(line for line in app.text.splitlines() if f" {name} " in line)


async def test_own_faulty_and_older_jobs_are_toggled_by_keys_and_counted_in_the_title() -> None:
    async with hosted(JobsView(), picture()) as (app, pilot):
        assert "Jobs (11 of 14)  3 older hidden" in app.text
        await pilot.press("M")
        assert names(app) == {"bert-large-ft", "llm-70b-eval", "resnet50-baseline"}
        assert "Jobs (mine 3 of 14)  3 older hidden" in app.text
        await pilot.press("F")
        assert names(app) == {"llm-70b-eval"}
        assert "Jobs (mine, faults 1 of 14)" in app.text
        await pilot.press("M")
        assert names(app) == {"llm-70b-eval", "sweep-lr-3e4", "rl-ppo-atari", "whisper-v3-large"}
        await pilot.press("F", "o")
        assert {"ablation-1", "ablation-2", "ablation-3"} < names(app)
        assert "Jobs (14)" in app.text and "older" not in app.text
        assert "Σ 14 jobs · 63 GPUs held · 32 requested and waiting" in app.text


@pytest.mark.parametrize(
    ("days", "words"), [(1.0, "1 job finished more than 1 day ago, and none since."), (3.0, "Jobs (1)")]
)
async def test_the_finished_days_setting_decides_how_long_finished_jobs_are_shown(
    tmp_path: Path, days: float, words: str
) -> None:
    done = pytorch_job("done")
    done["status"] = {
        "conditions": [{"type": "Succeeded", "status": "True"}],
        "completionTime": ago(hours=36),
    }
    async with console_on(tmp_path, jobs=[done], finished_days=days) as play:
        await play.until(lambda: words in play.text)


async def test_rows_are_made_in_steps_before_their_snapshot_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hosted(JobsView(), picture()) as (app, _):
        view = app.screen
        assert isinstance(view, JobsView)
        coming = picture(jobs=tuple(replace(each) for each in view.snapshot.jobs))
        assert len([*view.row_steps(coming)]) == 11
    prepared: list[ClusterSnapshot] = []

    def prepare(_: JobsView, snapshot: ClusterSnapshot) -> tuple[()]:
        prepared.append(snapshot)
        return ()

    monkeypatch.setattr(JobsView, "row_steps", prepare)
    async with console_on(tmp_path, jobs=[pytorch_job("bert")]) as play:
        await play.until(lambda: "bert" in play.text)
        assert any(each is play.console.snapshot for each in prepared)


async def test_jobs_all_shows_the_old_ones_too() -> None:
    view = JobsView()
    view.route = Route("jobs", "all")
    async with hosted(view, picture()) as (app, _):
        assert "ablation-1" in names(app) and "Jobs (14)" in app.text


async def test_all_jobs_and_a_message_are_shown_when_no_job_belongs_to_the_user() -> None:
    async with hosted(JobsView(), picture(user="nobody-here")) as (app, pilot):
        await pilot.press("M")
        assert len(names(app)) == 11
        assert "none is known to be yours; showing all" in app.text


async def test_a_row_counts_gpus_and_silent_ranks_and_abbreviates_nodes() -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, _):
        assert "16/16   4/4     16  a100-[1-2]" in line_of(app, "bert-large-ft")
        assert "8 !8" in line_of(app, "whisper-v3-large")
        assert "0/32   0/8" in line_of(app, "llm-70b-eval")
        assert "└ master-0: 0/11 nodes are available" in app.text


async def test_wide_rows_have_a_column_for_the_reason_in_place_of_a_second_line() -> None:
    async with hosted(JobsView(), picture()) as (app, pilot):
        assert "└" in app.text and "REASON" not in app.text
        await pilot.press("ctrl+w")
        assert "└" not in app.text
        await pilot.press(*["right"] * 12)
        assert "REASON" in app.text and "0/11 nodes are available" in app.text
        await pilot.press("ctrl+w")
        assert "└" in app.text and "REASON" not in app.text


async def test_jobs_are_sorted_by_name_age_and_status_in_both_directions() -> None:
    async with hosted(JobsView(), picture()) as (app, pilot):
        table = app.screen.query_one(Table)

        def order() -> list[str]:
            return [row.cells[0].text for row in table.shown_rows]

        newest_first = order()
        assert newest_first[0] == "llm-70b-eval"
        await pilot.press("A")
        assert order()[-1] == "llm-70b-eval" and order()[0].startswith("notebook-")
        await pilot.press("N")
        assert order() == sorted(newest_first)
        await pilot.press("S")
        assert order()[0] == "llm-70b-eval" and order()[-1] == "whisper-v3-large"


async def test_the_cursor_stays_at_the_top_during_the_first_sync_and_follows_its_job_afterwards() -> None:
    jobs = picture().jobs
    part = replace(jobs[0], uid="part-of-another", created=datetime.now(UTC))
    async with hosted(JobsView(), picture(jobs=(part, *jobs[3:5]), is_synced=False)) as (app, pilot):
        table = app.screen.query_one(Table)
        assert table.cursor_key == "part-of-another"
        app.view.snapshot = picture(jobs=jobs)
        await pilot.pause()
        assert table.cursor_key == table.shown_rows[0].key
        await pilot.press("j")
        moved_to = table.cursor_key
        newer = replace(jobs[0], uid="newer", created=datetime.now(UTC))
        app.view.snapshot = picture(jobs=(newer, *jobs))
        await pilot.pause()
        assert table.shown_rows[0].key == "newer" and table.cursor_key == moved_to


async def test_the_row_of_an_unchanged_job_follows_the_trouble_in_its_output() -> None:
    shown, name = picture(), "bert-large-ft"
    uid = next(each.uid for each in shown.jobs if each.ref.name == name)
    signs = LifeSigns(alerts=(CurveAlert("slow", "a step takes 12s"),))
    async with hosted(JobsView(), shown) as (app, pilot):
        for life in ({}, {uid: signs}, {}):
            app.view.snapshot = replace(shown, life=life)
            await pilot.pause()
            assert ("! Running" in line_of(app, name)) is bool(life)
            await pilot.press("F")
            assert (name in names(app)) is bool(life)
            await pilot.press("F")


OF_ONE_JOB = {
    "enter": "open_job",
    "d": "open_job",
    "l": "logs",
    "p": "previous_logs",
    "W": "why",
    "m": "curves",
    "y": "yaml",
    "s": "shell",
    "f": "port_forward",
    "b": "clone",
    "ctrl+d": "delete",
    "H": "suspend",
    "R": "resume",
}
OF_NO_JOB = {"n": "new", "0": "all_namespaces", "tab": "next_view"}


async def test_a_key_requests_its_action_for_the_cursor_or_the_marked_jobs() -> None:
    async with hosted(JobsView(), picture()) as (app, pilot):
        await pilot.press("j", *OF_ONE_JOB)
        assert app.requests == [(action, "", ("sweep-lr-3e4",)) for action in OF_ONE_JOB.values()]
        app.requests.clear()
        await pilot.press(*OF_NO_JOB)
        assert [name for name, *_ in app.requests] == [*OF_NO_JOB.values()]
        await pilot.press("g", "space", "j", "j", "space", "j")
        assert "2 marked" in app.text
        for key, action in (("ctrl+d", "delete"), ("H", "suspend"), ("R", "resume")):
            app.requests.clear()
            await pilot.press(key)
            assert app.requests == [(action, "", ("llm-70b-eval", "bert-large-ft"))]
        app.requests.clear()
        await pilot.press("b")
        await until(pilot, lambda: "2 jobs are marked, and this takes one; U unmarks." in app.text)
        assert not app.requests
        await pilot.press("U", "b")
        assert [name for name, *_ in app.requests] == ["clone"]


async def test_an_empty_list_shows_the_reason_and_the_keys_to_press() -> None:
    only = Missing("list", "pods", shown="default", why="no")
    cases: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({"is_synced": False}, ["Reading the cluster…"]),
        ({"is_synced": False, "progress": "Starting the sandbox…"}, ["Starting the sandbox…"]),
        (
            {"context": "", "stale": "There is no kubeconfig."},
            ["There is no cluster to connect to.", "ctrl+r", "--sandbox"],
        ),
        ({"stale": "Connection refused", "is_synced": False}, ["cannot be reached", "ctrl+r"]),
        ({"stale": "Connection refused"}, ["cannot be reached", "ctrl+r", ":ctx"]),
        ({}, ["No jobs in namespace default.", "n creates one · 0 shows all namespaces"]),
        ({"namespace": ""}, ["No jobs on this cluster.", ":ns switches namespace"]),
        ({"kinds": ("Job",)}, ["No training operator is installed"]),
        ({"nodes": tuple(joined([node("cpu", 0)], [], [])[0].values())}, ["No node has a GPU"]),
        ({"problems": {"pods": only}}, ["You can see namespace default only"]),
    )
    async with hosted(JobsView(), ClusterSnapshot(), (80, 24)) as (app, pilot):
        for fields, words in cases:
            app.view.snapshot = picture(**{"jobs": (), "nodes": (), **fields})
            await pilot.pause()
            assert [each for each in words if each not in app.text] == [], app.text
            empty = app.screen.query_one(Table).empty
            assert 1 <= len(empty.split("\n")) <= 4
            assert max(map(len, empty.split("\n"))) <= 77, empty


async def test_a_list_emptied_by_the_age_or_fault_filter_names_the_key_that_shows_all() -> None:
    old = job("old", status=Status.SUCCEEDED, finished=NOW - timedelta(days=400))
    async with hosted(JobsView(), picture(jobs=(old,))) as (app, pilot):
        assert (
            "1 job finished more than 7 days ago, and none since." in app.text and "o shows them." in app.text
        )
        await pilot.press("o", "F")
        assert "No faults: no job failed" in app.text and "F shows all 1." in app.text


async def test_a_toggled_job_filter_persists_in_the_next_job_list() -> None:
    first, second = JobsView(), JobsView()
    second.context = first.context
    async with hosted(first, picture()) as (_, pilot):
        await pilot.press("M")
    async with hosted(second, picture()) as (app, _):
        assert "Jobs (mine 3 of 14)" in app.text


async def test_a_batch_job_is_listed_like_a_training_job() -> None:
    sweep = batch_job("sweep", 3, 1)
    jobs = tuple(joined([], [], [sweep])[1].values())
    async with hosted(JobsView(), picture(jobs=jobs)) as (app, _):
        assert "Job" in line_of(app, "sweep") and "0/3" in line_of(app, "sweep")


def held_by(of: dict[str, Any], gpus: int) -> dict[str, Any]:
    return pod_of(of, "master-0", on="n1", gpus=gpus)


async def test_the_totals_count_the_listed_jobs_only() -> None:
    mine, other = pytorch_job("mine", gpus=4), pytorch_job("other", gpus=3, namespace="vision")
    nodes, jobs = joined([node("n1")], [held_by(mine, 4), held_by(other, 3)], [mine, other])
    shown = {"nodes": tuple(nodes.values()), "is_synced": True}
    everything = ClusterSnapshot(jobs=tuple(jobs.values()), **shown)  # type: ignore[arg-type]
    async with hosted(JobsView(), everything) as (app, _):
        assert "Σ 2 jobs · 7 GPUs held · 0 requested and waiting" in app.text
    one = ClusterSnapshot(namespace="default", jobs=(jobs["mine"],), **shown)  # type: ignore[arg-type]
    async with hosted(JobsView(), one) as (app, _):
        assert "Σ 1 job · 4 GPUs held · 0 requested and waiting" in app.text


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        (Status.PENDING, 5),
        (Status.QUEUED, 5),
        (Status.UNKNOWN, 5),
        (Status.SUSPENDED, 0),
        (Status.TERMINATING, 0),
        (Status.SUCCEEDED, 0),
        (Status.FAILED, 0),
    ],
)
def test_only_jobs_that_could_still_start_wait_for_gpus(status: Status, waiting: int) -> None:
    waits = job("a", status=status, gpus_requested=8, gpus_allocated=3)
    assert gpu_totals([waits]) == (3, waiting)
    more_than_asked = job("b", status=status, gpus_requested=1, gpus_allocated=3)
    assert gpu_totals([waits, more_than_asked]) == (6, waiting)


async def test_a_filter_without_matches_shows_the_problem_with_the_filter() -> None:
    async with hosted(JobsView(), picture()) as (app, pilot):
        for typed, words in (
            ("age:>1m", "> compares nothing: age: takes a regular expression"),
            ("[un", "'[un' is not a valid regular expression"),
            ("bogus:x", "There is no column bogus: name, kind, status"),
        ):
            await pilot.press("slash", "ctrl+u", *typed)
            await until(pilot, lambda words=words: f"! {words[:40]}" in app.text.splitlines()[-2])  # type: ignore[misc]
            assert typed in app.text.splitlines()[-2]
            await pilot.press("enter")
            await until(
                pilot,
                lambda words=words: "Nothing matches; 11 hidden" in app.text and words in app.text,  # type: ignore[misc]
            )
        await pilot.press("slash", "ctrl+u", *"bert")
        await until(pilot, lambda: "!" not in app.text.splitlines()[-2])


async def test_the_error_of_an_invalid_label_selector_is_cleared_once_it_is_valid() -> None:
    async with hosted(JobsView(), picture()) as (app, pilot):
        await pilot.press("slash", *"-l ", "equals_sign")
        await until(pilot, lambda: "'=' is not a label" in app.text.splitlines()[-2])
        await pilot.press("backspace")
        await until(pilot, lambda: "not a label" not in app.text)
        await pilot.press("equals_sign", "enter")
        await until(pilot, lambda: "'=' is not a label" in app.text)


@pytest.mark.parametrize(
    ("width", "namespace", "widths"),
    [
        (80, "", {"name": 23, "kind": 8, "status": 11, "gpus": 4, "pods": 4, "loss": 6, "age": 3}),
        (80, "vision", {"name": 22, "namespace": 9, "status": 11, "gpus": 4, "pods": 4, "loss": 6, "age": 3}),
        (106, "", {"name": 30, "kind": 10, "ranks": 5, "loss": 15}),
        (130, "", {"name": 30, "kind": 10, "ranks": 5, "loss": 15, "nodes": 10, "user": 7}),
    ],
)
def test_a_narrow_list_shows_the_loss_and_long_names_before_whole_kinds_ranks_and_nodes(
    width: int, namespace: str, widths: dict[str, int]
) -> None:
    hidden = {"reason"} if namespace else {"reason", "namespace"}
    columns = [column for column in console_columns(COLUMNS) if column.key not in hidden]
    named = job("pytorch-distributed-data-vgg16")
    losses = {named.uid: [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]}
    rows = [job_row(named, columns, JobsNow(Clock(NOW), losses), has_detail=False)]
    fit = fit_columns(columns, natural_widths(columns, rows), width - 4)
    shown = {columns[place].key: cells for place, cells in fit.widths}
    assert {key: shown.get(key) for key in widths} == widths
    assert width > 80 or shown == widths


def test_a_crash_loop_is_highlighted_but_a_single_restart_is_not() -> None:
    for status, reason, restarts, shown in (
        ("Restarting", "exit 1, restarted 32 times", 32, ("! Restarting", "pending")),
        ("Restarting", "exit 1, CrashLoopBackOff", 1, ("! Restarting", "pending")),
        ("Starting", "init 0/1: code exit 1, CrashLoopBackOff", 0, ("! Starting", "pending")),
        ("Restarting", "exit 1, restarted once", 1, ("Restarting", "changing")),
        ("Running", "restarted 32 times", 32, ("Running", "running")),
    ):
        assert status_run(status, reason, restarts) == shown


async def test_a_job_in_a_crash_loop_is_highlighted_in_the_list() -> None:
    import msgspec

    found = job("sick", status=Status.RESTARTING)
    loops = tuple(msgspec.structs.replace(each, restarts=32) for each in found.instances)
    async with hosted(JobsView(), picture(jobs=(replace(found, instances=loops),))) as (app, _):
        (row,) = app.screen.query_one(Table).shown_rows
        assert ("! Restarting", "pending") in [(cell.text, cell.style) for cell in row.cells]


async def test_exported_jobs_have_durations_in_seconds_and_empty_cells_for_unknown_values() -> None:
    view = JobsView()
    now = datetime.now(UTC)
    runs = job("runs", status=Status.RUNNING, created=now - timedelta(hours=2), user="")
    runs = replace(runs, started=now - timedelta(hours=1), finished=None)
    ended = replace(runs, uid="ended", status=Status.SUCCEEDED, finished=now - timedelta(minutes=30))
    waits = replace(runs, uid="waits", status=Status.PENDING, started=None, created=None)
    async with hosted(view, picture(jobs=(runs, ended, waits))):
        titles, rows = view.export_rows()
        saved = [dict(zip(titles, row, strict=True)) for row in rows]
        by_status = {each["STATUS"]: each for each in saved}
        assert by_status.keys() == {"Running", "Succeeded", "Pending"}
        assert 3600 <= int(str(by_status["Running"]["DURATION"])) < 3660
        assert (by_status["Succeeded"]["QUEUED"], by_status["Succeeded"]["DURATION"]) == (3600, 1800)
        assert 7200 <= int(str(by_status["Running"]["AGE"])) < 7260
        assert [by_status["Pending"][title] for title in ("QUEUED", "DURATION", "AGE")] == [None] * 3
        assert by_status["Running"]["USER"] is None
        assert "–" not in [cell for row in rows for cell in row]


KINDS = (
    *("jobs.batch", "jobsets.jobset.x-k8s.io", "mpijobs.kubeflow.org", "tfjobs.kubeflow.org"),
    *("trainjobs.trainer.kubeflow.org", "jobs.batch.volcano.sh", "rayjobs.ray.io", "rayclusters.ray.io"),
    *("pytorchtrainingjobs.batch.tensorstack.dev", "mpijobs.batch.tensorstack.dev"),
)
WHY = (
    'pytorchjobs.kubeflow.org is forbidden: User "oidc:li@vision.example" cannot list resource '
    '"pytorchjobs" in API group "kubeflow.org" at the cluster scope'
)


def refused(*more: str, why: str = WHY) -> ClusterSnapshot:
    """Return a cluster whose user may not list some kinds, one of them for this reason."""
    names = ("pytorchjobs.kubeflow.org", *more)
    return picture(problems={name: Missing("list", name, why=why) for name in names})


async def test_as_many_forbidden_kinds_are_named_as_fit_and_the_rest_are_counted() -> None:
    async with hosted(JobsView(), refused(*KINDS), (80, 24)) as (app, pilot):
        for size in ((80, 24), (93, 24), (100, 30), (113, 30), (200, 60), (46, 24), (59, 24)):
            await resize(pilot, *size)
            shown = " ".join(app.text.split())
            named = sum(name in shown for name in KINDS)
            assert named == len(KINDS) or f"{len(KINDS) - named} more: :info" in shown


async def test_a_few_forbidden_kinds_are_all_named_and_a_long_reason_is_truncated() -> None:
    async with hosted(JobsView(), refused(*KINDS[:2]), (100, 30)) as (app, _):
        shown = " ".join(app.text.split())
        assert "The same for jobs.batch, jobsets.jobset.x-k8s.io." in shown
    for more, words in (((), "… More: :info"), (KINDS, "… The same for 10 more: :info")):
        async with hosted(JobsView(), refused(*more, why="no " * 900), (80, 24)) as (app, _):
            assert words in " ".join(app.text.split())


async def test_losses_that_arrive_together_are_painted_in_one_refresh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hosted(JobsView(), picture()) as (app, pilot):
        view = app.screen
        painted: list[bool] = []
        assert isinstance(view, JobsView)
        paint = view.refresh_view

        def counted() -> None:
            painted.append(True)
            paint()

        monkeypatch.setattr(view, "refresh_view", counted)
        for _ in range(2):
            painted.clear()
            for job in picture().jobs:
                view._receive_loss(job)
            await until(pilot, lambda: len(painted) == 1)
