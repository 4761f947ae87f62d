"""The lists of pods and of volume claims: what each says, and why one waits or may not be listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripted.server import Answer, ScriptedCluster, page, refusal
from tests.support.namespace_objects import CLAIMS, EVENTS, claim, event, in_namespace, serve
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.playground import Playground, console_on, some_objects
from tests.support.screen_text import resize
from tests.tui.settings.keys.world import titled, typed
from tui.screens.documents.text import TextView
from tui.screens.lists.jobs import JobsView

HERE, SAID = in_namespace(CLAIMS), in_namespace(EVENTS)
PODS = "/api/v1/namespaces/default/pods"

workspace = claim("workspace", "2Ti", annotations={"owner": "li", "description": "code and checkpoints"})
imagenet = claim("imagenet", "150Gi", mode="ReadOnlyMany", annotations={"gpuconsole.dev/user": "maria"})
scratch = claim("scratch", "500Gi", "Pending", storage="local-path")
lost = claim("lost", "10Gi", "Lost")


def about(claimed: Object, reason: str, message: str) -> Object:
    meta = claimed["metadata"]
    said = event(f"{meta['name']}-{reason}", ("PersistentVolumeClaim", meta["name"]), reason, message)
    said["involvedObject"]["uid"] = meta["uid"]
    return said


def order_of(play: Playground) -> list[str]:
    return [row.key.removeprefix("claim-") for row in play.table.shown_rows]


async def open_volumes(play: Playground, word: str = "volumes", shows: str = "") -> None:
    await play.press("colon", *word, "enter", shows=" Volumes")
    await play.until(lambda: shows in play.text, shows)


async def test_volume_claims_are_listed_with_details_and_updated_live(tmp_path: Path) -> None:
    async with console_on(tmp_path, size=(80, 24), **some_objects()) as play:
        serve(play.cluster, SAID, about(scratch, "WaitForFirstConsumer", "waiting for first consumer"))
        watch = serve(play.cluster, HERE, workspace, imagenet, scratch, lost)
        for word, size in (("pvc", (80, 24)), ("data", (120, 40)), ("volumes", (200, 60))):
            await resize(play.pilot, *size)
            await open_volumes(play, word, shows="gets a volume when the first pod that uses it")
            lines = play.text.splitlines()
            assert any({"workspace", "RWX", "2Ti", "Bound", "li"} <= set(line.split()) for line in lines)
            assert any({"imagenet", "ROX", "150Gi", "maria"} <= set(line.split()) for line in lines)
            assert "Its volume is gone" in play.text
            assert "Σ 4 volume claims · 2.1T bound · 1 without a volume yet" in play.text
        watch.event("MODIFIED", claim("scratch", "500Gi", storage="local-path"))
        await play.until(lambda: "2.6T bound" in play.text)
        assert "first pod" not in play.text
        await play.cluster.until_asked(SAID, watch=True)
        (asked, *_) = play.cluster.asked(SAID, watch=True)
        assert asked.query["fieldSelector"] == "involvedObject.kind=PersistentVolumeClaim"


async def test_a_pending_volume_claim_shows_its_latest_event(tmp_path: Path) -> None:
    tiny = claim("tiny", "1Gi", "Pending", storage="")
    async with console_on(tmp_path) as play:
        said = serve(play.cluster, SAID)
        serve(play.cluster, HERE, tiny)
        await open_volumes(play, shows="The cluster has reported no reason yet.")
        said.event("ADDED", about(tiny, "FailedBinding", "no storage class\nis set"))
        await play.until(lambda: "└ no storage class is set" in play.text)


async def test_enter_on_a_volume_claim_shows_its_details_and_the_pods_that_use_it(tmp_path: Path) -> None:
    pod: Object = {
        "metadata": {"name": "bert-master-0", "namespace": "default"},
        "spec": {
            "nodeName": "a",
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "workspace"}}, {"name": "tmp"}],
            "containers": [
                {"volumeMounts": [{"name": "v", "mountPath": "/work"}, {"name": "tmp", "mountPath": "/tmp"}]},
                {"volumeMounts": [{"name": "v", "mountPath": "/models", "readOnly": True}]},
            ],
        },
        "status": {"phase": "Running"},
    }
    async with console_on(tmp_path) as play:
        serve(play.cluster, SAID, about(workspace, "Provisioned", "made on demand"))
        serve(play.cluster, HERE, workspace)
        play.cluster.say(f"{HERE}/workspace", Answer(workspace))
        other = {"metadata": {"name": "other"}}
        play.cluster.say(PODS, page([pod, other]), refusal(403, "no pods", "Forbidden"))
        await open_volumes(play)
        await play.until(lambda: play.table.row_count == 1)
        await play.press("enter", shows=TextView)
        await play.until(lambda: "Used by 1 pod:" in play.text)
        assert "bert-master-0  Running on a, at /work, /models (read only)" in play.text
        assert "description code and checkpoints" in play.text and "made on demand" in play.text
        (asked,) = play.cluster.asked(PODS)
        assert asked.query["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"
        await play.press("ctrl+r", shows="Could not list the pods that use it.")
        assert "no pods" in play.text
        await play.press("escape", "d", shows=TextView)


async def test_claims_are_sorted_by_name_age_status_and_size(tmp_path: Path) -> None:
    young = claim("young", "9Gi")
    young["metadata"]["creationTimestamp"] = workspace["metadata"]["creationTimestamp"].replace("20", "21", 1)
    async with console_on(tmp_path) as play:
        serve(play.cluster, HERE, workspace, scratch, young)
        serve(play.cluster, SAID)
        await open_volumes(play)
        await play.until(lambda: play.table.row_count == 3)
        assert order_of(play) == ["scratch", "workspace", "young"]
        await play.press("N")
        assert order_of(play) == ["young", "workspace", "scratch"]
        await play.press("A")
        assert order_of(play)[0] == "young"
        await play.press("S")
        assert order_of(play)[-1] == "scratch"
        play.table.action_sort("size")
        assert order_of(play) == ["workspace", "scratch", "young"], "by their bytes"


async def test_zero_shows_all_namespaces_and_tab_goes_to_the_jobs(tmp_path: Path) -> None:
    far = claim("far", namespace="vision")
    async with console_on(tmp_path) as play:
        serve(play.cluster, HERE)
        serve(play.cluster, CLAIMS, workspace, far)
        await open_volumes(play, shows="No volume claims in namespace default.")
        await play.press("0")
        await play.until(lambda: "Volumes (2)" in play.text and "NAMESPACE" in play.text)
        assert "vision" in play.text
        await play.press("tab", shows=JobsView)


async def test_a_forbidden_volume_claim_list_is_explained(tmp_path: Path) -> None:
    words = 'User "li" cannot list resource "persistentvolumeclaims"'
    async with console_on(tmp_path) as play:
        serve(play.cluster, HERE, reply=refusal(403, words, "Forbidden"))
        await open_volumes(play, shows="may not list volume claims in namespace default.")
        await play.until(lambda: words in play.text and ":info shows your permissions" in play.text, words)


async def test_volume_claims_are_listed_when_their_events_are_forbidden(tmp_path: Path) -> None:
    async with console_on(tmp_path) as play:
        serve(play.cluster, SAID, reply=refusal(403, "no events", "Forbidden"))
        serve(play.cluster, HERE, scratch)
        await open_volumes(play)
        await play.until(lambda: "scratch" in play.text and "Pending" in play.text)


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
        words = words_of(play, "bert-master-0")[:7]
        assert words == ["bert-master-0", "bert", "Running", "0/1", "2", "4", "a"]
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
