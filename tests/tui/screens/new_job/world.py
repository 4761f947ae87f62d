"""The new-job form alone on a scripted server, as a test sees it and acts on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from textual.app import App
from textual.events import Paste
from textual.pilot import Pilot
from textual.reactive import reactive
from textual.theme import Theme
from textual.widgets import Button, Label, Static

import themes
from k8s.client.client import Client
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, NodeRow, Share
from tests.scripted.server import WAIT_S, Answer, Compute, Reply, ScriptedCluster, page
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.form_requests import CheckTimes
from tui.screens.documents.new_job import NewJobScreen
from tui.widgets.form.fields import Field, TextAreaField, TextField
from tui.widgets.form.job_fields import JobFields

JOBS = "/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs"
CLAIMS = "/api/v1/namespaces/vision/persistentvolumeclaims"
GPU = "nvidia.com/gpu"
NODE = NodeRow("a100-1", "", (), "Ready", False, "", {GPU: Share(8, 2, 0)}, (), None)
SNAPSHOT = ClusterSnapshot(context="real", user="li", namespace="vision", nodes=(NODE,), is_synced=True)
SPACE = "/api/v1/namespaces/vision"
QUOTAS = f"{SPACE}/resourcequotas"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SERVED = {
    "kind": "APIResourceList",
    "groupVersion": "kubeflow.org/v1",
    "resources": [{"name": "pytorchjobs", "kind": "PyTorchJob", "namespaced": True, "verbs": ["list"]}],
}
BOUND = {
    "metadata": {"name": "workspace"},
    "spec": {"accessModes": ["ReadWriteMany"]},
    "status": {"phase": "Bound"},
}
FINE: Mapping[str, Reply] = {
    SPACE: Answer({"metadata": {"name": "vision"}}),
    "/apis": Answer(
        {"groups": [{"name": "kubeflow.org", "versions": [{"groupVersion": "kubeflow.org/v1"}]}]}
    ),
    "/apis/kubeflow.org/v1": Answer(SERVED),
    f"{CLAIMS}/workspace": Answer(BOUND),
    QUOTAS: page([]),
    f"{SPACE}/limitranges": page([]),
}
"""What a cluster says that has nothing against a job."""
NEVER_S = 3600.0
"""For a form that is not to ask what would go wrong: the test looks at what it asks otherwise."""
ECHO = Compute(lambda asked: Answer(json.loads(asked.body), 201))
"""Answer to a create as a server does that has nothing against it."""


class FormApp(App[None]):
    """The form alone, and what it answered."""

    CSS_PATH = themes.STYLESHEET
    ENABLE_COMMAND_PALETTE = False
    snapshot: reactive[ClusterSnapshot] = reactive(SNAPSHOT, layout=False)

    def __init__(self, client: Client, folder: Path, **form: Any) -> None:
        super().__init__()
        self.client = client
        self.folder = folder
        self.form_arguments = {"check_times": CheckTimes(after_s=NEVER_S), **form}
        self.results: list[JobRef | None] = []
        for palette in themes.load().values():
            self.register_theme(Theme(**palette))
        self.theme = themes.DEFAULT

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.variable_defaults(dark=self.current_theme.dark, ansi=self.current_theme.ansi)

    def on_mount(self) -> None:
        screen = NewJobScreen(
            self.client, namespace="vision", user="li", state_folder=self.folder, **self.form_arguments
        )
        screen.data_bind(FormApp.snapshot)
        self.push_screen(screen, self.results.append)


@dataclass
class Form:
    """What a test sees of the screen, and does to it."""

    app: FormApp
    pilot: Pilot[None]
    cluster: ScriptedCluster

    @property
    def screen(self) -> NewJobScreen:
        return next(each for each in self.app.screen_stack if isinstance(each, NewJobScreen))

    def field(self, key: str) -> Field:
        found = self.screen.query_one(JobFields).field(key)
        assert found is not None, f"{key} is not asked"
        return found

    def said(self, selector: str) -> str:
        widget = self.screen.query_one(selector)
        assert isinstance(widget, Static | Label)
        return str(widget.content)

    @property
    def focused_key(self) -> str:
        focused = self.screen.focused
        ancestors = focused.ancestors if focused is not None else []
        return next((each.key for each in ancestors if isinstance(each, Field)), "")

    @property
    def has_button(self) -> bool:
        return isinstance(self.screen.focused, Button)

    async def go(self, key: str) -> None:
        self.field(key).focus_control()
        await self.pilot.pause()

    async def write(self, key: str, text: str) -> None:
        """Replace what stands in a field, as a paste does."""
        await self.go(key)
        control = self.screen.focused
        assert isinstance(control, TextField | TextAreaField)
        control.select_all()
        if text:
            self.app.post_message(Paste(text))
        else:
            await self.pilot.press("delete")
        await self.pilot.pause()

    @property
    def is_asking(self) -> bool:
        """Whether the server or a file is asked for something, and not the user."""
        groups = {"open", "read", "submit", "claims", "volume"}
        if isinstance(self.app.screen, ConfirmScreen):
            groups -= {"open", "submit"}
        return any(each.group in groups and not each.is_finished for each in self.app.workers)

    @property
    def is_left(self) -> bool:
        """Whether a question whether to leave was answered, and what follows is done."""
        return all(each.is_finished for each in self.app.workers if each.group == "leave")

    async def settled(self) -> None:
        """Wait until nothing is asked of the server any more."""
        async with asyncio.timeout(WAIT_S):
            while self.is_asking:
                await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def create(self) -> None:
        """Press the key that creates, and say yes where that is asked."""
        await self.pilot.press("ctrl+o")
        await self.settled()
        if isinstance(self.app.screen, ConfirmScreen):
            await self.pilot.press("enter")
            await self.settled()

    async def comes(self, is_there: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WAIT_S):
            while not is_there():
                await self.pilot.pause(0.01)

    def shown(self) -> list[str]:
        width = self.app.size.width
        lines = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in line)[:width] for line in lines]


@asynccontextmanager
async def form(
    folder: Path,
    *replies: Reply,
    size: tuple[int, int] = (80, 24),
    claims: Reply | None = None,
    waits: bool = True,
    answers: Mapping[str, Reply] | None = None,
    **arguments: Any,
) -> AsyncIterator[Form]:
    """Open the form on a server that says `replies` to creates, and `answers` to what is asked before.

    Unless it `waits`, the volume claims are not listed yet.
    """
    async with ScriptedCluster() as cluster, cluster.client() as client:
        listed = [{"metadata": {"name": name}} for name in ("data", "workspace")]
        cluster.say(CLAIMS, claims or page(listed))
        if "check_times" in arguments:
            for path, reply in {**FINE, **(answers or {})}.items():
                cluster.say(path, reply)
            cluster.say(REVIEWS, Answer({"status": {"allowed": True}}, 201), method="POST")
        if replies:
            cluster.accept_companions("vision")
            cluster.say(JOBS, *replies, method="POST")
        app = FormApp(client, folder, **arguments)
        async with app.run_test(size=size) as pilot:
            opened = Form(app, pilot, cluster)
            await cluster.until_asked(CLAIMS)
            if waits:
                await opened.settled()
            yield opened


def sandbox(*held: int) -> ClusterSnapshot:
    """Return a sandbox with a node of two GPUs for each number, which says how many are held."""
    nodes = [
        replace(NODE, name=f"node-{index}", resources={GPU: Share(2, each, 0)})
        for index, each in enumerate(held)
    ]
    return replace(SNAPSHOT, server_version="v1.31.0+gpuconsole-sandbox", nodes=tuple(nodes))
