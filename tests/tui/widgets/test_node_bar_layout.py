"""The strip of nodes: every node while all fit, else groups, of which only those that change are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from k8s.snapshot import NodeRow, Share
from tests.support.objects import joined, node
from tui.text.cells import cell_len
from tui.widgets.home.node_bar_layout import NodeBarHighlight, NodeBarLayout
from tui.widgets.home.node_groups import NO_LABEL, NodeGroups

UNLIT = NodeBarHighlight()


def row(name: str, held: int = 0, **fields: object) -> NodeRow:
    made = joined([node(name, 8)], [], [])[0][name]
    return replace(made, resources={"nvidia.com/gpu": Share(8, held, 0)}, **fields)


def many(amount: int, model: str = "NVIDIA-A100", start: int = 0) -> list[NodeRow]:
    first = row("n", gpu_model=model)
    return [replace(first, name=f"n-{number:04}") for number in range(start, start + amount)]


def shown(strip: NodeBarLayout, light: NodeBarHighlight = UNLIT, width: int = 120) -> list[str]:
    lines = [strip.heading(light, "", 0, width), *(strip.row(place, None) for place in range(strip.rows))]
    return ["".join(text for text, _ in line) for line in lines]


def laid_out(nodes: Sequence[NodeRow], light: NodeBarHighlight = UNLIT, **room: int) -> NodeBarLayout:
    strip = NodeBarLayout()
    strip.lay_out(nodes, light, room.get("width", 120), room.get("rows", 12))
    return strip


def test_nodes_are_shown_individually_while_they_fit_and_grouped_by_model_otherwise() -> None:
    strip = laid_out(many(48))
    assert not strip.is_grouped and len(strip.entries) == 48 and strip.rows <= 12
    strip = laid_out(many(400) + many(50, "NVIDIA-H100", 400))
    assert strip.is_grouped and [entry.key for entry in strip.entries] == ["A100", "H100"]
    assert "A100 ▯▯▯▯▯▯▯▯▯▯▯▯ 0/3,200  400 nodes  400 whole free  largest block 8" in shown(strip)[1]
    assert shown(strip)[0] == "nodes 450 · free in blocks 8×450"


def test_node_groups_are_abbreviated_when_narrow_and_the_heading_keeps_the_highlight() -> None:
    models = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S", "Tesla-V100-SXM2-32GB")
    nodes = [row for place, model in enumerate(models) for row in many(250, model, 250 * place)]
    nodes += [replace(row("shut", 2), name="n-cordoned", status="Ready, cordoned", gpu_model=models[0])]
    light = NodeBarHighlight(words="◆ on n-[0001-0004]")
    full, brief, tight = (
        laid_out(nodes, width=width, rows=rows) for width, rows in ((160, 8), (90, 8), (80, 1))
    )
    assert "2/2,008  251 nodes  250 whole free  largest block 8  1 cordoned" in shown(full)[1]
    assert "0/2,000  250 nodes  250 whole free  largest block 8" in shown(full)[2]
    assert shown(full)[1].index("whole") == shown(full)[2].index("whole")
    assert "2/2,008  251 nodes  250 whole  block 8  1 cordoned" in shown(brief)[1]
    lines = shown(tight, light, 76)
    assert lines == [
        "nodes 1,001 · free in blocks 8×1000 · 1 cordoned · ◆ on n-[0001-0004]",
        "  A100 ▮▯▯▯▯▯ 0%  H100 ▯▯▯▯▯▯ 0%  L40S ▯▯▯▯▯▯ 0%  V100 ▯▯▯▯▯▯ 0%",
    ]
    assert shown(tight, light, 62)[0] == "nodes 1,001 · free 8×1000 · 1 cordoned · ◆ on n-[0001-0004]"
    hidden = tight.heading(light, "", 3, 45)
    assert "".join(text for text, _ in hidden).endswith("… · +3 lines")


def test_nodes_are_sorted_naturally_by_number() -> None:
    strip = laid_out([row(f"a-{number}") for number in (1, 10, 2, 21)])
    assert [entry.key for entry in strip.entries] == ["a-1", "a-2", "a-10", "a-21"]


def test_nodes_without_gpus_are_left_out_of_the_node_bar() -> None:
    cpu = joined([node("cpu", 0)], [], [])[0]["cpu"]
    assert shown(laid_out([cpu, row("a")]))[0] == "nodes 1 · free in blocks 8"
    assert shown(laid_out([])) == ["no nodes, so nothing can run"]
    assert shown(laid_out([cpu])) == ["no node has a GPU"]
    assert shown(laid_out([row("a", 8)]))[0] == "nodes 1 · no GPU is free"


def test_unschedulable_and_unhealthy_nodes_are_marked_in_words() -> None:
    bad = replace(row("c"), resources={"nvidia.com/gpu": Share(6, 0, 2)})
    tainted = row("d", status="Ready, tainted")
    strip = laid_out([row("a", status="Ready, cordoned"), row("b", 8, status="NotReady"), bad, tainted])
    heading, line = shown(strip)
    assert "free in blocks 6 · 1 not ready · 1 cordoned · 1 tainted" in heading
    for words in ("d ▯▯▯▯▯▯▯▯ tainted", "a ▯▯▯▯▯▯▯▯ cordoned", "NotReady", "c ▯▯▯▯▯▯✕✕ 0/6"):
        assert words in line
    others = [row("a", status="Ready, cordoned"), row("b", 8, status="NotReady"), bad, tainted]
    line = shown(laid_out([*many(400), *others]))[2]
    assert "GPUs" in line and "1 not ready  1 cordoned  1 tainted  2 unhealthy" in line


def test_nodes_are_grouped_by_the_configured_label() -> None:
    strip = NodeBarLayout("zone")
    nodes = [replace(each, labels={"zone": f"z{place % 2}"}) for place, each in enumerate(many(100))]
    strip.lay_out([*nodes, row("other")], NodeBarHighlight(), 120, 4)
    assert [entry.key for entry in strip.entries] == ["z0", "z1", NO_LABEL]
    assert strip.names_under(NO_LABEL) == {"other"}


def test_a_job_is_highlighted_in_its_node_group_and_a_dim_bar_has_one_style() -> None:
    light = NodeBarHighlight(frozenset({("default", "bert")}), {"n-0001": 8}, words="◆ on n-0001")
    strip = laid_out(many(400), light)
    assert "A100 ▯" in shown(strip, light)[1]  # nobody holds what is only said to be held
    held = [replace(each, resources={"nvidia.com/gpu": Share(8, 8, 0)}) for each in many(400)]
    assert "A100 ◆▮▮▮▮▮▮▮▮▮▮▮ 3,200/3,200" in shown(laid_out(held, light))[1]
    dim = laid_out(many(3), NodeBarHighlight(is_dim=True))
    assert {look for entry in dim.entries for _, look in entry.runs} == {"quiet"}


@pytest.mark.parametrize("width", [20, 60, 80, 119])
def test_the_node_bar_heading_fits_the_width(width: int) -> None:
    for nodes in (many(3), many(400), [row("x" * 60, gpu_model="y" * 60)]):
        strip = laid_out(nodes, width=width, rows=8)
        light = NodeBarHighlight(words="z" * 200)
        assert cell_len(shown(strip, light, width)[0]) <= width


def test_node_groups_stay_correct_while_nodes_change_appear_and_disappear() -> None:
    groups = NodeGroups()
    nodes = many(20)
    for changed in (
        nodes,
        [replace(nodes[0], status="NotReady"), *nodes[1:]],
        nodes[3:],
        [nodes[5], *nodes[:5]],
        [replace(each, gpu_model="H100") for each in nodes],
        [],
    ):
        groups.update(changed)
        anew = NodeGroups()
        anew.update(changed)
        assert {name: _told(each) for name, each in groups.groups.items()} == {
            name: _told(each) for name, each in anew.groups.items()
        }
        assert +groups.blocks == +anew.blocks and groups.node_count == len(changed)


def _told(group: object) -> tuple[object, ...]:
    values = {name: getattr(group, name) for name in group.__slots__}  # type: ignore[attr-defined]
    return tuple(values | {"blocks": +values["blocks"]} for _ in (0,))


class Labels(dict[str, str]):
    """Labels that count how often they are asked for."""

    asked = 0

    def get(self, key: str, default: object = None) -> Any:
        Labels.asked += 1
        return super().get(key, default)


def test_adding_one_node_before_thousands_counts_only_that_node() -> None:
    nodes = [replace(each, labels=Labels()) for each in many(5000)]
    groups = NodeGroups("zone")
    groups.update(nodes)
    before = Labels.asked
    groups.update([row("a", labels=Labels()), *nodes])
    assert (Labels.asked - before, groups.node_count) == (1, 5001)
    groups.update(nodes[1:])
    assert (Labels.asked - before, groups.node_count) == (1, 4999)
