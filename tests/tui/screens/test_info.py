"""`:info`: the kind of cluster, the user's permissions, and the places of files; never a secret."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal
from tests.support.namespace_objects import namespace
from tests.support.playground import Playground, console_on, some_objects
from tui.app import Console
from tui.screens.documents.text import TextView
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
        await open_info(play, shows="not readable  nodes")


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
