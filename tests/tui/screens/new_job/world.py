"""The new-job form alone on a scripted server, as a test sees it and acts on it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from textual.events import Paste
from textual.pilot import Pilot
from textual.reactive import reactive
from textual.widgets import Button, Label, Static

from k8s.client.client import Client
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, NodeRow, Share
from tests.scripted.server import Answer, Compute, Reply, ScriptedCluster, page
from tests.support.idle import until
from tests.support.themed_app import ThemedApp
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.form_requests import CheckTimes
from tui.screens.documents.new_job import NewJobScreen
from tui.widgets.form.fields import Field, TextAreaField, TextField
from tui.widgets.form.job_fields import JobFields
from tui.widgets.form.manifest_pane import ManifestPane, YamlView

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
"""Answers of a cluster that has no objection to a job."""
NEVER_S = 3600.0
"""Delay of the checks in a form whose test is about other requests."""
ECHO = Compute(lambda asked: Answer(json.loads(asked.body), 201))
"""A server that accepts every object."""


class FormApp(ThemedApp[None]):
    """The form alone, and the jobs it returned."""

    ENABLE_COMMAND_PALETTE = False
    snapshot: reactive[ClusterSnapshot] = reactive(SNAPSHOT, layout=False)

    def __init__(self, client: Client, folder: Path, **form: Any) -> None:
        super().__init__()
        self.client = client
        self.folder = folder
        self.form_arguments = {
            "check_times": CheckTimes(after_s=NEVER_S),
            "templates_folder": folder / "templates",
            **form,
        }
        self.results: list[JobRef | None] = []

    def on_mount(self) -> None:
        screen = NewJobScreen(
            self.client, namespace="vision", user="li", state_folder=self.folder, **self.form_arguments
        )
        screen.data_bind(FormApp.snapshot)
        self.push_screen(screen, self.results.append)


class Form(msgspec.Struct):
    """The form in a running app, with its widgets and the actions of a test."""

    app: FormApp
    pilot: Pilot[None]
    cluster: ScriptedCluster

    @property
    def screen(self) -> NewJobScreen:
        return next(each for each in self.app.screen_stack if isinstance(each, NewJobScreen))

    def field(self, key: str) -> Field:
        found = self.screen.query_one(JobFields).field(key)
        assert found is not None, f"there is no field {key}"
        return found

    def text_of(self, selector: str) -> str:
        """Return the text of a widget of the form."""
        widget = self.screen.query_one(selector)
        assert isinstance(widget, Static | Label)
        return str(widget.content)

    @property
    def notice(self) -> str:
        return self.text_of("Notice")

    @property
    def summary(self) -> str:
        """The preflight lines as one."""
        return " ".join(self.text_of("#preflight").split())

    def dialog_text(self, selector: str = "#details") -> str:
        """Return the text of a widget of the dialog over the form."""
        return str(self.app.screen.query_one(selector, Label).content)

    @property
    def is_confirming(self) -> bool:
        return isinstance(self.app.screen, ConfirmScreen)

    @property
    def shown(self) -> list[str]:
        """The screen as text, line by line."""
        return self.app.lines

    @property
    def yaml(self) -> str:
        return "\n".join(line.text for line in self.screen.query_one(YamlView)._lines)

    @property
    def posted(self) -> list[Any]:
        """Every job sent to the server, in a dry run or to be created."""
        return [json.loads(each.body) for each in self.cluster.asked(JOBS, method="POST")]

    @property
    def master(self) -> Any:
        """The container of the master in the job that was sent last."""
        pods = self.posted[-1]["spec"]["pytorchReplicaSpecs"]
        return pods["Master"]["template"]["spec"]["containers"][0]

    @property
    def focused_key(self) -> str:
        focused = self.screen.focused
        ancestors = focused.ancestors if focused is not None else []
        return next((each.key for each in ancestors if isinstance(each, Field)), "")

    @property
    def has_button(self) -> bool:
        return isinstance(self.screen.focused, Button)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def go(self, key: str) -> None:
        self.field(key).focus_control()
        await self.pilot.pause()

    async def unfold(self, key: str) -> None:
        """Go to a field that may be folded away."""
        await self.screen.query_one(JobFields).focus_first([key])
        await self.until(lambda: self.focused_key == key)

    async def write(self, key: str, text: str) -> None:
        """Replace the text of a field, as a paste does."""
        await self.go(key)
        control = self.screen.focused
        assert isinstance(control, TextField | TextAreaField)
        control.select_all()
        if text:
            self.app.post_message(Paste(text))
        else:
            await self.pilot.press("delete")
        await self.pilot.pause()

    async def choose(self, key: str, value: str) -> None:
        """Choose a value from the list of a field with choices."""
        field = self.field(key)
        await self.until(lambda: value in dict(field.definition.choices))
        await self.go(key)
        values = [each for each, _ in field.definition.choices]
        steps = values.index(value) - values.index(field.value)
        await self.press("enter", *["down" if steps > 0 else "up"] * abs(steps), "enter")

    async def set_snapshot(self, snapshot: ClusterSnapshot) -> None:
        self.app.snapshot = snapshot
        await self.pilot.pause()

    async def edit_yaml(self) -> TextAreaField:
        """Open the YAML to edit it."""
        await self.pilot.press("ctrl+y")
        pane = self.screen.query_one(ManifestPane)
        await self.until(lambda: pane.is_read)
        await self.pilot.press("e")
        await self.until(lambda: pane.has_class("-editing") and pane.query_one(TextAreaField).has_focus)
        return pane.query_one(TextAreaField)

    def is_idle(self, *groups: str) -> bool:
        """Return True if no worker of these groups runs."""
        return all(each.is_finished for each in self.app.workers if each.group in groups)

    async def settled(self) -> None:
        """Wait until nothing is requested from the server or a file any more."""

        def is_settled() -> bool:
            # A dialog waits for the user, and its worker with it.
            waits = () if self.is_confirming else ("open", "submit")
            return self.is_idle("read", "claims", "links", "volume", *waits)

        await self.until(is_settled)
        await self.pilot.pause()

    async def create(self) -> None:
        """Press the key that creates, and confirm."""
        await self.pilot.press("ctrl+o")
        await self.settled()
        if self.is_confirming:
            await self.pilot.press("enter")
            await self.settled()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        await until(self.pilot, is_so)


def say_fine(cluster: ScriptedCluster, answers: Mapping[str, Reply]) -> None:
    """Let a cluster have no objection to a job, except in `answers`."""
    for path, reply in {**FINE, **answers}.items():
        cluster.say(path, reply)
    cluster.say(REVIEWS, Answer({"status": {"allowed": True}}, 201), method="POST")


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
    """Open the form on a server that gives `replies` to creates, and `answers` to the checks before.

    Args:
        claims: The reply to the list of volume claims; `workspace` and `data` by default.
        waits: Wait until the volume claims are listed.
    """
    async with ScriptedCluster() as cluster, cluster.client() as client:
        listed = [{"metadata": {"name": name}} for name in ("data", "workspace")]
        cluster.say(CLAIMS, claims or page(listed))
        if "check_times" in arguments:
            say_fine(cluster, answers or {})
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
    """Return a sandbox of nodes with two GPUs, of which so many are held."""
    nodes = [
        replace(NODE, name=f"node-{index}", resources={GPU: Share(2, each, 0)})
        for index, each in enumerate(held)
    ]
    return replace(SNAPSHOT, server_version="v1.31.0+gpuconsole-sandbox", nodes=tuple(nodes))
