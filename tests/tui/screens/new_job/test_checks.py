"""The new-job screen: objections of the cluster, requested in the background and shown at their field."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import cast

from textual.widgets import Button

from k8s.client.client import Client
from k8s.topology.ack import config_map
from k8s.topology.machines import MACHINES
from tests.scripted.server import Answer, Held, Reply, Stall, page
from tests.support.new_job_form import job
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
from tui.jobs.new_job.form_model import FormModel
from tui.screens.documents.form_requests import CheckTimes, FormSuggestions

AT_ONCE = CheckTimes(after_s=0.0)
ALWAYS_OLD = CheckTimes(after_s=0.0, holds_s=0.0)
UNBOUND = Answer({**BOUND, "status": {"phase": "Pending"}})


def quota(gpus: str) -> Answer:
    status = {"hard": {"requests.nvidia.com/gpu": gpus}, "used": {}}
    return page([{"metadata": {"name": "team"}, "spec": {}, "status": status}])


def checked_form(
    folder: Path, answers: Mapping[str, Reply], *, times: CheckTimes = AT_ONCE
) -> AbstractAsyncContextManager[Form]:
    """Open the form on a cluster that has no objection to a job except in `answers`."""
    return form(folder, ECHO, size=(120, 50), answers=answers, check_times=times)


async def checks_done(it: Form) -> None:
    """Wait until the cluster was asked about the job as it is."""
    await it.until(lambda: it.is_idle("checks"))


async def test_objections_are_shown_with_their_remedy_and_at_their_field(tmp_path: Path) -> None:
    async with checked_form(tmp_path, {f"{CLAIMS}/workspace": UNBOUND, QUOTAS: quota("1")}) as it:
        words = "would wait: volume claim workspace is not bound"
        await it.until(lambda: f"! {words}" in it.summary)
        claim = it.field("claim")
        assert claim.warning.startswith(f"{words}; see the claim's events")
        assert (claim.has_class("-warning"), claim.has_class("-error")) == (True, False)
        await it.write("gpus", "2")
        await it.until(lambda: "would never start: all pods need 2" in it.summary)
        assert "quota team allows 1; ask for less, or for more quota in vision" in it.summary
        assert it.field("gpus").error.startswith("would never start: all pods need 2")
        assert it.screen.model.errors == {}, "the job can be created all the same"
        assert it.focused_key == "gpus"

        # While the cluster is asked about the next change, what was found is old.
        it.cluster.forget(QUOTAS)
        it.cluster.say(QUOTAS, Stall())
        await it.write("workers", "2")
        assert f"· before your last change: {words}" in it.summary
        assert f"! {words}" not in it.summary
        assert claim.warning.startswith(words), "its field has not changed"
        await it.write("claim", "data")
        assert words not in it.summary
        assert claim.warning == ""


async def test_a_check_is_not_repeated_and_ends_with_the_next_change_and_the_form(
    tmp_path: Path,
) -> None:
    held = Held(quota("1"))
    async with checked_form(tmp_path, {}) as it:
        await it.cluster.until_asked(QUOTAS)
        await checks_done(it)
        asked = len(it.cluster.asked(QUOTAS))
        for workers in ("2", "1", "many"):  # one worker was checked already, and a wrong field is not checked
            await it.write("workers", workers)
            await checks_done(it)
            assert len(it.cluster.asked(QUOTAS)) == asked + 1

        it.screen.model.set_value("more_volumes", "nowhere:/more")
        await it.write("workers", "2")
        await it.until(lambda: "volume claim nowhere not found in vision; choose one" in it.summary)
        await it.unfold("more_volumes")
        await it.until(lambda: "claim nowhere not found" in it.field("more_volumes").error)
        assert it.field("claim").error == ""
        await checks_done(it)

        it.cluster.forget(QUOTAS)
        it.cluster.say(QUOTAS, held, page([]))
        asked = len(it.cluster.asked(QUOTAS))
        await it.write("gpus", "2")
        await it.cluster.until_asked(QUOTAS, asked + 1)
        await it.write("gpus", "3")
        held.let_go()
        await checks_done(it)
        assert "quota team" not in it.summary
        it.cluster.forget(QUOTAS)
        it.cluster.say(QUOTAS, Stall())
        await it.write("gpus", "4")
        await it.pilot.press("escape")
        await it.until(lambda: it.is_confirming)
        await it.pilot.press("tab", "enter")
        await it.until(lambda: it.app.results == [None])


async def test_an_old_check_is_repeated_with_the_job_or_the_cluster_that_changes(tmp_path: Path) -> None:
    async with checked_form(tmp_path, {QUOTAS: quota("0")}, times=ALWAYS_OLD) as it:
        await it.until(lambda: "quota team allows 0" in it.summary)
        await checks_done(it)
        for number, workers in enumerate("212", 2):
            await it.write("workers", workers)
            await it.cluster.until_asked(QUOTAS, number)
            await checks_done(it)
        it.cluster.forget(QUOTAS)
        it.cluster.say(QUOTAS, page([]))
        await it.set_snapshot(replace(SNAPSHOT))
        await it.until(lambda: "quota team" not in it.summary)


async def test_nothing_is_checked_while_the_user_types_and_gpu_links_are_read_once(tmp_path: Path) -> None:
    maps = "/api/v1/namespaces/kube-system/configmaps"
    links = Held(page([config_map("a100-1", MACHINES["dgx-a100"].matrix())]))
    never = CheckTimes(after_s=NEVER_S)
    async with form(tmp_path, waits=False, size=(120, 50), answers={maps: links}, check_times=never) as it:
        await it.write("gpus", "4")
        links.let_go()
        await it.until(lambda: "a100-1: 6 free, 4 of them NVLink-connected" in it.summary)
        await it.write("image", "mine:1")
        assert len(it.cluster.asked(maps)) == 1
        assert it.cluster.asked(QUOTAS) == []


def test_gpu_links_are_read_when_nodes_are_known_which_may_be_after_the_form_opened() -> None:
    suggestions = FormSuggestions(cast(Client, None), None, cast(FormModel, None))
    assert not suggestions.take_models_to_link(replace(SNAPSHOT, nodes=()))
    assert suggestions.take_models_to_link(SNAPSHOT)
    assert not suggestions.take_models_to_link(SNAPSHOT)


async def test_what_the_snapshot_shows_is_not_repeated(tmp_path: Path) -> None:
    taken = Answer({"metadata": {"name": "ddp-digits-1"}})
    async with checked_form(tmp_path, {f"{JOBS}/ddp-digits-1": taken}) as it:
        await it.write("name", "ddp-digits-1 ")  # as typed by the user: no other is suggested
        await it.set_snapshot(replace(SNAPSHOT, jobs=(job("ddp-digits-1", "vision"),)))
        await it.until(lambda: "would be refused: PyTorchJob ddp-digits-1 already exists" in it.summary)
        assert it.summary.count("already exists in vision") == 1
        await it.pilot.press("ctrl+o")
        await it.until(lambda: it.is_confirming)
        labels = " ".join(str(each.label) for each in it.app.screen.query(Button))
        assert "Ask the server" in labels and "Create" not in labels
        await it.pilot.press("escape")
        await it.write("claim", "nowhere")
        await it.until(lambda: "not found in vision; choose one that exists" in it.summary)
        assert it.summary.count("volume claim nowhere not found") == 1


async def test_creating_what_cannot_start_asks_with_the_reason_and_cancel_has_the_focus(
    tmp_path: Path,
) -> None:
    async with checked_form(tmp_path, {QUOTAS: quota("0")}) as it:
        await it.until(lambda: "quota team allows 0" in it.summary)
        await checks_done(it)
        asked = len(it.cluster.asked(QUOTAS))
        await it.set_snapshot(replace(SNAPSHOT))
        await checks_done(it)
        assert len(it.cluster.asked(QUOTAS)) == asked, "the check is not old yet"
        for key in ("ctrl+o", "enter"):
            if key == "enter":
                it.screen.query_one("#create").focus()
            await it.pilot.press(key, "enter")
            assert it.posted == []
            await it.pilot.press(key)
            assert it.is_confirming
            assert it.dialog_text().startswith("✕ would never start: all pods need 1")
            await it.pilot.press("tab")
            assert it.app.screen.query_one("#do").has_focus
            if key == "ctrl+o":
                await it.press("escape")
        await it.pilot.press("enter")
        await it.settled()
        assert len(it.app.results) == 1


async def test_nothing_fits_now_if_the_cluster_knows_that_it_can_never_start(tmp_path: Path) -> None:
    size = {"cpu": "2", "memory": "8Gi", GPU: "8", "pods": "110"}
    status = {"allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
    # The taint is newer than the snapshot, by which the job would fit.
    spec = {"taints": [{"key": "team", "value": "nlp", "effect": "NoSchedule"}]}
    nodes = page([{"metadata": {"name": "a100-1"}, "spec": spec, "status": status}])
    async with checked_form(tmp_path, {"/api/v1/nodes": nodes}) as it:
        await it.write("gpus", "1")
        await it.until(lambda: "would never start: no node that is large enough takes master-0" in it.summary)
        assert "fits now" not in it.summary
