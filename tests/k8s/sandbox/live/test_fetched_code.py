"""Code that the pods of the sandbox fetch themselves: by git, at a branch or a commit, and by rsync."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.job_spec import JobSpec
from k8s.jobs.create import create_job, delete_job
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS, PyTorchJob
from k8s.models.resources import PODS
from k8s.sandbox import SandboxAddress
from tests.k8s.sandbox.live.running import comes, goes, has, log_of, phase
from tests.k8s.sandbox.live.test_code import logs_of
from tests.k8s.sandbox.live.test_t9k import gpuconsole
from tests.k8s.sandbox.node.test_git_sync import commit, git, make_repository

KIND = PyTorchJob()
WAIT_S = 120.0
SCRIPT = """
import os, subprocess, sys
os.chdir(os.path.dirname(os.path.realpath(sys.argv[0])))
head = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
print(os.environ["RANK"], head, open("said.txt").read())
"""
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git: apt-get install git")


def job(name: str, source: str, mode: str, *command: str, **fields: Any) -> JobSpec:
    return JobSpec(
        name=name, image="local", workers=2, sync_mode=mode, sync_source=source, command=command, **fields
    )


@needs_git
async def test_two_workers_run_a_commit_of_a_repository_and_the_second_run_the_newest(
    client: Client, tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "net")
    (repository / "train.py").write_text(SCRIPT)
    first = commit(repository, "first")
    # From the working directory, as Arena's users write it.
    spec = job("fetched", f"file://{repository}", "git", "python", "code/net/train.py", sync_branch="main")
    ref = await create_job(client, KIND, spec)
    assert await logs_of(client, "fetched") == [f"0 {first} first", f"1 {first} first"]
    await delete_job(client, ref)
    await goes(client, PODS, "fetched-master-0", within_s=WAIT_S)
    second = commit(repository, "second")
    ref = await create_job(client, KIND, spec)
    assert await logs_of(client, "fetched") == [f"0 {second} second", f"1 {second} second"]
    await delete_job(client, ref)
    await goes(client, PODS, "fetched-master-0", within_s=WAIT_S)
    await create_job(client, KIND, replace(spec, name="pinned", sync_revision=first))
    assert await logs_of(client, "pinned") == [f"0 {first} first", f"1 {first} first"]
    assert git(repository, "status", "--short") == ""


@needs_git
async def test_a_wrong_branch_is_said_by_the_pod_by_its_log_and_by_why(
    client: Client, running: SandboxAddress, tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "net")
    spec = job("astray", f"file://{repository}", "git", "true", sync_branch="nope", restart_policy="Never")
    await create_job(client, KIND, spec)

    pod = await comes(client, PODS, "astray-master-0", phase("Failed"), within_s=WAIT_S)
    why = "Remote branch nope not found in upstream origin"
    ended = pod["status"]["initContainerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (1, "Error")
    assert why in ended["message"]
    assert why in await log_of(client, "astray-master-0", container="init-code")
    said = await gpuconsole(running, "why", "astray")
    # Both pods fetch it, and the first to fail is named.
    first = re.search(r"the code of (\S+) \(rank [01]\) cannot be fetched: init-code ended with exit 1", said)
    assert first is not None and why in said and f" logs astray -i {first[1]} -c init-code" in said
    await client.delete(PYTORCH_JOBS, "astray", "default")
    await goes(client, PODS, "astray-master-0", within_s=WAIT_S)


async def test_code_comes_by_rsync_or_it_is_said_that_there_is_none(client: Client, tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "train.py").write_text("import os; print(os.environ['RANK'], 'by rsync')\n")
    spec = job("copied", f"{tmp_path}/net", "rsync", "python", "/root/code/net/train.py")
    await create_job(client, KIND, spec)
    if shutil.which("rsync"):
        assert await logs_of(client, "copied") == ["0 by rsync", "1 by rsync"]
    else:
        await comes(client, PYTORCH_JOBS, "copied", has("Failed"), within_s=WAIT_S)
        pod = await client.get(PODS, "copied-master-0", "default")
        state = pod["status"]["initContainerStatuses"][0]["state"]["terminated"]
        assert state["message"] == 'exec: "rsync": executable file not found in $PATH'
    await client.delete(PYTORCH_JOBS, "copied", "default")
    await goes(client, PODS, "copied-master-0", within_s=WAIT_S)
