"""The new-job screen: dry run, confirmation, create, and what the server answers."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace
from textual.widgets import Button

from k8s.kinds import JobRef
from tests.scripted.server import WAIT_S, Drop, Held, Reply, Stall, page, refusal
from tests.support.new_job_form import job
from tests.tui.screens.new_job.world import CLAIMS, ECHO, JOBS, SNAPSHOT, form
from tui.screens.documents import submit
from tui.screens.documents.submit import READING
from tui.widgets.form.job_fields import CreateBar, PreflightView

REF = JobRef("vision", "ddp-digits-1", "PyTorchJob", "kubeflow.org/v1")
NO_DRY_RUNS = refusal(400, 'admission webhook "x" does not support dry run', "BadRequest")
TAKEN = refusal(409, "exists", "AlreadyExists")


@pytest.mark.slow
async def test_one_key_opens_a_confirmation_and_enter_creates_the_confirmed_job(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.go("image")
        await it.pilot.press("ctrl+o")
        assert it.dialog_text("#question") == "Create PyTorchJob ddp-digits-1 in vision?"
        details = it.dialog_text().splitlines()
        assert details[:2] == [
            "· 1 pod × 1 GPU, 1 process per pod = 1 rank",
            "✓ 1 × 1 GPU: fits now on a100-1; 6 of 8 GPUs free, largest free block 6",
        ]
        folder = r"/workspace/ddp-digits-1-\d{8}-\d{6}-\d{3}"
        assert re.fullmatch(rf"· writes to {folder} on volume claim workspace", details[2])
        assert it.app.screen.query_one("#do").has_focus
        await it.pilot.press("ctrl+o", "ctrl+o", "tab", "enter")
        await it.settled()
        assert it.app.screen is it.screen
        assert it.focused_key == "image"
        assert (it.posted, it.app.results) == ([], [])

        await it.pilot.press("ctrl+o")
        await it.set_snapshot(replace(SNAPSHOT, jobs=(job("ddp-digits-1", "vision"),)))
        assert it.field("name").value == "ddp-digits-2"
        await it.pilot.press("enter")
        await it.settled()
        assert [each.query.get("dryRun", "") for each in it.cluster.asked(JOBS, method="POST")] == ["All", ""]
        for made in it.posted:
            assert made["metadata"]["name"] == "ddp-digits-1"
            assert made["metadata"]["annotations"]["gpuconsole.dev/user"] == "li"
        assert it.app.results == [REF]


@pytest.mark.slow
async def test_one_key_sends_a_dry_run_and_the_button_creates_without_a_question(tmp_path: Path) -> None:
    async with form(tmp_path, NO_DRY_RUNS, ECHO, NO_DRY_RUNS, ECHO) as it:
        await it.pilot.press("ctrl+t")
        await it.settled()
        assert "cannot dry-run" in it.notice
        assert "dry run passed" not in it.summary
        await it.pilot.press("ctrl+t")
        await it.settled()
        asked = it.cluster.asked(JOBS, method="POST")
        assert [each.query["dryRun"] for each in asked] == ["All", "All"]
        assert "dry run passed at" in it.summary
        await it.write("workers", "2")
        assert "changed since the dry run" in it.summary
        await it.go("env")
        await it.pilot.press(*["tab"] * 4)
        assert it.has_button
        await it.pilot.press("enter")  # without another question, and though the server has no dry runs
        await it.settled()
        assert len(it.posted) == 4 and it.app.results == [REF]


@pytest.mark.slow
async def test_submitting_waits_for_the_volume_claims_of_a_new_form_or_a_changed_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "LONGEST_READ_S", WAIT_S)
    slow, none = Held(page([{"metadata": {"name": "workspace"}}])), Held(page([]))
    async with form(tmp_path, ECHO, claims=slow, waits=False) as it:
        assert "no volume claim" not in it.summary
        await it.write("gpus", "many")
        await it.go("name")
        await it.pilot.press("ctrl+o")
        assert it.screen.busy == "" and it.field("gpus").error, "errors are shown before the claims are known"
        await it.until(lambda: it.focused_key == "gpus")
        await it.write("gpus", "1")
        await it.pilot.press("ctrl+t")
        assert it.screen.busy == READING
        await it.until(lambda: any(READING in line for line in it.shown))
        await it.pilot.press("ctrl+t")  # once is enough
        slow.let_go()
        await it.until(lambda: it.screen.busy != READING)
        await it.settled()
        (tried,) = it.posted
        assert "claimName: workspace" in yaml.safe_dump(tried)

        claims, jobs = (path.replace("vision", "nlp") for path in (CLAIMS, JOBS))
        it.cluster.accept_companions("nlp")
        it.cluster.say(claims, none)
        it.cluster.say(jobs, ECHO, method="POST")
        assert it.field("claim").value == "workspace"
        await it.write("namespace", "nlp")
        await it.pilot.press("ctrl+o")
        assert it.screen.busy == READING
        none.let_go()
        await it.settled()
        await it.pilot.press("enter")
        await it.settled()
        (made, *_) = it.cluster.asked(jobs, method="POST")
        assert "claimName" not in made.body.decode()


async def test_the_form_can_be_closed_while_waiting_for_volume_claims(tmp_path: Path) -> None:
    async with form(tmp_path, claims=Held(page([])), waits=False) as it:
        await it.pilot.press("ctrl+o")
        screen, known = it.screen, it.screen.reading()
        assert screen.busy == READING and known is not None

        async def report_while_widgets_are_removed() -> None:
            async with asyncio.timeout(WAIT_S):
                while screen.query(PreflightView):
                    await asyncio.sleep(0)
            known.set()
            for _ in range(10):  # turns in which the waiting worker may go on
                await asyncio.sleep(0)

        screen.query_one(CreateBar).call_later(report_while_widgets_are_removed)
        await it.app.pop_screen()


@pytest.mark.slow
async def test_waiting_for_volume_claims_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "LONGEST_READ_S", 0.05)
    async with form(tmp_path, ECHO, claims=Held(page([])), waits=False) as it:
        await it.pilot.press("ctrl+o")
        await it.until(lambda: bool(it.app.screen.query("ConfirmScreen #details")))
        assert "no volume claim" in it.dialog_text()


REFUSALS: dict[str, Reply] = {
    'user "li" cannot create': refusal(403, 'user "li" cannot create pytorchjobs', "Forbidden"),
    "etcd is away": refusal(500, "etcd is away", "InternalError"),
    "the [/b] webhook says no": refusal(422, "the [/b] webhook says no", "Invalid"),
    "Could not create PyTorchJob ddp-digits-1 in a dry run.": Drop(),
}


@pytest.mark.slow
async def test_a_rejected_create_is_explained_and_keeps_the_form_values(tmp_path: Path) -> None:
    causes = {
        "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].image": "no [/b] registry",
        "spec.template.spec.hostNetwork": "not allowed",
    }
    at_fields = refusal(422, "invalid", "Invalid", causes=causes)
    replies = (*REFUSALS.values(), at_fields, TAKEN, TAKEN, ECHO, Drop())
    async with form(tmp_path, *replies) as it:
        await it.write("image", "mine:1")
        for words in REFUSALS:
            await it.create()
            assert words in it.notice
            assert it.notice.startswith("✕ Could not create PyTorchJob")
            assert any("✕ Could not create PyTorchJob" in line for line in it.shown), words
            assert it.field("image").value == "mine:1"
            assert (it.app.results, it.screen.busy) == ([], "")

        await it.create()
        assert it.focused_key == "image"
        assert it.field("image").error == "no [/b] registry"
        assert "spec.template.spec.hostNetwork: not allowed" in it.notice

        assert "✓" in it.summary
        await it.write("workers", "x")
        assert not it.screen.query_one("Notice").display, "it was about the values before"
        assert it.screen.query_one("#create").has_class("-busy")
        assert "✓" not in it.summary

        await it.write("workers", "1")
        posted = len(it.posted)
        for tries in (1, 2):
            await it.create()
            assert it.focused_key == "name"
            assert it.field("name").error == "A PyTorchJob of this name already exists in vision."
            assert (len(it.posted), it.app.results) == (posted + tries, [])
        await it.write("name", "another")
        assert it.field("name").error == ""
        await it.create()
        assert "It may have been created anyway: look for another" in it.notice


@pytest.mark.slow
async def test_a_job_is_not_created_twice_by_pressing_twice(tmp_path: Path) -> None:
    async with form(tmp_path, Stall()) as it:
        await it.pilot.press("ctrl+o", "enter")
        await it.cluster.until_asked(JOBS, method="POST")
        it.screen.query_one("#create").focus()
        await it.pilot.press("enter", "ctrl+o", "ctrl+t")
        assert it.app.screen is it.screen
        assert str(it.screen.query_one("#create", Button).label) == "Dry run…"
        assert len(it.posted) == 1
        await it.press("escape")
        assert "Waiting for the server" in it.notice
        assert it.app.results == []
