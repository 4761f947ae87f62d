"""The list of pods: whose they are, what each says, and what it shows where none may be listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripted.server import ScriptedCluster, refusal
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.playground import Playground, console_on
from tests.tui.keys.world import titled, typed
from tui.screens.lists.jobs import JobsView


def job_of(name: str, user: str) -> Object:
    job = pytorch_job(name, workers=2, gpus=4)
    job["metadata"]["annotations"] = {"gpuconsole.dev/user": user}
    return job


def container(*, is_ready: bool) -> Object:
    return {"name": "pytorch", "ready": is_ready, "restartCount": 2, "state": {"running": {}}}


BERT, VIT = job_of("bert", "li"), job_of("[red]vit", "maria")
MASTER = pod_of(BERT, "master-0", on="a", gpus=4, containerStatuses=[container(is_ready=False)])
OTHER = pod_of(VIT, "master-0", on="a", gpus=4)


def words_of(play: Playground, name: str) -> list[str]:
    lines = [line.replace("▸", " ").split() for line in play.text.splitlines()]
    return next((words for words in lines if words[:1] == [name]), [])


async def test_pods_of_own_jobs_are_listed_and_a_key_shows_all(tmp_path: Path) -> None:
    async with console_on(tmp_path, nodes=[node("a", 8)], pods=[MASTER, OTHER], jobs=[BERT, VIT]) as play:
        await play.press(*typed("pods"))
        await play.until(titled(play, " Pods (mine 1)"))
        assert words_of(play, "bert-master-0")[:7] == [
            "bert-master-0",
            "bert",
            "Running",
            "0/1",
            "2",
            "4",
            "a",
        ]
        ready = MASTER | {"status": MASTER["status"] | {"containerStatuses": [container(is_ready=True)]}}
        play.watches["pods"].event("MODIFIED", ready)
        await play.until(lambda: words_of(play, "bert-master-0")[3:4] == ["1/1"])
        await play.press("M")
        await play.until(titled(play, " Pods (2)"))
        assert words_of(play, "[red]vit-master-0")[1:3] == ["[red]vit", "Running"]
        assert "Σ 2 pods of 2 jobs · 8 GPUs" in play.text
        play.watches["pods"].event("MODIFIED", OTHER | {"status": {"phase": "Succeeded"}})
        await play.until(lambda: "Σ 2 pods of 2 jobs · 4 GPUs" in play.text)
        await play.press(*typed("po /vit"))
        await play.until(titled(play, " Pods (1 of 2)  /vit"))
        await play.press("escape", "escape", shows=JobsView)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_an_empty_pod_list_shows_the_reason(tmp_path: Path, size: tuple[int, int]) -> None:
    async with console_on(tmp_path, jobs=[BERT], size=size) as play:
        await play.press(*typed("pods"), shows="No job has a pod in namespace default.")
        await play.press("l", shows="No pod is selected.")


async def test_a_forbidden_pod_list_is_reported_instead_of_shown_as_empty(tmp_path: Path) -> None:
    def refuse(cluster: ScriptedCluster) -> None:
        cluster.replace("/api/v1/namespaces/default/pods", refusal(403, "not you", "Forbidden"))

    async with console_on(tmp_path, jobs=[BERT], refused="pods", prepare=refuse) as play:
        await play.press(*typed("pods"), shows="This user may not list pods")
