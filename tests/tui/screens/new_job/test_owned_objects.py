"""The new-job screen: objects created beside the job are shown, read, sent and kept secret."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from k8s.kinds import JobRef
from tests.scripted.server import Answer
from tests.tui.screens.new_job.world import ECHO, JOBS, Form, form
from tui.screens.dialogs.confirm import LoginScreen
from tui.screens.documents.form_requests import CheckTimes
from tui.widgets.prompt import LineInput

PODS = "/api/v1/namespaces/vision/pods"
SECRETS = "/api/v1/namespaces/vision/secrets"
WIDE = (120, 50)
AT_ONCE = CheckTimes(after_s=0.0)


def leave(it: Form) -> None:
    """Take the focus from the field, as `tab` does."""
    it.field("image").focus_control()


async def choose_code(it: Form, mode: str, source: str) -> None:
    """Choose where the code comes from."""
    await it.choose("sync_mode", mode)
    await it.until(lambda: it.field("sync_source").display)
    await it.write("sync_source", source)


@pytest.mark.slow
async def test_the_yaml_shows_owned_objects_and_a_folder_once_its_field_is_left(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_bytes(os.urandom(20_000))
    async with form(tmp_path / "state", ECHO, size=WIDE, check_times=AT_ONCE) as it:
        await it.until(lambda: "name: ddp-digits-1-trainer" in it.yaml)
        await choose_code(it, "folder", str(code))
        assert "code.tar.gz:  # not read yet" in it.yaml
        leave(it)
        await it.until(lambda: "code.tar.gz:  # 20K of code" in it.yaml)
        await it.write("sync_source", f"{code}-none")
        leave(it)
        await it.until(lambda: "# could not be read" in it.yaml)
        await it.until(lambda: "code-none" in it.field("sync_source").error)
        await it.pilot.press("ctrl+o")
        await it.until(lambda: it.focused_key == "sync_source")
        assert it.app.screen is it.screen and it.posted == []
        await it.write("sync_source", str(code))
        leave(it)
        await it.until(lambda: it.field("sync_source").error == "")
        area = await it.edit_yaml()
        assert "ConfigMap" not in area.text, "owned objects are read only"
        area.load_text(area.text.replace("  annotations:", "  annotations:\n    mine: '1'", 1))
        await it.pilot.press("ctrl+y")
        await it.until(lambda: "name: ddp-digits-1-code" in it.yaml)
        await it.create()
        assert it.app.results == [JobRef("vision", "ddp-digits-1", "PyTorchJob", "kubeflow.org/v1")]
        made = it.posted[-1]
        assert made["metadata"]["annotations"]["mine"] == "1"
        configs = it.cluster.asked(PODS.replace("pods", "configmaps"), method="POST")
        assert "ddp-digits-1-code" in {json.loads(each.body)["metadata"]["name"] for each in configs}


@pytest.mark.slow
async def test_git_credentials_are_masked_and_stored_in_the_secret_only(tmp_path: Path) -> None:
    async with form(tmp_path / "state", ECHO, size=WIDE) as it:
        it.cluster.say(SECRETS, ECHO, method="POST")
        it.cluster.say(f"{SECRETS}/*", Answer({}), method="PATCH")
        await it.pilot.press("f4")
        await it.until(lambda: "Only git over https uses" in it.notice)
        await choose_code(it, "git", "https://[x")
        assert "https://[x" in it.yaml, "a URL may be incomplete while it is typed"
        await it.write("sync_source", "https://host.example/x.git")
        await it.pilot.press("f4")
        await it.until(lambda: isinstance(it.app.screen, LoginScreen))
        dialog = it.app.screen
        await it.pilot.press(*"li", "enter", "enter", *"hunter2")
        assert not any("hunter2" in line for line in it.shown)
        assert dialog.query_one("#password", LineInput).value == "hunter2"
        await it.pilot.press("enter")
        await it.until(lambda: "password: •••" in it.yaml)
        assert "become Secret ddp-digits-1-git" in it.notice
        await it.until(lambda: "git user li and the password become" in it.summary)
        await it.pilot.press("ctrl+s")
        await it.until(lambda: not it.screen.model.is_dirty)
        assert not any("hunter2" in line for line in it.shown)
        kept = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
        assert kept and not any("hunter2" in text for text in kept)
        await it.create()
        await it.until(lambda: len(it.app.results) == 1)
        secret = json.loads(it.cluster.asked(SECRETS, method="POST")[-1].body)
        assert secret["metadata"]["name"] == "ddp-digits-1-git"
        assert base64.b64decode(secret["data"]["password"]) == b"hunter2"
        job = it.cluster.asked(JOBS, method="POST")[-1].body.decode()
        assert "hunter2" not in job and "ddp-digits-1-git" in job


@pytest.mark.slow
async def test_an_upload_shows_its_progress_and_esc_twice_stops_it(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "weights").write_bytes(os.urandom(3 * 2**20))
    pod = {"metadata": {"name": "up", "uid": "u"}, "status": {"phase": "Pending"}}
    async with form(tmp_path / "state", ECHO, size=WIDE, check_times=AT_ONCE) as it:
        it.cluster.say(PODS, Answer(pod, 201), method="POST")
        it.cluster.say(f"{PODS}/up", Answer(pod))
        it.cluster.say(f"{PODS}/up", Answer({}), method="DELETE")
        await choose_code(it, "folder", str(code))
        leave(it)
        await it.until(lambda: "# 3M of code go into volume claim workspace" in it.yaml)
        await it.pilot.press("ctrl+o", "enter")
        await it.until(lambda: it.text_of("#state") == "Uploading 0 of 3 MiB …  esc to stop")
        await it.cluster.until_asked(f"{PODS}/up")
        await it.pilot.press("escape")
        await it.until(lambda: "Press esc again to stop the upload" in it.notice)
        assert it.cluster.asked(f"{PODS}/up", method="DELETE") == []
        await it.pilot.press("escape")
        await it.until(lambda: "Upload stopped. Nothing was created." in it.notice)
        assert len(it.cluster.asked(f"{PODS}/up", method="DELETE")) == 1
        assert [each.query.get("dryRun") for each in it.cluster.asked(JOBS, method="POST")] == ["All"] * 2
        await it.until(lambda: it.text_of("#state") == "after a dry run on the server")
        assert it.screen.busy == ""
        assert it.app.results == []

        it.screen.busy = "Creating…"
        for sent, message in (
            (0, "Uploading 0 of 80 MiB …  esc to stop"),
            (12 * 2**20, "Uploading 12 of 80 MiB …  esc to stop"),
            (80 * 2**20, "nothing you typed is lost"),
        ):
            it.screen.show_upload(sent, 80 * 2**20)
            assert it.text_of("#state") == message
        it.screen.busy = ""
