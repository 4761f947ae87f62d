"""A clone as YAML: changed by hand, checked by the server, created once, never lost by a slip."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Button, Label

from k8s.jobs.clone import clone
from k8s.kinds import JobRef
from k8s.text.yaml_writer import to_yaml
from tests.scripted.server import Answer, Reply, ScriptedCluster, refusal
from tests.support.hosted_view import FramedApp
from tests.support.objects import pytorch_job, recorded
from tests.tui.screens.new_job.world import FINE
from tui.draft.manifest_yaml import read_manifest
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.submit import ManifestScreen
from tui.widgets.form.fields import TextAreaField
from tui.widgets.form.job_fields import Notice

SPACE = "/api/v1/namespaces/default"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
MADE = Answer({"metadata": {"name": "bert-2", "namespace": "default"}}, 201)


@dataclass
class Opened:
    pilot: Pilot[None]
    screen: ManifestScreen
    cluster: ScriptedCluster
    answers: list[JobRef | None]

    async def settled(self) -> None:
        for group in ("checks", "read", "submit"):
            workers = [each for each in self.pilot.app.workers if each.group == group]
            await self.pilot.app.workers.wait_for_complete(workers)
        await self.pilot.pause()

    async def asked(self, key: str) -> ConfirmScreen:
        await self.pilot.press(key)
        await self.settled()
        assert isinstance(self.pilot.app.screen, ConfirmScreen)
        return self.pilot.app.screen

    @property
    def notice(self) -> str:
        return str(self.screen.query_one(Notice).content)

    @property
    def lines(self) -> TextAreaField:
        return self.screen.query_one(TextAreaField)


@asynccontextmanager
async def opened(*replies: Reply, obj: dict[str, Any] | None = None) -> AsyncIterator[Opened]:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(SPACE, Answer({"metadata": {"name": "default"}}))
        for path in ("/apis", "/apis/kubeflow.org/v1"):
            cluster.say(path, FINE[path])
        if replies:
            cluster.accept_companions("vision")
            cluster.say(JOBS, *replies, method="POST")
        job = pytorch_job("bert")
        pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        pod |= {"nodeSelector": {"for": "bert"}, "hostAliases": [{"ip": "10.0.0.1"}]}
        found = clone(obj or job)
        answers: list[JobRef | None] = []
        app = FramedApp()
        async with app.run_test(size=(80, 24)) as pilot:
            screen = ManifestScreen(client, found, namespace="default")
            await app.push_screen(screen, answers.append)
            await pilot.pause()
            yield Opened(pilot, screen, cluster, answers)


async def test_the_notice_explains_the_missing_form_and_references_to_the_old_name() -> None:
    async with opened() as it:
        assert it.notice == (
            "The form cannot be filled in: this PyTorchJob has no annotation gpuconsole.dev/spec. "
            "Edit its YAML, then create it. Still refers to bert in: for."
        )
        assert "name: bert-2" in it.lines.text
        assert "nodeSelector" in it.lines.text
        assert it.lines.has_focus


async def test_a_kind_without_form_fields_shows_instructions_and_a_create_button() -> None:
    job_set = {
        "kind": "JobSet",
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "metadata": {"name": "set", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {}}}]},
    }
    async with opened(obj=job_set) as it:
        assert it.notice == "The form has no fields for a JobSet. Edit its YAML, then create it."
        button = it.screen.query_one("#create", Button)
        assert str(button.label) == "Create" and not button.has_class("-busy")
        await it.asked("ctrl+o")


async def test_the_edited_manifest_is_created_after_a_confirmation_and_a_dry_run() -> None:
    async with opened(MADE, MADE) as it:
        it.lines.load_text(it.lines.text.replace("for: bert", "for: all"))
        dialog = await it.asked("ctrl+o")
        assert dialog.query_one("#do").has_focus
        assert it.cluster.asked(JOBS, method="POST") == []
        await it.pilot.press("enter")
        await it.settled()
        asked = it.cluster.asked(JOBS, method="POST")
        assert [each.query.get("dryRun", "") for each in asked] == ["All", ""]
        made = json.loads(asked[1].body)
        assert made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["nodeSelector"] == {
            "for": "all"
        }
        assert it.answers == [JobRef("default", "bert-2", "PyTorchJob", "kubeflow.org/v1")]


async def test_the_manifest_is_checked_before_it_is_created() -> None:
    async with opened(MADE, MADE) as it:
        manifest = read_manifest(it.lines.text)
        pod = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        pod["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
        pod["containers"][0]["volumeMounts"] = [{"name": "d", "mountPath": "/d"}]
        it.lines.load_text(to_yaml(manifest))
        dialog = await it.asked("ctrl+o")
        details = str(dialog.query_one("#details", Label).content)
        assert "✕ would wait for volume claim data, which does not exist in default" in details
        assert dialog.query_one("#cancel").has_focus
        assert it.cluster.asked(JOBS, method="POST") == []


async def test_a_dry_run_creates_nothing() -> None:
    async with opened(MADE) as it:
        await it.pilot.press("ctrl+t")
        await it.settled()
        assert it.notice == "Dry run passed: the server would create it."
        assert [each.query["dryRun"] for each in it.cluster.asked(JOBS, method="POST")] == ["All"]


async def test_a_rejected_manifest_is_reported_and_stays_open_for_editing() -> None:
    async with opened(refusal(422, "spec.x is wrong", "Invalid")) as it:
        await it.asked("ctrl+o")
        await it.pilot.press("enter")
        await it.settled()
        assert "spec.x is wrong" in it.notice
        assert it.lines.has_focus
        assert it.answers == []


async def test_an_invalid_manifest_is_not_sent() -> None:
    async with opened() as it:
        for text, words in (
            ("a: [", "Line 1"),
            ("[]", "A manifest must be a mapping"),
            ("kind: PyTorchJob", "metadata.name is required"),
            (
                "kind: Pod\napiVersion: v1\nmetadata: {name: a}",
                "kind and apiVersion must stay PyTorchJob, kubeflow.org/v1.",
            ),
        ):
            it.lines.load_text(text)
            await it.pilot.press("ctrl+t")
            assert words in it.notice
        assert it.cluster.asked(JOBS, method="POST") == []


async def test_leaving_prompts_only_after_an_edit() -> None:
    async with opened() as it:
        it.lines.load_text("a: 1")
        await it.pilot.press("escape")
        await it.pilot.pause()
        assert isinstance(it.pilot.app.screen, ConfirmScreen)
        await it.pilot.press("escape")
        await it.pilot.pause()
        assert it.lines.text == "a: 1"
        assert it.answers == []
    async with opened() as it:
        await it.pilot.press("escape")
        await it.pilot.pause()
        assert it.answers == [None]


async def test_control_characters_in_a_manifest_are_sanitized() -> None:
    job = next(each for each in recorded("pytorchjobs") if each["metadata"]["name"] == "done")
    job["apiVersion"] = "kubeflow.org/v1"
    job["metadata"]["annotations"] = {"x": "\x1b]0;title\x07[/b]\u202e"}
    async with opened(obj=job) as it:
        assert "\x1b" not in it.lines.text
        assert "\u202e" not in it.lines.text
