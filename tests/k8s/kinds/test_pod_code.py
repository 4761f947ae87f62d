"""The argv of a training container, and the code that is delivered into its pod."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import ConfigFile, JobSpec
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.kinds.pod_code import TRAINER_PATH, code_folder, credentials_in, strip_credentials
from k8s.kinds.pod_template import command_of, shell_argv
from k8s.kinds.t9k import T9kPyTorchJob
from tests import ROOT

Part = dict[str, Any]
SPEC = JobSpec(name="bert", image="pytorch:1", command=("python", "train.py"))
GIT = replace(SPEC, sync_mode="git", sync_source="https://host.example/team/mnist-pytorch.git")
EVERY_KIND = {f"{kind.resource.kind} {kind.resource.api_version}": kind for kind in CREATABLE}
every_kind = pytest.mark.parametrize("kind", EVERY_KIND.values(), ids=EVERY_KIND)
FETCHING = {name: kind for name, kind in EVERY_KIND.items() if "sync_mode" not in kind.lacks}
every_fetching_kind = pytest.mark.parametrize("kind", FETCHING.values(), ids=FETCHING)
"""All but TrainJob, to whose pods no container can be added."""


def test_only_trainjobs_cannot_fetch_code() -> None:
    assert [name for name in EVERY_KIND if name not in FETCHING] == ["TrainJob trainer.kubeflow.org/v1alpha1"]


def pods_of(spec: JobSpec, kind: CreatableKind) -> list[Part]:
    """Return every pod template's spec in a manifest; of a TrainJob's patch and trainer what they make."""
    manifest = kind.manifest(spec)
    if "trainer" in manifest["spec"]:
        (patch,) = manifest["spec"]["runtimePatches"]
        found = list(_pods_in(patch))
        for pod in found:
            pod["containers"][0] |= manifest["spec"]["trainer"]
            command = manifest["spec"]["trainer"]["command"]
            pod["containers"][0]["workingDir"] = command[3] if command[0] == "sh" else ""
        return found
    return list(_pods_in(manifest))


def _pods_in(value: object) -> Iterator[Part]:
    if isinstance(value, dict) and isinstance(value.get("containers"), list):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _pods_in(each)


def pod_of(spec: JobSpec, kind: CreatableKind = CREATABLE[0]) -> Part:
    return pods_of(spec, kind)[-1]


def env_of(container: Part) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env") or ()}


@every_fetching_kind
def test_git_is_fetched_as_arena_fetches_it(kind: CreatableKind) -> None:
    recorded = json.loads((ROOT / "tests/fixtures/objects/arena-pytorch-dist-git.json").read_text())
    theirs = recorded["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    source = env_of(theirs["initContainers"][0])["GIT_SYNC_REPO"]
    pod = pod_of(replace(GIT, sync_source=source), kind)
    (init,) = pod["initContainers"]
    (like,) = theirs["initContainers"]
    wanted = {name: value for name, value in env_of(like).items() if name.startswith("GIT_SYNC")}
    assert env_of(init) == wanted | {"GIT_ALLOW_PROTOCOL": "git:http:https:ssh"}
    assert (init["name"], init["volumeMounts"]) == (like["name"], like["volumeMounts"])
    mount = next(each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "code-sync")
    assert mount in theirs["containers"][0]["volumeMounts"]
    assert pod["containers"][0]["workingDir"] == theirs["containers"][0]["workingDir"]
    assert {"name": "code-sync", "emptyDir": {}} in pod["volumes"]


def test_the_git_sync_container_does_not_use_the_device_claim_of_its_pod() -> None:
    (init,) = pod_of(replace(GIT, device_claim="one-gpu", cpu="2"))["initContainers"]
    assert init["resources"]["limits"] == {"cpu": "2"}
    assert "claims" not in init["resources"]


def test_branch_and_commit_are_passed_to_git_sync() -> None:
    (init,) = pod_of(replace(GIT, sync_branch="main", sync_revision="abc"))["initContainers"]
    env = env_of(init)
    assert (env["GIT_SYNC_BRANCH"], env["GIT_SYNC_REV"]) == ("main", "abc")
    assert {"GIT_SYNC_SSH", "GIT_SYNC_USERNAME"}.isdisjoint(env)


@every_fetching_kind
def test_git_sync_gets_the_job_variables_and_keeps_git_sync_variables_to_itself(kind: CreatableKind) -> None:
    env = {"GIT_SYNC_DEPTH": "1", "GIT_SYNC_BRANCH": "dev", "HTTPS_PROXY": "p", "GIT_SYNC_ROOT": "/x"}
    pod = pod_of(replace(GIT, env=env), kind)
    init, main = env_of(pod["initContainers"][0]), env_of(pod["containers"][0])
    assert (init["GIT_SYNC_DEPTH"], init["GIT_SYNC_BRANCH"], init["HTTPS_PROXY"]) == ("1", "dev", "p")
    assert init["GIT_SYNC_ROOT"] == "/code"
    assert main["HTTPS_PROXY"] == "p"
    assert not [name for name in main if name.startswith("GIT_SYNC")]
    assert env_of(pod_of(replace(SPEC, env=env), kind)["containers"][0])["GIT_SYNC_DEPTH"] == "1"


def ref(secret: str, key: str) -> Part:
    return {"secretKeyRef": {"name": secret, "key": key}}


TEAM = ref("team", "username")


@pytest.mark.parametrize(
    ("change", "username", "password"),
    [
        ({"git_secret": "team"}, TEAM, ref("team", "password")),
        (
            {"env": {"GIT_SYNC_USERNAME": "li", "GIT_SYNC_PASSWORD": "pw"}},
            *(ref("bert-git", key) for key in ("username", "password")),
        ),
        ({"git_secret": "team", "env": {"GIT_SYNC_PASSWORD": "pw"}}, TEAM, ref("bert-git", "password")),
        ({"sync_source": "https://tok@host.example/a.git"}, ref("bert-git", "username"), None),
    ],
)
def test_credentials_come_from_a_secret(change: Part, username: Part, password: Part | None) -> None:
    spec = replace(GIT, **change)
    env = env_of(pod_of(spec)["initContainers"][0])
    assert (env.get("GIT_SYNC_USERNAME"), env.get("GIT_SYNC_PASSWORD")) == (username, password)
    manifest = json.dumps(CREATABLE[0].manifest(spec))
    assert '"pw"' not in manifest and "tok@" not in manifest


@pytest.mark.parametrize(
    ("change", "protocols"),
    [
        ({}, "git:http:https:ssh"),
        ({"sync_source": "git@host.example:a/b.git"}, "git:http:https:ssh"),
        ({"env": {"GIT_ALLOW_PROTOCOL": "https"}}, "https"),
        # Naming `file` would allow it to submodules too.
        ({"sync_source": "file:///srv/code"}, None),
        ({"sync_source": "/srv/code"}, None),
    ],
)
def test_git_speaks_no_protocol_that_runs_programs(change: Part, protocols: str | None) -> None:
    env = env_of(pod_of(replace(GIT, **change))["initContainers"][0])
    assert env.get("GIT_ALLOW_PROTOCOL") == protocols


@pytest.mark.parametrize("source", ["git@host.example:team/code.git", "ssh://git@host.example:22/team/code"])
@pytest.mark.parametrize(("image", "mode"), [("", 0o444), ("own/sync:1", 0o400)])
def test_an_ssh_key_is_mounted_where_git_sync_looks_for_it(source: str, image: str, mode: int) -> None:
    pod = pod_of(replace(GIT, sync_source=source, git_secret="key", sync_image=image))
    (init,) = pod["initContainers"]
    assert env_of(init)["GIT_SYNC_REPO"] == source
    assert env_of(init)["GIT_SYNC_DEST"] == "code"
    assert env_of(init)["GIT_SYNC_SSH"] == "true"
    assert env_of(init)["GIT_KNOWN_HOSTS"] == "false", "git-sync v3 knows it by this name"
    assert {"name": "git-secret", "mountPath": "/etc/git-secret", "readOnly": True} in init["volumeMounts"]
    volume = next(each for each in pod["volumes"] if each["name"] == "git-secret")
    items = [{"key": "ssh-privatekey", "path": "ssh"}]
    assert volume["secret"] == {"secretName": "key", "items": items, "defaultMode": mode}
    assert all(each["name"] != "git-secret" for each in pod["containers"][0]["volumeMounts"])


def test_rsync_fetches_as_arenas_does() -> None:
    (init,) = pod_of(replace(SPEC, sync_mode="rsync", sync_source="host::code"))["initContainers"]
    assert init["command"] == ["rsync", "-avP", "host::code", "/code"]
    own = replace(SPEC, sync_mode="rsync", sync_source="a", sync_image="mine:1")
    assert pod_of(own)["initContainers"][0]["image"] == "mine:1"


def test_a_folder_is_unpacked_by_the_jobs_own_image_without_its_gpus() -> None:
    folder = replace(SPEC, sync_mode="folder", sync_source=".", working_dir="/work")
    spec = replace(folder, gpus=2, cpu="4", pull_policy="Never")
    pod = pod_of(spec)
    (init,) = pod["initContainers"]
    assert (init["image"], init["imagePullPolicy"]) == ("pytorch:1", "Never")
    assert init["command"] == ["tar", "xzf", "/archive/code.tar.gz", "-C", "/code"]
    assert init["resources"] == {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}}
    assert {"name": "code-archive", "configMap": {"name": "bert-code"}} in pod["volumes"]
    assert {"name": "code-sync", "mountPath": "/work/code"} in pod["containers"][0]["volumeMounts"]
    assert code_folder(spec) == "/work/code"


def test_each_config_file_is_mounted_at_its_path() -> None:
    files = (ConfigFile("a", "/etc/a/my conf.yaml"), ConfigFile("b", "/etc/b/my conf.yaml"))
    pod = pod_of(replace(SPEC, config_files=files))
    mounts = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "job-files"]
    paths = {each["mountPath"]: each["subPath"] for each in mounts}
    assert paths == {"/etc/a/my conf.yaml": "0-my_conf.yaml", "/etc/b/my conf.yaml": "1-my_conf.yaml"}
    assert {"name": "job-files", "configMap": {"name": "bert-files"}} in pod["volumes"]


@every_kind
def test_the_packaged_trainers_are_found_before_the_users_modules(kind: CreatableKind) -> None:
    for path, expected in (("", TRAINER_PATH), ("/a:/b", f"{TRAINER_PATH}:/a:/b")):
        spec = replace(SPEC, trainer="ddp", env={"PYTHONPATH": path} if path else {})
        pod = pod_of(spec, kind)
        assert env_of(pod["containers"][0])["PYTHONPATH"] == expected
        assert {"name": "trainer", "configMap": {"name": "bert-trainer"}} in pod["volumes"]
        mount = {"name": "trainer", "mountPath": "/opt/gpuconsole", "readOnly": True}
        assert mount in pod["containers"][0]["volumeMounts"]


def test_only_the_git_sync_mode_has_credentials() -> None:
    assert credentials_in(replace(SPEC, env={"GIT_SYNC_PASSWORD": "pw"})) == {}
    assert credentials_in(replace(GIT, sync_source="git@host.example:a/b")) == {}
    assert credentials_in(replace(GIT, env={"GIT_SYNC_PASSWORD": ""})) == {}


@pytest.mark.parametrize(
    ("url", "without", "login"),
    [
        ("https://[x", "https://[x", {}),
        ("https://li:a%40b@[::1", "https://[::1", {"username": "li", "password": "a@b"}),
        ("https://host/x@y", "https://host/x@y", {}),
        ("https://li@host/x?a=b@c", "https://host/x?a=b@c", {"username": "li"}),
        ("ssh://git@host/x", "ssh://git@host/x", {}),
        ("git@host:x", "git@host:x", {}),
    ],
)
def test_credentials_are_split_from_any_url(url: str, without: str, login: dict[str, str]) -> None:
    assert (strip_credentials(url), credentials_in(replace(GIT, sync_source=url))) == (without, login)
    assert url == without or url not in json.dumps(PyTorchJob().manifest(replace(GIT, sync_source=url)))


T9K = T9kPyTorchJob()
MINIMAL = JobSpec(name="a", namespace="b", image="i", torchrun=True)
PREFIX = ["python", "-m", "torch.distributed.run", "--no-python"]
SCRIPT = ["python", "-u", "train.py", "--lr", "1"]
SHELL = ["sh", "-c", "exec python -u train.py --lr $LR"]


@pytest.mark.parametrize(
    ("command", "started"),
    [
        (("train.py", "--lr", "1"), SCRIPT),
        (("train.py --lr 1",), SCRIPT),
        (("sh", "-c", "train.py --lr 1"), SCRIPT),
        (("bash", "-lc", "  train.py '--lr' 1"), SCRIPT),
        (("sh", "-c", "train.py --lr $LR"), SHELL),
        (("train.py --lr $LR",), SHELL),
        (("train.py --lr $LR && sync",), ["sh", "-c", "python -u train.py --lr $LR && sync"]),
        (("sh", "-c", "train.py 1; sync"), ["sh", "-c", "python -u train.py 1; sync"]),
        (("sh", "-c", "python train.py"), ["sh", "-c", "python train.py"]),
        (("sh", "-c", "train.py 'open"), ["sh", "-c", "train.py 'open"]),
        (("sh", "-c", ""), ["sh", "-c", ""]),
    ],
)
def test_torchrun_starts_a_script_however_it_is_quoted(command: tuple[str, ...], started: list[str]) -> None:
    assert command_of(replace(MINIMAL, command=command)) == [*PREFIX, *started]


def test_a_quoted_script_is_split_into_words_for_t9k() -> None:
    manifest = T9K.manifest(replace(MINIMAL, command=("sh", "-c", "train.py --lr 1")))
    container = manifest["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    assert container["args"] == ["train.py", "--lr", "1"]
    assert "--no-python" not in manifest["spec"]["torchrunConfig"]["extraOptions"]


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("for i in 1 2; do echo $i; done", ("sh", "-c", "for i in 1 2; do echo $i; done")),
        ('sh -c "for i in 1 2; do echo $i; done"', ("sh", "-c", "for i in 1 2; do echo $i; done")),
        ("bash -ec 'echo $i'", ("bash", "-ec", "echo $i")),
        ('sh -c "echo \\$i"', ("sh", "-c", 'sh -c "echo \\$i"')),
        ('sh -c "true" && sync', ("sh", "-c", 'sh -c "true" && sync')),
        ("sh -c 'open", ("sh", "-c", "sh -c 'open")),
    ],
)
def test_a_shell_in_a_line_of_shell_is_not_wrapped_again(line: str, argv: tuple[str, ...]) -> None:
    assert shell_argv(line) == argv
