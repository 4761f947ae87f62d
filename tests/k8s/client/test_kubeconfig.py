"""Lists of contexts: kubeconfigs merged as by kubectl, and malformed files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.client.auth.cluster_config import load
from k8s.client.auth.kubeconfig import Context, kubeconfig_files, merge, read_kubeconfig
from k8s.text.errors import NoCluster


def part(
    *names: str, server: str = "https://{}:6443", current: str | None = None, **user: Any
) -> dict[str, Any]:
    """Return a kubeconfig with a context, a cluster and a user of each name."""
    found: dict[str, Any] = {
        "clusters": [{"name": name, "cluster": {"server": server.format(name)}} for name in names],
        "users": [{"name": f"{name}-user", "user": user} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"{name}-user"}} for name in names],
    }
    return found if current is None else {**found, "current-context": current}


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_contexts_of_all_files_are_listed_in_order_and_the_first_of_a_name_counts(tmp_path: Path) -> None:
    first = write(tmp_path / "a", part("lab", "shared", server="https://first-{}"))
    second = write(tmp_path / "b", part("shared", "prod", server="https://second-{}"))
    found = merge([first, second])
    assert [each.name for each in found.contexts] == ["lab", "shared", "prod"]
    servers = [each.server for each in found.contexts]
    assert servers == ["https://first-lab", "https://first-shared", "https://second-prod"]
    assert found.problems == ()


@pytest.mark.parametrize("first", ["lab", "", None])
def test_the_first_file_that_names_a_current_context_counts(tmp_path: Path, first: str | None) -> None:
    named = write(tmp_path / "a", part("prod", current=first))
    second = write(tmp_path / "b", part("lab", current="prod" if first else "lab"))
    found = merge([named, second])
    assert (found.current, found.resolve().context.name) == ("lab", "lab")
    assert found.resolve("prod").context.name == "prod"


def test_a_context_takes_its_cluster_and_user_from_other_files(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "a", {"contexts": part("lab")["contexts"], "current-context": "lab"}),
        write(tmp_path / "b", {"clusters": part("lab")["clusters"]}),
        write(tmp_path / "c", {"users": part("lab", token="t")["users"]}),
    ]
    resolved = merge(files).resolve()
    assert resolved.context == Context("lab", "lab", "https://lab:6443", "lab-user", "default")
    assert (resolved.cluster["server"], resolved.user) == ("https://lab:6443", {"token": "t"})


def test_relative_paths_resolve_against_the_folder_of_their_kubeconfig(tmp_path: Path) -> None:
    login = {"command": "./bin/login", "apiVersion": "v1"}
    user: dict[str, Any] = {"client-key": "/abs/key", "tokenFile": "../token", "exec": login}
    found = merge([write(tmp_path / "deep" / "a", part("lab", current="lab", **user))]).resolve().user
    assert found["client-key"] == "/abs/key"
    assert found["tokenFile"] == str(tmp_path / "token")
    assert found["exec"]["command"] == str(tmp_path / "deep" / "bin" / "login")
    plain = part("lab", current="lab", exec={"command": "login", "apiVersion": "v1"})
    assert merge([write(tmp_path / "b", plain)]).resolve().user["exec"]["command"] == "login"


def test_an_empty_kubeconfig_file_is_ignored(tmp_path: Path) -> None:
    found = merge([write(tmp_path / "empty", ""), write(tmp_path / "a", part("lab", current="lab"))])
    assert (found.current, found.problems) == ("lab", ())


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("a: [1\nb: {", "line "),
        ("users:\n- name: a\n  user: {token: SECRET", "line "),
        ("users: *SECRET-anchor", "line 1"),
        ("just words", "not a kubeconfig"),
        ("[1, 2]", "not a kubeconfig"),
        ("clusters: 5", "its clusters are not a list"),
        ("x: " + "[" * 500, "line "),
        ("\x00", "YAML"),
    ],
)
def test_a_broken_file_is_named_but_not_quoted(tmp_path: Path, broken: str, words: str) -> None:
    bad = write(tmp_path / "bad", broken)
    found = merge([bad, write(tmp_path / "good", part("lab", current="lab"))])
    assert [each.name for each in found.contexts] == ["lab"]
    assert len(found.problems) == 1
    assert str(bad) in found.problems[0] and words in found.problems[0]
    assert "SECRET" not in found.problems[0]


def test_the_current_context_is_not_resolved_while_a_kubeconfig_file_is_malformed(tmp_path: Path) -> None:
    found = merge([write(tmp_path / "bad", "a: ["), write(tmp_path / "good", part("lab", current="lab"))])
    with pytest.raises(NoCluster, match="bad"):
        found.resolve()
    assert found.resolve("lab").context.name == "lab"


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "directory" in merge([folder]).problems[0]


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (part("lab", "dev", current="lab"), "prod", "There is no context prod.\nThere are: lab, dev, in "),
        (part("lab"), "", "There is no current context.\nThere are: lab, in "),
        ({**part("lab"), "clusters": []}, "lab", "names cluster lab, which it does not define"),
        ({**part("lab"), "users": None}, "lab", "names user lab-user, which it does not define"),
        ({"contexts": [{"name": "lab", "context": {"user": "x"}}]}, "lab", "has no cluster"),
        (part("lab", server=""), "lab", "names no server"),
        (part("\x1b]0;x\x07lab"), "prod", "There are: lab, in "),
    ],
)
def test_missing_contexts_clusters_and_users_are_reported_by_name(
    tmp_path: Path, content: object, name: str, words: str
) -> None:
    path = write(tmp_path / "config", content)
    with pytest.raises(NoCluster) as caught:
        merge([path]).resolve(name)
    assert words in str(caught.value)
    assert str(path) in caught.value.why
    assert "\x1b" not in caught.value.why


def test_a_cluster_may_be_reached_without_a_user(tmp_path: Path) -> None:
    content = part("lab", current="lab")
    del content["contexts"][0]["context"]["user"]
    assert merge([write(tmp_path / "config", content)]).resolve().user == {}


def test_kubeconfig_files_are_chosen_as_by_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert kubeconfig_files() == []
    usual = write(tmp_path / ".kube" / "config", part("home"))
    assert kubeconfig_files() == [usual]
    other = write(tmp_path / "other", part("other"))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["", "/nowhere", "~/other", str(usual)]))
    assert kubeconfig_files() == [other, usual]
    assert [each.name for each in read_kubeconfig().contexts] == ["other", "home"]
    assert [each.name for each in read_kubeconfig("~/other").contexts] == ["other"]
    for nowhere in ("/nowhere", "~nobody-of-this-name/config"):
        with pytest.raises(NoCluster, match=nowhere):
            read_kubeconfig(nowhere)
    monkeypatch.setenv("KUBECONFIG", "~nobody-of-this-name/config")
    assert kubeconfig_files() == []


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_several_kubeconfig_files_merge_as_in_kubectl_config_view(tmp_path: Path) -> None:
    login = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./login",
        "interactiveMode": "Never",
    }
    files = [
        write(tmp_path / "empty", ""),
        write(tmp_path / "a" / "first", part("shared", "lab", current="", token="first")),
        write(tmp_path / "b" / "second", part("shared", "prod", current="prod", exec=login)),
        write(tmp_path / "c" / "third", part("dev", current="dev", tokenFile="../token")),
    ]
    named = os.pathsep.join(map(str, [*files, tmp_path / "missing"]))
    words = ["kubectl", "config", "view", "--raw", "--output=json"]
    printed = subprocess.run(words, env={**os.environ, "KUBECONFIG": named}, capture_output=True, check=True)
    theirs = json.loads(printed.stdout)
    ours = merge(files)
    assert ours.current == theirs["current-context"]
    assert {each.name for each in ours.contexts} == {each["name"] for each in theirs["contexts"]}
    servers = {each["name"]: each["cluster"]["server"] for each in theirs["clusters"]}
    users = {each["name"]: each["user"] for each in theirs["users"]}
    for context in ours.contexts:
        resolved = ours.resolve(context.name)
        assert resolved.context.server == servers[context.cluster]
        theirs_of_user = users[context.user]
        assert resolved.user.get("token") == theirs_of_user.get("token")
        assert ("tokenFile" in resolved.user) == ("tokenFile" in theirs_of_user)
        assert ("exec" in resolved.user) == ("exec" in theirs_of_user)


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "cluster", "user", "context", "server", "exec"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=40)
@given(
    st.dictionaries(st.sampled_from(["clusters", "users", "contexts", "current-context", "kind"]), ANYTHING),
    st.text(max_size=5),
)
def test_any_kubeconfig_content_is_resolved_or_rejected_with_its_path(
    tmp_path_factory: pytest.TempPathFactory, content: Any, name: str
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "any", content)
    found = merge([path])
    try:
        assert found.resolve(name).context in found.contexts
    except NoCluster as error:
        assert str(path) in error.why


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/dev/zero", "/dev/zero: Not a regular file."),
        ("/dev", "/dev: Is a directory."),
        ("/dev/null", "There is no kubeconfig at /dev/null."),
    ],
)
async def test_a_kubeconfig_path_that_is_not_a_regular_file_is_rejected_and_named(
    path: str, why: str, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NoCluster) as caught:
        await load(path if is_named else "")
    assert caught.value.why == why
