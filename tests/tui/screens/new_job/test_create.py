"""The new-job screen: dry run, question, create, and what the server answers."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from textual.widgets import Button, Label

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.jobs.pod_files import LOCAL_PATH
from k8s.kinds import JobRef
from k8s.snapshot import Job
from k8s.status import Status
from tests.scripted.server import WAIT_S, Answer, Drop, Held, Reply, ScriptedCluster, Stall, page, refusal
from tests.tui.screens.new_job.world import (
    CLAIMS,
    ECHO,
    JOBS,
    SNAPSHOT,
    Form,
    FormApp,
    form,
)
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents import submit
from tui.screens.documents.submit import READING
from tui.widgets.form.job_fields import CreateBar, PreflightView


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


async def test_one_key_asks_whether_to_create_the_job_and_create_has_the_focus(tmp_path: Path) -> None:
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
            "✓ 1 × 1 GPU: fits now on a100-1; 6 of 8 GPUs free, largest free block 6",
        ]
        folder = r"/workspace/ddp-digits-1-\d{8}-\d{6}-\d{3}"
        assert re.fullmatch(rf"· writes to {folder} on volume claim workspace", details[2])
        assert dialog.query_one("#do").has_focus
        await it.pilot.press("ctrl+o", "ctrl+o", "tab", "enter")
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
        await it.pilot.press("enter")
        await it.settled()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[0].body)
        assert made["metadata"]["name"] == "ddp-digits-1"


async def test_the_button_creates_without_another_question(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.go("env")
        await it.pilot.press(*["tab"] * 4)
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
        assert f"starts from scratch; to continue from {words}" in " ".join(it.said("#preflight").split())
        assert f"/data/{old}" not in " ".join(it.screen.model.result.spec.command)
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


async def test_claims_are_offered_and_workspace_is_taken(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        assert it.field("claim").value == "workspace"
        assert not it.screen.model.is_dirty
        await it.write("claim", "")
        await it.pilot.press("d", "down", "enter")
        assert it.field("claim").value == "data"
        await it.write("claim", "")
        assert "no volume claim" in it.said("#preflight")


@pytest.mark.parametrize("keys", [("ctrl+o", "enter"), ("ctrl+t",)], ids=["create", "dry run"])
async def test_what_is_asked_for_before_the_claims_are_known_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    monkeypatch.setattr(submit, "LONGEST_READ_S", WAIT_S)
    slow = Held(page([{"metadata": {"name": "workspace"}}]))
    async with form(tmp_path, ECHO, claims=slow, waits=False) as it:
        await it.pilot.press(keys[0])
        assert it.screen.busy == READING
        await it.comes(lambda: any(READING in line for line in it.shown()))
        await it.pilot.press(keys[0])  # once is enough
        slow.let_go()
        await it.comes(lambda: it.screen.busy != READING)
        await it.pilot.press(*keys[1:])
        await it.settled()
        made = [json.loads(each.body) for each in it.cluster.asked(JOBS, method="POST")]
        assert len(made) == len(keys)
        assert all("claimName: workspace" in yaml.safe_dump(each) for each in made)


@pytest.mark.parametrize("leaves_field", [False, True])
async def test_claims_of_a_namespace_that_was_just_typed_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, leaves_field: bool
) -> None:
    monkeypatch.setattr(submit, "LONGEST_READ_S", WAIT_S)
    claims, jobs = (path.replace("vision", "nlp") for path in (CLAIMS, JOBS))
    none = Held(page([]))
    async with form(tmp_path, ECHO) as it:
        assert it.field("claim").value == "workspace"
        it.cluster.accept_companions("nlp")
        it.cluster.say(claims, none)
        it.cluster.say(jobs, ECHO, method="POST")
        await it.write("namespace", "nlp")
        if leaves_field:
            await it.pilot.press("tab")
            await it.cluster.until_asked(claims)
        await it.pilot.press("ctrl+o")
        assert it.screen.busy == READING
        none.let_go()
        await it.settled()
        await it.pilot.press("enter")
        await it.settled()
        (made, *_) = it.cluster.asked(jobs, method="POST")
        assert "claimName" not in made.body.decode()


async def test_errors_are_said_before_the_claims_are_known(tmp_path: Path) -> None:
    async with form(tmp_path, claims=Held(page([])), waits=False) as it:
        await it.write("gpus", "many")
        await it.go("name")
        await it.pilot.press("ctrl+o")
        assert it.screen.busy == ""
        assert it.field("gpus").error
        await it.comes(lambda: it.focused_key == "gpus")


async def test_the_form_may_be_closed_while_claims_are_waited_for(tmp_path: Path) -> None:
    async with form(tmp_path, claims=Held(page([])), waits=False) as it:
        await it.pilot.press("ctrl+o")
        screen, known = it.screen, it.screen.reading()
        assert screen.busy == READING and known is not None

        async def tell_while_parts_go() -> None:
            async with asyncio.timeout(WAIT_S):
                while screen.query(PreflightView):
                    await asyncio.sleep(0)
            known.set()
            for _ in range(10):  # turns in which who waits may go on
                await asyncio.sleep(0)

        screen.query_one(CreateBar).call_later(tell_while_parts_go)
        await it.app.pop_screen()


async def test_claims_that_do_not_come_are_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "LONGEST_READ_S", 0.05)
    async with form(tmp_path, ECHO, claims=Held(page([])), waits=False) as it:
        await it.pilot.press("ctrl+o")
        await it.comes(lambda: bool(it.app.screen.query("ConfirmScreen #details")))
        assert "no volume claim" in str(it.app.screen.query_one("#details", Label).content)


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
        assert it.field("name").error == "A PyTorchJob of this name already exists in vision."
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
        (Drop(), "Could not create PyTorchJob ddp-digits-1 in a dry run."),
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
        assert "It may have been created anyway: look for ddp-digits-1" in it.said("Notice")


async def test_a_server_without_dry_runs_is_asked_all_the_same(tmp_path: Path) -> None:
    words = 'admission webhook "x" does not support dry run'
    async with form(tmp_path, refusal(400, words, "BadRequest"), ECHO) as it:
        await it.create()
        assert len(it.app.results) == 1


async def test_a_job_is_not_created_twice_by_pressing_twice(tmp_path: Path) -> None:
    async with form(tmp_path, Stall()) as it:
        await it.pilot.press("ctrl+o", "enter")
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


async def test_a_refusal_goes_once_a_field_is_changed_and_wrong_fields_dim_the_button(tmp_path: Path) -> None:
    async with form(tmp_path, refusal(403, "no", "Forbidden")) as it:
        assert "✓" in it.said("#preflight")
        await it.create()
        assert it.said("Notice").startswith("✕ Could not create")
        await it.write("workers", "x")
        assert not it.screen.query_one("Notice").display
        assert it.screen.query_one("#create").has_class("-busy")
        assert "✓" not in it.said("#preflight")


async def test_the_help_of_a_field_is_shown_whole(tmp_path: Path) -> None:
    async with form(tmp_path, size=(80, 40)) as it:
        await it.go("claim")
        await it.pilot.pause()
        help_text = it.said("#help")
        shown = " ".join(" ".join(it.shown()).split())
        assert len(help_text) > 70 and help_text in shown


async def test_while_the_claims_are_listed_none_is_called_missing(tmp_path: Path) -> None:
    async with form(tmp_path, claims=Stall(), waits=False) as it:
        await it.pilot.pause()
        assert "no volume claim" not in it.said("#preflight")
