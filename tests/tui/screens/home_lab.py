"""Jobs whose logs can be read, for home: which are followed, which ever were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.scripted.server import Answer, ScriptedCluster, Stream
from tests.support.objects import node, pod_of, pytorch_job
from tests.support.playground import Playground
from tests.support.sample_cluster import ago
from tests.tui.settings.keys.world import PODS
from tui.widgets.home.job_pane import JobPane

_RUNS = {"name": "pytorch", "state": {"running": {"startedAt": ago(hours=2)}}, "restartCount": 0}


class Logs:
    """The logs of all pods; which are followed at this moment, which ever were, which were read once."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.opened: list[str] = []
        self.glanced: list[str] = []
        at = ago(minutes=1)
        self._said = "".join(f"{at} step {step}/99 loss {9 / step:.3f}\n" for step in range(1, 100)).encode()

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        name = request.path.split("/")[-2]
        if request.query.get("follow") != "true":
            self.glanced.append(name)
            return await Answer(self._said).answer(request, closing)
        self.open.append(name)
        self.opened.append(name)
        try:
            return await Stream(self._said).answer(request, closing)
        finally:
            self.open.remove(name)


def lab_of(amount: int) -> tuple[dict[str, Any], Logs, Callable[[ScriptedCluster], None]]:
    """Return so many jobs of one pod each, their logs, and what lets a cluster answer for them."""
    jobs = [
        pytorch_job(f"job-{number:03}", gpus=1, creationTimestamp=ago(hours=1)) for number in range(amount)
    ]
    pods = [pod_of(job, "master-0", on="a", gpus=1, containerStatuses=[_RUNS]) for job in jobs]
    logs = Logs()

    def say(cluster: ScriptedCluster) -> None:
        for pod in pods:
            name = pod["metadata"]["name"]
            cluster.say(f"{PODS}/{name}", Answer(pod))
            cluster.say(f"{PODS}/{name}/log", logs)

    return {"nodes": [node("a", 8), node("b", 8)], "pods": pods, "jobs": jobs, "prepare": say}, logs, say


def pane(play: Playground) -> JobPane:
    return play.console.screen_stack[1].query_one(JobPane)


def says(play: Playground) -> str:
    region = pane(play).region
    lines = play.text.splitlines()[region.y : region.bottom]
    return "\n".join(line[region.x : region.right] for line in lines)


def shows_rank_0(play: Playground) -> bool:
    return "job-000 · rank 0 of 1 · step 99/99 · master-0" in says(play)
