"""The new-job screen: what the cluster has against the job, asked behind the typing, said at its field."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Button, Label

from k8s.kinds import JobRef
from k8s.snapshot import Job
from k8s.status import Status
from tests.scripted.server import Answer, Held, Reply, Stall, page
from tests.tui.screens.new_job.world import (
    BOUND,
    CLAIMS,
    ECHO,
    GPU,
    JOBS,
    NEVER_S,
    QUOTAS,
    SNAPSHOT,
    Form,
    form,
)
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.form_requests import CheckTimes
from tui.widgets.form.job_fields import JobFields

AT_ONCE = CheckTimes(after_s=0.0)


def quota(gpus: str) -> Answer:
    status = {"hard": {"requests.nvidia.com/gpu": gpus}, "used": {}}
    return page([{"metadata": {"name": "team"}, "spec": {}, "status": status}])


def checked_form(
    folder: Path, answers: Mapping[str, Reply], *, times: CheckTimes = AT_ONCE
) -> AbstractAsyncContextManager[Form]:
    """Open the form on a cluster that has nothing against a job but what `answers` say."""
    return form(folder, ECHO, size=(120, 50), answers=answers, check_times=times)


def said(it: Form) -> str:
    return " ".join(it.said("#preflight").split())


def question(it: Form) -> str:
    return str(it.app.screen.query_one("#details", Label).content)


async def checks_done(it: Form) -> None:
    """Wait until the cluster was asked of the job as it is."""

    def is_done() -> bool:
        return all(each.is_finished for each in it.app.workers if each.group == "checks")

    await it.comes(is_done)


async def test_what_the_cluster_has_against_a_job_is_said_with_its_remedy_and_at_its_field(
    tmp_path: Path,
) -> None:
    waiting = {**BOUND, "status": {"phase": "Pending"}}
    answers = {f"{CLAIMS}/workspace": Answer(waiting), QUOTAS: quota("1")}
    async with checked_form(tmp_path, answers) as it:
        await it.comes(lambda: "claim workspace is not bound" in said(it))
        claim = it.field("claim")
        assert claim.warning.startswith(
            "would wait: volume claim workspace is not bound; see the claim's events"
        )
        assert (claim.has_class("-warning"), claim.has_class("-error")) == (True, False)
        await it.write("gpus", "2")
        await it.comes(lambda: "would never start: all pods need 2" in said(it))
        assert "quota team allows 1; ask for less, or for more quota in vision" in said(it)
        assert it.field("gpus").error.startswith("would never start: all pods need 2")
        assert it.screen.model.errors == {}, "it does not keep anybody from creating the job"
        assert it.focused_key == "gpus"


async def test_a_finding_is_not_shown_as_current_once_the_job_is_another(tmp_path: Path) -> None:
    waiting = {**BOUND, "status": {"phase": "Pending"}}
    async with checked_form(tmp_path, {f"{CLAIMS}/workspace": Answer(waiting)}) as it:
        words = "would wait: volume claim workspace is not bound"
        await it.comes(lambda: f"! {words}" in said(it))
        it.cluster.forget(QUOTAS)
        it.cluster.say(QUOTAS, Stall())
        await it.write("workers", "2")
        assert f"· before your last change: {words}" in said(it)
        assert f"! {words}" not in said(it)
        assert it.field("claim").warning.startswith(words), "the field that it is about is as it was"
        await it.write("claim", "data")
        assert words not in said(it)
        assert it.field("claim").warning == ""


async def test_the_same_is_not_asked_again_for_a_while(tmp_path: Path) -> None:
    async with checked_form(tmp_path, {}) as it:
        await it.cluster.until_asked(QUOTAS)
        await checks_done(it)
        asked = len(it.cluster.asked(QUOTAS))
        await it.write("workers", "2")
        await checks_done(it)
        assert len(it.cluster.asked(QUOTAS)) == asked + 1
        await it.write("workers", "1")
        await checks_done(it)
        assert len(it.cluster.asked(QUOTAS)) == asked + 1
    async with checked_form(tmp_path / "later", {}, times=CheckTimes(0.0, holds_s=0.0)) as it:
        await it.cluster.until_asked(QUOTAS)
        await checks_done(it)
        for number, workers in enumerate("212", 2):
            await it.write("workers", workers)
            await it.cluster.until_asked(QUOTAS, number)
            await checks_done(it)


async def test_nothing_is_asked_while_somebody_types_or_while_a_field_is_wrong(tmp_path: Path) -> None:
    async with checked_form(tmp_path, {}, times=CheckTimes(after_s=NEVER_S)) as it:
        await it.write("workers", "2")
        await it.write("image", "mine:1")
        assert it.cluster.asked(QUOTAS) == []
    async with checked_form(tmp_path / "other", {}) as it:
        await checks_done(it)
        asked = len(it.cluster.asked(QUOTAS))
        await it.write("workers", "many")
        await checks_done(it)
        assert len(it.cluster.asked(QUOTAS)) == asked


async def test_a_question_under_way_ends_with_the_next_change_and_with_the_form(tmp_path: Path) -> None:
    held = Held(quota("1"))
    async with checked_form(tmp_path, {}) as it:
        await it.cluster.until_asked(QUOTAS)
        await checks_done(it)
        it.cluster.forget(QUOTAS)
        it.cluster.say(QUOTAS, held, page([]))
        await it.write("gpus", "2")
        await it.cluster.until_asked(QUOTAS, 2)
        await it.write("gpus", "3")
        held.let_go()
        await checks_done(it)
        assert "quota team" not in said(it)
        it.cluster.forget(QUOTAS)
        it.cluster.say(QUOTAS, Stall())
        await it.write("gpus", "4")
        await it.pilot.press("escape")
        await it.comes(lambda: isinstance(it.app.screen, ConfirmScreen))
        await it.pilot.press("tab", "enter")
        await it.comes(lambda: it.app.results == [None])


async def test_what_the_snapshot_tells_is_not_said_twice(tmp_path: Path) -> None:
    taken = Answer({"metadata": {"name": "ddp-digits-1"}})
    async with checked_form(tmp_path, {f"{JOBS}/ddp-digits-1": taken}) as it:
        ref = JobRef("vision", "ddp-digits-1", "PyTorchJob", "kubeflow.org/v1")
        await it.write("name", "ddp-digits-1 ")  # as typed by the user: no other is suggested
        job = Job(ref, "u", Status.RUNNING, "", 0, 0, (), 0, "", "", None, None, None, (), "", "")
        it.app.snapshot = replace(SNAPSHOT, jobs=(job,))
        await it.comes(lambda: "would be refused: PyTorchJob ddp-digits-1 already exists" in said(it))
        assert said(it).count("already exists in vision") == 1
        await it.pilot.press("ctrl+o")
        await it.comes(lambda: isinstance(it.app.screen, ConfirmScreen))
        labels = " ".join(str(each.label) for each in it.app.screen.query(Button))
        assert "Ask the server" in labels and "Create" not in labels
        await it.pilot.press("escape")
        await it.write("claim", "nowhere")
        await it.comes(lambda: "not found in vision; choose one that exists" in said(it))
        assert said(it).count("volume claim nowhere not found") == 1


@pytest.mark.parametrize("by_button", [False, True], ids=["by key", "by button"])
async def test_creating_what_cannot_start_asks_with_the_reason_and_cancel_has_the_focus(
    tmp_path: Path, by_button: bool
) -> None:
    async with checked_form(tmp_path, {QUOTAS: quota("0")}) as it:
        await it.comes(lambda: "quota team allows 0" in said(it))
        if by_button:
            it.screen.query_one("#create").focus()
        await it.pilot.press("enter" if by_button else "ctrl+o", "enter")
        assert it.cluster.asked(JOBS, method="POST") == []
        await it.pilot.press("enter" if by_button else "ctrl+o")
        assert isinstance(it.app.screen, ConfirmScreen)
        assert question(it).startswith("✕ would never start: all pods need 1")
        await it.pilot.press("tab", "enter")
        await it.settled()
        assert len(it.app.results) == 1


async def test_a_claim_among_more_volumes_is_said_there(tmp_path: Path) -> None:
    async with checked_form(tmp_path, {}) as it:
        it.screen.model.set_value("more_volumes", "nowhere:/more")
        await it.write("workers", "2")
        await it.comes(lambda: "volume claim nowhere not found in vision; choose one" in said(it))
        await it.screen.query_one(JobFields).focus_first(["more_volumes"])
        await it.comes(lambda: "claim nowhere not found" in it.field("more_volumes").error)
        assert it.field("claim").error == ""


async def test_what_was_found_long_ago_is_asked_again_when_the_cluster_changes(
    tmp_path: Path,
) -> None:
    async with checked_form(tmp_path, {QUOTAS: quota("0")}) as it:
        await it.comes(lambda: "quota team allows 0" in said(it))
        asked = len(it.cluster.asked(QUOTAS))
        it.app.snapshot = replace(SNAPSHOT)
        await checks_done(it)
        assert len(it.cluster.asked(QUOTAS)) == asked
    times = CheckTimes(0.0, holds_s=0.0)
    async with checked_form(tmp_path / "later", {QUOTAS: quota("0")}, times=times) as it:
        await it.comes(lambda: "quota team allows 0" in said(it))
        await checks_done(it)
        it.cluster.forget(QUOTAS)
        it.cluster.say(QUOTAS, page([]))
        it.app.snapshot = replace(SNAPSHOT)
        await it.comes(lambda: "quota team" not in said(it))


async def test_beside_what_can_never_start_nothing_is_said_to_fit_now(tmp_path: Path) -> None:
    size = {"cpu": "2", "memory": "8Gi", GPU: "8", "pods": "110"}
    status = {"allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
    # The taint is newer than the snapshot, by which the job would fit.
    spec = {"taints": [{"key": "team", "value": "nlp", "effect": "NoSchedule"}]}
    nodes = page([{"metadata": {"name": "a100-1"}, "spec": spec, "status": status}])
    async with checked_form(tmp_path, {"/api/v1/nodes": nodes}) as it:
        await it.write("gpus", "1")
        await it.comes(lambda: "would never start: no node that is large enough takes master-0" in said(it))
        assert "fits now" not in said(it)
