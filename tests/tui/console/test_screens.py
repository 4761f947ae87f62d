"""Looks of the views, each in two sizes and the dark theme, in every one if slow; and in ASCII."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from k8s.gpus.readings import NoReadings, NoReadingsCause, PodReadings, Source, Throttle, Usage
from tests import ROOT
from tests.scripted.server import Answer, Compute, FollowedLog, ScriptedCluster, Stall, page
from tests.support.namespace_objects import CLAIMS, EVENTS, NAMESPACES, claim, event, namespace, serve
from tests.support.night import journal_of
from tests.support.objects import Object, node
from tests.support.playground import EVENTS as OWN_EVENTS
from tests.support.playground import Playground, console_on, some_objects
from tests.support.sample_cluster import ago, cluster_of, lab
from tests.support.screen_text import compare, looks_of, resize, text_of
from tests.support.telemetry import GIB, ScriptedReader, feed_of, reading, telemetry_of
from tui.app import Console
from tui.runs.journal.choices import store_layout
from tui.runs.journal.database import Journal
from tui.screens.lists import timeline
from tui.session.telemetry_feed import TelemetryFeed
from tui.settings.options import HistoryOptions
from tui.terminal.line_filters import AsciiOnly, SanitizeFilter
from tui.text.format import Clock

OVER_JOBS = ("delete", "themes", "quit", "help")
"""Dialogs that are looked at over the list of jobs."""
QUICK_SIZES = ((80, 24), (120, 40))
SIZES = ((60, 15), *QUICK_SIZES, (200, 60))
HOME_SIZES = (*SIZES, (160, 45))
PODS = "api/v1/namespaces/default/pods"
THEMES = {"dark": "gpuconsole-dark", "light": "gpuconsole-light", "mono": "gpuconsole-mono"}
VIEWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "jobs": ((), ("llm-70b-eval",)),
    "home": (("N", "g", "3", "t", "2"), ("step 300", "loss  0.03", "on a100-[1-2]")),
    "nodes": (("tab",), ("a100-7",)),
    "node_gpus": (("tab", "enter"), ("bert-large-ft-m", "exporter")),
    "node_gpus_read": (("tab", "enter"), ("bert-large-ft-m", "Last XID 79")),
    "users": ((*":users", "enter"), ("idle now", "8 of 8")),
    "usage": (("N", "g", "u"), ("Last XID 79",)),
    "job": (("N", "g", "enter"), ("Successful", "loss from log lines", "exporter", *[" 0s "] * 4)),
    "yaml": (("N", "g", "y"), ("pytorchReplicaSpecs",)),
    "logs": (("N", "g", "l", "t"), ("step 300",)),
    "events": ((*":events", "enter"), ("FailedScheduling",)),
    "pods": ((*":pods", "enter"), (" Pods (",)),
    "volumes": ((*":volumes", "enter"), ("workspace",)),
    "namespaces": ((*":ns", "enter"), ("speech",)),
    "delete": (("N", "g", "ctrl+d"), ("Cancel",)),
    "help": (("question_mark",), ("Logs (live)",)),
    "themes": (("N", "g", *":theme", "enter"), ("BACKGROUND",)),
    "quit": (("N", "g", "q"), ("Quit gpuconsole?",)),
    "new": (("n",), ("Create",)),
}
"""Each view: the keys that lead there from home, and words by which it is known to be there, filled."""
WITH_CHARTS = ("home", "job")
"""Views that `--ascii` draws otherwise; in all others it replaces each glyph by another one."""
DEAR = ("new",)
"""Views that take too long for the quick tests."""
WITH_TELEMETRY = ("node_gpus_read", "users", "usage")
"""Views of a lab whose GPUs are measured; the others are of one without an exporter."""
NONE_HERE = NoReadings(NoReadingsCause.NO_EXPORTER, "No DCGM exporter runs on it.")


HOMES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no_nodes": ({"nodes": 0}, ("llm-70b-eval",)),
    "no_jobs": ({"nodes": 2, "has_jobs": False}, ("No jobs",)),
    "2_nodes": ({"nodes": 2}, ("step 300", "loss  0.03", "on gpu-1")),
    "20_nodes": ({"nodes": 20}, ("step 300", "loss  0.03", "on a100-[1-2]")),
    "1000_nodes": ({"nodes": 1000}, ("step 300", "loss  0.03", "on a100-[1-2]")),
}
"""Clusters, and words by which home is known to be filled at 120x40."""


@pytest.fixture(autouse=True)
def user_is_li(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "li")


@pytest.mark.parametrize("view", [view for view in VIEWS if view not in DEAR])
async def test_a_view_looks_as_accepted(tmp_path: Path, view: str) -> None:
    async with on_the_lab(tmp_path, view) as play:
        await compare_sizes(play, view, QUICK_SIZES)


async def test_the_timeline_looks_as_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Times are absolute. What the console itself records is later, and out of the picture.
    now_s, history = 1_700_000_000.0, HistoryOptions(days=36_500)
    clock = Clock(datetime.fromtimestamp(now_s, UTC))
    monkeypatch.setattr(timeline, "Clock", SimpleNamespace(ahead=lambda _offset_s: clock))
    monkeypatch.setattr(Clock, "time", lambda _clock, at, form="%H:%M:%S": at.strftime(form))
    journal_of(tmp_path / "state", now_s=now_s).close()
    async with console_on(tmp_path, history=history, **some_objects()) as play:
        await play.press("ctrl+t", shows="Σ 9 events of 4 jobs · 1 time not observed")
        await compare_sizes(play, "timeline", QUICK_SIZES)


@pytest.mark.parametrize("name", HOMES)
async def test_home_looks_as_accepted(tmp_path: Path, name: str) -> None:
    async with home_on(tmp_path, name) as play:
        await compare_sizes(play, f"home_{name}", QUICK_SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
async def test_a_view_looks_as_accepted_in_every_size_and_theme(tmp_path: Path, view: str) -> None:
    seen: dict[tuple[int, int], dict[str, str]] = {size: {} for size in SIZES}
    async with on_the_lab(tmp_path, view) as play:
        for look, theme in THEMES.items():  # the outer loop: a theme costs more than a size
            play.console.theme = theme
            for size, parts in seen.items():
                text, looks = await in_size(play, size)
                if text != parts.get("dark text"):
                    parts[f"{look} text"] = text
                parts[f"{look} looks"] = looks
    if view in WITH_CHARTS:
        async with on_the_lab(tmp_path, view, is_ascii=True) as play:
            for size, parts in seen.items():
                parts["ascii text"], _ = await in_size(play, size)
                assert parts["ascii text"].isascii()
    for size, parts in seen.items():
        if size in QUICK_SIZES and view not in DEAR:
            del parts["dark text"], parts["dark looks"]
            compare(f"themes/{file_of(view, size)}", parts)
        else:
            compare(file_of(view, size), parts)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOMES)
async def test_home_looks_as_accepted_in_every_size(tmp_path: Path, name: str) -> None:
    async with home_on(tmp_path, name) as play:
        await compare_sizes(play, f"home_{name}", [size for size in HOME_SIZES if size not in QUICK_SIZES])


@pytest.mark.slow
async def test_home_looks_as_accepted_in_every_theme(tmp_path: Path) -> None:
    sizes = ((120, 40), (200, 60))
    seen: dict[tuple[int, int], dict[str, str]] = {size: {} for size in sizes}
    async with home_on(tmp_path, "20_nodes") as play:
        for look in ("light", "mono"):
            play.console.theme = THEMES[look]
            for size, parts in seen.items():
                parts[f"{look} text"], parts[f"{look} looks"] = await in_size(play, size)
    async with home_on(tmp_path, "20_nodes", is_ascii=True) as play:
        for size, parts in seen.items():
            parts["ascii text"], _ = await in_size(play, size)
            assert parts["ascii text"].isascii()
    for size, parts in seen.items():
        compare(file_of("home_themes", size), parts)


def file_of(view: str, size: tuple[int, int]) -> str:
    return f"{view}-{size[0]}x{size[1]}"


async def compare_sizes(play: Playground, view: str, sizes: Sequence[tuple[int, int]]) -> None:
    """Compare the screen in the dark theme with what was accepted, in each size."""
    for size in sizes:
        text, looks = await in_size(play, size)
        compare(file_of(view, size), {"dark text": text, "dark looks": looks})


@asynccontextmanager
async def on_the_lab(tmp_path: Path, view: str, **options: Any) -> AsyncIterator[Playground]:
    if view in OVER_JOBS:  # behind a dialog the log would say when it was written: a clock
        store_layout(Journal(tmp_path / "state"), "lab", "list")
    shown = {"is_all_namespaces": True, "prepare": say, **lab(), **options}
    async with console_on(tmp_path, size=(120, 40), **shown) as play:
        keys, words = VIEWS[view]
        console = play.console
        play.session.telemetry = telemetry_of_the_lab(console, is_read=view in WITH_TELEMETRY)
        for key in keys:
            await play.until_idle()
            await play.press("colon" if key == ":" else key)
        await play.until(lambda: all(play.text.count(word) >= words.count(word) for word in words))
        yield play


@asynccontextmanager
async def home_on(tmp_path: Path, name: str, **options: Any) -> AsyncIterator[Playground]:
    """Open the console on a cluster, with the cursor on the first job by name."""
    settings, words = HOMES[name]
    shown: dict[str, Any] = {"prepare": say_of_home, "size": (120, 40), **cluster_of(**settings), **options}
    async with console_on(tmp_path, **shown) as play:
        for key in ("N", "g", "3", "t", "2"):  # without the times of lines: they are those of the test
            await play.until_idle()
            await play.press(key)
        await play.until(lambda: all(word in play.text for word in words))
        yield play


def telemetry_of_the_lab(console: Console, *, is_read: bool) -> TelemetryFeed:
    """Return a feed of two nodes of the lab with fresh GPU readings, or of nodes without an exporter."""
    ahead: dict[str, Any] = {"ago_s": -3600}
    hot = {"xid": 79, "temperature_c": 91.0, "throttles": frozenset({Throttle.THERMAL}), **ahead}
    busy = [reading("a100-1", index, 97 - index, "bert-large-ft-master-0", **ahead) for index in range(4)]
    busy += [reading("a100-1", index, 88, "bert-large-ft-worker-0", **ahead) for index in range(4, 7)]
    busy.append(reading("a100-1", 7, 31, "bert-large-ft-worker-0", **hot))
    idle = [reading("a100-3", index, 1, "vit-h-pretrain-worker-0", **ahead) for index in range(8)]
    usage = Usage(13.2, 96 * GIB, Source.METRICS, idle[0].read_at)
    used = PodReadings("default", "bert-large-ft-master-0", usage)
    nodes = {node.name: NONE_HERE for node in console.snapshot.nodes if node.gpus_total}
    told = telemetry_of(*busy, *idle, pods=[used]) if is_read else telemetry_of(missing=nodes)
    return feed_of(
        ScriptedReader(told),
        jobs=lambda: console.snapshot.jobs,
        nodes=lambda: console.snapshot.nodes,
        read_s=3600.0,
    )


async def in_size(play: Playground, size: tuple[int, int]) -> tuple[str, str]:
    await resize(play.pilot, *size)
    return await be_quiet(play)


async def be_quiet(play: Playground) -> tuple[str, str]:
    """Wait until all is there and nothing moves on the screen; return its text and looks."""
    before, now = ("", ""), ("", "?")
    while before != now:
        before = now
        await play.until_idle()
        await play.pilot.pause(0.05)  # what has come is not painted at once
        now = text_of(play.console), looks_of(play.console)
    return now


def say(cluster: ScriptedCluster) -> None:
    """Give the lab what its jobs print, what happened to them, and where they write."""
    pod = ("Pod", "llm-70b-eval-master-0")
    words = "0/11 nodes are available: 1 node(s) were unschedulable, 10 Insufficient nvidia.com/gpu."
    waits = event("2", pod, "FailedScheduling", words, kind="Warning", at=ago(minutes=9), count=12)
    for path in (EVENTS, OWN_EVENTS):
        serve(cluster, path, event_of_bert(), waits)
    serve(cluster, CLAIMS, claim("workspace", "2Ti"), claim("scratch", phase="Pending", storage="local"))
    serve(cluster, NAMESPACES, namespace("default"), namespace("speech"), namespace("old", "Terminating"))
    cluster.say("/api/v1/namespaces/default", Answer(namespace("default")))
    found = lab()
    for place, objects in (("apis/kubeflow.org/v1/namespaces/default/pytorchjobs", "jobs"), (PODS, "pods")):
        cluster.say(f"/{place}", Stall(), watch=True)
        for obj in found[objects]:
            dated = {**obj, "metadata": {**obj["metadata"], "creationTimestamp": "2026-05-14T10:00:00Z"}}
            cluster.say(f"/{place}/{obj['metadata']['name']}", Answer(dated))
    for place, rank in (("master-0", 0), ("worker-0", 4), ("worker-1", 8), ("worker-2", 12)):
        steps = range(10, 301, 10)
        # In the future: it is never silent, however long the test takes.
        lines = (f"{ago(hours=-1)} [rank{rank}]: step {step} loss {9 / step:.3f}\n" for step in steps)
        log = f"/{PODS}/bert-large-ft-{place}/log"
        cluster.say(log, FollowedLog("".join(lines).encode()))


OF_BERT = "=bert-large-ft"


def event_of_bert() -> Object:
    job = ("PyTorchJob", "bert-large-ft")
    return event("1", job, "SuccessfulCreatePod", "Created pod.", at=ago(hours=2, minutes=15))


def say_of_home(cluster: ScriptedCluster) -> None:
    """Give the lab what its jobs print, and each what happened to it alone."""
    say(cluster)
    made = event_of_bert()
    cluster.forget(OWN_EVENTS)
    cluster.say(
        OWN_EVENTS,
        Compute(lambda asked: page([made] if asked.query["fieldSelector"].endswith(OF_BERT) else [])),
    )


TUI = ROOT / "tui"
BLACK = Color(0, 0, 0)


def in_ascii(text: str) -> str:
    (segment,) = AsciiOnly().apply([Segment(text)], BLACK)
    return segment.text


def glyphs_of(path: Path) -> Iterator[tuple[str, str]]:
    """Find what is not ASCII in the strings of a file that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {id(part.value) for part in ast.walk(tree) if isinstance(part, ast.Expr)}
    for part in ast.walk(tree):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in documented:
            yield from ((path.name, char) for char in part.value if not char.isascii())


def test_every_glyph_in_the_source_has_an_ascii_replacement() -> None:
    drawn = {found for path in TUI.rglob("*.py") for found in glyphs_of(path)}
    assert {"…", "›", "·", "▮", "▯", "✕", "●", "▸", "Σ", "─"} <= {char for _, char in drawn}
    assert {found for found in drawn if in_ascii(found[1]) == "?"} == set()


@settings(max_examples=200)
@given(st.text(st.characters(), max_size=60))
def test_any_text_is_converted_to_ascii_of_the_same_width(text: str) -> None:
    (freed,) = SanitizeFilter().apply([Segment(text)], BLACK)
    drawn = in_ascii(freed.text)
    assert drawn.isascii() and (drawn.isprintable() or not drawn)
    assert cell_len(drawn) == cell_len(text)


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("Jobs › bert… · 8×4 GPUs", "Jobs > bert~ | 8x4 GPUs"),
        ("╭─ ▮▮▯✕ ─╮", "+- ##-x -+"),
        ("▸ ● ↑↓ └ ✓ –", "> * ^v ` + -"),
        ("▁▂▃▄▅▆▇", "_.-=+*#"),
        ("Zoë Müller, naïve café", "Zoe Muller, naive cafe"),
        ("训练 \uff21\uff11 Я", "???? A 1  ?"),
        ("e\u0301", "e"),
    ],
)
def test_glyphs_and_accented_letters_are_transliterated_to_ascii(text: str, drawn: str) -> None:
    assert in_ascii(text) == drawn


def strip_texts(play: Playground) -> list[str]:
    return [strip.text for strip in play.console.screen._compositor.render_strips()]


@pytest.mark.slow
async def test_ascii_mode_without_colours_marks_selection_status_and_focus_by_characters(
    tmp_path: Path,
) -> None:
    """By letters alone: what is selected, marked, unhealthy, waiting, focused, and what a button is."""
    objects = some_objects()
    objects["nodes"] = [node("a", 7, capacity=8), node("b", 8, unschedulable=True)]
    async with console_on(tmp_path, is_ascii=True, is_mono=True, **objects) as play:

        def line_with(word: str) -> str:
            lines = [line for line in strip_texts(play) if word in line]
            assert lines, play.text
            return lines[0]

        async def press(*keys: str) -> None:
            await play.press(*keys)
            assert all(line.isascii() for line in strip_texts(play)), play.text

        await press("N", "g", "space", "j")
        assert line_with("bert").startswith("*  ") and line_with("waits").startswith(" > ")
        assert "Running" in line_with("bert") and "Pending" in line_with("waits")
        assert "= 2 jobs | 8 GPUs held" in play.text
        await press("tab")
        await play.until(lambda: "unhealthy" in play.text)
        assert "x" in line_with("Ready |").split("Ready")[0]
        assert "cordoned" in play.text.lower()
        await press("escape", "N", "g", "enter")
        focused, other = (line_with(title) for title in ("+= ", "+- "))
        assert "instances" in focused and focused.rstrip().endswith("=+")
        assert other.rstrip().endswith("-+")
        await press("tab")
        assert "instances" not in line_with("+= ")
        for keys in (["escape", "ctrl+d"], ["escape", "question_mark"], ["escape", "n"], ["escape", "m"]):
            await press(*keys)
