"""A manifest that is edited while the form changes it, and the objects created beside the job."""

from __future__ import annotations

import base64
import os
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.jobs.create import job_objects
from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import ConfigFile, JobFiles, JobSpec, Mount
from k8s.text.yaml_writer import to_yaml
from tui.draft.manifest_edits import ManifestEdits
from tui.draft.manifest_yaml import documents_beside, read_manifest

MADE: dict[str, Any] = {
    "kind": "Job",
    "metadata": {"name": "a"},
    "spec": {
        "replicas": 1,
        "containers": [{"name": "main", "image": "i:1", "command": ["sh", "-c", "python x.py\necho done\n"]}],
        "env": [{"name": "A", "value": "1"}],
    },
}


def made(change: str = "", value: object = None) -> dict[str, Any]:
    """Return the manifest with the value at `spec.<change>` replaced."""
    found = deepcopy(MADE)
    if change:
        found["spec"][change] = value
    return found


def edited(old: str, new: str) -> ManifestEdits:
    edits = ManifestEdits()
    edits.make(made())
    assert old in edits.text
    edits.edit(edits.text.replace(old, new))
    return edits


def test_an_unedited_manifest_follows_the_form() -> None:
    edits = ManifestEdits()
    edits.make(made())
    edits.make(made("replicas", 4))
    assert edits.manifest == made("replicas", 4) and not edits.is_edited
    assert edits.text == to_yaml(made("replicas", 4))


def test_an_edit_is_kept_when_the_form_changes_another_field() -> None:
    edits = edited("image: i:1", "image: i:2\n    tty: true")
    assert edits.is_edited
    edits.make(made("replicas", 4))
    assert edits.manifest["spec"]["replicas"] == 4
    assert edits.manifest["spec"]["containers"][0] == {
        **MADE["spec"]["containers"][0],
        "image": "i:2",
        "tty": True,
    }
    assert edits.conflicts == {}


def test_a_conflicting_edit_is_kept_and_annotated_with_the_forms_value() -> None:
    edits = edited("replicas: 1", "replicas: 7")
    edits.make(made("replicas", 4))
    assert edits.manifest["spec"]["replicas"] == 7
    assert "  replicas: 7  # the form says 4\n" in edits.text
    edits.make(made("replicas", 5))
    assert "  replicas: 7  # the form says 5\n" in edits.text
    edits.make(made("replicas", "五"))
    assert '  replicas: 7  # the form says "五"\n' in edits.text
    edits.make(made("replicas", 5))
    edits.edit(edits.text)
    assert len(edits.conflicts) == 1
    edits.edit(edits.text.replace("replicas: 7", "replicas: 5"))
    assert edits.conflicts == {} and not edits.is_edited
    edits.make(made("replicas", 6))
    assert edits.text == to_yaml(made("replicas", 6))


def test_a_removed_field_stays_removed_and_is_annotated_on_its_parent() -> None:
    edits = edited("  replicas: 1\n", "")
    edits.make(made("env", []))
    assert "replicas" not in edits.manifest["spec"]
    edits.make({**made("replicas", 9)})
    assert "replicas" not in edits.manifest["spec"]
    assert "spec:  # the form says replicas: 9\n" in edits.text


def test_an_edited_list_item_is_matched_by_name_after_insertions() -> None:
    edits = edited('value: "1"', 'value: "2"')
    edits.make(made("env", [{"name": "B", "value": "x"}, {"name": "A", "value": "1"}]))
    assert edits.manifest["spec"]["env"] == [{"name": "B", "value": "x"}, {"name": "A", "value": "2"}]


def test_a_conflict_comment_is_not_inserted_into_a_block_scalar() -> None:
    edits = edited("echo done", "echo 2")
    containers = deepcopy(MADE["spec"]["containers"])
    containers[0]["command"][2] = "python y.py\n"
    edits.make(made("containers", containers))
    assert edits.manifest["spec"]["containers"][0]["command"][2] == "python x.py\necho 2\n"
    assert read_manifest(edits.text) == edits.manifest
    assert "# the form says" in edits.text


def test_invalid_yaml_is_reported_with_its_line_and_the_text_is_kept() -> None:
    edits = edited("replicas: 1", "replicas: [")
    text = edits.text
    with pytest.raises(ValueError, match=r"Line \d+"):
        assert edits.manifest
    edits.make(made("env", []))
    edits.settle()
    assert edits.text == text
    edits.edit(text.replace("replicas: [", "replicas: 3"))
    edits.settle()
    assert (edits.manifest["spec"]["replicas"], edits.manifest["spec"]["env"]) == (3, [])
    edits.edit("kind: Job")
    assert "metadata.name" in edits.problem
    edits.discard()
    assert edits.manifest == made("env", []) and not edits.is_edited


TREES = st.recursive(
    st.none() | st.integers(-3, 3) | st.text("ab\n#: ", max_size=4),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text("abc", min_size=1), each, max_size=3),
    max_leaves=12,
)


@settings(max_examples=80)
@given(TREES, TREES, TREES)
def test_a_three_way_merge_produces_yaml_that_parses_to_the_merged_manifest(
    one: Any, two: Any, three: Any
) -> None:
    edits = ManifestEdits()
    base = {"metadata": {"name": "a"}}
    edits.make({**base, "spec": one})
    edits.edit(to_yaml({**base, "spec": two}))
    edits.make({**base, "spec": three})
    assert read_manifest(edits.text) == edits.manifest
    if two == three or one == two:
        assert edits.manifest == {**base, "spec": three} and not edits.conflicts


def test_yaml_aliases_are_expanded_to_independent_copies() -> None:
    found = read_manifest("metadata: {name: a}\none: &pod {gpus: [1]}\ntwo: *pod\n")
    assert found["one"] == found["two"] == {"gpus": [1]}
    assert found["one"] is not found["two"]


def test_aliases_cannot_make_a_small_file_a_huge_object() -> None:
    lines = ["metadata: {name: a}", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(ValueError, match="larger than 3 MiB"):
        read_manifest("\n".join(lines))


KIND = CREATABLE[0]
SPEC = JobSpec(name="bert", image="i", command=("python", "train.py"))
GIT = replace(SPEC, sync_mode="git", sync_source="https://host.example/x.git")
FOLDER = replace(SPEC, sync_mode="folder", sync_source="/home/li/code")


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def beside(spec: JobSpec, files: JobFiles, unread: str = "") -> str:
    return documents_beside(KIND, spec, files, unread)


def test_all_objects_created_beside_a_job_are_shown_in_creation_order() -> None:
    spec = replace(
        FOLDER,
        tensorboard=True,
        log_dir="/data/logs",
        mounts=(Mount("data", "/data"),),
        trainer="ddp",
        config_files=(ConfigFile("a.yaml", "/etc/a.yaml"),),
    )
    files = JobFiles(code=b"x", config_files={"a.yaml": b"a: null\n"}, trainer={"trainer/a.py": b""})
    shown = documents(beside(spec, files))
    created = [manifest for resource, manifest in job_objects(KIND, spec, files) if resource != KIND.resource]
    names = [(each["kind"], each["metadata"]["name"]) for each in shown]
    assert names == [(each["kind"], each["metadata"]["name"]) for each in created]
    assert {kind for kind, _ in names} >= {"ConfigMap", "Deployment", "Service"}
    assert [each["metadata"]["labels"] for each in shown] == [each["metadata"]["labels"] for each in created]
    (config,) = (each for each in shown if each["metadata"]["name"] == "bert-files")
    assert list(config["data"].values()) == ["a: null\n"]


def test_passwords_are_masked_and_code_is_replaced_by_its_size() -> None:
    text = beside(GIT, JobFiles(git_login={"username": "li", "password": "hunter2"}))
    assert "  password: •••\n" in text
    assert "hunter2" not in text
    assert base64.b64encode(b"hunter2").decode() not in text
    text = beside(FOLDER, JobFiles(code=os.urandom(12 * 1024)))
    assert "code.tar.gz:  # 12K of code\n" in text
    assert len(text) < 1_500


def test_the_packaged_trainers_are_shown_as_a_comment_without_zipping() -> None:
    text = beside(replace(SPEC, trainer="ddp"), JobFiles())
    assert "  # zipped, with the packaged trainers\n" in text


def test_files_not_yet_read_are_marked_in_the_yaml() -> None:
    spec = replace(FOLDER, config_files=(ConfigFile("a.yaml", "/etc/a.yaml"),), trainer="ddp")
    text = beside(spec, JobFiles(), "not read yet")
    assert text.count(":  # not read yet\n") == 2
    assert "packaged trainers" in text


def test_code_uploaded_to_a_volume_claim_is_shown_as_a_comment() -> None:
    spec = replace(FOLDER, mounts=(Mount("data", "/data"),))
    text = beside(spec, JobFiles(code=os.urandom(3 * 2**20)))
    assert text.startswith("---\n# 3M of code go into volume claim data before the job is created\n")
    assert "bert-code" not in text


def test_long_config_files_are_replaced_by_their_size_and_short_ones_shown() -> None:
    files = (ConfigFile("a", "/etc/a"), ConfigFile("b", "/etc/b"))
    spec = replace(SPEC, config_files=files)
    text = beside(spec, JobFiles(config_files={"a": b"x" * 4096, "b": b"short"}))
    assert ":  # 4K\n" in text
    assert ": short\n" in text
