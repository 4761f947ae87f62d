"""Files of this machine that a job needs, and the messages about unreadable ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from k8s.jobs.create import JobRejected
from k8s.jobs.owned_objects import LONGEST_CONFIG_BYTES, zipped
from k8s.kinds.job_spec import NO_FILES, ConfigFile, JobSpec
from tui.draft.job_files import read_job_files, trainer_files

SPEC = JobSpec(name="bert", image="i", command=("c",))


def test_no_local_files_are_read_for_a_job_without_file_fields() -> None:
    assert read_job_files(SPEC) == NO_FILES


def test_the_code_folder_config_files_and_trainers_are_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "out").symlink_to("/nowhere")
    spec = replace(
        SPEC,
        sync_mode="folder",
        sync_source=str(tmp_path),
        config_files=(ConfigFile(str(tmp_path / "train.py"), "/etc/x"),),
        trainer="ddp",
    )
    files = read_job_files(spec)
    assert files.code.startswith(b"\x1f\x8b")
    assert files.config_files == {str(tmp_path / "train.py"): b"x"}
    assert files.left_out == ("out",)
    assert {"trainer/__init__.py", "trainer/launch.py", "trainer/ddp/checkpoints.py"} <= set(files.trainer)


def test_a_config_file_in_an_unknown_users_home_is_reported_missing() -> None:
    there = (ConfigFile("~nobody-of-this-name/a", "/etc/x"),)
    with pytest.raises(JobRejected) as caught:
        read_job_files(replace(SPEC, config_files=there))
    words = "Could not read ~nobody-of-this-name/a: No such file or directory."
    assert caught.value.causes == {"config_files": words}


def test_all_unreadable_files_are_reported_by_field(tmp_path: Path) -> None:
    spec = replace(
        SPEC,
        sync_mode="folder",
        sync_source=str(tmp_path / "none"),
        config_files=(ConfigFile(str(tmp_path / "a"), "/etc/x"), ConfigFile(str(tmp_path), "/etc/y")),
    )
    with pytest.raises(JobRejected) as caught:
        read_job_files(spec)
    assert caught.value.causes == {
        "sync_source": f"There is no folder {tmp_path / 'none'}.",
        "config_files": f"Could not read {tmp_path}: Is a directory.",
    }


def test_python_imports_the_trainers_from_the_zip_archive(tmp_path: Path) -> None:
    archive = tmp_path / "trainer.zip"
    archive.write_bytes(zipped(trainer_files()))
    assert archive.stat().st_size < LONGEST_CONFIG_BYTES / 2
    words = [sys.executable, "-P", "-c", "import trainer.catalogue as c; print(c.__file__)"]
    done = subprocess.run(
        words, env={"PYTHONPATH": str(archive)}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"{archive}/trainer/catalogue.py"
