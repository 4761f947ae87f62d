"""A draft of the form comes back, is its owner's only, and what is no draft is set aside."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.client.auth.cluster_config import ClusterConfig
from tui.draft.draft import (
    FILE,
    DraftError,
    OpenForm,
    context_folder,
    discard_draft,
    last_image,
    read_draft,
    recover_draft,
    save_last_image,
)
from tui.draft.fields import without_replaced


def save_draft(folder: Path, *drafts: dict[str, str]) -> None:
    form = OpenForm(folder)
    try:
        for values in drafts:
            form.save(values)
    finally:
        form.close()


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=10), st.text(max_size=50)))
def test_a_saved_draft_is_restored_unchanged(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("state")
    save_draft(folder, values)
    draft = read_draft(folder)
    assert draft is not None and draft.values == values


def test_a_draft_file_is_private_and_discarded_without_leftovers(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    save_draft(folder, {"name": "a"}, {"name": "b"})
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    draft = read_draft(folder)
    assert draft is not None
    discard_draft(draft)
    discard_draft(draft)
    assert read_draft(folder) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"values": []}',
        b'{"values": {"name": 1}, "saved_s": 1}',
        b'{"values": {}, "saved_s": "soon"}',
        b"[" * 100_000,
        json.dumps({"values": {"name": "x" * 5_000_000}, "saved_s": 1}).encode(),
    ],
)
def test_an_invalid_draft_file_is_renamed_and_reported(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / FILE).write_bytes(raw)
    with pytest.raises(DraftError, match=r"is not valid. It was renamed to new-job-draft.broken-1.json"):
        read_draft(tmp_path)
    assert (tmp_path / "new-job-draft.broken-1.json").read_bytes() == raw
    assert read_draft(tmp_path) is None


def test_values_of_fields_that_were_joined_are_read_from_an_older_draft() -> None:
    assert without_replaced({"cpu": "4", "rdma": "false", "host_pid": "false"}) == {"cpu": "4"}
    joined = {"cpu_request": "2", "memory": "8Gi", "memory_request": "4Gi", "elastic_min": "1"}
    more = {
        "elastic_max": "3",
        "host_network": "true",
        "host_ipc": "true",
        "rdma": "true",
        "devices": "a/b=1",
    }
    assert without_replaced({**joined, **more}) == {
        "cpu": "2-",
        "memory": "4Gi-8Gi",
        "elastic": "1-3",
        "host_namespaces": "network\nipc",
        "devices": "a/b=1\nrdma/hca=1",
    }


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DraftError, match=r"Could not save the draft in .*file"):
        save_draft(tmp_path / "file", {})
    with pytest.raises(DraftError, match="Could not read"):
        read_draft(tmp_path / "file")
    save_last_image(tmp_path / "file", "x")
    assert last_image(tmp_path / "file") == ""


def test_a_closed_form_writes_no_draft(tmp_path: Path) -> None:
    form = OpenForm(tmp_path)
    form.keep({"name": "a"})
    form.close()
    form.keep({"name": "late"})
    assert list(tmp_path.iterdir()) == []


def test_each_context_has_its_own_draft_and_image(tmp_path: Path) -> None:
    sandbox = ClusterConfig(host="https://127.0.0.1:4711", context="gpuconsole-sandbox")
    lab = ClusterConfig(host="https://lab:6443", context="lab")
    folder = context_folder(tmp_path, sandbox)
    save_draft(folder, {"name": "a"})
    save_last_image(folder, "local")
    again = context_folder(tmp_path, replace(sandbox, host="https://127.0.0.1:4712"))
    assert again == folder
    for other in (lab, replace(lab, host="https://other:6443"), replace(lab, context="../../lab/\ud800")):
        elsewhere = context_folder(tmp_path, other)
        assert elsewhere.parent == folder.parent
        assert read_draft(elsewhere) is None
        assert last_image(elsewhere) == ""
        save_draft(elsewhere, {"name": other.context})
    assert len(list(folder.parent.iterdir())) == 4
    draft = read_draft(folder)
    assert draft is not None and draft.values == {"name": "a"}


def test_the_last_image_is_remembered(tmp_path: Path) -> None:
    assert last_image(tmp_path) == ""
    save_last_image(tmp_path, "registry/me:1")
    assert last_image(tmp_path) == "registry/me:1"


def test_the_values_of_a_killed_console_are_the_next_draft(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tui.draft.draft import OpenForm\n"
        "OpenForm(Path(sys.argv[1])).keep({'name': 'lost'}); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    recover_draft(tmp_path)
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "lost"}
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
    recover_draft(tmp_path)


def test_the_values_of_an_earlier_version_are_the_next_draft(tmp_path: Path) -> None:
    before = OpenForm(tmp_path)
    before.keep({"name": "lost"})
    (values,) = tmp_path.glob("*.json")
    values.rename(tmp_path / "new-job-unsaved-another_login_node-1.json")
    recover_draft(tmp_path)
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "lost"}
    before.close()


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_form_open_in_another_console_is_not_offered_and_keeps_its_draft(
    tmp_path: Path, *, is_saved: bool
) -> None:
    other, own = OpenForm(tmp_path), OpenForm(tmp_path)
    (other.save if is_saved else other.keep)({"name": "other"})
    for path in tmp_path.glob("*.json"):
        os.utime(path, (0, 0))  # nothing was typed there for long
    recover_draft(tmp_path)
    assert read_draft(tmp_path) is None
    own.save({"name": "own"})
    own.close()
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "own"}
    other.save({"name": "other"})
    other.close()
    drafts = [json.loads(path.read_text())["texts"]["name"] for path in tmp_path.iterdir()]
    assert sorted(drafts) == ["other", "own"]


def test_a_password_among_variables_or_in_a_url_is_in_no_draft(tmp_path: Path) -> None:
    own = OpenForm(tmp_path)
    env = "A=1\nGIT_SYNC_PASSWORD=hunter2\nB=2"
    for save in (own.save, own.keep):
        save({"sync_source": "https://li:hunter2@host.example/x.git", "env": env})
    saved = [path.read_text() for path in tmp_path.glob("*.json")]
    assert len(saved) == 2
    assert all("hunter2" not in text and "A=1\\nB=2" in text for text in saved)
    own.close()
