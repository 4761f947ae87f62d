"""Objections of the cluster to the form's job: requested in the background, shown at their field."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace
from textual.widgets import Button

from k8s.client.client import Client
from k8s.gpus.ack import config_map
from k8s.gpus.links import MACHINES
from k8s.models import Taint
from k8s.snapshot import ClusterSnapshot
from tests.scripted.server import Answer, Held, Reply, ScriptedCluster, Stall, page
from tests.support.new_job_form import job
from tests.tui.screens.new_job.world import BOUND, CLAIMS, ECHO, JOBS, QUOTAS, SNAPSHOT, form, say_fine
from tui.draft.form_model import FormModel
from tui.draft.preflight import line_text
from tui.screens.documents.form_requests import CheckTimes, FormChecks, FormSuggestions
from tui.widgets.form.job_fields import PreflightView

NO_TEMPLATES = Path("/nowhere")
AT_ONCE = CheckTimes(after_s=0.0)
ALWAYS_OLD = CheckTimes(after_s=0.0, holds_s=0.0)
UNBOUND = Answer({**BOUND, "status": {"phase": "Pending"}})
WAITS = "would wait for volume claim workspace: no volume is bound to it"


def quota(gpus: str) -> Answer:
    status = {"hard": {"requests.nvidia.com/gpu": gpus}, "used": {}}
    return page([{"metadata": {"name": "team"}, "spec": {}, "status": status}])


class Checked(msgspec.Struct):
    """A form without a screen, and its checks."""

    model: FormModel
    checks: FormChecks
    cluster: ScriptedCluster

    async def ask(self, **values: str) -> int:
        """Change values, check the job, and return how often the cluster was asked for quotas so far."""
        for key, value in values.items():
            self.model.set_value(key, value)
        await self.checks.ask()
        return len(self.cluster.asked(QUOTAS))

    @property
    def summary(self) -> str:
        return "\n".join(line_text(line, is_marked=True) for line in self.checks.lines())


@asynccontextmanager
async def checked(
    answers: Mapping[str, Reply], times: CheckTimes = AT_ONCE, snapshot: ClusterSnapshot = SNAPSHOT
) -> AsyncIterator[Checked]:
    """Yield the checks of a form; the cluster objects to its job in `answers` only."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        say_fine(cluster, answers)
        model = FormModel("vision", "li", snapshot=snapshot)
        model.set_claims("vision", ["data", "workspace"])
        suggestions = FormSuggestions(client, NO_TEMPLATES, model)
        yield Checked(model, FormChecks(client, model, suggestions, times), cluster)


async def test_an_objection_names_its_remedy_and_field_until_the_field_changes() -> None:
    async with checked({f"{CLAIMS}/workspace": UNBOUND, QUOTAS: quota("1")}) as it:
        await it.ask(gpus="2")
        assert f"! {WAITS}" in it.summary
        assert it.summary.startswith("✕ would never start: master-0 needs 2")
        assert "quota team allows 1; request less, or ask for more quota in vision" in it.summary
        errors, warnings = it.checks.at_fields()
        assert warnings["claim"].startswith(f"{WAITS}, and it names no storage class; create a volume")
        assert errors["gpus"].startswith("would never start: master-0 needs 2")
        assert it.model.errors == {}, "the job can be created all the same"

        it.model.set_value("workers", "2")
        assert f"· before your last change: {WAITS}" in it.summary and f"! {WAITS}" not in it.summary
        assert it.checks.at_fields()[1]["claim"].startswith(WAITS), "its field has not changed"
        it.model.set_value("claim", "data")
        assert WAITS not in it.summary and "claim" not in it.checks.at_fields()[1]


async def test_a_check_is_repeated_only_for_another_job_or_once_it_is_old() -> None:
    async with checked({QUOTAS: quota("0")}) as it:
        first = await it.ask()
        for workers in ("2", "1", "many"):  # one worker was checked already, and a wrong field is not checked
            assert await it.ask(workers=workers) == first + 1
        assert not it.checks.is_old
        await it.ask(workers="2", more_volumes="nowhere:/more")
        assert "volume claim nowhere, which does not exist in vision; create it" in it.summary
        assert "claim nowhere, which does not exist" in it.checks.at_fields()[0]["more_volumes"]
        assert "claim" not in it.checks.at_fields()[0]
    async with checked({QUOTAS: quota("0")}, ALWAYS_OLD) as it:
        for number, workers in enumerate("1212", 1):
            assert await it.ask(workers=workers) == number
            assert it.checks.is_old, "an objection may have been remedied meanwhile"
        it.cluster.replace(QUOTAS, page([]))
        await it.ask()
        assert "quota team" not in it.summary and not it.checks.is_old


def test_gpu_links_are_read_once_the_nodes_are_known_even_after_the_form_opened() -> None:
    suggestions = FormSuggestions(cast(Client, None), NO_TEMPLATES, cast(FormModel, None))
    assert not suggestions.take_models_to_link(replace(SNAPSHOT, nodes=()))
    assert suggestions.take_models_to_link(SNAPSHOT)
    assert not suggestions.take_models_to_link(SNAPSHOT)


async def test_cluster_findings_neither_repeat_nor_contradict_the_snapshot() -> None:
    taken = Answer({"metadata": {"name": "ddp-digits-1"}})
    answers = {f"{JOBS}/ddp-digits-1": taken}
    async with checked(answers) as it:
        it.model.set_value("name", "ddp-digits-1 ")  # as typed by the user: no other is suggested
        it.model.suggest(replace(SNAPSHOT, jobs=(job("ddp-digits-1", "vision"),)))
        assert "fits now" in it.summary
        taints = (Taint("team", "nlp", "NoSchedule"),)
        tainted = tuple(replace(each, taints=taints) for each in SNAPSHOT.nodes)
        it.model.suggest(replace(SNAPSHOT, nodes=tainted, jobs=(job("ddp-digits-1", "vision"),)))
        await it.ask(gpus="1")
        assert "would be refused: PyTorchJob ddp-digits-1 already exists" in it.summary
        assert it.summary.count("already exists in vision") == 1
        assert "would never start: master-0 needs 1 nvidia.com/gpu; no node that is large" in it.summary
        assert it.checks.at_fields()[0]["tolerations"].startswith("would never start: master-0")
        assert "fits now" not in it.summary
        await it.ask(claim="nowhere")
        assert "which does not exist in vision; create it, or name one that exists" in it.summary
        assert it.summary.count("volume claim nowhere, which") == 1


@pytest.mark.slow
async def test_creating_an_unschedulable_job_prompts_with_the_reason_and_focuses_cancel(
    tmp_path: Path,
) -> None:
    answers = {f"{CLAIMS}/workspace": UNBOUND, QUOTAS: quota("0")}
    async with form(tmp_path, ECHO, answers=answers, check_times=AT_ONCE) as it:
        await it.until(lambda: "quota team allows 0" in it.summary)
        await it.until(lambda: it.is_idle("checks"))
        claim = it.field("claim")
        assert claim.warning.startswith(WAITS)
        assert claim.render_line(1).text.strip().startswith("! ")
        asked = len(it.cluster.asked(QUOTAS))
        await it.set_snapshot(replace(SNAPSHOT))
        await it.until(lambda: it.is_idle("checks"))
        assert len(it.cluster.asked(QUOTAS)) == asked, "the check is not old yet"
        for key in ("ctrl+o", "enter"):
            if key == "enter":
                it.screen.query_one("#create").focus()
            await it.pilot.press(key)
            await it.until(lambda: it.is_confirming)
            await it.pilot.press("enter")
            await it.until(lambda: not it.is_confirming)
            await it.settled()
            assert it.posted == []
            # A button of Textual takes no second press while it looks pressed.
            await it.until(lambda: not it.screen.query_one("#create").has_class("-active"))
            await it.pilot.press(key)
            await it.until(lambda: it.is_confirming)
            assert it.dialog_text().startswith("✕ would never start: master-0 needs 1")
            await it.pilot.press("tab")
            assert it.app.screen.query_one("#do").has_focus
            if key == "ctrl+o":
                await it.press("escape")
                await it.until(lambda: not it.is_confirming)
        await it.pilot.press("enter")
        await it.settled()
        assert len(it.app.results) == 1


@pytest.mark.slow
async def test_a_check_ends_with_the_next_change_and_with_the_form(tmp_path: Path) -> None:
    maps = "/api/v1/namespaces/kube-system/configmaps"
    links = page([config_map("a100-1", MACHINES["dgx-a100"].matrix())])
    taken = Answer({"metadata": {"name": "ddp-digits-1"}})
    held = Held(quota("1"))
    answers: dict[str, Reply] = {maps: links, QUOTAS: held, f"{JOBS}/ddp-digits-1": taken}
    async with form(tmp_path, ECHO, answers=answers, check_times=AT_ONCE, size=(120, 50)) as it:
        await it.cluster.until_asked(QUOTAS)
        it.cluster.replace(QUOTAS, page([]))
        await it.write("gpus", "4")
        held.let_go()
        await it.until(lambda: it.is_idle("checks"))
        assert "quota team" not in it.summary
        await it.until(lambda: "a100-1: 6 free, 4 of them NVLink-connected" in it.summary)
        assert len(it.cluster.asked(maps)) == 1
        await it.until(lambda: "would be refused: PyTorchJob ddp-digits-1 already exists" in it.summary)
        await it.pilot.press("ctrl+o")
        await it.until(lambda: it.is_confirming)
        labels = " ".join(str(each.label) for each in it.app.screen.query(Button))
        assert "Ask the server" in labels and "Create" not in labels
        await it.pilot.press("escape")
        await it.until(lambda: it.app.screen is it.screen)
        it.cluster.replace(QUOTAS, Stall())
        asked = len(it.cluster.asked(QUOTAS))
        await it.write("gpus", "2")
        await it.cluster.until_asked(QUOTAS, asked + 1)
        await it.pilot.press("escape")
        await it.until(lambda: it.is_confirming)
        await it.pilot.press("tab", "enter")
        await it.until(lambda: it.app.results == [None])


async def test_a_form_that_is_closing_shows_nothing_more(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.screen.query_one(PreflightView).remove()  # as the removal of the form does
        removal = it.screen.remove()
        it.screen.snapshot = replace(SNAPSHOT)
        await removal
