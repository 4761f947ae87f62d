"""The logs of a job on screen, read from a scripted cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.reactive import reactive
from textual.theme import Theme
from textual.widgets import Label

import themes
from k8s.client.client import Client
from k8s.kinds import JobRef
from k8s.logs import JobLogs, LogRequest
from k8s.snapshot import ClusterSnapshot, Instance, Job
from k8s.status import Status
from tests import ROOT
from tests.scripted.logs import QUICK, Fault, Run, ScriptedPod, connected
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View
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
    instances = tuple(
        Instance(
            name=f"worker-{number}",
            role="worker",
            index=number,
            is_chief=number == 0,
            ranks=(2 * number, 2 * number + 1),
            ranks_proof="declared",
            status=Status.RUNNING,
            reason="",
            gpus=2,
            node="n1",
            restarts=0,
            created=None,
            pod=pod.name,
            pod_uid=pod.uid or pod.name,
            containers=("main",),
        )
        for number, pod in enumerate(pods)
    )
    job = Job(
        ref=REF,
        uid="u",
        status=Status.RUNNING,
        reason="",
        gpus_requested=4,
        gpus_allocated=4,
        instances=instances,
        instances_running=len(instances),
        user="li",
        priority="",
        created=None,
        started=None,
        finished=None,
        conditions=(),
        log_dir="",
        trainer="",
    )
    return ClusterSnapshot(jobs=(job,), is_synced=True)


class Host(App[None]):
    """As much of the console as the screen needs."""

    CSS_PATH = [themes.STYLESHEET, ROOT / "tui/screens/base/view.tcss"]  # noqa: RUF012

    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, layout=False)

    def __init__(self, client: Client, folder: Path) -> None:
        super().__init__()
        self._logs_client = client
        self._folder = folder
        self.requests: list[str] = []
        for palette in themes.load().values():
            self.register_theme(Theme(**palette))
        self.theme = themes.DEFAULT

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.variable_defaults()

    def on_mount(self) -> None:
        logs = JobLogs(self._logs_client, request=LogRequest(tail=2000), backoff=QUICK)
        screen = LogsScreen(self._logs_client, REF, folder=self._folder, logs=logs)
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
        app = pilot.app
        assert isinstance(app, Host)
        app.snapshot = snapshot_of(*pods)
        await pilot.pause()
        yield pilot


def panes(pilot: Pilot[None]) -> list[list[str]]:
    """What each pane says, without times and markers' rules."""
    found = []
    for view in pilot.app.screen.query(LogView):
        rows = [view.render_line(y).text[:-1].rstrip() for y in range(view.content_size.height)]
        found.append([row[13:] if row[2:3] == ":" else row.strip("─ ") for row in rows if row])
    return found


def title(pilot: Pilot[None]) -> str:
    return str(pilot.app.screen.query_one("#title", Label).content)


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Let the app go on until something is so."""
    async with asyncio.timeout(20):
        while not holds():
            await pilot.pause()
            await asyncio.sleep(0)


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (60, 15)])
async def test_rank_0_is_shown_first_and_followed(tmp_path: Path, size: tuple[int, int]) -> None:
    pods = [pod_of(0), pod_of(1)]
    async with shown(*pods, tmp_path=tmp_path, size=size) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pods[0].say("[rank1]: not for us", "[rank0]: step 1", "torchrun: all is well")
        await until(pilot, lambda: panes(pilot) == [["hello from 0", "step 1", "torchrun: all is well"]])
        assert title(pilot).startswith("Jobs › bert › logs   ranks 0 · follow")
        assert str(pilot.app.screen.query_one(LogView).border_title) == "=0 worker-0"


async def test_ranks_are_stepped_through_and_go_round(tmp_path: Path) -> None:
    async with shown(pod_of(0), pod_of(1), tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("full_stop")
        await until(pilot, lambda: panes(pilot) == [["hello from 1"]])
        await pilot.press("comma", "comma")
        await until(pilot, lambda: panes(pilot) == [["hello from 3"]])


async def test_all_ranks_are_merged_with_a_column_that_names_them(tmp_path: Path) -> None:
    async with shown(pod_of(0), pod_of(1), tmp_path=tmp_path) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: len(panes(pilot)[0]) == 4)
        assert sorted(panes(pilot)[0]) == [f"{rank} hello from {rank}" for rank in range(4)]


async def test_ranks_are_shown_side_by_side(tmp_path: Path) -> None:
    async with shown(pod_of(0), pod_of(1), tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("s")
        await until(pilot, lambda: panes(pilot) == [["hello from 0"], ["hello from 1"]])
        await pilot.press("s", "s")
        await until(pilot, lambda: len(panes(pilot)) == 4)
        assert "ranks 0 1 2 3" in title(pilot)
        await pilot.press("tab", "full_stop")
        await pilot.press("s")
        await until(pilot, lambda: len(panes(pilot)) == 1)


async def test_marked_ranks_are_opened_together(tmp_path: Path) -> None:
    async with shown(pod_of(0), pod_of(1), tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("r", "j", "space", "j", "space", "enter")
        await until(pilot, lambda: panes(pilot) == [["hello from 1"], ["hello from 2"]])
        assert not pilot.app.screen.query_one("#ranks", Table).display


async def test_a_filter_is_typed_and_says_how_many_match(tmp_path: Path) -> None:
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


async def test_a_lost_connection_is_marked_in_its_place(tmp_path: Path) -> None:
    pod = pod_of(0)
    pod.faults = [Fault(cut_after=110)]
    async with shown(pod, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot)[0] == ["hello from 0"])
        await pod.say("[rank0]: after")
        await until(pilot, lambda: panes(pilot)[0][-1:] == ["after"])
        assert "nothing lost" in panes(pilot)[0][1]


async def test_a_pod_that_starts_later_joins(tmp_path: Path) -> None:
    first, second = pod_of(0), pod_of(1)
    async with shown(first, second, tmp_path=tmp_path) as pilot:
        app = pilot.app
        assert isinstance(app, Host)
        app.snapshot = snapshot_of(first)
        await pilot.press("a")
        app.snapshot = snapshot_of(first, second)
        await until(pilot, lambda: len(panes(pilot)[0]) == 4)


async def test_the_run_before_the_last_restart_can_be_looked_at(tmp_path: Path) -> None:
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


async def test_another_part_of_the_log_is_asked_for_by_a_digit(tmp_path: Path) -> None:
    pod = pod_of(0)
    async with shown(pod, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("3")
        await until(pilot, lambda: pod.requests[-1].get("sinceSeconds") == "300")
        assert "last 5 min" in title(pilot)


async def test_escape_leaves_one_thing_after_the_other(tmp_path: Path) -> None:
    async with shown(pod_of(0), tmp_path=tmp_path) as pilot:
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


async def test_leaving_the_screen_closes_every_connection(tmp_path: Path) -> None:
    pods = [pod_of(0), pod_of(1)]
    async with shown(*pods, tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: all(pod.open_streams == 1 for pod in pods))
        pilot.app.pop_screen()
        await until(pilot, lambda: all(pod.open_streams == 0 for pod in pods))


async def test_a_job_without_pods_says_so_and_starts_when_they_come(tmp_path: Path) -> None:
    pod = pod_of(0)
    async with connected(pod) as (_, client), Host(client, tmp_path).run_test() as pilot:
        await pilot.pause()
        assert panes(pilot) == [["The job has no pods yet."]]
        app = pilot.app
        assert isinstance(app, Host)
        app.snapshot = snapshot_of(pod)
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])


async def test_where_there_was_no_run_before_it_is_said_in_our_words(tmp_path: Path) -> None:
    async with shown(pod_of(0), tmp_path=tmp_path) as pilot:
        await until(pilot, lambda: panes(pilot) == [["hello from 0"]])
        await pilot.press("p")
        await until(pilot, lambda: "there was no run before this one" in "".join(panes(pilot)[0]))
