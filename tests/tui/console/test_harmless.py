"""Whatever is said to the console, nothing is drawn that a terminal obeys, and nothing breaks."""

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
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget

import themes
from k8s.logs import Item, LogLine, Mark, Marker, Target
from k8s.text.sanitize import UNSAFE
from tests.scripted.server import Answer, ScriptedCluster, Stream, page
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.tui.console.test_console import EVENTS, LISTS, Playground
from tui.app import Console
from tui.charts.series import Series
from tui.jobs.new_job.preflight import PreflightLine
from tui.keys import ACTIONS
from tui.options import ConsoleOptions
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.terminal.line_filters import AsciiOnly, Harmless
from tui.widgets.curve_chart import CurveChart, PlotCurve
from tui.widgets.form.job_fields import Notice, PreflightView
from tui.widgets.log.view import LogView
from tui.widgets.table.table import Cell, Column, Row, Table
from tui.widgets.yaml_view import YamlView

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
"""What each string of the cluster is."""
NASTY = st.lists(
    st.one_of(st.sampled_from((*SEQUENCES, *MARKUP, *LETTERS, "\ud800", "训" * 50)), st.characters()),
    max_size=30,
).map("".join)
"""Any text, and more of what does harm than chance would bring."""


def assert_harmless(strips: Sequence[Strip], width: int) -> None:
    for strip in strips:
        for text, style, control in strip:
            assert not control and not UNSAFE.search(text), repr(text)
            assert not (style and style.link)
        assert sum(cell_len(text) for text, _, _ in strip) <= width, strip.text
        strip.text.encode("utf-8")


def assert_screen_harmless(app: App[Any]) -> None:
    """Look at what is composed."""
    assert_harmless(app.screen._compositor.render_strips(), app.screen.size.width)


def assert_all_harmless(app: App[Any]) -> None:
    """Look at what is composed, and at every widget alone: what hides now may be seen next."""
    screen = app.screen
    assert_screen_harmless(app)
    for widget in screen.walk_children(Widget):
        if widget.display and widget.size:
            width, height = widget.outer_size
            assert_harmless(widget.render_lines(Region(0, 0, width, height)), width)


# The gate itself


@settings(max_examples=200, deadline=None)
@given(st.lists(NASTY, max_size=5))
def test_nothing_passes_the_gate_that_a_terminal_obeys(texts: list[str]) -> None:
    linked = Style(link="http://x\x1b]0;t\x07", bold=True)
    segments = [Segment(text, linked if number % 2 else None) for number, text in enumerate(texts)]
    passed = Harmless().apply(segments, BLACK)
    assert [cell_len(text) for text, _, _ in passed] == [cell_len(text) for text in texts]
    assert_harmless([Strip(passed)], sum(map(cell_len, texts)))
    assert all(style is None or style.bold for _, style, _ in passed)
    sent = Printer(force_terminal=True, color_system=None)
    assert "\x1b]" not in "".join(Strip([segment]).render(sent) for segment in passed)


def test_control_segments_are_dropped_and_harmless_lines_stay_as_they_are() -> None:
    plain = [Segment("bert …", Style(bold=True)), Segment("训练")]
    assert Harmless().apply(plain, BLACK) is plain
    control = Control.home().segment
    assert Harmless().apply([*plain, control], BLACK) == plain


def test_the_console_asks_the_gate_before_any_filter_that_makes_text_of_control() -> None:
    filters = [type(each) for each in Console(ConsoleOptions(is_ascii=True)).get_line_filters()]
    assert filters[:2] == [Harmless, AsciiOnly]
    assert ANSIToTruecolor in filters[2:]


class Careless(Widget):
    """Draws what it is given, as any widget of somebody else's might."""

    DEFAULT_CSS = "Careless { width: 40; height: 3; border: round red; }"

    def render_line(self, y: int) -> Strip:
        return Strip([Segment(SEQUENCES), Control.clear().segment, Segment(LETTERS, Style(link="x\x07"))])


async def test_a_widget_that_takes_no_care_can_do_no_harm() -> None:
    console = Console(ConsoleOptions())
    async with console.run_test(size=(80, 24)) as pilot:
        careless = Careless()
        careless.border_title = "\x1b[31m\u202etitle"
        await console.screen.mount(careless)
        await pilot.pause()
        assert_all_harmless(console)
        assert any("red" in strip.text for strip in careless.render_lines(Region(0, 0, 42, 3)))


# Each widget alone, without the gate: what it draws can be read, and needs no gate


class Shelf(App[None]):
    """The widgets that show words from outside."""

    CSS = "Table, LogView, YamlView, CurveChart { height: 6; width: 40; }"

    def __init__(self) -> None:
        super().__init__()
        for palette in themes.load().values():
            self.register_theme(Theme(**palette))
        self.theme = themes.DEFAULT

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.variable_defaults()

    def compose(self) -> ComposeResult:
        yield Table(COLUMNS)
        yield Notice()
        yield PreflightView()
        yield LogView(name_of=lambda line: line.source.pod)
        yield YamlView()
        yield CurveChart("")

    def say(self, text: str) -> None:
        """Let every widget say it."""
        table = self.query_one(Table)
        table.empty = text
        columns = [Column("name", text, elide="middle", min_width=5), Column("status", text, elide="end")]
        rows = [
            Row(f"{text}{number}", (Cell(text), Cell.of((text, "failed"), (text, ""))), text)
            for number in (0, 1)
        ]
        table.set_columns(columns, rows)
        self.query_one(Notice).show(text)
        self.query_one(PreflightView).show([PreflightLine("error", text)])
        source = Target("default", text, instance=text)
        raw = text.encode("utf-8", "surrogatepass")
        items: list[Item] = [LogLine(1, raw, source, 0, 0), Marker(Mark.NOTE, text, source, 2, 1)]
        self.query_one(LogView).append(items)
        self.query_one(YamlView).show(f"a: {text}")
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


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.lists(NASTY, min_size=5, max_size=10))
def test_widgets_draw_any_words_harmlessly(texts: list[str]) -> None:
    asyncio.run(show_all(texts))


async def test_widgets_draw_the_worst_words_harmlessly() -> None:
    await show_all([*HOSTILE.values(), HOSTILE["long"] * 10, "\ud83d half", "\n" * 50, "e" + "\u0301" * 1000])


# The whole console on a cluster that says nothing else


class Ungated(Console):
    """The console without its gate: its own widgets must be harmless by themselves.

    But for the prompt, where a name that is accepted must stay the name that it is.
    """

    def get_line_filters(self) -> Sequence[LineFilter]:
        return []


def hostile_objects(text: str) -> dict[str, list[Object]]:
    """Return a node, a job and its pods that say this wherever a server lets them."""
    job = pytorch_job(
        "bert", workers=2, gpus=4, annotations={"gpuconsole.dev/user": text, text: text}, labels={text: text}
    )
    job["metadata"]["name"] = job_name = text[:2000]
    job["status"] = {
        "conditions": [{"type": text, "status": "True", "reason": text, "message": text}],
    }
    waits = {"type": "PodScheduled", "status": "False", "reason": text, "message": text}
    terminated = {"exitCode": 1, "reason": text, "message": text}
    container = {
        "name": text,
        "restartCount": 2,
        "state": {"waiting": terminated},
        "lastState": {"terminated": terminated},
    }
    pods = [
        pod_of(job, "master-0", on=text, gpus=4, containerStatuses=[container]),
        pod_of(job, "worker-0", phase="Pending", conditions=[waits], reason=text, message=text),
    ]
    for pod in pods:
        pod["metadata"]["labels"]["training.kubeflow.org/job-name"] = job_name
    gpus = node(text, 8, taints=[{"key": text, "value": text, "effect": text}])
    gpus["metadata"]["labels"] = {"nvidia.com/gpu.product": text, f"node-role.kubernetes.io/{text}": ""}
    gpus["status"]["addresses"] = [{"type": "InternalIP", "address": text}]
    gpus["status"]["conditions"].append({"type": text, "status": "True", "reason": text, "message": text})
    return {"nodes": [gpus], "jobs": [job], "pods": pods, "batch": []}


def hostile_event(text: str) -> Object:
    about = {"kind": "PyTorchJob", "name": text[:2000], "uid": "job-bert"}
    return {
        "metadata": {"name": "e", "namespace": "default", "uid": "e"},
        "involvedObject": about,
        "type": text,
        "reason": text,
        "message": text,
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


def any_path(text: str) -> Answer:
    """Return what every path says that nothing else was said for: no, in these words."""
    status = {"kind": "Status", "status": "Failure", "code": 403, "reason": text, "message": text}
    return Answer(status, 403)


@asynccontextmanager
async def hostile_console(tmp_path: Path, text: str, made: type[Console]) -> AsyncIterator[Playground]:
    async with ScriptedCluster() as cluster:
        objects = hostile_objects(text)
        for name, path in LISTS.items():
            cluster.say(path, page(objects[name]))
            cluster.say(path, Stream(), watch=True)
        cluster.say(EVENTS, page([hostile_event(text)]))
        cluster.say(EVENTS, Stream(), watch=True)
        job = objects["jobs"][0]
        one = f"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{job['metadata']['name']}"
        cluster.say(one, Answer({**job, text: text}))
        cluster.say(one, any_path(text), method="DELETE")
        for pod in objects["pods"]:
            name = pod["metadata"]["name"]
            cluster.say(
                f"/api/v1/namespaces/default/pods/{name}/log", Answer(f"{text}\n{text}\r{text}\n".encode())
            )
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(hostile_kubeconfig(cluster.host, text)))
        options = ConsoleOptions(
            kubeconfig=str(tmp_path / "kubeconfig"),
            state_folder=tmp_path / "state",
            config_folder=tmp_path / "config",
        )
        console = made(options)
        async with console.run_test(size=(100, 30), notifications=True) as pilot:
            play = Playground(cluster, pilot, {})
            await play.until(lambda: console.snapshot.is_synced and console.snapshot.jobs)
            assert len(console.snapshot.jobs) == 1 and len(console.snapshot.nodes) == 1
            yield play


LEFT_OUT = {"quit", "shell", "contexts.switch_context", "request('shell')"}
"""What would end the test, needs a real terminal, or leaves the cluster's objects behind."""


async def walk(play: Playground, *, presses_keys: bool) -> set[str]:
    """Go to every view, pressing its keys once, and look at all that is drawn; name the screens."""
    console, seen = play.console, set[str]()

    async def look() -> str:
        await play.pilot.pause()
        name = type(console.screen).__name__
        assert_screen_harmless(console) if name in seen else assert_all_harmless(console)
        seen.add(name)
        return name

    async def press(*keys: str) -> None:
        await play.pilot.press(*keys)
        await look()

    async def go(where: str, argument: str = "") -> None:
        for _ in range(6):
            if isinstance(console.screen, View):
                break
            await press("escape")
        console.screen.post_message(ActionRequest(where, argument))
        is_new = await look() not in visited
        view = console.screen
        if is_new and presses_keys and isinstance(view, View):
            visited.add(type(view).__name__)
            for key in view.keys:
                if key.action and not LEFT_OUT & {key.action, key.id, key.id.partition(".")[2]}:
                    await press(key.keys.split(",")[0])
                    await press("escape") if not isinstance(console.screen, View) else None

    arguments = cycle(("all", ""))

    async def go_home() -> None:
        # Another argument makes another list: one that is gone back to is as the keys have left it.
        await go("jobs", next(arguments))

    visited = set[str]()
    for command in ACTIONS.commands():
        if command.name in LEFT_OUT:
            continue
        await go_home()
        if command.argument and not isinstance(console, Ungated):
            await press("colon", *command.commands[0], "space", "tab")
            await press("escape")
        await go(command.name)
    for keys in (
        ("enter", "W"),
        ("enter", "y"),
        ("enter", "m"),
        ("enter", "l", "a", "s"),
        ("ctrl+d",),
        ("slash", "x"),
    ):
        await go_home()
        for name in keys:
            await press(name)
    await go("jobs")
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "made"),
    [("sequences", Console), ("long", Console), ("markup", Ungated), ("letters", Ungated)],
)
async def test_a_hostile_cluster_is_drawn_harmlessly_in_every_view(
    tmp_path: Path, kind: str, made: type[Console]
) -> None:
    text = HOSTILE[kind]
    async with hostile_console(tmp_path, text, made) as play:
        seen = await walk(play, presses_keys=kind != "long")
        play.console.notify(text, title=text, severity="error", markup=False)
        await play.pilot.pause()
        assert_all_harmless(play.console)
        play.console.push_screen(ConfirmScreen(text, text, "Delete"))
        await play.pilot.pause()
        assert_all_harmless(play.console)
    assert {
        "JobsView",
        "NodesView",
        "JobView",
        "LogsScreen",
        "CurvesView",
        "TextView",
        "ContextsView",
    } <= seen
    assert {"NewJobScreen", "HelpScreen", "ThemesScreen"} <= seen
