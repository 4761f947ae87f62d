"""Objects created beside a job as YAML: Secrets masked, long contents as their size, all of it valid."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from typing import Any

import yaml

from k8s.job_spec import ConfigFile, JobFiles, JobSpec, Mount
from k8s.jobs.create import job_objects
from k8s.kinds import CREATABLE
from tui.jobs.new_job.manifest_yaml import documents_beside, objects_beside

KIND = CREATABLE[0]
SPEC = JobSpec(name="bert", image="i", command=("python", "train.py"))
GIT = replace(SPEC, sync_mode="git", sync_source="https://host.example/x.git")
FOLDER = replace(SPEC, sync_mode="folder", sync_source="/home/li/code")


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def beside(spec: JobSpec, files: JobFiles, unread: str = "") -> str:
    return documents_beside(objects_beside(KIND, spec, files), spec, files, unread)


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
