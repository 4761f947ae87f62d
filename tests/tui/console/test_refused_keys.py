"""Keys that the cluster would refuse are dim, and say why when they are pressed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from tests.scripted.server import Answer, Asked, Compute, ScriptedCluster
from tests.support.playground import ONE_JOB, Playground, console_on, some_objects
from tui.screens.dialogs.confirm import DeleteScreen
from tui.screens.lists.jobs import JobsView
from tui.widgets.status_line import KeyBar

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def refuse_deleting(cluster: ScriptedCluster) -> None:
    def reply(asked: Asked) -> Answer:
        attributes = json.loads(asked.body)["spec"]["resourceAttributes"]
        return Answer({"status": {"allowed": attributes["verb"] != "delete"}})

    cluster.say(REVIEWS, Compute(reply), method="POST")


def all_asked(play: Playground) -> bool:
    """Return True if no worker reviews permissions or is about to."""
    return all(worker.is_finished for worker in play.console.workers if worker.group == "permissions")


async def test_a_forbidden_action_is_dimmed_and_explains_itself_when_pressed(tmp_path: Path) -> None:
    async with console_on(tmp_path, prepare=refuse_deleting, **some_objects()) as play:
        await play.press("j")
        bar = play.console.screen.query_one(KeyBar)
        await play.until(lambda: "jobs.delete" in bar.refused)
        assert set(bar.refused) == {"jobs.delete"}
        await play.press("ctrl+d", shows=JobsView)
        assert 'User "li" may not delete pytorchjobs in namespace "default".' in play.text
        assert play.cluster.asked(ONE_JOB, method="DELETE") == []
        await play.press("question_mark", shows='user "li" may')


async def test_all_actions_are_offered_if_access_reviews_are_unavailable(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        await play.press("j")
        await play.until(lambda: play.cluster.asked(REVIEWS, method="POST"))
        await play.until(lambda: all_asked(play))
        assert play.console.screen.query_one(KeyBar).refused == {}
        await play.press("ctrl+d", shows=DeleteScreen)


async def test_moving_the_cursor_does_not_repeat_access_reviews(tmp_path: Path) -> None:
    async with console_on(tmp_path, prepare=refuse_deleting, **some_objects()) as play:
        await play.press("j")
        bar = play.console.screen.query_one(KeyBar)
        await play.until(lambda: bar.refused)
        await play.until(lambda: all_asked(play))
        asked = len(play.cluster.asked(REVIEWS, method="POST"))
        for _ in range(5):
            await play.press("k", "j")
        await play.until(lambda: all_asked(play))
        assert len(play.cluster.asked(REVIEWS, method="POST")) == asked


def is_refused(play: Playground, id: str) -> bool:
    return id in play.console.screen.query_one(KeyBar).refused


async def test_labelling_a_node_without_permission_is_dimmed_and_explained(tmp_path: Path) -> None:
    def refuse_patching(cluster: ScriptedCluster) -> None:
        def reply(asked: Asked) -> Answer:
            attributes = json.loads(asked.body)["spec"]["resourceAttributes"]
            is_node = attributes["resource"] == "nodes" and attributes["namespace"] == ""
            return Answer({"status": {"allowed": not is_node}})

        cluster.say(REVIEWS, Compute(reply), method="POST")

    async with console_on(tmp_path, prepare=refuse_patching, **some_objects()) as play:
        for key, id in (("1", "strip.gpu_schedule"), ("tab", "nodes.gpu_schedule")):
            await play.press(key)
            await play.until(partial(is_refused, play, id))
            await play.press("t", shows='User "li" may not patch nodes.')
        assert play.cluster.asked("/api/v1/nodes/a", method="PATCH") == []
