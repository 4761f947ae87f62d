"""The list of nodes, and who holds the GPUs of one, whole or shared: cells, words, totals and keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s.models import Condition, Taint
from k8s.models.node import faults
from k8s.snapshot import ClusterSnapshot, Holder, Missing, NodeRow, Share
from tests.support.hosted_view import hosted
from tests.support.objects import GPU, Object, joined, node, pod_of, pytorch_job
from tests.support.playground import console_on
from tests.support.sample_cluster import lab
from tests.support.screen_text import resize
from tests.tui.screens.test_jobs import line_of, picture
from tui.screens.lists.gpus import NodeGpusView
from tui.screens.lists.nodes import NodesView, totals
from tui.tables.nodes import format_taints, node_status
from tui.text.format import Clock
from tui.text.gpu_bar import (
    BAD,
    COLOURS,
    FREE,
    HELD,
    MOST_CELLS,
    format_holder,
    job_marks,
    job_style,
    node_cells,
)
from tui.widgets.table.table import Table

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def row(total: int = 8, bad: int = 0, **gpus_by_job: int) -> NodeRow:
    holders = tuple(
        Holder("default", f"{name}-0", name, gpus, {GPU: gpus}) for name, gpus in gpus_by_job.items()
    )
    share = Share(total, sum(gpus_by_job.values()), bad)
    return NodeRow("a", "", (), "Ready", False, "", {GPU: share}, holders, None)


def drawn(found: NodeRow, width: int = MOST_CELLS) -> str:
    return "".join(text for text, _ in node_cells(found, width))


def test_each_gpu_is_a_cell_in_the_colour_of_the_job_that_holds_it() -> None:
    assert node_cells(row(8, 1, bert=4, vit=2)) == [
        ("▮▮▮▮", job_style("bert")),
        ("▰▰", job_style("vit")),
        ("▯▯", "gpu-free"),
        ("✕", "gpu-bad"),
    ]
    assert node_cells(row(0)) == []


def test_adjacent_jobs_have_different_shapes_without_colours() -> None:
    assert drawn(row(8, a=2, b=2, c=2, d=2)) == "▮▮▰▰▮▮▰▰"


def test_no_two_jobs_of_a_node_share_colour_and_shape_until_all_pairs_are_used() -> None:
    alike = [name for name in (f"job{number}" for number in range(200)) if job_style(name) == COLOURS[0]][:12]
    marks = job_marks(tuple(alike))
    assert len(set(marks)) == len(alike) == len(COLOURS) * len(HELD)
    assert marks[0] == (HELD[0], COLOURS[0]) and marks[1] == (HELD[1], COLOURS[0])
    found = row(16, **dict.fromkeys(alike, 1))
    assert [run for run in node_cells(found) if run[1] != "gpu-free"] == list(marks)
    assert [run for run in format_holder(found) if run[0].strip() in HELD and run[0].strip()] == [
        (f"{mark} ", look) for mark, look in marks
    ]
    assert len(job_marks(tuple(f"job{number}" for number in range(40)))) == 40


async def test_empty_columns_are_hidden_to_make_room_for_the_gpu_holders() -> None:
    full = row(8, **{f"longer-name-{number}": 1 for number in range(3)})
    async with hosted(NodesView(), ClusterSnapshot(nodes=(full,), is_synced=True), (125, 24)) as (app, _):
        header = next(line for line in app.text.splitlines() if "HELD BY" in line)
        assert "MODEL" not in header and "TAINTS" not in header
        assert all(f"longer-name-{number} 1" in app.text for number in range(3))
    told = replace(full, gpu_model="NVIDIA-H100")
    async with hosted(NodesView(), ClusterSnapshot(nodes=(told,), is_synced=True), (125, 24)) as (app, _):
        assert "MODEL" in app.text


def test_gpus_with_known_indices_are_drawn_at_their_index() -> None:
    holders = (
        Holder("default", "a-0", "a", 3, {GPU: 3}, devices=(0, 1, 6)),
        Holder("default", "b-0", "b", 1, {GPU: 1}, devices=(3,)),
    )
    found = replace(row(8), holders=holders, resources={GPU: Share(8, 4, 0)})
    assert drawn(found) == "▮▮▯▰▯▯▮▯"
    twice = (holders[0], Holder("default", "b-0", "b", 1, {GPU: 1}, devices=(6,)))
    assert drawn(replace(found, holders=twice)) == "▮▮▮▰▯▯▯▯"


@given(st.lists(st.integers(1, 40), max_size=40), st.integers(0, 60), st.integers(0, 20), st.integers(3, 40))
def test_gpu_cells_fit_their_width_and_show_every_existing_state(
    held: list[int], free: int, bad: int, width: int
) -> None:
    jobs = {f"job{number}": gpus for number, gpus in enumerate(held)}
    bar = drawn(row(sum(held) + free, bad, **jobs), width)
    assert len(bar) == min(width, sum(held) + free + bad)
    assert any(mark in bar for mark in HELD) == bool(held)
    assert (FREE in bar, BAD in bar) == (free > 0, bad > 0)


@given(st.text(max_size=20))
def test_a_job_has_one_colour_everywhere(name: str) -> None:
    assert job_style(name) == job_style(name)
    assert job_style(name).startswith("series-")


@pytest.mark.parametrize(
    ("status", "conditions", "bad", "words"),
    [
        ("Ready", (), 0, "Ready"),
        ("Ready", (), 2, "Ready · 2 unhealthy"),
        ("Ready, cordoned", (), 0, "Cordoned"),
        ("Ready, tainted", (), 0, "Tainted"),
        ("Ready, cordoned, tainted", (), 0, "Cordoned · tainted"),
        ("NotReady", (("Ready", "Unknown"),), 0, "NotReady 12m"),
        ("NotReady, cordoned", (("Ready", "False"),), 0, "NotReady 12m · cordoned"),
        (
            "Ready",
            (("Ready", "True"), ("DiskPressure", "True"), ("PIDPressure", "False")),
            0,
            "Ready · DiskPressure",
        ),
        ("not listed", (), 0, "not listed"),
    ],
)
def test_a_node_status_shows_one_word_plus_relevant_conditions(
    status: str, conditions: tuple[tuple[str, str], ...], bad: int, words: str
) -> None:
    claims = tuple(
        Condition(name, value, last_transition_time=NOW - timedelta(minutes=12)) for name, value in conditions
    )
    node = replace(row(8, bad), status=status, conditions=claims, faults=faults(claims))
    assert node_status(node, Clock(NOW)) == words


def test_a_not_ready_age_is_counted_from_the_last_heartbeat() -> None:
    changed, heard = (NOW - timedelta(seconds=seconds) for seconds in (4, 54))
    ready = Condition("Ready", "Unknown", last_transition_time=changed, last_heartbeat_time=heard)
    silent = replace(row(8), status="NotReady", conditions=(ready,))
    assert node_status(silent, Clock(NOW)) == "NotReady 54s"


def test_a_taint_is_short_in_a_list_and_whole_elsewhere() -> None:
    taint = Taint("nvidia.com/gpu", "only", "NoSchedule")
    assert format_taints(taint, is_short=True) == "NoSchedule gpu=only"
    assert format_taints(taint) == "NoSchedule nvidia.com/gpu=only"
    assert format_taints(Taint("spot", "", "NoExecute")) == "NoExecute spot"


def test_totals_show_free_blocks_and_a_job_that_fits_in_no_block() -> None:
    waits = pytorch_job("waits", workers=2, gpus=4)
    jobs = tuple(joined([], [], [waits])[1].values())
    nodes = (row(8), replace(row(8, a=5), name="b"), replace(row(8, a=5), name="c"), row(8, a=8))
    small = ClusterSnapshot(nodes=nodes[1:], jobs=jobs)
    assert (
        totals(ClusterSnapshot(nodes=nodes, jobs=jobs))
        == "Σ 4 nodes · 18 of 32 GPUs held · free in blocks of 8·3×2"
    )
    assert totals(small).endswith("free in blocks of 3×2, waits needs 4")
    assert totals(ClusterSnapshot(nodes=(row(0),))) == (
        "Σ 1 node · no GPUs: is the vendor's device plugin installed?"
    )
    refused = ClusterSnapshot(nodes=nodes, problems={"nodes": Missing("list", "nodes")})
    assert totals(refused) == "Σ 4 nodes · 18 of ? GPUs held"


async def test_the_node_list_shows_gpu_holders_and_status_of_each_node() -> None:
    async with hosted(NodesView(), picture(), (80, 24)) as (app, pilot):
        for size in ((80, 24), (120, 40), (200, 60)):
            await resize(pilot, *size)
            await pilot.pause()
            assert "▮▮▮▮▰▯▯▯   5/8 " in line_of(app, "a100-4") and "▮ sweep-lr-3e4 4  ▰" in line_of(
                app, "a100-4"
            )
            assert "▮▮▯▯▯▯▯✕   2/7" in line_of(app, "a100-8") and "Ready · 1 unhealthy" in line_of(
                app, "a100-8"
            )
            assert "Cordoned" in line_of(app, "a100-9")
            assert "NotReady 12m" in line_of(app, "h100-1")
            assert "Σ 11 nodes · 63 of 79 GPUs held · free in blocks of 5·3" in app.text
        line = line_of(app, "a100-1")
        words = ["A100-SXM4-80GB", "NoSchedule gpu=only", "10.0.4.1", "exclusive", "80G"]
        assert [word for word in words if word not in line] == [], line
        assert "control-plane" in line_of(app, "login-1")


async def test_nodes_are_sorted_by_name_and_by_free_gpus() -> None:
    async with hosted(NodesView(), picture()) as (app, pilot):
        table = app.screen.query_one(Table)
        assert [each.key for each in table.shown_rows][:2] == ["a100-1", "a100-2"]
        table.action_sort("free")
        assert [each.key for each in table.shown_rows][:2] == ["a100-8", "a100-4"]
        await pilot.press("N")
        assert table.shown_rows[0].key == "a100-1"
        await pilot.press("N")
        assert table.shown_rows[0].key == "login-1"


async def test_keys_lead_from_a_node_to_its_holders_its_job_and_the_next_view() -> None:
    async with hosted(NodesView(), picture()) as (app, pilot):
        await pilot.press("enter", "d", "o", "tab")
        assert app.requests == [
            *[("node_gpus", "a100-1", ())] * 2,
            ("open_job", "", ("bert-large-ft",)),
            ("next_view", "a100-1", ()),
        ]


async def test_opening_the_job_of_a_free_or_foreign_held_node_shows_a_message() -> None:
    async with hosted(NodesView(), picture(jobs=())) as (app, pilot):
        await pilot.press("o")
        assert "Its GPUs are held from another namespace" in app.text
        await pilot.press("G", "o")
        assert "No job holds a GPU of this node." in app.text
        assert app.requests == []


async def test_an_empty_node_list_shows_the_reason_and_the_key_to_press() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"is_synced": False}, "Reading the cluster…"),
        ({}, "The cluster has no nodes yet"),
        ({"stale": "Connection refused"}, "ctrl+r retries now"),
        ({"problems": {"nodes": Missing("list", "nodes")}}, "may not list nodes"),
    )
    async with hosted(NodesView(), ClusterSnapshot(), (80, 24)) as (app, pilot):
        for fields, words in cases:
            app.view.snapshot = picture(nodes=(), jobs=(), **fields)
            await pilot.pause()
            assert words in app.text


async def test_gpu_holders_are_listed_with_job_pod_and_age_and_the_free_gpus() -> None:
    async with hosted(NodeGpusView("a100-4"), picture()) as (app, _):
        assert "Nodes › a100-4   8 × A100-SXM4-80GB · Ready" in app.text
        line = line_of(app, "sweep-lr-3e4")
        words = ["▮▮▮▮ 4", "default", "chen", "Restarting", "31m", "sweep-lr-3e4-master-0"]
        assert [word for word in words if word not in line] == [], line
        assert "▰ 1" in line_of(app, "notebook-li") and "4d0h" in line_of(app, "notebook-li")
        assert "▯▯▯ 3" in line_of(app, "free")
        assert "Σ 2 pods of 2 jobs · 5 of 8 GPUs held" in app.text
    async with hosted(NodeGpusView("a100-8"), picture()) as (app, _):
        assert any("✕ 1 " in line and "unhealthy" in line for line in app.text.splitlines())
    async with hosted(NodeGpusView("a100-9"), picture()) as (app, _):
        assert "free, but the node takes no pods" in app.text


async def test_keys_lead_from_a_holder_to_its_job() -> None:
    async with hosted(NodeGpusView("a100-1"), picture()) as (app, pilot):
        await pilot.press("j", "enter", "d", "l", "W")
        actions = ("open_job", "open_job", "logs", "why")
        assert app.requests == [(action, "worker-0", ("bert-large-ft",)) for action in actions]


async def test_enter_on_free_or_foreign_gpus_shows_a_message() -> None:
    async with hosted(NodeGpusView("a100-4"), picture(jobs=())) as (app, pilot):
        await pilot.press("enter")
        assert "Its job is in another namespace" in app.text
        await pilot.press("G", "enter")
        assert "No job holds these GPUs." in app.text
        assert app.requests == []
        await pilot.press("T", "t")
        assert app.requests == [("gpu_links", "", ()), ("gpu_schedule", "", ())], "keys of the node"


async def test_a_node_removed_while_its_view_is_open_is_reported() -> None:
    async with hosted(NodeGpusView("a100-4"), picture()) as (app, pilot):
        app.view.snapshot = picture(nodes=())
        await pilot.pause()
        assert "not found; it may have been removed" in app.text


async def test_gpu_indices_from_the_scheduler_annotation_are_shown() -> None:
    bert = pytorch_job("bert", gpus=2)
    pod = pod_of(bert, "master-0", on="a", gpus=2)
    pod["metadata"]["annotations"] = {"topology.kubernetes.io/gpu-group": "1,3"}
    nodes, jobs = joined([node("a")], [pod], [bert])
    shown = picture(nodes=tuple(nodes.values()), jobs=tuple(jobs.values()))
    async with hosted(NodeGpusView("a"), shown) as (app, _):
        assert "▮▮ 1,3" in app.text
    async with hosted(NodesView(), shown) as (app, _):
        assert "▯▮▯▮▯▯▯▯" in app.text


async def test_the_console_goes_from_a_node_to_its_holders_to_the_job_and_back(tmp_path: Path) -> None:
    async with console_on(tmp_path, **lab()) as play:
        await play.press("tab", "enter", shows="Nodes › a100-1")
        pod = pod_of(pytorch_job("bert-large-ft", 4, 4), "master-0", on="a100-1", gpus=4)
        play.watches["pods"].event("DELETED", pod)
        await play.until(lambda: "▯▯▯▯ 4" in play.text)
        await play.press("escape", shows=NodesView)


def offering(name: str, labels: dict[str, str], offered: dict[str, str], **spec: bool) -> Object:
    found = node(name, gpus=0, **spec)
    found["metadata"]["labels"] = labels
    found["status"]["allocatable"] = found["status"]["capacity"] = offered
    return found


async def test_each_node_shows_its_gpu_sharing_mode_and_gpu_memory(tmp_path: Path) -> None:
    h100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81920"}
    nodes = [
        offering("whole", h100, {"nvidia.com/gpu": "8"}),
        offering("shared", {}, {"aliyun.com/gpu-mem": "160", "aliyun.com/gpu-count": "2"}),
        offering("sliced", {}, {"nvidia.com/mig-1g.10gb": "7"}, unschedulable=True),
    ]
    pod = {
        "metadata": {"name": "serve", "namespace": "default", "uid": "p", "resourceVersion": "1"},
        "spec": {
            "nodeName": "shared",
            "containers": [{"name": "a", "resources": {"limits": {"aliyun.com/gpu-mem": "40"}}}],
        },
        "status": {"phase": "Running"},
    }
    async with console_on(tmp_path, nodes=nodes, pods=[pod], size=(200, 40)) as play:
        await play.press("tab")
        for name, words in {
            "whole": ["0/8", "8", "exclusive", "80G"],
            "shared": ["40/160G", "120G", "serve 40G", "share", "80G"],
            "sliced": ["0/7", "0", "Cordoned", "mig"],
        }.items():
            line = next(line for line in play.text.splitlines() if f" {name} " in line)
            assert [word for word in words if word not in line] == [], line
        assert "0 of 8 GPUs and 0 of 7 shares of 1 GPU held · free in blocks of 8" in play.text
