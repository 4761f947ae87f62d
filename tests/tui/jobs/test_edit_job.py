"""Editing a live job: its text, the patch of a change, and that nothing typed is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from k8s.errors import KubeError
from k8s.kinds import JobRef
from k8s.sandbox.api.admission import patches
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal
from tests.support.objects import Object, pytorch_job
from tui.jobs.edit_job import EditEnd, edit_job, editable_text, editor_argv, merge_patch, read_edit

REF = JobRef("default", "bert", "PyTorchJob", "kubeflow.org/v1")
PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
Change = Callable[[str], str]


def bert() -> Object:
    job = pytorch_job("bert", workers=2, gpus=4)
    job["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    job["metadata"]["labels"] = {"team": "vision"}
    job["status"] = {"conditions": [{"type": "Running", "status": "True"}]}
    return job


class Live:
    """One job on a server that applies merge patches, and refuses outdated ones."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.job = bert()
        self.sent: list[tuple[bool, Any]] = []
        """The patches, and whether each was a dry run."""
        self.refusal: Reply | None = None
        self.before_patch: Callable[[], None] = lambda: None
        cluster.say(PATH, Compute(lambda _: Answer(self.job)))
        cluster.say(PATH, Compute(self._patch), method="PATCH")

    def _patch(self, asked: Asked) -> Reply:
        self.before_patch()
        patch = json.loads(asked.body)
        is_dry_run = asked.query.get("dryRun") == "All"
        assert asked.query.get("fieldValidation", "") == ("Strict" if is_dry_run else "")
        self.sent.append((is_dry_run, patch))
        if patch["metadata"]["resourceVersion"] != self.job["metadata"]["resourceVersion"]:
            return refusal(409, "the object has been modified", "Conflict")
        if self.refusal is not None:
            return self.refusal
        changed = patches.merge(self.job, patch)
        if not is_dry_run:
            self.change(changed)
        return Answer(changed)

    def change(self, changed: Object) -> None:
        version = int(self.job["metadata"]["resourceVersion"]) + 1
        self.job = {**changed, "metadata": {**changed["metadata"], "resourceVersion": str(version)}}


class User:
    """Edits by replacing text, one change for each time the editor opens, and answers questions."""

    def __init__(self, changes: Sequence[Change | str], *answers: str) -> None:
        self.changes, self.answers = list(changes), list(answers)
        self.questions: list[str] = []
        self.opened: list[str] = []
        self.path = Path()

    async def edit(self, path: Path) -> str:
        self.path = path
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        self.opened.append(path.read_text())
        change = self.changes.pop(0)
        if isinstance(change, str):
            return change
        path.write_text(change(path.read_text()))
        return ""

    async def ask(self, question: str, details: str, answers: Sequence[tuple[str, str]]) -> str:
        self.questions.append(f"{question}\n{details}")
        answer = self.answers.pop(0)
        assert answer in [id for id, _ in answers]
        assert answers[0] == ("cancel", "Cancel")
        return answer


async def edited(cluster: ScriptedCluster, user: User) -> EditEnd:
    async with cluster.client() as client:
        return await edit_job(client, REF, user.edit, user.ask)


def replacing(old: str, new: str) -> Change:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


TEAM = replacing("team: vision", "team: speech")


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}}, {"a": {"b": 3}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, {"a": [1, {"b": 3}]}),
        ({"a": [{"b": None}]}, {"a": [{"b": None}, {}]}, {"a": [{"b": None}, {}]}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"x": None}}, {"a": {"x": None, "y": {}}}, {"a": {"y": {}}}),
    ],
)
def test_a_merge_patch_transforms_the_old_object_into_the_new(
    before: Object, after: Object, patch: Object
) -> None:
    assert merge_patch(before, after) == patch
    assert patches.without_nulls(patches.merge(deepcopy(before), patch)) == patches.without_nulls(after)


def test_the_edit_text_has_a_header_and_omits_managed_fields() -> None:
    text = editable_text(bert())
    assert text.startswith("# PyTorchJob default/bert as it is now.")
    assert "managedFields:" not in text and "  uid: job-bert\n" in text
    assert read_edit(bert(), text).patch == {}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("name: bert\n", "name: roberta\n", "metadata.name"),
        ("uid: job-bert", "uid: other", "metadata.uid"),
        ("kind: PyTorchJob", "kind: MPIJob", "kind"),
        ("kubeflow.org/v1", "kubeflow.org/v2", "apiVersion"),
        ("type: Running", "type: Failed", "status"),
        (
            "  namespace: default",
            "  namespace: vision\n  managedFields: []",
            "metadata.namespace, metadata.managedFields",
        ),
    ],
)
def test_an_edit_of_an_immutable_field_is_rejected_by_name(old: str, new: str, named: str) -> None:
    text = editable_text(bert())
    assert old in text
    with pytest.raises(ValueError, match=f"{re.escape(named)} cannot be changed by an edit"):
        read_edit(bert(), text.replace(old, new, 1))


def test_the_diff_hides_secrets() -> None:
    job = bert()
    job["spec"]["env"] = [{"name": "APP_TOKEN", "value": "my-abcdefgh-word"}]
    diff = "\n".join(read_edit(job, editable_text(job).replace("abcdefgh", "ijklmnop")).diff)
    assert "-word" not in diff
    assert "-    value: <redacted env APP_TOKEN>\n+    value: <redacted env APP_TOKEN>" in diff


async def test_a_change_is_checked_shown_and_applied() -> None:
    async with ScriptedCluster() as cluster:
        live, user = Live(cluster), User([TEAM], "do")
        assert await edited(cluster, user) == EditEnd("PyTorchJob bert is changed.")
    patch = {"metadata": {"labels": {"team": "speech"}, "uid": "job-bert", "resourceVersion": "1"}}
    assert live.sent == [(True, patch), (False, patch)]
    assert "-    team: vision\n+    team: speech" in user.questions[0]
    assert not user.path.parent.exists()


@pytest.mark.parametrize("change", [str, lambda text: f"# a comment\n{text}"])
async def test_an_unchanged_job_is_not_sent(change: Change) -> None:
    async with ScriptedCluster() as cluster:
        live, user = Live(cluster), User([change])
        assert await edited(cluster, user) == EditEnd("PyTorchJob bert was not changed.")
    assert (live.sent, user.path.parent.exists()) == ([], False)


async def test_an_editor_that_fails_changes_nothing() -> None:
    async with ScriptedCluster() as cluster:
        live, user = Live(cluster), User(["vi: exit 1."])
        assert await edited(cluster, user) == EditEnd("PyTorchJob bert was not changed. vi: exit 1.", False)
    assert (live.sent, user.path.parent.exists()) == ([], False)


async def test_invalid_text_is_edited_again_and_kept() -> None:
    async with ScriptedCluster() as cluster:
        live = Live(cluster)
        user = User([lambda text: f"{text}\n: [", "vi: ended by SIGKILL."], "again", "cancel")
        end = await edited(cluster, user)
    assert live.sent == [] and user.opened[1].endswith("\n: [")
    assert "column" in user.questions[0] and "ended by SIGKILL" in user.questions[1]
    assert end == EditEnd(f"PyTorchJob bert was not changed. Your text is in {user.path}.", is_ok=False)
    assert user.path.read_text() == user.opened[1]


async def test_a_rejected_edit_shows_the_servers_reason_and_reopens_the_text() -> None:
    async with ScriptedCluster() as cluster:
        live, user = Live(cluster), User([TEAM, TEAM], "again", "cancel")
        live.refusal = refusal(422, "spec is immutable", "Invalid")
        user.changes[1] = str
        await edited(cluster, user)
    assert "Could not change PyTorchJob bert in a dry run.\nThe cluster says: spec is immutable" in "".join(
        user.questions
    )
    assert "team: speech" in user.opened[1] and all(is_dry_run for is_dry_run, _ in live.sent)


async def test_a_server_without_dry_runs_still_gets_the_change() -> None:
    async with ScriptedCluster() as cluster:
        live, user = Live(cluster), User([TEAM], "do")

        def refuse_dry_runs() -> None:
            words = "admission webhook x does not support dry run"
            live.refusal = None if live.sent else refusal(400, words, "BadRequest")

        live.before_patch = refuse_dry_runs
        assert (await edited(cluster, user)).is_ok
    assert live.job["metadata"]["labels"] == {"team": "speech"}


async def test_after_a_conflict_the_newest_object_has_the_user_s_changes() -> None:
    async with ScriptedCluster() as cluster:
        live, user = Live(cluster), User([TEAM, str], "do", "again", "do")

        def change_once() -> None:
            if len(live.sent) == 1:
                labels = {"team": "audio", "queue": "a"}
                live.change({**live.job, "metadata": {**live.job["metadata"], "labels": labels}})

        live.before_patch = change_once
        assert (await edited(cluster, user)).is_ok
    assert "was changed meanwhile.\nThe cluster says: the object has been modified" in user.questions[1]
    assert "team: speech" in user.opened[1] and "queue: a" in user.opened[1]
    assert (
        '# Changed by both, yours is below: metadata.labels.team; the cluster has "audio".' in user.opened[1]
    )
    assert live.job["metadata"]["labels"] == {"team": "speech", "queue": "a"}


async def test_a_cancelled_edit_conflict_keeps_both_texts() -> None:
    async with ScriptedCluster() as cluster:
        live, user = Live(cluster), User([TEAM, "vi: exit 1."], "again", "cancel")
        live.before_patch = lambda: None if live.sent else live.change(live.job)
        end = await edited(cluster, user)
    assert end.words.endswith(f"Your text is in {user.path}.")
    assert {each.name for each in user.path.parent.iterdir()} == {"bert.yaml", "bert.1.yaml"}
    assert "team: speech" in (user.path.parent / "bert.1.yaml").read_text()


async def test_a_recreated_job_with_the_same_name_is_not_edited() -> None:
    async with ScriptedCluster() as cluster:
        live, user = Live(cluster), User([TEAM], "again")

        def replace() -> None:
            live.change({**live.job, "metadata": {**live.job["metadata"], "uid": "another"}})

        live.before_patch = replace
        end = await edited(cluster, user)
    assert end == EditEnd(f"Another job is called bert now. Your text is in {user.path}.", is_ok=False)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"EDITOR": "no-such-editor --wait"}, "$EDITOR names no-such-editor, which is not found."),
        ({"VISUAL": "'vi", "EDITOR": "sh"}, "$VISUAL is 'vi: No closing quotation."),
        ({"PATH": "/nowhere"}, "VISUAL and EDITOR are not set, and the usual vi, which is not found."),
    ],
)
def test_an_editor_that_cannot_be_opened_is_named(env: dict[str, str], words: str) -> None:
    with pytest.raises(KubeError) as error:
        editor_argv(env)
    assert error.value.why == words and "export VISUAL=" in error.value.hint


def test_the_editor_comes_from_kube_editor_or_editor_with_arguments() -> None:
    env = {"EDITOR": "sh -c 'a b'", "VISUAL": " "}
    assert editor_argv(env) == ["sh", "-c", "a b"]
    assert editor_argv({**env, "KUBE_EDITOR": "cat"}) == ["cat"]
