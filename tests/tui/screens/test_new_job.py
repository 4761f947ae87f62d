"""The new-job screen: typing, checking, creating, leaving; on a scripted server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.events import Paste
from textual.pilot import Pilot
from textual.reactive import reactive
from textual.theme import Theme
from textual.widgets import Button, Input, Label, Static

import themes
from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.job_spec import JobSpec, Mount
from k8s.jobs.clone import clone
from k8s.jobs.pod_files import LOCAL_PATH
from k8s.kinds import CREATABLE, JobRef
from k8s.snapshot import ClusterSnapshot, Job, NodeRow, Share
from k8s.status import Status
from tests.scripted.server import (
    WAIT_S,
    Answer,
    Compute,
    Drop,
    Reply,
    ScriptedCluster,
    Stall,
    page,
    refusal,
)
from tui.jobs.new_job.draft import FILE, read_draft, save_draft, save_last_image
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.new_job import NewJobScreen
from tui.widgets.form.fields import Field, TextAreaField, TextField
from tui.widgets.form.job_fields import JobFields
from tui.widgets.yaml_view import YamlView

JOBS = "/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs"
CLAIMS = "/api/v1/namespaces/vision/persistentvolumeclaims"
GPU = "nvidia.com/gpu"
NODE = NodeRow("a100-1", "", (), "Ready", False, "", {GPU: Share(8, 2, 0)}, (), None)
SNAPSHOT = ClusterSnapshot(context="real", user="li", namespace="vision", nodes=(NODE,), is_synced=True)
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
        self.form_arguments = form
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
        groups = {"open", "submit", "claims", "volume"}
        if isinstance(self.app.screen, ConfirmScreen):
            groups -= {"open", "submit"}
        return any(each.group in groups and not each.is_finished for each in self.app.workers)

    async def settled(self) -> None:
        """Wait until nothing is asked of the server any more."""
        async with asyncio.timeout(WAIT_S):
            while self.is_asking:
                await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def create(self) -> None:
        """Press the key that creates, and say yes where that is asked."""
        await self.pilot.press("ctrl+o", "tab", "enter")
        await self.settled()

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
    **arguments: Any,
) -> AsyncIterator[Form]:
    """Open the form on a server that says `replies` to creates."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        listed = [{"metadata": {"name": name}} for name in ("data", "workspace")]
        cluster.say(CLAIMS, claims or page(listed))
        if replies:
            cluster.say(JOBS, *replies, method="POST")
        app = FormApp(client, folder, **arguments)
        async with app.run_test(size=size) as pilot:
            opened = Form(app, pilot, cluster)
            await cluster.until_asked(CLAIMS)
            await opened.settled()
            yield opened


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_job_is_created_from_what_is_suggested_and_one_yes(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with form(tmp_path, ECHO, size=size) as it:
        await it.create()
        asked = it.cluster.asked(JOBS, method="POST")
        assert [each.query.get("dryRun", "") for each in asked] == ["All", ""]
        made = json.loads(asked[1].body)
        assert made["metadata"]["name"] == "ddp-digits-1"
        assert made["metadata"]["annotations"]["gpuconsole.dev/user"] == "li"
        assert it.app.results == [JobRef("vision", "ddp-digits-1", "PyTorchJob", "kubeflow.org/v1")]


def sandbox(*held: int) -> ClusterSnapshot:
    """Return a sandbox with a node of two GPUs for each number, which says how many are held."""
    nodes = [
        replace(NODE, name=f"node-{index}", resources={GPU: Share(2, each, 0)})
        for index, each in enumerate(held)
    ]
    return replace(SNAPSHOT, server_version="v1.31.0+gpuconsole-sandbox", nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("snapshot", "workers"),
    [
        (sandbox(0), "2"),
        (sandbox(1, 1), "2"),
        (sandbox(1), "1"),
        (sandbox(2), "1"),
        (replace(sandbox(0), is_synced=False), "1"),
        (replace(SNAPSHOT, server_version="v1.31.0"), "1"),
    ],
    ids=["two free", "on two nodes", "one free", "none free", "not synced", "a real cluster"],
)
async def test_in_the_sandbox_a_trainer_has_two_workers_where_two_gpus_are_free(
    tmp_path: Path, snapshot: ClusterSnapshot, workers: str
) -> None:
    async with form(tmp_path, ECHO, snapshot=snapshot) as it:
        it.app.snapshot = snapshot
        await it.pilot.pause()
        assert it.field("workers").value == workers
        assert f"= {workers} rank" in it.said("#preflight")
        assert not it.screen.state.is_dirty


async def test_the_number_of_workers_is_decided_once_and_yields_to_what_is_typed(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        it.app.snapshot = sandbox(0)
        await it.pilot.pause()
        assert it.field("workers").value == "2"
        it.app.snapshot = sandbox(2)
        await it.pilot.pause()
        assert it.field("workers").value == "2"
        await it.go("run")
        await it.pilot.press("right")
        assert it.field("workers").value == "1"
        await it.pilot.press("left")
        assert it.field("workers").value == "2"
        await it.write("workers", "3")
        it.app.snapshot = sandbox(0, 0)
        await it.pilot.pause()
        assert it.field("workers").value == "3"


async def test_a_clone_in_the_sandbox_keeps_its_number_of_workers(tmp_path: Path) -> None:
    like = JobSpec(name="a", namespace="vision", image="i", command=("true",), workers=3)
    async with form(tmp_path, clone=clone(CREATABLE[0].manifest(like))) as it:
        it.app.snapshot = sandbox(0)
        await it.pilot.pause()
        assert it.field("workers").value == "3"


async def test_one_key_asks_whether_to_create_the_job_and_cancel_has_the_focus(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.go("image")
        await it.pilot.press("ctrl+o")
        dialog = it.app.screen
        assert isinstance(dialog, ConfirmScreen)
        assert (
            str(dialog.query_one("#question", Label).content) == "Create PyTorchJob ddp-digits-1 in vision?"
        )
        details = str(dialog.query_one("#details", Label).content).splitlines()
        assert details[:2] == [
            "· 1 pod × 1 GPU, 1 process per pod = 1 rank",
            "✓ fits now: 6 of 8 GPUs free",
        ]
        folder = r"/workspace/ddp-digits-1-\d{8}-\d{6}-\d{3}"
        assert re.fullmatch(rf"· writes to {folder} on volume claim workspace", details[2])
        assert dialog.query_one("#cancel").has_focus
        await it.pilot.press("ctrl+o", "ctrl+o", "enter")
        await it.settled()
        assert it.app.screen is it.screen
        assert it.focused_key == "image"
        assert it.cluster.asked(JOBS, method="POST") == []
        assert it.app.results == []


async def test_what_was_asked_is_what_is_created(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.pilot.press("ctrl+o")
        ref = JobRef("vision", "ddp-digits-1", "PyTorchJob", "kubeflow.org/v1")
        taken = Job(ref, "u", Status.RUNNING, "", 0, 0, (), 0, "", "", None, None, None, (), "", "")
        it.app.snapshot = replace(SNAPSHOT, jobs=(taken,))
        await it.pilot.pause()
        assert it.field("name").value == "ddp-digits-2"
        await it.pilot.press("tab", "enter")
        await it.settled()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[0].body)
        assert made["metadata"]["name"] == "ddp-digits-1"


async def test_the_button_creates_without_another_question(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.go("env")
        await it.pilot.press("tab", "tab")
        assert it.has_button
        await it.pilot.press("enter")
        await it.settled()
        assert len(it.app.results) == 1


async def test_a_server_that_knows_no_dry_runs_is_said_to_know_none(tmp_path: Path) -> None:
    words = 'admission webhook "x" does not support dry run'
    async with form(tmp_path, refusal(400, words, "BadRequest")) as it:
        await it.pilot.press("ctrl+t")
        await it.settled()
        assert "cannot dry-run" in it.said("Notice")
        assert "dry run passed" not in it.said("#preflight")


async def test_tab_and_the_arrows_go_through_the_fields(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        assert it.focused_key == "name"
        keys = []
        for key in ("tab", "down", "enter", "shift+tab", "up"):
            await it.pilot.press(key)
            keys.append(it.focused_key)
        assert keys == ["kind", "namespace", "image", "namespace", "kind"]
        await it.pilot.press("ctrl+n")
        assert it.focused_key == "workers"
        await it.pilot.press("ctrl+n", "ctrl+n", "ctrl+n", "ctrl+n")
        assert it.has_button
        await it.pilot.press("ctrl+p", "ctrl+p")
        assert it.focused_key == "claim"


async def test_the_focused_field_is_always_seen_with_its_label_and_its_problem(tmp_path: Path) -> None:
    async with form(tmp_path, size=(80, 24)) as it:
        for _ in range(22):
            await it.pilot.press("tab")
            await it.pilot.pause()
            if not it.focused_key:
                continue
            field = it.field(it.focused_key)
            assert any(line.startswith(f" ▸ {field.definition.label}") for line in it.shown()), it.focused_key
        await it.write("mount_path", "data")
        shown = it.shown()
        at = next(index for index, line in enumerate(shown) if "▸ Mount path" in line)
        assert "✕ 'data' is not a mount path: must be absolute" in shown[at + 1]


async def test_fields_that_change_nothing_are_not_shown(tmp_path: Path) -> None:
    async with form(tmp_path, size=(80, 60)) as it:
        assert not it.field("ddp.data").display
        await it.settled()
        await it.screen.query_one(JobFields).focus_first(["ddp.seed"])
        assert [it.field(f"ddp.{name}").display for name in ("train-images", "download")] == [True, False]
        await it.go("ddp.dataset")
        await it.pilot.press("right")
        assert [it.field(f"ddp.{name}").display for name in ("train-images", "download")] == [False, True]
        assert it.field("ddp.data").display
        await it.go("claim")
        await it.pilot.press("end", "right", "right")
        assert it.field("claim").value == ""
        assert not it.field("mount_path").display
        assert not it.field("continue_from").display


async def test_an_earlier_run_on_the_volume_is_named_and_continued_only_when_asked(tmp_path: Path) -> None:
    claim = {"metadata": {"name": "workspace", "annotations": {LOCAL_PATH: str(tmp_path / "volume")}}}
    old = "ddp-digits-1-20261122-082033-417"
    checkpoints = tmp_path / "volume" / old / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "step-00000520.pt").touch()
    async with form(tmp_path, ECHO) as it:
        it.cluster.say(f"{CLAIMS}/workspace", Answer(claim))
        await it.write("mount_path", "/data")
        await it.settled()
        it.app.snapshot = replace(SNAPSHOT, problems={})
        await it.pilot.pause()
        words = "step 520 of ddp-digits-1 (deleted), saved "
        assert f"starts anew; to go on from {words}" in " ".join(it.said("#preflight").split())
        assert f"/data/{old}" not in " ".join(it.screen.state.result.spec.command)
        looks = len(it.cluster.asked(f"{CLAIMS}/workspace"))
        await it.write("continue_from", "ddp-digits-2")
        await it.go("name")
        assert it.field("continue_from").error.startswith("No earlier run of 'ddp-digits-2'")
        assert len(it.cluster.asked(f"{CLAIMS}/workspace")) == looks
        await it.write("continue_from", "ddp-digits-1")
        assert it.field("continue_from").error == ""
        assert f"continues {words}" in " ".join(it.said("#preflight").split())
        await it.create()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[-1].body)
        container = made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
        assert f"/data/{old}/checkpoints" in container["command"]
        assert container["command"][-2:] == ["--resume", "must"]


async def test_the_focused_field_stays_in_sight_when_the_summary_grows(tmp_path: Path) -> None:
    claim = {"metadata": {"name": "workspace", "annotations": {LOCAL_PATH: str(tmp_path)}}}
    async with form(tmp_path, size=(80, 24)) as it:
        it.cluster.say(f"{CLAIMS}/workspace", Answer(claim))
        await it.go("name")
        await it.pilot.press(*["tab"] * 8)
        assert it.focused_key == "ddp.dataset"
        before = it.screen.query_one("#preflight").size.height
        await it.pilot.press("right")
        await it.settled()
        assert "would fail: no /workspace/mnist" in "".join(it.shown())
        assert it.screen.query_one("#preflight").size.height > before
        await it.pilot.pause()
        assert any(line.startswith(" ▸ Dataset") for line in it.shown())


async def test_a_problem_is_said_once_the_field_was_touched(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.go("run")
        await it.pilot.press("end", "right", "right")
        assert it.field("command").error == ""
        await it.pilot.press("down", "tab")
        assert it.field("command").error.startswith("Required: a command")
        await it.write("command", "python train.py")
        assert it.field("command").error == ""


async def test_a_form_that_is_not_right_shows_the_first_wrong_field_and_asks_nobody(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.write("gpus", "two")
        await it.write("image", "")
        await it.pilot.press("ctrl+o")
        assert it.focused_key == "image"
        assert it.field("gpus").error == "Must be a whole number, e.g. 2."
        assert it.said("#state") == "2 fields need attention"
        assert it.cluster.asked(JOBS, method="POST") == []


async def test_a_wrong_field_that_is_folded_away_is_unfolded(tmp_path: Path) -> None:
    like = JobSpec(name="a", namespace="vision", image="i", command=("true",), cpu="lots")
    async with form(tmp_path, ECHO, clone=clone(CREATABLE[0].manifest(like))) as it:
        await it.pilot.press("ctrl+o")
        await it.pilot.pause()
        assert it.focused_key == "cpu"
        assert "lots" in it.field("cpu").error


async def test_the_yaml_is_beside_the_form_where_there_is_room_and_behind_a_key_where_not(
    tmp_path: Path,
) -> None:
    async with form(tmp_path / "wide", size=(120, 40)) as it:
        await it.write("name", "bert-9")
        assert any("name: bert-9" in line for line in it.shown())
    async with form(tmp_path, size=(80, 24)) as it:
        assert not it.screen.query_one(YamlView).display
        await it.go("image")
        await it.pilot.press("ctrl+y")
        await it.pilot.pause()
        assert it.screen.query_one(YamlView).has_focus
        assert any("kind: PyTorchJob" in line for line in it.shown())
        await it.pilot.press("escape")
        await it.settled()
        await it.app.workers.wait_for_complete(
            [worker for worker in it.app.workers if worker.group == "leave"]
        )
        await it.pilot.pause()
        assert it.focused_key == "image"
        assert it.app.results == []


async def test_the_question_and_a_wrong_field_are_reached_from_the_yaml(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.pilot.press("ctrl+y", "ctrl+o")
        await it.pilot.pause()
        assert isinstance(it.app.screen, ConfirmScreen)
        await it.pilot.press("escape")
        await it.pilot.pause()
        await it.write("gpus", "x")
        await it.pilot.press("ctrl+y", "ctrl+o")
        await it.pilot.pause()
        assert it.focused_key == "gpus"


async def test_escape_leaves_the_form_after_a_look_at_the_yaml_beside_it(tmp_path: Path) -> None:
    async with form(tmp_path, size=(120, 40)) as it:
        await it.pilot.press("ctrl+y", "tab", "escape")
        await it.pilot.pause()
        assert it.app.results == [None]


async def test_the_preflight_follows_what_is_typed_and_what_is_free(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        assert "fits now: 6 of 8 GPUs free" in it.said("#preflight")
        await it.write("gpus", "7")
        assert "would wait: needs 1 × 7 GPUs" in it.said("#preflight")
        idle = NodeRow("a100-1", "", (), "Ready", False, "", {"nvidia.com/gpu": Share(8, 0, 0)}, (), None)
        it.app.snapshot = ClusterSnapshot(nodes=(idle,), is_synced=True)
        await it.pilot.pause()
        assert "fits now: 8 of 8 GPUs free" in it.said("#preflight")


async def test_the_suggested_name_follows_until_one_is_typed(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.go("ddp.dataset")
        await it.pilot.press("right")
        assert it.field("name").value == "ddp-mnist-1"
        await it.write("name", "mine")
        await it.go("ddp.dataset")
        await it.pilot.press("left")
        assert it.field("name").value == "mine"


async def test_a_letter_typed_while_the_cluster_answers_stays(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        field = it.field("name")
        field.query_one(Input).value = "h"
        other = JobRef("vision", "ddp-digits-1", "PyTorchJob", "kubeflow.org/v1")
        ours = Job(other, "u", Status.RUNNING, "", 0, 0, (), 0, "", "", None, None, None, (), "", "")
        it.app.snapshot = replace(SNAPSHOT, jobs=(ours,))
        await it.pilot.pause()
        assert field.value == "h"
        assert it.screen.state.values["name"] == "h"


async def test_claims_are_offered_and_workspace_is_taken(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        assert it.field("claim").value == "workspace"
        assert not it.screen.state.is_dirty
        await it.go("claim")
        await it.pilot.press("right")
        assert it.field("claim").value == "data"
        await it.pilot.press("right")
        assert it.field("claim").value == ""
        assert "no volume claim" in it.said("#preflight")


async def test_claims_that_cannot_be_listed_can_be_typed(tmp_path: Path) -> None:
    refused = refusal(403, 'cannot list "persistentvolumeclaims"', "Forbidden")
    async with form(tmp_path, ECHO, claims=refused) as it:
        await it.write("claim", "mine")
        assert "Cannot list volume claims" in it.said("#help")
        await it.create()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[1].body)
        volumes = made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["volumes"]
        assert volumes[0]["persistentVolumeClaim"]["claimName"] == "mine"


async def test_another_namespace_has_other_claims(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        there = "/api/v1/namespaces/speech/persistentvolumeclaims"
        it.cluster.say(there, page([{"metadata": {"name": "audio"}}]))
        await it.write("namespace", "speech")
        await it.pilot.press("tab")
        await it.cluster.until_asked(there)
        await it.settled()
        assert "volume claim workspace not found in speech" in it.said("#preflight")
        await it.go("claim")
        await it.pilot.press("left")
        assert it.field("claim").value in ("audio", "")


async def test_the_server_is_asked_in_a_dry_run_with_one_key(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.pilot.press("ctrl+t")
        await it.settled()
        assert [each.query["dryRun"] for each in it.cluster.asked(JOBS, method="POST")] == ["All"]
        assert "dry run passed at" in it.said("#preflight")
        await it.write("workers", "2")
        assert "changed since the dry run" in it.said("#preflight")


async def test_a_name_that_is_taken_is_said_at_the_name(tmp_path: Path) -> None:
    async with form(tmp_path, refusal(409, "exists", "AlreadyExists"), ECHO) as it:
        await it.create()
        assert it.focused_key == "name"
        assert it.field("name").error == "There is already a PyTorchJob of this name in vision."
        assert it.app.results == []
        await it.write("name", "another")
        assert it.field("name").error == ""
        await it.create()
        assert it.app.results[0] is not None and it.app.results[0].name == "another"


async def test_a_name_that_is_free_again_can_be_tried_again(tmp_path: Path) -> None:
    async with form(tmp_path, refusal(409, "exists", "AlreadyExists"), ECHO) as it:
        await it.create()
        assert it.app.results == []
        await it.create()
        assert it.app.results[0] is not None and it.app.results[0].name == "ddp-digits-1"


async def test_each_cause_of_a_refusal_is_said_at_its_field(tmp_path: Path) -> None:
    causes = {
        "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].image": "no [/b] registry",
        "spec.template.spec.hostNetwork": "not allowed",
    }
    async with form(tmp_path, refusal(422, "invalid", "Invalid", causes=causes)) as it:
        await it.create()
        assert it.focused_key == "image"
        assert it.field("image").error == "no [/b] registry"
        assert "spec.template.spec.hostNetwork: not allowed" in it.said("Notice")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (refusal(403, 'user "li" cannot create pytorchjobs', "Forbidden"), 'user "li" cannot create'),
        (refusal(500, "etcd is away", "InternalError"), "etcd is away"),
        (refusal(422, "the [/b] webhook says no", "Invalid"), "the [/b] webhook says no"),
        (Drop(), "Could not create PyTorchJob ddp-digits-1."),
    ],
)
async def test_an_error_is_said_in_words_and_nothing_typed_is_lost(
    tmp_path: Path, reply: Reply, words: str
) -> None:
    async with form(tmp_path, reply) as it:
        await it.write("image", "mine:1")
        await it.create()
        assert words in it.said("Notice")
        assert any("✕ Could not create PyTorchJob" in line for line in it.shown())
        assert it.field("image").value == "mine:1"
        assert it.app.results == []
        assert it.screen.busy == ""


async def test_a_cluster_that_is_gone_is_said(tmp_path: Path) -> None:
    client = Client(ClusterConfig(host="http://127.0.0.1:9"))
    app = FormApp(client, tmp_path)
    async with client, app.run_test(size=(80, 24)) as pilot:
        it = Form(app, pilot, ScriptedCluster())
        await it.settled()
        await it.create()
        assert "Could not create" in it.said("Notice")


async def test_an_answer_lost_while_creating_is_called_uncertain(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO, Drop()) as it:
        await it.create()
        assert "It may have been created all the same: look for ddp-digits-1" in it.said("Notice")


async def test_a_server_without_dry_runs_is_asked_all_the_same(tmp_path: Path) -> None:
    words = 'admission webhook "x" does not support dry run'
    async with form(tmp_path, refusal(400, words, "BadRequest"), ECHO) as it:
        await it.create()
        assert len(it.app.results) == 1


async def test_a_job_is_not_created_twice_by_pressing_twice(tmp_path: Path) -> None:
    async with form(tmp_path, Stall()) as it:
        await it.pilot.press("ctrl+o", "tab", "enter")
        await it.cluster.until_asked(JOBS, method="POST")
        it.screen.query_one("#create").focus()
        await it.pilot.press("enter", "ctrl+o", "ctrl+t")
        assert it.app.screen is it.screen
        assert str(it.screen.query_one("#create", Button).label) == "Dry run…"
        assert len(it.cluster.asked(JOBS, method="POST")) == 1
        await it.pilot.press("escape")
        await it.pilot.pause()
        assert "Waiting for the server" in it.said("Notice")
        assert it.app.results == []


async def test_leaving_an_untouched_form_asks_nothing(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.pilot.press("escape")
        await it.pilot.pause()
        assert it.app.results == [None]
        assert not (tmp_path / FILE).exists()


async def test_leaving_offers_to_keep_a_draft_and_the_next_form_offers_it(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.write("image", "mine:2")
        await it.pilot.press("escape")
        await it.pilot.pause()
        assert isinstance(it.app.screen, ConfirmScreen)
        assert it.app.focused is not None and it.app.focused.id == "save"
        await it.pilot.press("enter")
        await it.app.workers.wait_for_complete()
        await it.pilot.pause()
        assert it.app.results == [None]
    async with form(tmp_path, ECHO) as it:
        assert isinstance(it.app.screen, ConfirmScreen)
        await it.pilot.press("enter")
        await it.app.workers.wait_for_complete()
        await it.pilot.pause()
        assert it.field("image").value == "mine:2"
        await it.create()
        assert len(it.app.results) == 1
        assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(("keys", "answers"), [(["escape"], 0), (["tab", "enter"], 1)])
async def test_leaving_can_be_taken_back_and_a_draft_discarded(
    tmp_path: Path, keys: list[str], answers: int
) -> None:
    async with form(tmp_path) as it:
        await it.write("image", "mine:2")
        await it.pilot.press("escape")
        await it.pilot.pause()
        await it.pilot.press(*keys)
        await it.app.workers.wait_for_complete()
        await it.pilot.pause()
        assert len(it.app.results) == answers
        assert not (tmp_path / FILE).exists()
        if not answers:
            assert it.field("image").value == "mine:2"


async def test_starting_afresh_leaves_the_draft_for_another_day(tmp_path: Path) -> None:
    save_draft(tmp_path, {"name": "old[/b]"})
    async with form(tmp_path, ECHO) as it:
        await it.pilot.press("tab", "enter")
        await it.app.workers.wait_for_complete()
        await it.pilot.pause()
        assert it.field("name").value == "ddp-digits-1"
        await it.create()
        assert (tmp_path / FILE).exists()


async def test_a_draft_is_kept_when_the_console_ends_under_the_form(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.write("image", "mine:3")
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values["image"] == "mine:3"


async def test_a_draft_that_makes_no_sense_is_said_and_set_aside(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{[/b]")
    async with form(tmp_path) as it:
        assert "It was renamed to new-job-draft.broken-1.json" in it.said("Notice")


async def test_a_state_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("")
    async with form(folder) as it:
        await it.write("image", "mine:3")
        await it.pilot.press("ctrl+s")
        await it.pilot.pause()
        assert "Could not save the draft" in it.said("Notice")


async def test_the_image_used_last_is_offered_again(tmp_path: Path) -> None:
    save_last_image(tmp_path, "registry/mine:7")
    async with form(tmp_path) as it:
        assert it.field("image").value == "registry/mine:7"
        assert not it.screen.state.is_dirty


async def test_a_job_is_cloned_under_a_new_name(tmp_path: Path) -> None:
    like = JobSpec(
        name="bert-4",
        namespace="vision",
        image="mine:9",
        workers=3,
        command=("python", "x.py"),
        env={"A": "1"},
        mounts=(Mount("data", "/data"), Mount("scratch", "/scratch")),
        labels={"team": "x"},
    )
    obj = CREATABLE[0].manifest(like)
    obj["metadata"]["annotations"] = {"note": "x"}
    async with form(tmp_path, Answer({}, 201), clone=clone(obj)) as it:
        assert it.field("name").value == "bert-5"
        assert it.said("Notice") == "Not carried over: annotation note, working dir."
        assert it.field("env").value == "A=1"
        await it.create()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[0].body)
        roles = made["spec"]["pytorchReplicaSpecs"]
        assert roles["Worker"]["replicas"] == 2
        container = roles["Master"]["template"]["spec"]["containers"][0]
        assert container["command"] == ["sh", "-c", "python x.py"]
        assert [each["mountPath"] for each in container["volumeMounts"]][:2] == ["/data", "/scratch"]
        assert made["metadata"]["labels"] == {"team": "x"}


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"], ids=["cr", "lf", "crlf"])
async def test_several_pasted_lines_are_several_variables(tmp_path: Path, end: str) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.write("env", f"A=1{end}B=two words{end}{end}C=3{end}")
        assert it.screen.state.result.spec.env == {"A": "1", "B": "two words", "C": "3"}
        assert it.field("env").value.split("\n")[:2] == ["A=1", "B=two words"]
        assert it.field("env").error == ""
        await it.write("name", f"one{end}two")
        assert it.field("name").error


@pytest.mark.parametrize("key", ["env", "image", "mount_path"])
async def test_a_pasted_control_character_is_refused_at_its_field(tmp_path: Path, key: str) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.write(key, "A=/x\x1bc")
        assert it.field(key).error.startswith("Must not hold control characters; there is ␛")


NASTY = (
    "[/b]",
    "[bold red]x",
    "x" * 10_000,
    "\x1b[31mred\x1b]0;t\x07!",
    "\u202eevil",
    "训练",
    "a\nb",
    "\udcff",
)
"""What people and programs paste into forms."""


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_anything_pasted_is_harmless_and_its_error_is_clear(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with form(tmp_path, ECHO, size=size) as it:
        for text in NASTY:
            await it.write("name", text)
            assert it.field("name").error, text
            shown = "".join(it.shown())
            assert not set(shown) & {"\x1b", "\x07", "\u202e", "\udcff"}
            assert "✕" in shown
        for key in ("gpus", "env", "namespace"):
            await it.write(key, "[/b]")
            assert it.field(key).error, key
        await it.create()
        assert it.cluster.asked(JOBS, method="POST") == []


async def test_a_command_may_say_anything_and_is_shown_as_it_is(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO, size=(120, 40)) as it:
        await it.go("run")
        await it.pilot.press("right", "right")
        await it.write("command", "echo '[/b]' \u202e\npython train.py")
        assert any("echo '[/b]' <U+202E>" in line for line in it.shown())
        await it.create()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[0].body)
        container = made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
        assert container["command"] == ["sh", "-c", "echo '[/b]' <U+202E>\npython train.py"]


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 60)])
async def test_the_form_is_drawn_in_every_theme_and_size(tmp_path: Path, size: tuple[int, int]) -> None:
    async with form(tmp_path, size=size) as it:
        for theme in themes.load():
            it.app.theme = theme
            await it.pilot.pause()
            assert any("▸ Name" in line for line in it.shown())
            assert any("Create" in line for line in it.shown())
