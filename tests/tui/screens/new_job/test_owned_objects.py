"""The new-job screen: what comes along with the job is shown, read, sent and kept secret."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from textual.widgets import Static

from k8s.kinds import JobRef
from tests.scripted.server import Answer, Stall
from tests.tui.screens.new_job.test_yaml import editor
from tests.tui.screens.new_job.world import ECHO, JOBS, Form, form
from tui.screens.dialogs.text_prompt import LoginScreen
from tui.screens.documents.form_requests import CheckTimes
from tui.widgets.form.line_input import LineInput
from tui.widgets.yaml_view import YamlView

PODS = "/api/v1/namespaces/vision/pods"
SECRETS = "/api/v1/namespaces/vision/secrets"
WIDE = (120, 50)
AT_ONCE = CheckTimes(after_s=0.0)


def yaml_shown(it: Form) -> str:
    return str(it.screen.query_one(YamlView).query_one(Static).content)


def leave(it: Form) -> None:
    """Take the focus from the field, as `tab` does."""
    it.field("image").focus_control()


async def choose_code(it: Form, mode: str, source: str) -> None:
    """Choose where the code comes from."""
    await it.go("sync_mode")
    modes = [name for name, _ in it.field("sync_mode").definition.choices]
    await it.pilot.press(*["right"] * modes.index(mode))
    await it.comes(lambda: it.field("sync_source").display)
    await it.write("sync_source", source)


async def test_the_yaml_has_what_comes_along_and_a_folder_once_its_field_is_left(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_bytes(os.urandom(20_000))
    async with form(tmp_path / "state", ECHO, size=WIDE, check_times=AT_ONCE) as it:
        await it.comes(lambda: "name: ddp-digits-1-trainer" in yaml_shown(it))
        await choose_code(it, "folder", str(code))
        assert "code.tar.gz:  # not read yet" in yaml_shown(it)
        leave(it)
        await it.comes(lambda: "code.tar.gz:  # 20K of code" in yaml_shown(it))
        await it.write("sync_source", f"{code}-none")
        leave(it)
        await it.comes(lambda: "# could not be read" in yaml_shown(it))
        await it.comes(lambda: "code-none" in it.field("sync_source").error)
        await it.write("sync_source", str(code))
        leave(it)
        await it.comes(lambda: it.field("sync_source").error == "")
        area = await editor(it)
        assert "ConfigMap" not in area.text, "what comes along is read only"
        area.load_text(area.text.replace("  annotations:", "  annotations:\n    mine: '1'", 1))
        await it.pilot.press("ctrl+y")
        await it.comes(lambda: "name: ddp-digits-1-code" in yaml_shown(it))
        await it.create()
        assert it.app.results == [JobRef("vision", "ddp-digits-1", "PyTorchJob", "kubeflow.org/v1")]
        made = json.loads(it.cluster.asked(JOBS, method="POST")[-1].body)
        assert made["metadata"]["annotations"]["mine"] == "1"
        configs = it.cluster.asked(PODS.replace("pods", "configmaps"), method="POST")
        assert "ddp-digits-1-code" in {json.loads(each.body)["metadata"]["name"] for each in configs}


async def test_a_repository_whose_url_is_being_typed_ends_nothing(tmp_path: Path) -> None:
    async with form(tmp_path, size=WIDE) as it:
        await choose_code(it, "git", "https://[x")
        assert "https://[x" in yaml_shown(it)
        await it.pilot.press("ctrl+s")
        await it.comes(lambda: not it.screen.model.is_dirty)


async def test_user_and_password_of_git_are_typed_unseen_and_are_in_the_secret_alone(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    async with form(tmp_path / "state", ECHO, size=WIDE, templates_folder=templates) as it:
        it.cluster.say(SECRETS, ECHO, method="POST")
        it.cluster.say(f"{SECRETS}/*", Answer({}), method="PATCH")
        await it.pilot.press("f4")
        await it.comes(lambda: "Only git over https uses" in it.said("Notice"))
        await choose_code(it, "git", "https://host.example/x.git")
        await it.pilot.press("f4")
        await it.comes(lambda: isinstance(it.app.screen, LoginScreen))
        dialog = it.app.screen
        await it.pilot.press(*"li", "enter", "enter", *"hunter2")
        assert not any("hunter2" in line for line in it.shown())
        assert dialog.query_one("#password", LineInput).value == "hunter2"
        await it.pilot.press("enter")
        await it.comes(lambda: "password: •••" in yaml_shown(it))
        assert "become Secret ddp-digits-1-git" in it.said("Notice")
        await it.comes(
            lambda: "git user li and the password become" in " ".join(it.said("#preflight").split())
        )
        await it.pilot.press("ctrl+s")
        await it.comes(lambda: not it.screen.model.is_dirty)
        await it.pilot.press("f2")
        await it.comes(lambda: it.app.screen is not it.screen)
        await it.pilot.press(*"mine", "enter")
        await it.comes((templates / "mine.yaml").exists)
        assert not any("hunter2" in line for line in it.shown())
        kept = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
        assert kept and not any("hunter2" in text for text in kept)
        await it.create()
        await it.comes(lambda: len(it.app.results) == 1)
        secret = json.loads(it.cluster.asked(SECRETS, method="POST")[-1].body)
        assert secret["metadata"]["name"] == "ddp-digits-1-git"
        assert base64.b64decode(secret["data"]["password"]) == b"hunter2"
        job = it.cluster.asked(JOBS, method="POST")[-1].body.decode()
        assert "hunter2" not in job and "ddp-digits-1-git" in job


async def test_a_password_among_variables_or_in_a_url_is_in_no_draft(tmp_path: Path) -> None:
    async with form(tmp_path, size=WIDE) as it:
        await choose_code(it, "git", "https://li:hunter2@host.example/x.git")
        await it.write("env", "A=1\nGIT_SYNC_PASSWORD=hunter2\nB=2")
        await it.pilot.press("ctrl+s")
        await it.comes(lambda: not it.screen.model.is_dirty)
        (saved,) = [path.read_text() for path in tmp_path.rglob("new-job-saved-*.json")]
        assert "hunter2" not in saved
        assert "A=1\\nB=2" in saved
        assert it.field("env").value.count("hunter2") == 1


async def test_an_upload_says_how_far_it_is_and_esc_twice_stops_it(tmp_path: Path) -> None:
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
        await it.comes(lambda: "# 3M of code go into volume claim workspace" in yaml_shown(it))
        await it.pilot.press("ctrl+o", "enter")
        await it.comes(lambda: it.said("#state") == "Uploading 0 of 3 MiB …  esc to stop")
        await it.cluster.until_asked(f"{PODS}/up")
        await it.pilot.press("escape")
        await it.comes(lambda: "Press esc again to stop the upload" in it.said("Notice"))
        assert it.cluster.asked(f"{PODS}/up", method="DELETE") == []
        await it.pilot.press("escape")
        await it.comes(lambda: "Upload stopped. Nothing was created." in it.said("Notice"))
        assert len(it.cluster.asked(f"{PODS}/up", method="DELETE")) == 1
        assert [each.query.get("dryRun") for each in it.cluster.asked(JOBS, method="POST")] == ["All"] * 2
        await it.comes(lambda: it.said("#state") == "after a dry run on the server")
        assert it.screen.busy == ""
        assert it.app.results == []


async def test_how_far_an_upload_is_is_said_in_whole_mebibytes(tmp_path: Path) -> None:
    async with form(tmp_path, Stall()) as it:
        it.screen.busy = "Creating…"
        said = []
        for sent in (0, 12 * 2**20, 80 * 2**20):
            it.screen.show_upload(sent, 80 * 2**20)
            said.append(it.said("#state"))
        assert said == [
            "Uploading 0 of 80 MiB …  esc to stop",
            "Uploading 12 of 80 MiB …  esc to stop",
            "nothing you typed is lost",
        ]
        it.screen.busy = ""


async def test_a_folder_that_cannot_be_read_is_an_error_of_its_field(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO, size=WIDE, check_times=AT_ONCE) as it:
        await choose_code(it, "folder", "/nope")
        leave(it)
        await it.comes(lambda: "/nope" in it.said("#preflight"))
        await it.pilot.press("ctrl+o")
        await it.comes(lambda: it.focused_key == "sync_source")
        assert it.app.screen is it.screen
        assert it.cluster.asked(JOBS, method="POST") == []
