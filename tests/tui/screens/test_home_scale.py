"""What a frame of home costs where there are thousands of nodes: counted in calls, not by any clock."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType

import pytest

from k8s.snapshot import ClusterSnapshot, Share
from tests.support.home_clusters import cluster_of
from tests.support.hosted_view import Hosted, hosted
from tests.support.idle import until
from tests.support.objects import joined
from tests.tui.screens.test_jobs import picture
from tui.screens.lists.jobs import JobsView
from tui.widgets.home.node_bar import NodeBar

FEW, MANY = 50, 5_000
SIZE = (200, 60)


@pytest.fixture(scope="module")
def large() -> ClusterSnapshot:
    """Return a cluster of thousands of nodes, and hundreds of jobs on them."""
    cluster = cluster_of(MANY)
    nodes, jobs = joined(cluster["nodes"], cluster["pods"], cluster["jobs"])
    return picture(nodes=tuple(nodes.values()), jobs=tuple(jobs.values()))


def changed(snapshot: ClusterSnapshot, place: int) -> ClusterSnapshot:
    """Return a picture in which one GPU more is held, or given back, on one node."""
    nodes = list(snapshot.nodes)
    (share,) = nodes[place].resources.values()
    held = (share.allocated + 1) % share.total
    resources = {"nvidia.com/gpu": Share(share.total, held, share.unhealthy)}
    nodes[place] = replace(nodes[place], resources=resources)
    return replace(snapshot, nodes=tuple(nodes))


async def calls_of_a_frame(snapshot: ClusterSnapshot, keys: tuple[str, ...], shows: str) -> int:
    """Return how many functions of ours, and of Textual, are called for a picture with another node."""
    async with hosted(JobsView(), snapshot, SIZE) as (app, pilot):
        await pilot.press(*keys)
        await until(pilot, lambda: shows in strip_text(app))
        for place in range(20, 23):
            snapshot = changed(snapshot, place)
            app.view.snapshot = snapshot
            await pilot.pause()
        calls = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        held = strip_text(app), app.text.splitlines()[0]
        sys.setprofile(count)
        app.view.snapshot = changed(snapshot, 30)
        await pilot.pause()
        sys.setprofile(None)
        assert (strip_text(app), app.text.splitlines()[0]) != held
        return calls


def strip_text(app: Hosted) -> str:
    region = app.screen.query_one(NodeBar).region
    return "\n".join(app.text.splitlines()[region.y : region.bottom])


@pytest.mark.parametrize(
    ("keys", "shows"),
    [(("slash", *"pending", "enter"), "◇ "), (("1",), "▸")],
    ids=["the cursor on a job that could run", "the cursor on a group of nodes"],
)
async def test_a_frame_with_thousands_of_nodes_calls_no_more_than_one_with_fifty(
    large: ClusterSnapshot, keys: tuple[str, ...], shows: str
) -> None:
    few = await calls_of_a_frame(replace(large, nodes=large.nodes[:FEW]), keys, shows)
    many = await calls_of_a_frame(large, keys, shows)
    assert many < 1.5 * few + 3_000, (many, few)
