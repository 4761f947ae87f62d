"""Safety of the console for any text: no terminal control is drawn, and nothing breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console as Printer
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.color import Color
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from k8s.logs import Item, LogLine, Mark, Marker, Target
from k8s.reasons.cause import ERROR, Cause
from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import UNSAFE
from tests.scripted.server import Answer, ScriptedCluster, Stream, page
from tests.support.guide_runs import ended_run
from tests.support.hosted_view import FramedApp, hosted
from tests.support.idle import until
from tests.support.namespace_objects import CLAIMS, claim, in_namespace
from tests.support.objects import Object, joined, node, pod_of, pytorch_job
from tests.support.playground import EVENTS, LISTS, Playground
from tui.app import Console
from tui.runs.series import Series
from tui.screens import ACTIONS
from tui.screens.base.feed_view import DescribedList
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.lists.gpus import NodeGpusView
from tui.screens.lists.jobs import JobsView
from tui.screens.lists.nodes import NodesView
from tui.screens.lists.users import UsersView
from tui.settings.options import ConsoleOptions
from tui.tables.column import Cell, Column, Row
from tui.terminal.line_filters import AsciiOnly, SanitizeFilter
from tui.widgets.curve_chart import CurveChart, PlotCurve
from tui.widgets.form.job_fields import Notice, PreflightView
from tui.widgets.form.manifest_pane import YamlView
from tui.widgets.log.view import LogView
from tui.widgets.table.table import Table

BLACK = Color(0, 0, 0)


SEQUENCES = (
    "\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]52;c;YQ==\x1b\\\x1bPq#0\x1b\\\x1b_apc\x1b^pm\x1bX\x1bc"
    "\x9b5n\x9d8;;http://x\x9clink\x90dcs\x98\x9e\x9f\x7f\x00\x85\x07\x08\r\n\t\x0b end\x1b"
)


MARKUP = "[/b][red]x[/red][@click=app.quit]q[/][link=http://x]l[/link]\\[a] $primary {x} %s [[ ]] [/] [bold"


LETTERS = (
    "pods\u202egpj\u2066\u200b\u200d\ufeff\xad e\u0301\u0301 训练 👩\u200d👩\u200d👧 ⚠\ufe0f"
    " \U000e0041\u2028\ufdfd\u115f"
)


HOSTILE = {
    "sequences": SEQUENCES,
    "markup": MARKUP,
    "letters": LETTERS,
    "long": ((SEQUENCES + MARKUP + LETTERS) * 100)[:10_000],
}


NASTY = st.lists(
    st.one_of(st.sampled_from((*SEQUENCES, *MARKUP, *LETTERS, "\ud800", "训" * 50)), st.characters()),
    max_size=30,
).map("".join)


def assert_harmless(strips: Sequence[Strip], width: int) -> None:
    for strip in strips:
        for text, style, control in strip:
            assert not control and not UNSAFE.search(text), repr(text)
            assert not (style and style.link)
        assert sum(cell_len(text) for text, _, _ in strip) <= width, strip.text
        strip.text.encode("utf-8")


def assert_screen_harmless(app: App[Any]) -> None:
    assert_harmless(app.screen._compositor.render_strips(), app.screen.size.width)


def assert_all_harmless(app: App[Any]) -> None:
    """Look at what is composed, and at every widget alone: what hides now may be seen next."""
    screen = app.screen
    assert_screen_harmless(app)
    for widget in screen.walk_children(Widget):
        if widget.display and widget.size:
            width, height = widget.outer_size
            assert_harmless(widget.render_lines(Region(0, 0, width, height)), width)


@settings(max_examples=200)
@given(st.lists(NASTY, max_size=5))
def test_the_sanitize_filter_removes_control_sequences_and_links_and_keeps_the_width(
    texts: list[str],
) -> None:
    linked = Style(link="http://x\x1b]0;t\x07", bold=True)
    segments = [Segment(text, linked if number % 2 else None) for number, text in enumerate(texts)]
    passed = SanitizeFilter().apply(segments, BLACK)
    assert [cell_len(text) for text, _, _ in passed] == [cell_len(text) for text in texts]
    assert_harmless([Strip(passed)], sum(map(cell_len, texts)))
    assert all(style is None or style.bold for _, style, _ in passed)
    sent = Printer(force_terminal=True, color_system=None)
    assert "\x1b]" not in "".join(Strip([segment]).render(sent) for segment in passed)


def test_the_sanitize_filter_drops_control_segments_and_returns_harmless_lines_unchanged() -> None:
    plain = [Segment("bert …", Style(bold=True)), Segment("训练")]
    assert SanitizeFilter().apply(plain, BLACK) is plain
    control = Control.home().segment
    assert SanitizeFilter().apply([*plain, control], BLACK) == plain


def test_the_console_applies_the_sanitize_filter_before_other_line_filters() -> None:
    filters = [type(each) for each in Console(ConsoleOptions(is_ascii=True)).get_line_filters()]
    assert filters[:2] == [SanitizeFilter, AsciiOnly]
    assert ANSIToTruecolor in filters[2:]


class Careless(Widget):
    """A widget that draws its text unchanged, as any third-party widget might."""

    DEFAULT_CSS = "Careless { width: 40; height: 3; border: round red; }"

    def render_line(self, y: int) -> Strip:
        return Strip([Segment(SEQUENCES), Control.clear().segment, Segment(LETTERS, Style(link="x\x07"))])


async def test_unsanitized_widget_text_is_sanitized_when_rendered() -> None:
    console = Console(ConsoleOptions())
    async with console.run_test(size=(80, 24)) as pilot:
        careless = Careless()
        careless.border_title = "\x1b[31m\u202etitle"
        await console.screen.mount(careless)
        await pilot.pause()
        assert_all_harmless(console)
        assert any("red" in strip.text for strip in careless.render_lines(Region(0, 0, 42, 3)))


class Ungated(Console):
    """The console without its gate: its own widgets must be harmless by themselves.

    Except in the prompt, where a name that is accepted must stay the name that it is.
    """

    is_gated = False

    def get_line_filters(self) -> Sequence[LineFilter]:
        return super().get_line_filters() if self.is_gated else []


def hostile_objects(text: str, long: str) -> dict[str, list[Object]]:
    """Return a node, a job and its pods with hostile text wherever a server accepts it."""
    job = pytorch_job(
        "bert", workers=2, gpus=4, annotations={"gpuconsole.dev/user": text, text: text}, labels={text: text}
    )
    job["metadata"]["name"] = job_name = text[:2000]
    job["status"] = {"conditions": [{"type": text, "status": "True", "reason": text, "message": long}]}
    waits = {"type": "PodScheduled", "status": "False", "reason": text, "message": long}
    terminated = {"exitCode": 1, "reason": text, "message": long}
    container = {
        "name": text,
        "restartCount": 2,
        "state": {"waiting": terminated},
        "lastState": {"terminated": terminated},
    }
    pods = [
        pod_of(job, "master-0", on=text, gpus=4, containerStatuses=[container]),
        pod_of(job, "worker-0", phase="Pending", conditions=[waits], reason=text, message=long),
    ]
    for pod in pods:
        pod["metadata"]["labels"]["training.kubeflow.org/job-name"] = job_name
    gpus = node(text, 8, taints=[{"key": text, "value": text, "effect": text}])
    gpus["metadata"]["labels"] = {"nvidia.com/gpu.product": text, f"node-role.kubernetes.io/{text}": ""}
    gpus["status"]["addresses"] = [{"type": "InternalIP", "address": text}]
    gpus["status"]["conditions"].append({"type": text, "status": "True", "reason": text, "message": long})
    return {"nodes": [gpus], "jobs": [job], "pods": pods, "batch": []}


def hostile_event(text: str, long: str) -> Object:
    about = {"kind": "PyTorchJob", "name": text[:2000], "uid": "job-bert"}
    return {
        "metadata": {"name": "e", "namespace": "default", "uid": "e"},
        "involvedObject": about,
        "type": text,
        "reason": text,
        "message": long,
        "source": {"component": text},
        "count": 3,
    }


def hostile_kubeconfig(host: str, text: str) -> Mapping[str, object]:
    return {
        "clusters": [{"name": text, "cluster": {"server": host}}, {"name": "x", "cluster": {"server": text}}],
        "users": [{"name": text, "user": {"token": "t"}}],
        "contexts": [
            {"name": text, "context": {"cluster": text, "user": text, "namespace": "default"}},
            {"name": f"other {text}", "context": {"cluster": "x", "user": text, "namespace": text}},
        ],
        "current-context": text,
    }


def refused(text: str) -> Answer:
    status = {"kind": "Status", "status": "Failure", "code": 403, "reason": text, "message": text}
    return Answer(status, 403)


@asynccontextmanager
async def hostile_console(tmp_path: Path, text: str, long: str) -> AsyncIterator[Playground]:
    """Open the ungated console on a cluster whose every text is hostile; messages are `long`."""
    async with ScriptedCluster() as cluster:
        objects = hostile_objects(text, long)
        for name, path in LISTS.items():
            cluster.say(path, page(objects[name]))
            cluster.say(path, Stream(), watch=True)
        told = claim("x", text, text, annotations={"owner": text, "description": long})
        listed = {EVENTS: hostile_event(text, long), in_namespace(CLAIMS): told}
        for path, obj in listed.items():
            cluster.say(path, page([obj]))
            cluster.say(path, Stream(), watch=True)
        cluster.say(f"{in_namespace(CLAIMS)}/x", Answer(told))
        job = objects["jobs"][0]
        one = f"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{job['metadata']['name']}"
        cluster.say(one, Answer({**job, text: text}))
        cluster.say(one, refused(text), method="DELETE")
        for pod in objects["pods"]:
            name = pod["metadata"]["name"]
            cluster.say(
                f"/api/v1/namespaces/default/pods/{name}/log", Answer(f"{text}\n{long}\r{text}\n".encode())
            )
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(hostile_kubeconfig(cluster.host, text)))
        options = ConsoleOptions(
            kubeconfig=str(tmp_path / "kubeconfig"),
            state_folder=tmp_path / "state",
            config_folder=tmp_path / "config",
        )
        console = Ungated(options)
        run = ended_run(text, [1.0], arguments={f"--{text}": text}, labels={text: text}, placement=text)
        console.context.runs.add(run)
        async with console.run_test(size=(100, 30), notifications=True) as pilot:
            play = Playground(cluster, pilot, {})
            await play.until(lambda: console.snapshot.is_synced and console.snapshot.jobs)
            assert len(console.snapshot.jobs) == 1 and len(console.snapshot.nodes) == 1
            yield play


LEFT_OUT = {"quit", "shell", "edit", "namespaces.switch", "request('shell')"}
"""Actions that would end the test, need a real terminal, or leave the cluster's objects behind."""
MORE_WAYS = (
    ("enter", "W"),
    ("enter", "y"),
    ("enter", "m"),
    ("enter", "l", "a", "s"),
    ("ctrl+d",),
    ("slash", "x"),
)
"""Keys that lead from home to views and dialogs about the job under the cursor."""


def name_of(screen: Screen[Any]) -> str:
    """Return the name of a screen: of one of many lists that share a class, that of its action."""
    if isinstance(screen, DescribedList) and screen.route is not None:
        return screen.route.action
    return type(screen).__name__


async def walk(play: Playground) -> set[str]:
    """Go to every view, press its keys once, and check each screen; return the names of the screens."""
    console, seen, visited = play.console, set[str](), set[str]()
    assert isinstance(console, Ungated)
    home, is_home_used = "", False
    other_homes = cycle((".", ""))  # filters, of which each shows all jobs

    async def look() -> str:
        await play.pilot.pause()
        name = name_of(console.screen)
        assert_screen_harmless(console) if name in seen else assert_all_harmless(console)
        seen.add(name)
        return name

    async def press(*keys: str) -> None:
        await play.pilot.press(*keys)
        await look()

    async def go(where: str, argument: str = "") -> None:
        nonlocal is_home_used
        for _ in range(6):
            if isinstance(console.screen, View):
                break
            await press("escape")
        console.screen.post_message(ActionRequest(where, argument))
        is_new = await look() not in visited
        view = console.screen
        if is_new and isinstance(view, View):
            visited.add(name_of(view))
            is_home_used = True
            for key in view.keys:
                if key.action and not LEFT_OUT & {key.action, key.id, key.id.partition(".")[2]}:
                    await press(key.keys.split(",")[0])
                    await press("escape") if not isinstance(console.screen, View) else None

    async def go_home() -> None:
        nonlocal home, is_home_used
        # Another filter makes another list: one that is gone back to is as the keys have left it.
        if is_home_used:
            home, is_home_used = next(other_homes), False
        await go("jobs", home)

    for command in ACTIONS.commands():
        if command.name in LEFT_OUT:
            continue
        await go_home()
        if command.argument:
            console.is_gated = True
            await press("colon", *command.commands[0], "space", "tab")
            await press("escape")
            console.is_gated = False
        await go(command.name)
    for keys in MORE_WAYS:
        await go_home()
        for name in keys:
            await press(name)
    await go("jobs")
    return seen


@pytest.mark.slow
async def test_every_view_renders_hostile_cluster_text_harmlessly(tmp_path: Path) -> None:
    text, long = f"{MARKUP}{SEQUENCES}{LETTERS}", HOSTILE["long"]
    async with hostile_console(tmp_path, text, long) as play:
        seen = await walk(play)
        for words in (text, long):
            play.console.notify(words, title=words, severity="error", markup=False)
            await play.pilot.pause()
            assert_all_harmless(play.console)
            play.console.push_screen(ConfirmScreen(words, words, "Delete"))
            await play.pilot.pause()
            assert_all_harmless(play.console)
            await play.pilot.press("escape")
    views = {"JobsView", "NodesView", "JobView", "LogsScreen", "CurvesView", "TextView", "YamlScreen"}
    views |= {"EventsView", "volumes", "runs", "pods", "notices", "ctx", "ns"}
    assert views | {"NewJobScreen", "HelpScreen", "ThemesScreen"} <= seen


async def test_the_lists_draw_hostile_words_harmlessly_without_the_gate() -> None:
    text = f"{MARKUP}{SEQUENCES}{LETTERS}"
    objects = hostile_objects(text, HOSTILE["long"])
    nodes, jobs = joined(objects["nodes"], objects["pods"], objects["jobs"])
    shown = ClusterSnapshot(
        context=text, user=text, nodes=tuple(nodes.values()), jobs=tuple(jobs.values()), is_synced=True
    )
    for view in (JobsView(), NodesView(), NodeGpusView(text), UsersView()):
        async with hosted(view, shown, (160, 40)) as (app, pilot):
            await pilot.press("g")
            await until(pilot, lambda: app.text.count("[/b]") > 1)
            assert_all_harmless(app)


class Shelf(FramedApp):
    """The widgets that show words from outside."""

    CSS = "Table, LogView, YamlView, CurveChart { height: 6; width: 40; }"

    def compose(self) -> ComposeResult:
        yield Table(COLUMNS)
        yield Notice()
        yield PreflightView()
        yield LogView(name_of=lambda line: line.source.pod)
        yield YamlView(wraps=True)
        yield CurveChart("")

    def say(self, text: str) -> None:
        table = self.query_one(Table)
        table.empty = text
        columns = [Column("name", text, elide="middle", min_width=5), Column("status", text, elide="end")]
        rows = [
            Row(f"{text}{number}", (Cell(text), Cell.of((text, "failed"), (text, ""))), text)
            for number in (0, 1)
        ]
        table.set_columns(columns, rows)
        self.query_one(Notice).show(text)
        self.query_one(PreflightView).show([Cause(text, severity=ERROR)])
        source = Target("default", text, instance=text)
        raw = text.encode("utf-8", "surrogatepass")
        items: list[Item] = [LogLine(1, raw, source, 0, 0), Marker(Mark.NOTE, text, source, 2, 1)]
        self.query_one(LogView).append(items)
        self.query_one(YamlView).show_text(f"a: {text}")
        self.query_one(CurveChart).set_curves(
            text, [PlotCurve(text, one_point()), PlotCurve(text, one_point())], empty=text
        )


COLUMNS = (Column("name", "NAME"), Column("status", "STATUS"))


def one_point() -> Series:
    series = Series()
    series.append([(1, 1.0, 0.5)])
    return series


async def show_all(texts: Sequence[str]) -> None:
    app = Shelf()
    async with app.run_test(size=(60, 40)) as pilot:
        for text in texts:
            app.say(text)
            await pilot.pause()
            assert_all_harmless(app)


@settings(max_examples=5, derandomize=True)
@given(st.lists(NASTY, min_size=5, max_size=10))
def test_widgets_render_any_text_harmlessly(texts: list[str]) -> None:
    asyncio.run(show_all(texts))


@pytest.mark.slow
async def test_widgets_render_known_hostile_text_harmlessly() -> None:
    await show_all([*HOSTILE.values(), HOSTILE["long"] * 10, "\ud83d half", "\n" * 50, "e" + "\u0301" * 1000])
