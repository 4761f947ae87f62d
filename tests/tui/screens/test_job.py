"""The view of one job: its title and rows, who printed last, what happened, and how its panes are shown."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from k8s.logs import write_stamp
from k8s.logs.last import LastLine
from k8s.snapshot import LifeSigns, Silence, Straggler
from k8s.status import Status
from tests.scripted.server import Answer, FollowedLog, Reply, ScriptedCluster, Stall, page, refusal
from tests.support.evidence import NOW, instance, job_of
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.playground import EVENTS, Playground, console_on
from tests.support.screen_text import resize
from tui.screens.dialogs.detail import DetailScreen
from tui.screens.job.job import JobView
from tui.screens.job.panes import INSTANCE_COLUMNS, JobPanes, instance_rows, job_title
from tui.tables.jobs import JobsNow, loss_cell
from tui.text.cells import cell_len
from tui.text.format import Clock
from tui.widgets.curve_chart import CurveChart

OWN = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
PODS = "/api/v1/namespaces/default/pods"
PLACES = ("master-0", "worker-0", "worker-1")
bert = pytorch_job("bert", workers=3, gpus=2) | {
    "status": {"conditions": [{"type": "Running", "status": "True", "reason": "PyTorchJobRunning"}]}
}
running = {"name": "pytorch", "state": {"running": {}}, "restartCount": 0}


def pod(place: str, **status: Any) -> Object:
    return pod_of(bert, place, on="a100-1", gpus=2, containerStatuses=[running], **status)


def printed(*texts: str, ago_s: float = 0.0) -> bytes:
    """Return lines as a kubelet sends them, written so long ago."""
    stamp = write_stamp(int((time.time() - ago_s) * 1e9)).encode()
    return b"".join(stamp + b" " + text.encode() + b"\n" for text in texts)


def happened(kind: str, name: str, reason: str, **more: Any) -> Object:
    return {
        "metadata": {"name": f"{name}.{reason}", "uid": f"{name}.{reason}"},
        "involvedObject": {"kind": kind, "name": name, "namespace": "default"},
        "reason": reason,
        "lastTimestamp": "2026-01-01T00:00:00Z",
        **more,
    }


@asynccontextmanager
async def job_view(
    tmp_path: Path,
    *,
    logs: Mapping[str, Reply] | None = None,
    events: list[Object] | None = None,
    size: tuple[int, int] = (100, 40),
    **options: Any,
) -> AsyncIterator[Playground]:
    """Open the view of a job whose three instances run; `logs` are what they print, by their places."""
    pods = [pod(place) for place in PLACES]

    def prepare(cluster: ScriptedCluster) -> None:
        for place in PLACES:
            cluster.say(f"{PODS}/bert-{place}", Answer(pod(place)))
            cluster.say(f"{PODS}/bert-{place}/log", (logs or {}).get(place, FollowedLog()))

    async with console_on(
        tmp_path, nodes=[node("a100-1")], pods=pods, jobs=[bert], size=size, prepare=prepare, **options
    ) as play:
        play.cluster.say(OWN, Answer(bert))
        play.cluster.say(OWN.rpartition("/")[0], Stall(), watch=True)
        play.cluster.forget(EVENTS)
        play.cluster.say(EVENTS, page(events or []))
        await play.press("enter", shows="Running · 3/3 pods")
        yield play


def row(play: Playground, words: str) -> str:
    return next((line for line in play.text.splitlines() if words in line), "")


def has_printed(play: Playground, place: str) -> bool:
    """Return True if an instance's last line is known."""
    return re.search(r" \d+s ", row(play, place)) is not None


def panes(play: Playground) -> JobPanes:
    return play.console.screen.query_one(JobPanes)


async def test_the_newest_lines_are_shown_sanitized_with_their_ages(tmp_path: Path) -> None:
    logs = {
        "master-0": FollowedLog(printed("step 2")),
        "worker-0": FollowedLog(printed("step 1", ago_s=252)),
        "worker-1": FollowedLog(printed("\x1b[31mstep 2\x9b[2J", ago_s=30)),
    }
    async with job_view(tmp_path, logs=logs, size=(160, 40)) as play:
        await play.until(lambda: re.search(r"4m\d\ds", row(play, "worker-0")))
        await play.until(lambda: has_printed(play, "master-0") and has_printed(play, "worker-1"))
        assert "silent" not in play.text
        assert "step 1" in row(play, "worker-0")
        assert "SAYS" in play.text and not set("\x1b\x9b") & set(play.text)
        await resize(play.pilot, 80, 24)
        await play.until(lambda: "SAYS" not in play.text)
        await play.until(lambda: re.search(r"4m\d\ds", row(play, "worker-0")))
        assert "step 1" not in play.text and "silent!" not in play.text


async def test_a_missing_log_permission_is_reported_once(tmp_path: Path) -> None:
    words = 'pods "bert-master-0" is forbidden: User "li" cannot get resource "pods/log"'
    logs = {place: refusal(403, words, "Forbidden") for place in PLACES}
    async with job_view(tmp_path, logs=logs, size=(140, 40)) as play:
        await play.until(lambda: "may not read pods/log" in row(play, "master-0"))
        assert play.text.count("may not read pods/log") == 1
        assert 'cannot get resource "pods/log"' in play.text.splitlines()[-2]


async def test_the_title_shows_progress_only_if_a_log_line_reports_it(tmp_path: Path) -> None:
    told = "epoch 2/3 step 120/564 loss 1.5 eta 1m12s"
    async with job_view(tmp_path, logs={"master-0": FollowedLog(printed(told))}) as play:
        await play.until(lambda: "3/3 pods · epoch 2/3 step 120/564 ETA 1m12s" in play.text.splitlines()[1])


async def test_the_tensorboard_url_stays_visible_while_it_is_forwarded(tmp_path: Path) -> None:
    async with job_view(tmp_path, logs={"master-0": FollowedLog(printed("hello"))}, size=(120, 40)) as play:
        view = play.console.screen
        await play.until(lambda: has_printed(play, "master-0"))
        assert play.text.splitlines()[1].endswith("Running · 3/3 pods"), "it prints no progress"
        await play.pilot.pause()
        assert not view.query_one(CurveChart).display, "and no loss"
        assert isinstance(view, JobView)
        view.context.forwarded[view.ref] = "http://127.0.0.1:4242"
        view.refresh_view()
        await play.until(lambda: "TensorBoard: http://127.0.0.1:4242" in play.text)
        view.context.forwarded.clear()
        view.refresh_view()
        await play.until(lambda: "TensorBoard:" not in play.text)


@pytest.mark.slow
async def test_a_local_tensorboard_is_started_when_the_cluster_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="gpuconsole[trainer] brings it")
    monkeypatch.setenv("SSH_CONNECTION", "10.1.2.3 50000 10.4.5.6 22")
    async with job_view(tmp_path, logs={"master-0": FollowedLog(printed("step 1 loss 0.5"))}) as play:
        forwarded = play.console.context.forwarded
        await play.press("F")
        await play.until(lambda: bool(forwarded) and "From your own machine: ssh -N -L" in play.text)
        (address,) = forwarded.values()
        host, port = address.split("/")[2].split(":")
        (await asyncio.open_connection(host, int(port)))[1].close()
        await play.press("F")
        await play.until(lambda: not forwarded)
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection(host, int(port))


async def test_the_job_view_stops_its_workers_while_another_view_is_shown(tmp_path: Path) -> None:
    logs = {place: FollowedLog(printed("step 1")) for place in PLACES}
    async with job_view(tmp_path, logs=logs, size=(120, 40)) as play:
        view = play.console.screen
        assert isinstance(view, JobView)
        await play.until(lambda: has_printed(play, "worker-1"))
        groups = {"events", "lines", "curve"}
        assert {each.group for each in view.workers if not each.is_finished} >= groups
        await play.press("question_mark")
        await play.pilot.pause()
        assert [each.is_over.is_set() for each in logs["worker-1"].streams] == [False], (
            "a question stops nothing"
        )
        await play.press("escape", "W")
        await play.until(lambda: not {each.group for each in view.workers if not each.is_finished} & groups)
        await logs["worker-1"].streams[0].is_over.wait()
        await play.press("escape")
        await play.until(lambda: {each.group for each in view.workers if not each.is_finished} >= groups)


async def test_events_of_all_objects_of_the_job_are_merged_and_folded(tmp_path: Path) -> None:
    events = [
        *(happened("Pod", f"bert-{place}", "Pulled", message="pulled", type="Normal") for place in PLACES),
        happened("PodGroup", "bert", "Unschedulable", message="no [/b] room", type="Warning", count=3),
        happened("Pod", "another-0", "Pulled", message="not ours", type="Normal"),
    ]
    async with job_view(tmp_path, events=events, size=(120, 40)) as play:
        await play.until(lambda: "events 2 (1 warning)" in play.text)
        assert "0-1" in row(play, "master-0 *") and "4-5" in row(play, "worker-1")
        assert "master-0 +2" in row(play, "Pulled") and "not ours" not in play.text
        assert "PodGroup" in row(play, "! Unschedulable") and "no [/b] room" in play.text


async def test_v_shows_only_the_events_and_enter_opens_one_in_full(tmp_path: Path) -> None:
    message = "Readiness probe failed: " + "very " * 30 + "late"
    events = [happened("Pod", "bert-worker-1", "Unhealthy", message=message, type="Warning")]
    async with job_view(tmp_path, events=events, size=(80, 24)) as play:
        await play.until(lambda: "Unhealthy" in play.text)
        await play.press("v")
        assert "events 1" in play.text and "instances" not in play.text
        assert "late" not in play.text
        await play.press("enter", shows=DetailScreen)
        await play.until(lambda: "late" in play.text and "bert-worker-1" in play.text)
        await play.press("escape", "v")
        assert "instances" in play.text


@pytest.mark.slow
async def test_tab_cycles_the_panes_and_the_next_view_keeps_the_layout(tmp_path: Path) -> None:
    async with job_view(tmp_path, size=(80, 24)) as play:
        assert "tab: 1 condition" in play.text and "PyTorchJobRunning" not in play.text
        await play.press("tab")
        assert "PyTorchJob…" in row(play, "True") or "PyTorchJobRunning" in row(play, "True")
        assert panes(play).focused.id == "conditions"
        await play.press("tab")
        assert panes(play).focused.id == "events" and "No events" in play.text
        await play.press("shift+tab", "f")
        assert "instances" not in play.text and "No events" not in play.text
        await play.press("tab", "tab")
        assert panes(play).focused.id == "instances" and "master-0" in play.text
        assert "conditions" not in play.text
        await play.press("escape")
        assert "instances" in play.text and "events" in play.text
        await play.press("escape")
        assert not isinstance(play.console.screen, JobView)
        await play.press("enter", shows=JobView)
        await play.press("v", "escape", "escape")
        await play.press("enter")
        assert panes(play).focused.id == "events"
        await play.press("f", "minus")
        await play.until(lambda: not isinstance(play.console.screen, JobView))
        await play.press("enter")
        await play.until(lambda: isinstance(play.console.screen, JobView) and panes(play).is_full)


@pytest.mark.slow
async def test_the_loss_is_drawn_from_log_lines_beside_the_instances(tmp_path: Path) -> None:
    lines = printed(*(f"step {step} loss {9 - step / 100} lr 0.1" for step in range(1, 300)))
    async with job_view(tmp_path, logs={"master-0": FollowedLog(lines)}, size=(120, 40)) as play:
        await play.until(lambda: "loss from log lines  6.01" in play.text)
        chart = play.console.screen.query_one(CurveChart)
        assert chart.region.x >= play.console.screen.query_one("#instances").region.right
        await play.press("tab")
        assert chart.has_focus
        await play.press("shift+tab", "m")
        await play.until(lambda: "from log lines of master-0" in play.text.splitlines()[1])
        assert "declares no folder" not in play.text


async def test_a_view_without_room_for_the_curve_gives_the_instances_the_whole_width(tmp_path: Path) -> None:
    logs = {"master-0": FollowedLog(printed("step 1 loss 2.5"))}
    async with job_view(tmp_path, logs=logs, size=(109, 40)) as play:
        await play.until(lambda: has_printed(play, "master-0"))
        await play.pilot.pause()
        view = play.console.screen
        assert not view.query_one(CurveChart).display
        assert view.query_one("#instances").size.width > 109 - 4
        await play.press("j")
        assert isinstance(view, JobView) and view.copy_text() == "bert-worker-0"
        await play.press("slash", *"worker-1", "enter")
        await play.until(lambda: "/worker-1" in play.text.splitlines()[1])
        assert "worker-0" not in play.text and "master-0" not in play.text


async def test_a_deleted_job_is_reported_and_its_last_state_stays(tmp_path: Path) -> None:
    async with job_view(tmp_path, logs={"worker-1": FollowedLog(printed("step 1"))}) as play:
        await play.until(lambda: has_printed(play, "worker-1"))
        play.watches["jobs"].event("DELETED", bert)
        for place in PLACES:
            play.watches["pods"].event("DELETED", pod(place))
        await play.until(lambda: "deleted; this is its last state" in play.text)
        assert has_printed(play, "worker-1")


EXACT = Clock(NOW)
LAST = [column.key for column in INSTANCE_COLUMNS].index("last")


def last_printed(ago_s: float, looked_ago_s: float | None = None) -> LastLine:
    """Return a line written so long before now."""
    now_s = NOW.timestamp()
    newest_until_s = None if looked_ago_s is None else now_s - looked_ago_s
    return LastLine(int((now_s - ago_s) * 1e9), b"step 1", newest_until_s)


def last_words(
    *lines: LastLine | None, clock: Clock = EXACT, status: Status = Status.RUNNING, **signs: Any
) -> list[str]:
    """Return the cells under LAST LINE for instances that printed these lines."""
    instances = [instance(f"worker-{place}", status, ranks=(place,)) for place in range(len(lines))]
    newest = {each.pod: line for each, line in zip(instances, lines, strict=True) if line is not None}
    now = JobsNow(clock, signs=lambda _: LifeSigns(**signs))
    rows = instance_rows(job_of(instances, status), newest, now, shows_lines=False)
    return [row.cells[LAST].text for row in rows]


def test_ages_are_rounded_and_silent_or_slow_ranks_are_marked() -> None:
    lines = last_printed(3), last_printed(14), last_printed(252), None
    assert last_words(*lines) == ["0s", "10s", "4m10s", "–"]
    one, all_of_them = (Silence(NOW, 2.0, writers) for writers in (("rank 2",), ()))
    assert last_words(*lines, silence=one) == ["0s", "10s", "4m10s silent!", "–"]
    assert last_words(*lines[1:], silence=all_of_them) == ["10s silent!", "4m10s silent!", "–"]
    assert last_words(*lines, silence=all_of_them, status=Status.SUCCEEDED)[2] == "4m10s"
    slow = Straggler("rank 1", "worker-1", 12), Straggler("worker-3", "worker-3", 1)
    assert last_words(*lines, stragglers=slow) == ["0s", "10s, 12 steps behind", "4m10s", "1 step behind"]


def test_an_age_is_rough_where_clocks_differ_and_never_negative() -> None:
    assert last_words(last_printed(7), last_printed(-30), clock=Clock(NOW, is_rough=True)) == ["~5s", "~0s"]


def test_the_age_of_the_last_line_is_counted_up_to_the_last_log_read() -> None:
    assert last_words(last_printed(400, looked_ago_s=390)) == ["10s"]


@pytest.mark.parametrize(
    ("width", "title"),
    [
        (120, "Jobs › bert   PyTorchJob kubeflow.org/v1 · Running 2h13m · 1/1 pods · epoch 2/3 step 5/9"),
        (72, "Jobs › bert   PyTorchJob · Running 2h13m · 1/1 pods · epoch 2/3 step 5/9"),
        (62, "Jobs › bert   Running 2h13m · 1/1 pods · epoch 2/3 step 5/9"),
        (52, "Jobs › bert   PyTorchJob · Running 2h13m · 1/1 pods"),
        (40, "Jobs › bert   Running 2h13m · 1/1 pods"),
        (30, "Jobs › bert   Running 2h13m ·…"),
    ],
)
def test_the_title_omits_its_least_important_parts_when_narrow(width: int, title: str) -> None:
    job = job_of([instance(status=Status.RUNNING)], Status.RUNNING)
    job = replace(job, started=NOW - timedelta(hours=2, minutes=13))
    found = job_title(job.ref, job, JobsNow(EXACT), width, progress="epoch 2/3 step 5/9")
    assert found == title
    assert cell_len(found) <= width


def test_the_title_shows_the_duration_of_a_finished_job_and_marks_a_deleted_one() -> None:
    job = job_of([instance(status=Status.FAILED)], Status.FAILED)
    job = replace(job, started=NOW - timedelta(hours=5), finished=NOW - timedelta(hours=4))
    assert "Failed 1h00m · 0/1 pods" in job_title(job.ref, job, JobsNow(EXACT), 120)
    assert job_title(job.ref, job, JobsNow(EXACT), 120, is_gone=True).endswith("this is its last state")
    assert job_title(job.ref, None, JobsNow(EXACT), 120, is_gone=True).endswith("not found")
    assert job_title(job.ref, None, JobsNow(EXACT), 120) == "Jobs › bert   PyTorchJob kubeflow.org/v1"


def test_the_title_of_a_waiting_job_shows_its_waiting_time() -> None:
    for status, restarts, words in (
        (Status.PENDING, 0, "Pending 5m"),
        (Status.STARTING, 0, "Starting 5m"),
        (Status.STARTING, 1, "Starting"),
        (Status.SUSPENDED, 0, "Suspended"),
    ):
        job = replace(job_of([instance()], status), restarts=restarts)
        assert f"· {words} · 0/1 pods" in job_title(job.ref, job, JobsNow(EXACT), 80)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (1.87, "1.87   "),
        (0.0414, "0.0414 "),
        (0.00462, "0.0046 "),
        (0.0000123, "1e-05  "),
        (-0.000123, "-1e-04 "),
        (12345.6, "12346  "),
        (1.2e9, "1e+09  "),
    ],
)
def test_the_bars_of_all_losses_are_aligned(last: float, words: str) -> None:
    assert loss_cell({"a": [last + 9, last]}, "a").text == f"{words}▇▁"


def test_a_nan_loss_is_marked_and_an_unread_loss_is_a_dash() -> None:
    assert loss_cell({"a": [1.0, math.nan]}, "a").text == "nan    ✕"
    assert loss_cell({}, "a").text == "–"
