"""The line above every view: which cluster, how many GPUs, and whether that can be trusted."""

from __future__ import annotations

import asyncio

from textual.app import App, ComposeResult

from k8s.snapshot import ClusterSnapshot, Missing
from tests.support.objects import joined, node, pod_of, pytorch_job
from tui.widgets.status_line import StatusLine

BERT = pytorch_job("bert")
NODES = Missing("list", "nodes", why='The cluster says: user "li" cannot list nodes')
PODS = Missing("list", "pods", shown="vision", why="The cluster says: no")


ENDS: list[tuple[dict[str, object], str]] = [
    ({}, "live"),
    ({"is_synced": False}, "reading…"),
    ({"stale": "reset", "trouble": "away", "stale_since_s": -725.0}, "away, 12m old"),
    ({"stale": "over", "trouble": "login expired", "stale_since_s": -725.0}, "login expired, 12m old"),
    ({"stale": "500", "trouble": "failing", "stale_since_s": -725.0}, "failing, 12m old"),
    ({"stale": "no kubeconfig"}, "away"),
    ({"throttled_until_s": -5.0}, "live"),
    ({"problems": {"nodes": NODES}}, "live, 1 not readable"),
    ({"problems": {"pods": PODS}, "namespace": "vision"}, "live"),
    ({"problems": {"pods": PODS}}, "live, only namespace vision"),
    ({"problems": {"pods": PODS, "nodes": NODES}}, "live, 1 not readable"),
]


class Lined(App[None]):
    def compose(self) -> ComposeResult:
        yield StatusLine()


async def test_the_status_line_shows_the_freshness_and_completeness_of_the_data() -> None:
    rows, jobs = joined([node("n1")], [pod_of(BERT, "master-0", on="n1", gpus=5)], [BERT])
    app = Lined()
    async with app.run_test(size=(100, 3)) as pilot:

        async def line_of(**fields: object) -> str:
            line = app.query_one(StatusLine)
            shown = {"nodes": tuple(rows.values()), "jobs": tuple(jobs.values()), "is_synced": True, **fields}
            for name in ("stale_since_s", "throttled_until_s"):
                if isinstance(ago_s := shown.get(name), float):
                    shown[name] = asyncio.get_running_loop().time() + ago_s
            line.snapshot = ClusterSnapshot(context="lab", user="li", **shown)  # type: ignore[arg-type]
            await pilot.pause()
            return line.render().plain

        for fields, end in ENDS:
            assert (await line_of(**fields)).rstrip().endswith(f" {end}"), fields
        line = await line_of(stale="busy", trouble="throttled", throttled_until_s=3599.5)
        assert "throttled by the server for 3" in line
        for problems, gpus in (
            ({}, "5/8 ─"),
            ({"nodes": NODES}, "5/? partial"),
            ({"pods": PODS}, "5/8 partial"),
        ):
            assert gpus in await line_of(problems=problems)
