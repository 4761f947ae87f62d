"""`:info`: the cluster, permissions and places of files, never a secret; and why a job waits, in its view."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal
from tests.support.namespace_objects import namespace
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.playground import Playground, console_on, some_objects
from tests.support.screen_text import resize
from tui.app import Console
from tui.screens.documents.text import TextView
from tui.screens.job.job import JobView
from tui.session.info import address, as_text, verbs_text
from tui.settings.keys import UserKeys
from tui.settings.options import ConsoleOptions
from tui.terminal.clipboard import OVERRIDE

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def open_info(play: Playground, shows: str) -> None:
    await play.press("colon", *"info", "enter", shows=TextView)
    await play.until(lambda: shows in said(play), shows)


def said(play: Playground) -> str:
    """Return the whole text, also what is scrolled away."""
    view = play.console.screen
    return view.copy_text() if isinstance(view, TextView) else ""


def all_but_delete(asked: Asked) -> Reply:
    return Answer({"status": {"allowed": b'"delete"' not in asked.body}}, 201)


MOST = Compute(all_but_delete)


def review(cluster: ScriptedCluster, reply: Reply = MOST) -> None:
    cluster.say(REVIEWS, reply, method="POST")


async def test_info_shows_the_text_of_the_command(tmp_path: Path) -> None:
    async with console_on(tmp_path, size=(80, 24), prepare=review, **some_objects()) as play:
        await open_info(play, shows="may list, may create, may not delete")
        for words in (
            "context lab",
            f"host {play.cluster.host}",
            "user li",
            "namespace default",
            "job kinds PyTorchJob, Job",
            "This user, in namespace default",
            "over SSH",
            "copies go to",
            f"{tmp_path / 'state'}",
            "gpuconsole.log",
            "textual",
            "python",
        ):
            assert words in " ".join(said(play).split()), words
        assert "token" not in said(play)


async def test_info_shows_the_permissions_in_the_chosen_namespace(tmp_path: Path) -> None:
    async with console_on(tmp_path, prepare=review, **some_objects()) as play:
        play.cluster.say("/api/v1/namespaces/vision", Answer(namespace("vision")))
        await play.press("colon", *"ns", "space", *"vision", "enter")
        await play.until(lambda: play.console.snapshot.namespace == "vision")
        await open_info(play, shows="This user, in namespace vision")


async def test_unknown_permissions_are_shown_as_unknown_when_access_reviews_are_forbidden(
    tmp_path: Path,
) -> None:
    silent = refusal(403, "nobody may ask", "Forbidden")
    async with console_on(tmp_path, prepare=partial(review, reply=silent)) as play:
        await open_info(play, shows="perhaps may list")


async def test_info_shows_unreadable_kinds(tmp_path: Path) -> None:
    async with console_on(tmp_path, refused="nodes", prepare=review) as play:
        await open_info(play, shows="not readable    nodes")


async def test_info_can_be_searched_and_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE, "file")
    async with console_on(tmp_path, size=(80, 24), prepare=review, **some_objects()) as play:
        await open_info(play, shows="may list")
        assert "copies go to  a file" in said(play)
        assert "gpuconsole.log" not in play.text
        await play.press("slash", *"gpuconsole.log", "enter", shows="1 of 1")
        assert "gpuconsole.log" in play.text
        await play.press("c", shows="lines written to")
        assert "may list" in (tmp_path / "state" / "clipboard.txt").read_text()


async def test_info_shows_everything_else_without_a_cluster(tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(json.dumps({"contexts": [], "clusters": [], "users": []}))
    options = ConsoleOptions(kubeconfig=str(nowhere), state_folder=tmp_path, config_folder=tmp_path)
    console = Console(options, keys=UserKeys())
    async with console.run_test(size=(100, 40)) as pilot:
        while not console.snapshot.stale:
            await pilot.pause(0.02)
        await pilot.press("colon", *"info", "enter")
        view = console.screen
        assert isinstance(view, TextView)
        while "There is no current context" not in view.copy_text():
            await pilot.pause(0.02)
        assert str(tmp_path) in view.copy_text()
        for command in ("events", "volumes", "ns"):
            await pilot.press("colon", *command, "enter")
            await pilot.pause()
            lines = console.screen._compositor.render_strips()
            text = "\n".join(strip.text for strip in lines)
            assert "There is no cluster to connect to" in text and "ctrl+r" in text, text


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("https://li:SECRET@lab.example:6443/k8s?token=SECRET#SECRET", "https://lab.example:6443/k8s"),
        ("https://[broken", ""),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_credentials(host: str, shown: str) -> None:
    assert address(host) == shown


def test_unknown_permissions_are_worded_as_perhaps_and_empty_fields_are_omitted() -> None:
    assert (
        verbs_text({"list": True, "create": False, "delete": None})
        == "may list, may not create, perhaps may delete"
    )
    assert as_text([("A", [("one", "1"), ("longer", "2"), ("none", "")])]) == "A\n  one     1\n  longer  2"


REF = JobRef("default", "bert", "PyTorchJob", "kubeflow.org/v1")
OWN = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
PODS = "/api/v1/namespaces/default/pods"
bert = pytorch_job("bert", gpus=8) | {"status": {"conditions": []}}
gpt = pytorch_job("gpt", gpus=4)
unscheduled = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}
waiting = pod_of(bert, "master-0", phase="Pending", conditions=[unscheduled])
SENTENCE = (
    "Waits for GPUs: master-0 needs 8 nvidia.com/gpu; the largest free block is 4 on a100-9 "
    "(4 free in total, 2 nodes cordoned)."
)


def objects(pod: Object = waiting) -> dict[str, Any]:
    """Return a cluster on which bert waits for gpt."""
    nodes = [node("a100-9"), node("a100-1", unschedulable=True), node("a100-2", unschedulable=True)]
    pods = [pod, pod_of(gpt, "master-0", on="a100-9", gpus=4)]
    return {"nodes": nodes, "pods": pods, "jobs": [bert, gpt]}


@asynccontextmanager
async def job_view(tmp_path: Path, pod: Object = waiting, **more: Any) -> AsyncIterator[Playground]:
    rest_s = more.pop("diagnosis_interval_s", 0.0)
    own = more.pop("own", Answer(bert))
    more.setdefault("size", (100, 30))  # too narrow for the curve, which reads the job too
    async with console_on(tmp_path, **objects(pod), **more) as play:
        play.cluster.say(OWN, own)
        play.cluster.say(f"{PODS}/bert-master-0", Answer(pod))
        await play.until(lambda: play.console.session is not None)
        await play.console.push_screen(_view(play.console, rest_s))
        await play.pilot.pause()
        yield play


def _view(console: Console, rest_s: float) -> JobView:
    assert console.session is not None
    view = JobView(console.session, REF, diagnosis_interval_s=rest_s)
    view.context = console.context
    return view.data_bind(Console.session, Console.snapshot)


def shown(play: Playground) -> ClusterSnapshot:
    assert isinstance(play.console, Console)
    return play.console.snapshot


def _is_reported(play: Playground, words: str) -> bool:
    """Return True if the job's reason has these words."""
    job = shown(play).job(REF)
    return job is not None and words in job.reason


def flat(text: str) -> str:
    """Return the text of a screen as running text."""
    return " ".join(text.split())


async def test_the_reason_is_shown_whole_below_the_title_and_a_key_opens_its_evidence(tmp_path: Path) -> None:
    async with job_view(tmp_path) as play:
        for size in ((80, 24), (120, 40)):
            await resize(play.pilot, *size)
            await play.until(lambda: SENTENCE in flat(play.text) and "No events" in play.text)
            lines = play.text.splitlines()
            assert lines[1].startswith(" Jobs › bert   PyTorchJob kubeflow.org/v1 · Pending · 0/1 pods")
            assert lines[2].startswith(" Waits for GPUs: master-0 needs 8 nvidia.com/gpu; the largest free")
            assert "─ instances 1" in lines[4]
            assert "master-0 *" in play.text
            assert "W why" in lines[-1]
        await play.press("W", shows=TextView)
        await play.until(lambda: SENTENCE in flat(play.text))
        text = flat(play.text)
        assert "Jobs › bert › why" in text
        assert "nodes: a100-9: 4 of 8 nvidia.com/gpu free, held by gpt (4)" in text
        assert "Request 4 nvidia.com/gpu per pod: 1 pod of that size fits now." in text
        await play.press("escape", shows=JobView)


async def test_a_running_job_shows_no_reason_line_and_requests_no_diagnosis(tmp_path: Path) -> None:
    async with job_view(tmp_path, pod_of(bert, "master-0", on="a100-9")) as play:
        await play.until(lambda: "Running · 1/1 pods" in play.text)
        await play.pilot.pause()
        assert not play.console.screen.query_one("#why").display
        assert play.cluster.asked(OWN) == []


async def test_the_diagnosis_is_repeated_only_when_the_job_changes(tmp_path: Path) -> None:
    async with job_view(tmp_path) as play:
        await play.until(lambda: SENTENCE in flat(play.text))
        assert len(play.cluster.asked(OWN)) == 1
        other = pod_of(gpt, "worker-0", on="a100-1", gpus=1)
        play.watches["pods"].event("ADDED", other)
        await play.until(lambda: any(row.gpus_allocated == 1 for row in shown(play).nodes))
        assert len(play.cluster.asked(OWN)) == 1
        broken = pod_of(bert, "master-0", on="a100-9", phase="Pending", containerStatuses=[_no_image()])
        play.cluster.forget(f"{PODS}/bert-master-0")
        play.cluster.say(f"{PODS}/bert-master-0", Answer(broken))
        play.watches["pods"].event("MODIFIED", broken)
        await play.until(lambda: "Waits for its image" in flat(play.text))
        assert len(play.cluster.asked(OWN)) == 2
        running = pod_of(bert, "master-0", on="a100-9")
        play.watches["pods"].event("MODIFIED", running)
        await play.until(lambda: "Running · 1/1 pods" in play.text)
        await play.until(lambda: not play.console.screen.query_one("#why").display)


def _no_image() -> Object:
    return {"name": "pytorch", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}


async def test_the_diagnosis_of_a_constantly_changing_job_is_rate_limited(tmp_path: Path) -> None:
    async with job_view(tmp_path, diagnosis_interval_s=3600) as play:
        await play.until(lambda: SENTENCE in flat(play.text))
        for number in range(5):
            told = dict(unscheduled, message=f"0/{number} nodes are unavailable.")
            changed = pod_of(bert, "master-0", phase="Pending", conditions=[told])
            play.watches["pods"].event("MODIFIED", changed)
            await play.until(partial(_is_reported, play, f"0/{number} nodes"))
            await play.pilot.pause()
        assert len(play.cluster.asked(OWN)) == 1


async def test_a_failed_diagnosis_leaves_the_status_reason_visible(tmp_path: Path) -> None:
    async with job_view(tmp_path, own=refusal(500, "etcd is away")) as play:
        await play.cluster.until_asked(OWN)
        await play.pilot.pause()
        assert "3 Insufficient nvidia.com/gpu" in flat(play.text)
        assert not play.console.screen.query_one("#why").display
