"""`:info`: the kind of cluster, the user's permissions, and the places of files; never a secret."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from k8s.snapshot import ClusterSnapshot, Missing, NodeRow
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal
from tests.support.namespace_objects import namespace
from tests.support.objects import joined, node
from tests.support.playground import Playground, console_on, some_objects
from tui.actions.info import badge
from tui.app import Console
from tui.feeds.info import address, as_text, verbs_text
from tui.keys import UserKeys
from tui.options import ConsoleOptions
from tui.screens.documents.info import InfoView
from tui.terminal.clipboard import OVERRIDE

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def open_info(play: Playground, shows: str) -> None:
    await play.press("colon", *"info", "enter", shows=InfoView)
    await play.until(lambda: shows in said(play), shows)


def said(play: Playground) -> str:
    """Return the whole text, also what is scrolled away."""
    assert isinstance(play.console.screen, InfoView)
    return play.console.screen.copy_text()


def all_but_delete(asked: Asked) -> Reply:
    return Answer({"status": {"allowed": b'"delete"' not in asked.body}}, 201)


MOST = Compute(all_but_delete)


def review(cluster: ScriptedCluster, reply: Reply = MOST) -> None:
    cluster.say(REVIEWS, reply, method="POST")


async def test_info_shows_the_connection_the_permissions_and_the_environment(tmp_path: Path) -> None:
    async with console_on(tmp_path, size=(80, 24), prepare=review, **some_objects()) as play:
        await open_info(play, shows="may list, may create, may not delete")
        assert "Info   REAL" in play.text
        for words in (
            "context     lab",
            f"server      {play.cluster.host}",
            "user        li",
            "namespace   default",
            "job kinds   PyTorchJob, Job",
            "requests    not throttled",
            "its clock   as ours",
            "What you may do in namespace default",
            "size          80 x 24",
            "over SSH",
            "copies go to",
            f"{tmp_path / 'state'}",
            "keys.yaml  (not there)",
            "gpuconsole.log",
            "textual",
            "python",
        ):
            assert words in said(play)
        assert "token" not in said(play)


@pytest.mark.slow
async def test_info_follows_the_cluster_the_namespace_the_size_and_the_theme(tmp_path: Path) -> None:
    async with console_on(tmp_path, prepare=review, **some_objects()) as play:
        play.cluster.say("/api/v1/namespaces/vision", Answer(namespace("vision")))
        await open_info(play, shows="link        live")
        await play.press("colon", *"ns", "space", *"vision", "enter")
        await play.until(lambda: "What you may do in namespace vision" in said(play))
        asked = partial(play.cluster.asked, REVIEWS, method="POST")
        await play.until(lambda: any(b'"vision"' in each.body for each in asked()))
        await play.pilot.resize_terminal(90, 30)
        await play.until(lambda: "90 x 30" in said(play))
        await play.press("colon", *"theme", "space", *"light", "enter")
        await play.until(lambda: "theme         light" in said(play))
        await play.until(lambda: "may list" in said(play))
        await play.cluster.go_away()
        await play.until(lambda: "link        live" not in said(play))
        assert "may list" in said(play), "what was known stays"


async def test_unknown_permissions_are_shown_as_unknown_when_access_reviews_are_forbidden(
    tmp_path: Path,
) -> None:
    silent = refusal(403, "nobody may ask", "Forbidden")
    async with console_on(tmp_path, prepare=partial(review, reply=silent)) as play:
        await open_info(play, shows="perhaps may list")


async def test_info_shows_unreadable_kinds_clock_skew_and_server_throttling(tmp_path: Path) -> None:
    busy = refusal(429, "busy", "TooManyRequests", headers={"Retry-After": "20"})
    async with console_on(tmp_path, refused="nodes", prepare=partial(review, reply=busy)) as play:
        play.cluster.clock_ahead_s = 120.0
        await open_info(play, shows="throttled: silence for")
        assert "not readable  nodes" in said(play) and "nobody knows whether they are real" in said(play)
        assert "REAL" not in play.text
        await play.until(lambda: "ahead of ours; ages are marked ~" in said(play))


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
        assert isinstance(view, InfoView)
        while "There is no cluster yet." not in view.copy_text():
            await pilot.pause(0.02)
        assert "There is no current context" in view.copy_text()
        assert "REAL" not in view.copy_text() and str(nowhere) in view.copy_text()
        for command in ("events", "volumes", "ns"):
            await pilot.press("colon", *command, "enter")
            await pilot.pause()
            lines = console.screen._compositor.render_strips()
            text = "\n".join(strip.text for strip in lines)
            assert "There is no cluster to connect to" in text and "ctrl+r" in text, text


def test_a_cluster_is_labelled_real_only_once_its_nodes_were_read() -> None:
    simulated = ClusterSnapshot(is_synced=True, nodes=(_simulated(),))
    assert badge(ClusterSnapshot(), is_sandbox=False) == ""
    assert badge(ClusterSnapshot(is_synced=True, kinds=("Job",)), is_sandbox=False) == "REAL"
    assert badge(simulated, is_sandbox=False) == "SIMULATED GPUS"
    assert badge(simulated, is_sandbox=True) == "SANDBOX · SIMULATED GPUS"
    assert badge(ClusterSnapshot(), is_sandbox=True) == "SANDBOX"
    unseen = ClusterSnapshot(is_synced=True, kinds=("Job",), problems={"nodes": Missing("list", "nodes")})
    assert badge(unseen, is_sandbox=False) == "", "who knows what its nodes would say"


def _simulated() -> NodeRow:
    machine = node("a")
    machine["metadata"]["labels"] = {"gpuconsole.dev/simulated": "true"}
    return joined([machine], [], [])[0]["a"]


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
