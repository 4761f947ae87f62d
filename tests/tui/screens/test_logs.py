"""The logs of a job on screen, read from a scripted cluster."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.reactive import reactive
from textual.widgets import Label

from k8s.client.client import Client
from k8s.kinds import JobRef
from k8s.logs import LogHub
from k8s.snapshot import ClusterSnapshot
from k8s.status import Status
from tests.scripted.logs import QUICK, Fault, Run, ScriptedPod, connected
from tests.support.evidence import instance, job_of
from tests.support.hosted_view import FramedApp
from tests.support.idle import until
from tests.support.playground import Playground, console_on
from tests.support.screen_text import resize
from tests.tui.screens.home_lab import lab_of
from tui.screens import ACTIONS
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View
from tui.screens.base.view_context import ViewContext
from tui.screens.job.logs import LogsScreen
from tui.widgets.log.view import LogView
from tui.widgets.table.table import Table

REF = JobRef("lab", "bert", "PyTorchJob", "kubeflow.org/v1")


def pod_of(number: int) -> ScriptedPod:
    pod = ScriptedPod(f"bert-worker-{number}")
    for rank in (2 * number, 2 * number + 1):
        pod.write(f"[rank{rank}]: hello from {rank}")
    return pod


def snapshot_of(*pods: ScriptedPod) -> ClusterSnapshot:
    instances = []
    for number, pod in enumerate(pods):
        ranks = (2 * number, 2 * number + 1)
        found = instance(f"worker-{number}", Status.RUNNING, node="n1", ranks=ranks)
        uid = pod.uid or pod.name
        own = {
            "restarts": len(pod.runs) - 1,
            "is_chief": number == 0,
            "pod_uid": uid,
            "containers": ("main",),
        }
        instances.append(msgspec.structs.replace(found, **own))
    job = replace(job_of(instances, Status.RUNNING), ref=REF)
    return ClusterSnapshot(jobs=(job,), is_synced=True)


class Host(FramedApp):
    """As much of the console as the screen needs."""

    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, layout=False)

    def __init__(self, client: Client, folder: Path) -> None:
        super().__init__()
        self._logs_client = client
        self._folder = folder
        self.requests: list[str] = []

    def on_mount(self) -> None:
        screen = LogsScreen(LogHub(self._logs_client, backoff=QUICK), REF, folder=self._folder)
        screen.context = ViewContext(actions=ACTIONS)
        screen.data_bind(snapshot=Host.snapshot)
        self.push_screen(screen)

    def on_action_request(self, event: ActionRequest) -> None:
        if not (event.name == "back" and isinstance(self.screen, View) and self.screen.step_back()):
            self.requests.append(event.name)


@asynccontextmanager
async def shown(
    *pods: ScriptedPod, tmp_path: Path, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[Pilot[None]]:
    async with connected(*pods) as (_, client), Host(client, tmp_path).run_test(size=size) as pilot:
        show(pilot, *pods)
        await pilot.pause()
        yield pilot


def show(pilot: Pilot[None], *pods: ScriptedPod) -> None:
    assert isinstance(pilot.app, Host)
    pilot.app.snapshot = snapshot_of(*pods)


def panes(pilot: Pilot[None]) -> list[list[str]]:
    """Return the lines of each pane, without times and the rules of markers."""
    found = []
    for view in pilot.app.screen.query(LogView):
        rows = [view.render_line(y).text[:-1].rstrip() for y in range(view.content_size.height)]
        found.append([row[13:] if row[2:3] == ":" else row.strip("─ ") for row in rows if row])
    return found


def drawn(pilot: Pilot[Any]) -> list[str]:
    return [strip.text for strip in pilot.app.screen._compositor.render_strips()]


def subtitle(pilot: Pilot[None]) -> str:
    return str(pilot.app.screen.query_one(LogView).border_subtitle)


def title(pilot: Pilot[None]) -> str:
    return str(pilot.app.screen.query_one("#title", Label).content)


async def test_rank_0_is_shown_first_and_followed(tmp_path: Path) -> None:
    pods = [pod_of(0), pod_of(1)]
    async with shown(*pods, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("p")
        await until(pilot, lambda: "there was no run before this one" in "".join(panes(pilot)[0]))
        await pilot.press("p")
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pods[0].say("[rank1]: not for us", "[rank0]: step 1", "torchrun: all is well")
        for size in ((80, 24), (200, 60), (60, 15)):
            await resize(pilot, *size)
            await until(pilot, lambda: panes(pilot) == [["hello from 0", "step 1", "torchrun: all is well"]])
            assert title(pilot).startswith("Jobs › bert › logs   ranks 0 · follow")
            assert str(pilot.app.screen.query_one(LogView).border_title) == "=0 worker-0"


async def test_an_empty_log_after_a_restart_offers_the_run_before(tmp_path: Path) -> None:
    pods = [pod_of(0), ScriptedPod("bert-worker-1")]
    await pods[0].end(137)
    await pods[0].restart()
    async with shown(*pods, tmp_path=tmp_path) as pilot:
        offer = "No lines yet since the last restart; p shows the run before."
        await until(pilot, lambda: any(offer in line for line in drawn(pilot)))
        await pilot.press("p")
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("p", "a")
        await until(pilot, lambda: any(offer in line for line in drawn(pilot)))
        await pilot.press("full_stop", "full_stop", "full_stop")
        await until(pilot, lambda: any("No lines yet." in line for line in drawn(pilot)))
        await pods[0].say("[rank0]: again")
        await pilot.press("full_stop", "full_stop")
        await until(pilot, lambda: panes(pilot) == [["again"]])


async def test_ranks_are_stepped_through_merged_shown_side_by_side_and_picked(tmp_path: Path) -> None:
    async with shown(pod_of(0), pod_of(1), tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("full_stop")
        await until(pilot, lambda: panes(pilot) == [["hello from 1"]])
        await pilot.press("comma", "comma")
        await until(pilot, lambda: panes(pilot) == [["hello from 3"]])
        await pilot.press("full_stop")
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("s")
        await until(pilot, lambda: panes(pilot) == [["hello from 0"], ["hello from 1"]])
        await pilot.press("s", "s")
        await until(pilot, lambda: len(panes(pilot)) == 4)
        assert "ranks 0 1 2 3" in title(pilot)
        await pilot.press("tab", "full_stop")
        await pilot.press("s")
        await until(pilot, lambda: len(panes(pilot)) == 1)
        await pilot.press("a")
        await until(pilot, lambda: len(panes(pilot)[0]) == 4)
        assert sorted(panes(pilot)[0]) == [f"{rank} hello from {rank}" for rank in range(4)]


async def test_marked_ranks_are_opened_together(tmp_path: Path) -> None:
    async with shown(pod_of(0), pod_of(1), tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("r", "j", "space", "j", "space", "enter")
        await until(pilot, lambda: panes(pilot) == [["hello from 1"], ["hello from 2"]])
        assert not pilot.app.screen.query_one("#ranks", Table).display


async def test_a_log_filter_shows_the_number_of_matches(tmp_path: Path) -> None:
    pod = pod_of(0)
    for number in range(5):
        pod.write(f"[rank0]: step {number} {'nccl' if number == 3 else ''}")
    async with shown(pod, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: len(panes(pilot)[0]) == 6)
        await pilot.press("slash", *"NCCL", "enter")
        await until(pilot, lambda: panes(pilot) == [["step 3 nccl"]])
        assert "/NCCL  1" in title(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: len(panes(pilot)[0]) == 6)
        for typed, hint in (("zzz", ""), ("zzz(", "'zzz(' is not a valid regular expression")):
            await pilot.press("slash", "ctrl+u", *typed)
            await until(pilot, lambda: "Nothing matches; 6 lines hidden" in "".join(drawn(pilot)))
            await until(pilot, lambda hint=hint: any(hint in line for line in drawn(pilot)))  # type: ignore[misc]
            await pilot.press("escape")


async def test_a_lost_connection_is_marked_in_its_place(tmp_path: Path) -> None:
    pod = pod_of(0)
    pod.faults = [Fault(cut_after=110)]
    async with shown(pod, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot)[0] == ["hello from 0"])
        await pod.say("[rank0]: after")
        await until(pilot, lambda: panes(pilot)[0][-1:] == ["after"])
        assert "nothing lost" in panes(pilot)[0][1]


async def test_the_log_of_a_pod_that_starts_later_is_added(tmp_path: Path) -> None:
    first, second = pod_of(0), pod_of(1)
    async with shown(first, second, tmp_path=tmp_path) as pilot:
        show(pilot, first)
        await pilot.press("a")
        show(pilot, first, second)
        await until(pilot, lambda: len(panes(pilot)[0]) == 4)


async def test_the_log_of_the_previous_run_can_be_shown(tmp_path: Path) -> None:
    pod = pod_of(0)
    pod.runs[0].exit_code = 1
    pod.runs.append(Run())
    pod.write("[rank0]: second run")
    async with shown(pod, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["second run"]])
        await pilot.press("p")
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        assert "previous run" in title(pilot)
        await pilot.press("p")
        await until(pilot, lambda: panes(pilot) == [["second run"]])


async def test_a_digit_requests_another_time_window_of_the_log(tmp_path: Path) -> None:
    pod = pod_of(0)
    for number in range(200):
        pod.write(f"[rank{number % 2}]: step {number}")
    async with shown(pod, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: any("step 198" in line for line in drawn(pilot)))
        await pilot.press("1")
        await until(pilot, lambda: panes(pilot)[0][:2] == ["hello from 0", "step 0"])
        assert "all since start" in title(pilot) and "held" in title(pilot)
        await until(pilot, lambda: "lines 1 to 101" in subtitle(pilot))
        await pilot.press("full_stop")
        await until(pilot, lambda: panes(pilot)[0][:2] == ["hello from 1", "step 1"])
        assert pilot.app.screen.query_one(LogView).is_paged
        await pilot.press("3")
        await until(pilot, lambda: pod.requests[-1].get("sinceSeconds") == "300")
        assert "last 5 min" in title(pilot)


async def test_escape_leaves_one_thing_after_the_other_and_connections_end_with_the_screen(
    tmp_path: Path,
) -> None:
    pod = pod_of(0)
    async with shown(pod, tmp_path=tmp_path) as pilot:
        app = pilot.app
        assert isinstance(app, Host)
        await pilot.press("f", "r")
        await pilot.press("escape")
        assert not app.screen.has_class("-picking")
        await pilot.press("escape")
        assert not app.screen.has_class("-full")
        await pilot.press("escape")
        await pilot.pause()
        assert app.requests == ["back"]
        await until(pilot, lambda: pod.open_streams == 1)
        pilot.app.pop_screen()
        await until(pilot, lambda: pod.open_streams == 0)


async def test_a_job_without_pods_shows_a_message_until_its_pods_appear(tmp_path: Path) -> None:
    pod = pod_of(0)
    async with connected(pod) as (_, client), Host(client, tmp_path).run_test() as pilot:
        await pilot.pause()
        assert panes(pilot) == [["The job has no pods yet."]]
        show(pilot, pod)
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])


def saved(folder: Path) -> list[bytes]:
    """Return the contents of the saved files, the oldest first."""
    return [path.read_bytes() for path in sorted(folder.glob("*.log"))]


async def test_a_saved_log_is_refetched_completely_and_byte_for_byte(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    pod = pod_of(0)
    pod.write(b"[rank0]: \x1b]0;title\x07\xff\x00 [b]not markup[/b]")
    for number in range(5_000):
        pod.write(f"[rank{number % 2}]: step {number}")
    async with shown(pod, tmp_path=folder) as pilot:
        await until(pilot, lambda: "step 4998" in panes(pilot)[0])
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(saved(folder)))
        (path,) = folder.iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
    own = [raw for _, raw in pod.runs[0].lines if raw.startswith(b"[rank0]")]
    assert saved(folder) == [b"".join(raw + b"\n" for raw in own)]


@pytest.mark.slow
async def test_the_saved_log_of_a_deleted_pod_has_the_retained_lines_and_counts_the_missing(
    tmp_path: Path,
) -> None:
    pod = pod_of(0)
    for number in range(30_000):
        pod.write(f"[rank0]: step {number}")
    async with shown(pod, tmp_path=tmp_path) as pilot:
        await pilot.press("6")
        await until(pilot, lambda: "step 29999" in panes(pilot)[0])
        pod.is_gone = True
        await pilot.press("g")
        await until(pilot, lambda: "earlier lines are dropped here; ^s saves" in panes(pilot)[0][0])
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(saved(tmp_path)))
        held = pilot.app.screen.query_one(LogView).lines
    (found,) = saved(tmp_path)
    notes = [text.decode() for text in found.splitlines() if text.startswith(b"--")]
    texts = [text.decode() for text in found.splitlines() if not text.startswith(b"--")]
    assert texts == pod.texts[-len(texts) :]
    missing = len([text for text in pod.texts if text.startswith("[rank0]")]) - len(texts)
    assert held.gone == {"rank 0": missing}
    assert notes[0].startswith("-- worker-0: cannot be read to its end. ")
    assert notes[1] == f"-- worker-0: rank 0: {missing:,} earlier lines cannot be read again"
    assert "the server no longer has" in notes[2]


async def test_logs_of_all_ranks_are_saved_with_the_rank_on_each_line(tmp_path: Path) -> None:
    pods = [pod_of(0), pod_of(1)]
    async with shown(*pods, tmp_path=tmp_path) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: len(panes(pilot)[0]) == 4)
        view = pilot.app.screen.query_one(LogView)
        view.action_save()
        view.action_save()
        await until(pilot, lambda: bool(saved(tmp_path)))
        await until(pilot, lambda: all(worker.group != "save" for worker in pilot.app.workers))
        told = [each.message for each in pilot.app._notifications]
        assert [text.split(" to ")[0] for text in told] == ["Saving the log…", "Saved 4 lines"]
    assert [sorted(text.splitlines()) for text in saved(tmp_path)] == [
        [b"[worker-%d %d] hello from %d" % (rank // 2, rank, rank) for rank in range(4)]
    ]


async def test_a_log_can_be_saved_again_after_it_has_grown(tmp_path: Path) -> None:
    pod = pod_of(0)
    async with shown(pod, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        for number in range(2):
            await pilot.press("ctrl+s")
            await until(pilot, lambda: all(worker.group != "save" for worker in pilot.app.workers))
            await pod.say(f"[rank0]: later {number}")
    (newest, *_) = sorted(tmp_path.glob("*.log"), key=lambda path: -path.stat().st_mtime_ns)
    assert newest.read_bytes() == b"[rank0]: hello from 0\n[rank0]: later 0\n"


async def test_a_save_completes_after_its_view_is_closed(tmp_path: Path) -> None:
    pod = pod_of(0)
    async with shown(pod, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("ctrl+s")
        pilot.app.pop_screen()
        await until(pilot, lambda: bool(saved(tmp_path)))
    assert saved(tmp_path) == [b"[rank0]: hello from 0\n"]


async def test_a_failed_log_save_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with shown(pod_of(0), tmp_path=tmp_path / "file" / "logs") as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("ctrl+s")
        await until(pilot, lambda: any("Could not save" in each.title for each in pilot.app._notifications))


HOME, LOGS = "job-000 · rank 0 of 1 · step 99/99 · master-0", r"› logs(.|\n)*step 99/99"
JOB, CURVES = r"Jobs › job-000 (.|\n)*Running +1 +a +0 +\d+m", "from log lines of master-0"
WAY = [("l", LOGS), ("escape", HOME)] * 2
WAY += [("enter", JOB), ("l", LOGS), ("escape", JOB), ("escape", HOME), ("m", CURVES), ("escape", HOME)]


def is_shown(play: Playground, pattern: str) -> bool:
    return re.search(pattern, play.text) is not None


async def test_home_job_logs_and_curves_share_one_stream_of_a_log(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(1)
    async with console_on(tmp_path, size=(160, 40), **objects) as play:
        await play.press("N", "g")
        await play.until(partial(is_shown, play, HOME))
        await play.until(lambda: bool(play.session.life.losses))
        before = len(logs.glanced)
        for key, pattern in WAY:
            await play.press(key)
            await play.until(partial(is_shown, play, pattern), pattern)
        assert logs.opened == ["job-000-master-0"] and len(logs.glanced) == before
