"""A small cluster on which every key has something to do, and what is seen of the console on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual import events
from textual.geometry import Region
from textual.keys import _character_to_key
from textual.screen import Screen

from k8s.jobs.port_forward import CARRIED, FAILED
from tests.scripted.server import (
    V4,
    Answer,
    Asked,
    Compute,
    FollowedLog,
    ScriptedCluster,
    Speaker,
    Stall,
    Talk,
    page,
    refusal,
)
from tests.support.namespace_objects import (
    CLAIMS,
    NAMESPACES,
    QUOTAS,
    claim,
    event,
    in_namespace,
    namespace,
    serve,
)
from tests.support.namespace_objects import EVENTS as ALL_EVENTS
from tests.support.objects import Object, batch_job, node, pod_of, pytorch_job
from tests.support.playground import Playground, console_on
from tests.support.sample_cluster import ago
from tui.widgets.table.table import Table

PODS = "/api/v1/namespaces/default/pods"
PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
BATCH_JOBS = "/apis/batch/v1/namespaces/default/jobs"
SERVICES = "/api/v1/namespaces/default/services"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"

_RUNS = {"name": "pytorch", "state": {"running": {"startedAt": ago(hours=2)}}, "restartCount": 1}
_NO_ROOM = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available.",
}


def _job(name: str, user: str, made: str, workers: int = 1, **status: Any) -> Object:
    job = pytorch_job(name, workers, 4, creationTimestamp=made)
    job["metadata"]["annotations"] = {"gpuconsole.dev/user": user}
    return job | ({"status": status} if status else {})


def _ended(kind: str, at: str) -> Object:
    return {"type": kind, "status": "True", "lastTransitionTime": at, "message": f"It has {kind.lower()}."}


BERT = _job("bert", "li", ago(hours=2), 2, conditions=[_ended("Running", ago(hours=2))])
"""Runs in two pods on node a; the newest but one."""
WAITS = _job("waits", "maria", ago(minutes=9))
"""Waits for room, the newest."""
OLD = _job(
    "ancient",
    "li",
    ago(days=20),
    startTime=ago(days=20),
    completionTime=ago(days=19),
    conditions=[_ended("Succeeded", ago(days=19))],
)
"""Ended too long ago to be shown at first."""
PAUSED = batch_job("paused", 1, 1, suspend=True)
PAUSED["metadata"]["creationTimestamp"] = ago(hours=7)
"""Is suspended."""
FAR = _job("far", "chen", ago(hours=1))
FAR["metadata"]["namespace"] = "vision"
"""Runs in another namespace."""
BERT_PODS = [
    pod_of(BERT, place, on="a", gpus=4, containerStatuses=[_RUNS], startTime=started)
    for place, started in (("master-0", ago(hours=2)), ("worker-0", ago(hours=1)))
]


def objects() -> dict[str, Any]:
    """Return the arguments of `console_on`."""
    return {
        "nodes": [node("a", 8), node("b", 8)],
        "pods": [
            *BERT_PODS,
            pod_of(WAITS, "master-0", phase="Pending", gpus=4, conditions=[_NO_ROOM]),
            pod_of(FAR, "master-0", on="b", gpus=2),
        ],
        "jobs": [BERT, WAITS, OLD, FAR],
        "batch": [PAUSED],
    }


class Desk(Playground):
    """A console whose keys come as fast as it takes them, each once the one before was dealt with."""

    async def press(self, *keys: str, shows: str | type[Screen[Any]] = "") -> None:
        for key in keys:
            name = key if len(key) > 1 or key.isalnum() else _character_to_key(key)
            letter = " " if name == "space" else key if len(key) == 1 else None
            self.console.post_message(events.Key(name, letter))
            await self.rest()
            await self.pilot.pause(0)  # it draws
        if shows:
            await self.until(lambda: self.is_shown(shows), f"{shows!r} is shown")

    async def see(self, key: str, is_so: Callable[[], object], *undo: str) -> None:
        """Press a key, and wait for its effect, which is not there before.

        Args:
            key: The key.
            is_so: Returns whether the effect is on the screen.
            undo: Keys that end the effect.
        """
        try:
            await self.until(lambda: not is_so())
            await self.press(key)
            await self.until(is_so)
            if undo:
                await self.press(*undo)
                await self.until(lambda: not is_so())
        except AssertionError as error:
            raise AssertionError(f"{key}, undone by {undo}: {error}") from None


@asynccontextmanager
async def world(tmp_path: Path, **options: Any) -> AsyncIterator[Desk]:
    """Open the console on the small cluster, which lets everybody do everything but open a shell."""
    async with console_on(tmp_path, **{**objects(), "prepare": _say, **options}) as opened:
        yield Desk(opened.cluster, opened.pilot, opened.watches)


def _log_of(name: str) -> FollowedLog:
    """Return a log of a hundred lines, of which the last is long."""
    lines = [f"line {number} of {name}" for number in range(100)]
    lines[-1] += f" {'~' * 150} END"
    said = b"".join(f"{ago(minutes=1)} {line}\n".encode() for line in lines)
    return FollowedLog(said, f"{ago(hours=3)} it crashed here\n".encode())


def _say(cluster: ScriptedCluster) -> None:
    for job, path in ((BERT, PYTORCH_JOBS), (WAITS, PYTORCH_JOBS), (OLD, PYTORCH_JOBS), (PAUSED, BATCH_JOBS)):
        cluster.say(f"{path}/{job['metadata']['name']}", Answer(job))
    for pod in BERT_PODS:
        name = pod["metadata"]["name"]
        ports = [{"name": "tensorboard", "containerPort": 6006}]
        containers = [pod["spec"]["containers"][0] | {"ports": ports}]
        cluster.say(f"{PODS}/{name}", Answer(pod | {"spec": pod["spec"] | {"containers": containers}}))
        cluster.say(f"{PODS}/{name}/log", _log_of(name))
        cluster.say(f"{PODS}/{name}/portforward", Talk(_carry, (V4,)))
        cluster.say(f"{PODS}/{name}/exec", refusal(403, "no shell for li", "Forbidden"))
    for path in (PYTORCH_JOBS, BATCH_JOBS, PODS):
        cluster.say(path, Stall(), watch=True)
    cluster.say(SERVICES, page([]))
    cluster.say(REVIEWS, Compute(_allow), method="POST")
    cluster.accept_companions("default")
    serve(cluster, NAMESPACES, *NAMED)
    for each in NAMED:
        cluster.say(f"/api/v1/namespaces/{each['metadata']['name']}", Answer(each))
    serve(cluster, QUOTAS)
    for path in (ALL_EVENTS, in_namespace(ALL_EVENTS)):
        serve(cluster, path, *EVENTS)
    for path in (CLAIMS, in_namespace(CLAIMS)):
        serve(cluster, path, *VOLUMES)


async def _carry(speaker: Speaker) -> None:
    """Take a connection to a port, as a kubelet does."""
    for channel in (CARRIED, FAILED):
        await speaker.say(channel, (6006).to_bytes(2, "little"))


def _allow(_: Asked) -> Answer:
    return Answer({"status": {"allowed": True}})


NAMED = [namespace(name) for name in ("default", "nlp", "vision")]
for _named, _days in zip(NAMED, (100, 10, 50), strict=True):
    _named["metadata"]["creationTimestamp"] = ago(days=_days)
EVENTS = [
    event("b", ("Pod", "bert-master-0"), "Pulled", "Image is there.", at=ago(minutes=2)),
    event("a", ("Pod", "notebook"), "BackOff", "Back-off restarting.", kind="Warning", at=ago(minutes=5)),
    event("c", ("Node", "a"), "Rebooted", "Node a has rebooted.", kind="Warning", at=ago(minutes=3)),
]
VOLUMES = [
    claim("workspace", "2Ti", "Lost"),
    claim("imagenet", "150Gi", "Pending"),
    claim("scratch", "500Gi"),
]
for _claim, _days in zip(VOLUMES, (3, 2, 1), strict=True):
    _claim["metadata"]["creationTimestamp"] = ago(days=_days)


def title(play: Playground) -> str:
    """Return the line that says what is shown."""
    lines = play.console.screen.query("#title")
    y = lines.first().region.y if lines else 1
    return "".join(play.text.splitlines()[y : y + 1])


def order(play: Playground, *names: str) -> list[str]:
    """Return the first of these words in each line of the table that has one, from above."""
    tables = play.console.screen.query(Table)
    region = tables.first().region if tables else Region(0, 2, 1000, max(0, len(play.text.splitlines()) - 4))
    lines = [line[region.x : region.right] for line in play.text.splitlines()[region.y : region.bottom]]
    found = (next((word for word in line.split() if word in names), "") for line in lines)
    return [name for name in found if name]


def look_of(play: Playground, word: str) -> str:
    """Return the style of the first occurrence of a word on the screen, or an empty string."""
    strips = play.console.screen._compositor.render_strips()
    segments = (segment for strip in strips for segment in strip if word in segment.text)
    return next((str(segment.style) for segment in segments), "")


def drawn_otherwise(play: Playground, word: str, than: str) -> Callable[[], bool]:
    """Return a test of whether a word is there and drawn in another way."""
    return lambda: look_of(play, word) not in ("", than)


def is_one_piece(play: Playground, text: str) -> bool:
    """Return True if a text is on the screen in a single style."""
    return any(
        text in segment.text for strip in play.console.screen._compositor.render_strips() for segment in strip
    )


def changes(play: Playground) -> list[str]:
    """Return the requests to the cluster that may change something, reviews excluded."""
    return [
        f"{asked.method} {asked.path}"
        for asked in play.cluster.requests
        if asked.method != "GET" and asked.path not in (REVIEWS, RULES)
    ]


def seen(play: Playground, *texts: str) -> Callable[[], bool]:
    """Return a test of whether all of these stand on the screen."""
    return lambda: all(text in play.text for text in texts)


def unseen(play: Playground, text: str) -> Callable[[], bool]:
    """Return a test of whether this stands nowhere on a screen that is drawn."""
    return lambda: bool(play.text.strip()) and text not in play.text


def titled(play: Playground, text: str) -> Callable[[], bool]:
    """Return a test of whether the line that says what is shown says this."""
    return lambda: text in title(play)


def ordered(play: Playground, *names: str) -> Callable[[], bool]:
    """Return a test of whether rows with these words stand in this order."""
    return lambda: order(play, *names) == list(names)


def at(play: Playground, name: str) -> Callable[[], bool]:
    """Return a test of whether the cursor is on a row with this word."""
    return lambda: any("▸" in line and name in line.split() for line in play.text.splitlines())


def typed(command: str) -> list[str]:
    return ["colon", *("space" if letter == " " else letter for letter in command), "enter"]
