"""The console on a scripted cluster: opened, driven by keys, and read as text."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen

from tests.scripted.server import WAIT_S, Compute, ScriptedCluster, Stall, Stream, page, refusal
from tests.support.objects import Object, node, pod_of, pytorch_job
from tui.app import Console
from tui.screens import ACTIONS, key_table, user_plugins
from tui.session.session import Session
from tui.settings.keys import ActionTable
from tui.settings.keys_file import read_keys
from tui.settings.options import ConsoleOptions
from tui.terminal.key_queue import QUIET_TURNS
from tui.widgets.table.table import Table

JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
ONE_JOB = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
LISTS = {"nodes": "/api/v1/nodes", "pods": "/api/v1/pods", "jobs": JOBS, "batch": "/apis/batch/v1/jobs"}
EVENTS = "/api/v1/namespaces/default/events"

bert = pytorch_job("bert", workers=2, gpus=4)
waits = pytorch_job("waits", workers=2, gpus=8)
why = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available.",
}

POLL_S = 0.025


class Playground:
    def __init__(self, cluster: ScriptedCluster, pilot: Pilot[int], watches: dict[str, Stream]) -> None:
        self.cluster, self.pilot, self.watches = cluster, pilot, watches
        assert isinstance(pilot.app, Console)
        self.console: Console = pilot.app

    async def until(self, is_so: Callable[[], object], words: str = "") -> None:
        """Run the console until a condition holds; on a loaded machine that may take long."""
        for _ in range(int(WAIT_S / POLL_S)):
            if is_so():
                await self.pilot.pause(0)  # for the other lines of the same change
                return
            await self.pilot.pause(POLL_S)
        raise AssertionError(f"never came true: {words or _source(is_so)}; on screen:\n{self.text}")

    @property
    def session(self) -> Session:
        assert self.console.session is not None
        return self.console.session

    async def until_idle(self) -> None:
        await self.until(lambda: self.console.is_idle)

    async def press(self, *keys: str, shows: str | type[Screen[Any]] = "") -> None:
        """Press keys, and wait until the screen shows a text, or is of a class."""
        await self.pilot.press(*keys)
        await self.rest()
        await self.pilot.pause()
        if shows:
            await self.until(lambda: self.is_shown(shows), f"{shows!r} is shown")

    def is_shown(self, wanted: str | type[Screen[Any]]) -> bool:
        return wanted in self.text if isinstance(wanted, str) else isinstance(self.console.screen, wanted)

    async def rest(self) -> None:
        """Wait until every typed key is handled."""
        quiet_turns = 0
        for _ in range(20_000):
            quiet_turns = quiet_turns + 1 if self.console.key_queue.is_empty else 0
            if quiet_turns > QUIET_TURNS or not self.console.is_running:
                return
            await asyncio.sleep(0.001 if quiet_turns == 0 else 0)
        raise AssertionError(f"never at rest; on screen:\n{self.text}")

    def forget(self, job: Object) -> None:
        self.watches["jobs"].event("DELETED", job)
        for place in ("master-0", "worker-0"):
            self.watches["pods"].event("DELETED", pod_of(job, place))

    @property
    def table(self) -> Table:
        return self.console.screen.query(Table).first()

    @property
    def text(self) -> str:
        lines = self.console.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in lines)


def _source(is_so: Callable[[], object]) -> str:
    """Return the line of a condition, for the failure of a test that waited for it."""
    try:
        return inspect.getsource(is_so).strip()
    except OSError:
        return repr(is_so)


@asynccontextmanager
async def console_on(
    tmp_path: Path,
    *,
    nodes: list[Object] | None = None,
    pods: list[Object] | None = None,
    jobs: list[Object] | None = None,
    batch: list[Object] | None = None,
    more: Mapping[str, list[Object]] | None = None,
    refused: str = "",
    prepare: Callable[[ScriptedCluster], None] | None = None,
    size: tuple[int, int] = (120, 40),
    actions: ActionTable = ACTIONS,
    **options: Any,
) -> AsyncIterator[Playground]:
    """Open a console on a scripted cluster with these objects.

    Answers to what the console requests by itself, such as the user's permissions, belong into `prepare`:
    once the console is open, it may have sent the requests already.
    """
    items = {"nodes": nodes or [], "pods": pods or [], "jobs": jobs or [], "batch": batch or []}
    async with ScriptedCluster() as cluster:
        watches: dict[str, Stream] = {}
        for name, path in LISTS.items():
            if name == refused:
                words = f'{name} is forbidden: User "li" cannot list resource "{name}" at the cluster scope'
                cluster.say(path, refusal(403, words, "Forbidden"))
                continue
            cluster.say(path, listing(items[name]))
            watches[name] = Stream()
            cluster.say(path, watches[name], Stall(), watch=True)
        for path, objects in (more or {}).items():
            cluster.say(path, page(objects))
            cluster.say(path, Stream(), Stall(), watch=True)
        cluster.say(EVENTS, page([]))
        cluster.say(EVENTS, Stream(), watch=True)
        if prepare is not None:
            prepare(cluster)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(kubeconfig_of(cluster.host)))
        chosen = {"state_folder": tmp_path / "state", "config_folder": tmp_path / "config", **options}
        settings = ConsoleOptions(kubeconfig=str(kubeconfig), **chosen)
        keys = read_keys(settings.keys_file, key_table())
        plugins = user_plugins(settings, keys.keymap)
        console = Console(settings, keys=keys, actions=actions, plugins=plugins)
        async with console.run_test(size=size, notifications=True) as pilot:
            play = Playground(cluster, pilot, watches)
            await play.until(lambda: console.snapshot.is_synced)
            await pilot.pause()
            yield play


def listing(items: list[Object]) -> Compute:
    """List these objects, and none for a label selector: the objects of tests have no labels."""
    return Compute(lambda asked: page([] if "labelSelector" in asked.query else items))


def kubeconfig_of(host: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": host}}],
        "users": [{"name": "li", "user": {"token": "t"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "li", "namespace": "default"}}],
        "current-context": "lab",
    }


def some_objects() -> dict[str, Any]:
    return {
        "nodes": [node("a", 8), node("b", 8)],
        "pods": [
            pod_of(bert, "master-0", on="a", gpus=4),
            pod_of(bert, "worker-0", on="a", gpus=4),
            pod_of(waits, "master-0", phase="Pending", conditions=[why]),
        ],
        "jobs": [bert, waits],
    }
