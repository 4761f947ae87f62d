"""A repository cloned into a folder of a volume: the script, run here, and the manifests that run it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import HostMount, JobSpec, Mount, problems_of
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.pod_code import clone_command

SPEC = JobSpec(
    name="bert",
    image="train:1",
    command=("python", "train.py"),
    workers=2,
    sync_mode="git",
    sync_source="https://host.example/team/code.git",
    sync_path="/work/code",
    mounts=(Mount("data", "/work"), Mount("other", "/other")),
)
FETCHING = [kind for kind in CREATABLE if "sync_mode" not in kind.lacks]
every_fetching_kind = pytest.mark.parametrize("kind", FETCHING, ids=lambda kind: kind.title)
AUTHOR = {f"GIT_{who}_{what}": "li@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, **AUTHOR, "HOME": str(folder), "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


class World:
    """A repository, and a volume that pods clone it into."""

    def __init__(self, root: Path) -> None:
        self.source = root / "source"
        self.folder = root / "volume" / "team" / "code"
        self.source.mkdir()
        self.temporary = root / "tmp"
        self.temporary.mkdir()
        git(self.source, "init", "--quiet", "--initial-branch=main")
        self.commit("one")

    def commit(self, text: str) -> str:
        (self.source / "a.txt").write_text(text)
        git(self.source, "add", "a.txt")
        git(self.source, "commit", "--quiet", "-m", text)
        return git(self.source, "rev-parse", "HEAD")

    def run(self, more: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run what a pod runs, and return its exit status and what it says."""
        spec = replace(SPEC, sync_path=str(self.folder))
        environment = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.temporary),
            "GIT_SYNC_REPO": str(self.source),
            **(more or {}),
        }
        done = subprocess.run(
            clone_command(spec), env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stderr

    @property
    def text(self) -> str:
        return (self.folder / "a.txt").read_text()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_repository_is_cloned_once_and_updated_by_the_next_job(world: World) -> None:
    status, output = world.run()
    assert (status, world.text) == (0, "one") and "cloned, at " in output
    (world.folder / "results.txt").write_text("mine")
    assert "up to date, at " in world.run()[1]
    world.commit("two")
    status, output = world.run()
    assert (status, world.text) == (0, "two") and "updated, at " in output
    assert (world.folder / "results.txt").read_text() == "mine"
    assert sorted(each.name for each in world.folder.parent.iterdir()) == ["code"]
    assert list(world.temporary.iterdir()) == []


def test_pods_that_start_together_clone_the_repository_once(world: World) -> None:
    with ThreadPoolExecutor(4) as pods:
        ended = [pods.submit(world.run) for _ in range(4)]
    found = [each.result() for each in ended]
    assert [status for status, _ in found] == [0, 0, 0, 0]
    assert sum("cloned, at " in output for _, output in found) == 1
    assert sum("up to date, at " in output for _, output in found) == 3
    assert world.text == "one"


def test_local_changes_and_commits_are_kept_and_reported(world: World) -> None:
    world.run()
    (world.folder / "a.txt").write_text("mine")
    newest = world.commit("two")
    status, output = world.run()
    assert (status, world.text) == (0, "mine") and "not updated: there are local changes" in output
    status, output = world.run({"GIT_SYNC_REV": newest})
    assert status == 1 and "there are local changes" in output
    git(world.folder, "commit", "--quiet", "-am", "mine")
    status, output = world.run()
    assert (status, world.text) == (0, "mine") and "not updated: there are local commits" in output


def test_the_requested_commit_or_branch_is_checked_out(world: World) -> None:
    first = git(world.source, "rev-parse", "HEAD")
    world.commit("two")
    git(world.source, "checkout", "--quiet", "-b", "dev")
    world.commit("three")
    git(world.source, "checkout", "--quiet", "main")
    world.run({"GIT_SYNC_REV": first[:12]})
    assert world.text == "one"
    for branch, text in (("dev", "three"), ("main", "two")):
        status, _ = world.run({"GIT_SYNC_BRANCH": branch})
        assert (status, world.text) == (0, text)
    status, output = world.run({"GIT_SYNC_REV": "0" * 40})
    assert status == 1 and "there is no commit 000" in output


def test_a_non_empty_folder_or_another_repository_is_not_overwritten(world: World) -> None:
    world.folder.mkdir(parents=True)
    (world.folder / "thesis.txt").write_text("mine")
    status, output = world.run()
    assert status == 1 and "not cloned: it is not empty, and no repository" in output
    assert [each.name for each in world.folder.iterdir()] == ["thesis.txt"]
    (world.folder / "thesis.txt").unlink()
    assert world.run()[0] == 0
    status, output = world.run({"GIT_SYNC_REPO": "https://elsewhere.example/x.git"})
    assert status == 1 and f"holds another repository: {world.source}" in output


def test_a_token_in_the_existing_remote_url_is_not_logged(world: World) -> None:
    world.run()
    git(world.folder, "remote", "set-url", "origin", "https://li:s3cr3t@host.example/own.git")
    status, output = world.run({"GIT_SYNC_REPO": "https://host.example/team.git"})
    assert status == 1 and "holds another repository: https://host.example/own.git" in output
    assert "s3cr3t" not in output
    # The same repository by another login is the same one: what fails is that nobody answers there.
    git(world.folder, "remote", "set-url", "origin", "https://li:s3cr3t@127.0.0.1:1/own.git")
    status, output = world.run({"GIT_SYNC_REPO": "https://127.0.0.1:1/own.git"})
    assert status != 0 and "holds another" not in output and "s3cr3t" not in output


def test_a_stale_lock_of_a_killed_pod_does_not_block_the_next_clone(world: World) -> None:
    lock, half = world.folder.with_name("code.lock"), world.folder.with_name("code.new")
    lock.mkdir(parents=True)
    half.mkdir()
    (half / "part").touch()
    os.utime(lock, (0, 0))
    assert world.run()[0] == 0
    assert world.text == "one" and not lock.exists() and not half.exists()


def test_a_missing_repository_leaves_no_lock(world: World) -> None:
    status, output = world.run({"GIT_SYNC_REPO": str(world.source / "nothing")})
    assert status != 0 and "nothing" in output
    assert not world.folder.with_name("code.lock").exists()
    assert world.run()[0] == 0


def pods_in(value: object) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [pod for each in value for pod in pods_in(each)]
    if not isinstance(value, dict):
        return []
    own = [value] if isinstance(value.get("containers"), list) else []
    return own + [pod for each in value.values() for pod in pods_in(each)]


@every_fetching_kind
def test_every_pod_that_mounts_the_volume_clones_under_the_lock(kind: CreatableKind) -> None:
    for pod in pods_in(kind.manifest(replace(SPEC, mounts_on_launcher=True))):
        (init,) = pod["initContainers"]
        assert init["command"] == clone_command(SPEC)
        assert init["volumeMounts"] == [{"name": "claim-0", "mountPath": "/work"}]
        assert init["securityContext"] == {"runAsUser": 0}
        assert {"name": "GIT_SYNC_REPO", "value": SPEC.sync_source} in init["env"]
        assert "code-sync" not in str(pod)
        assert pod["containers"][0]["workingDir"] == "/work/code"


def test_a_launcher_without_the_volume_clones_nothing() -> None:
    roles = MPIJob().manifest(SPEC)["spec"]["mpiReplicaSpecs"]
    launcher, worker = (roles[name]["template"]["spec"] for name in ("Launcher", "Worker"))
    assert "initContainers" not in launcher and len(worker["initContainers"]) == 1


def test_root_reads_the_key_that_only_root_may_read() -> None:
    spec = replace(SPEC, sync_source="git@host.example:a/b.git", git_secret="key")
    for user, mode in ((None, 0o400), (1000, 0o444)):
        pod = pods_in(CREATABLE[0].manifest(replace(spec, run_as_user=user)))[0]
        volume = next(each for each in pod["volumes"] if each["name"] == "git-secret")
        assert volume["secret"]["defaultMode"] == mode


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"sync_path": "/elsewhere"}, "Must be a folder within a writable volume"),
        ({"sync_path": "/work"}, "Must be a folder within a writable volume"),
        ({"sync_path": "work/code"}, "Must be a folder within a writable volume"),
        ({"sync_path": "/workspace/code"}, "Must be a folder within a writable volume"),
        ({"mounts": (Mount("data", "/work", is_read_only=True),)}, "writable volume"),
        ({"mounts": (), "host_mounts": (HostMount("/mnt", "/work"),)}, ""),
        ({"sync_mode": "rsync"}, "Only with code from git."),
        ({}, ""),
    ],
)
def test_the_clone_folder_must_be_on_a_persistent_volume(change: dict[str, Any], expected: str) -> None:
    found = problems_of(replace(SPEC, **change)).get("sync_path", "")
    assert expected in found and bool(expected) == bool(found)
