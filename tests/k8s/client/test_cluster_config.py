"""Real kubeconfigs: several files, relative paths, exec plugins, impersonation, mistakes."""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from k8s.client.auth.cluster_config import SANDBOX_HINT, load
from k8s.client.client import Client, fetch_username
from k8s.models.resources import PODS
from k8s.text.errors import KubeError, NoCluster
from tests.scripted.server import SUCCESS, Answer, Asked, ScriptedCluster, Socket, Stream, page, refusal

VERSION = "/version"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide every kubeconfig and pod environment of this machine."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def config(
    server: str = "http://127.0.0.1:1",
    user: dict[str, Any] | None = None,
    name: str = "lab",
    cluster: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, **cluster}}],
        "users": [{"name": f"{name}-user", "user": user or {}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": f"{name}-user", "namespace": f"{name}-ns"}}
        ],
    }


def write(path: Path, content: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


async def test_a_kubeconfig_gives_the_server_context_namespace_and_user(tmp_path: Path) -> None:
    reached = await load(write(tmp_path / "config", config("https://10.0.0.1:6443/", {"token": "t"})))
    assert (reached.host, reached.context, reached.namespace) == ("https://10.0.0.1:6443", "lab", "lab-ns")
    assert (reached.user, reached.authorization()) == ("lab-user", "Bearer t")
    assert (await load(str(tmp_path / "config"), namespace="mine")).namespace == "mine"
    assert (await load(write(tmp_path / "config", json.dumps(config())))).context == "lab"


async def test_the_first_definition_of_a_name_in_several_kubeconfig_files_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "a", config(user={"token": "first"}))
    again = write(tmp_path / "b", config(user={"token": "again"}) | {"current-context": "lab"})
    other = write(tmp_path / "c", config(name="prod", user={"token": "prod"}) | {"current-context": "lab"})
    missing = str(tmp_path / "missing")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([first, again, missing, other]))
    reached = await load()
    assert (reached.context, reached.authorization()) == ("lab", "Bearer first")
    reached = await load(context="prod")
    assert (reached.context, reached.namespace, reached.authorization()) == ("prod", "prod-ns", "Bearer prod")


async def test_a_server_need_not_be_verified(tmp_path: Path) -> None:
    made = config("https://x", cluster={"insecure-skip-tls-verify": True, "tls-server-name": "y"})
    reached = await load(write(tmp_path / "config", made))
    context = reached.ssl_context()
    assert context is not None and not context.check_hostname
    assert reached.tls_server_name == "y"


@pytest.mark.parametrize(
    "content",
    [
        "a: [1\nb: {",
        "\tx",
        "",
        "just words",
        "[1, 2]",
        "clusters: 5",
        "{}",
        {"clusters": [{"name": "lab"}], "contexts": [{"name": "lab"}], "current-context": "lab"},
        {"contexts": [{"context": {}}], "current-context": "lab"},
        config() | {"clusters": []},
        config() | {"current-context": "gone"},
        config() | {"current-context": ""},
        config() | {"contexts": None},
        config() | {"users": "me"},
        config(server=""),
    ],
    ids=str,
)
async def test_an_unusable_kubeconfig_is_named_with_the_sandbox_hint(tmp_path: Path, content: object) -> None:
    path = write(tmp_path / "broken", content)
    with pytest.raises(NoCluster) as caught:
        await load(path)
    assert path in caught.value.why
    assert caught.value.hint == SANDBOX_HINT


@pytest.mark.parametrize("named", ["", "/nowhere/kubeconfig"])
async def test_without_a_kubeconfig_the_sandbox_is_offered(named: str) -> None:
    with pytest.raises(NoCluster) as caught:
        await load(named)
    assert (named or "~/.kube/config") in caught.value.why
    assert caught.value.hint == SANDBOX_HINT


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "sh", "args": ["--token=SECRET"]}},
        {"auth-provider": {"name": "oidc", "config": {"refresh-token": "SECRET"}}},
        {"auth-provider": {"name": "oidc", "config": {"id-token": "SECRET"}}},
        {"client-certificate": "gone.crt", "token": "SECRET", "client-key-data": "SECRET"},
        {"client-key-data": "%%%SECRET"},
        {"exec": {"apiVersion": "v1", "command": "sh", "args": ["-c", 'echo \'{"token": "SECRET"}\'']}},
        {"exec": {"apiVersion": "v1", "command": "sh", "args": ["-c", "echo SECRET"]}},
    ],
)
async def test_errors_and_logs_do_not_contain_kubeconfig_secrets(
    tmp_path: Path, user: dict[str, Any], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    made = config("https://127.0.0.1:1", user)
    with caplog.at_level(logging.DEBUG), pytest.raises(KubeError) as caught:
        Client(await load(write(tmp_path / "config", made)))
    printed = capfd.readouterr()
    assert "SECRET" not in f"{caught.value} {caught.value.args} {caplog.text} {printed.out} {printed.err}"


async def test_a_name_and_password_become_a_header(tmp_path: Path) -> None:
    reached = await load(write(tmp_path / "config", config(user={"username": "li", "password": "x"})))
    assert reached.authorization() == "Basic " + base64.b64encode(b"li:x").decode()


async def test_a_user_without_credentials_sends_none(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(VERSION, Answer({}))
        async with Client(await load(write(tmp_path / "config", config(cluster.host)))) as client:
            await client.get_json(VERSION)
    assert "Authorization" not in cluster.asked(VERSION)[0].headers


def token_until(expires_s: float) -> str:
    """Return an identity token, as an OIDC provider signs them."""
    parts = [{"alg": "none"}, {"exp": expires_s, "sub": "li"}]
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts)
        + ".s"
    )


async def test_an_oidc_id_token_is_used_until_expiry_then_a_login_error_is_raised(tmp_path: Path) -> None:
    for expires_s in (4e9, 1e9):
        token = token_until(expires_s)
        user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
        path = write(tmp_path / "config", config(user=user))
        if expires_s > time.time():
            assert (await load(path)).authorization() == f"Bearer {token}"
        else:
            with pytest.raises(NoCluster, match="refresh") as caught:
                await load(path)
            assert caught.value.what == "Could not log in to the cluster."


@pytest.mark.parametrize(
    ("server", "cluster", "words"),
    [
        ("https://li:SECRET@lab:6443", {}, "the server holds a user name or password"),
        ("http://li@lab", {}, "the server holds a user name or password"),
        ("file:///etc/passwd", {}, "begins with https:// or http://"),
        ("lab:6443", {}, "begins with https:// or http://"),
        ("https://", {}, "begins with https:// or http://"),
        ("https://lab:port", {}, "port"),
        ("https://[::1", {}, "IPv6"),
        ("https://x", {"certificate-authority-data": "bm90aGluZw=="}, "certificate-authority-data: "),
    ],
)
async def test_an_invalid_server_url_or_ca_is_rejected_with_the_reason(
    tmp_path: Path, server: str, cluster: dict[str, Any], words: str
) -> None:
    with pytest.raises(NoCluster) as caught:
        Client(await load(write(tmp_path / "config", config(server, cluster=cluster))))
    assert words in caught.value.why
    assert "SECRET" not in str(caught.value)


ALL_PODS = "/api/v1/pods"
ONE = "/api/v1/namespaces/default/pods/a"
ACTING = {
    "as": "jane@lab.org",
    "as-uid": "u-1",
    "as-groups": ["readers", "Forschung ä"],
    "as-user-extra": {"example.com/scope": ["view", "logs"], "plain": ["x"]},
}
SENT = [
    ("impersonate-extra-example.com%2fscope", "logs"),
    ("impersonate-extra-example.com%2fscope", "view"),
    ("impersonate-extra-plain", "x"),
    ("impersonate-group", "Forschung ä"),
    ("impersonate-group", "readers"),
    ("impersonate-uid", "u-1"),
    ("impersonate-user", "jane@lab.org"),
]


def impersonated(asked: Asked) -> Sequence[tuple[str, str]]:
    headers = [(name.lower(), value) for name, value in asked.headers.items()]
    return sorted(each for each in headers if each[0].startswith("impersonate-"))


async def test_every_request_sends_the_impersonation_headers(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        path = write(tmp_path / "config", config(cluster.host, {"token": "t", **ACTING}))
        cluster.say(VERSION, Answer({}))
        cluster.say(ALL_PODS, page([]))
        cluster.say(ALL_PODS, Stream().end(), watch=True)
        cluster.say(f"{ONE}/log", Stream().end())
        cluster.say(f"{ONE}/exec", Socket([SUCCESS]))
        cluster.say(f"{ONE}/portforward", Socket([]))
        cluster.say(f"{ONE}/proxy/metrics", Answer({}))
        for method in ("PUT", "PATCH", "DELETE"):
            cluster.say(ONE, Answer({}), method=method)
        cluster.say("/api/v1/namespaces/default/pods", Answer({}, 201), method="POST")
        async with Client(await load(path)) as client:
            await client.get_json(VERSION)
            await client.list(PODS)
            assert [line async for line in client.watch(PODS, version="1")] == []
            async with client.log("a", "default") as body:
                await body.read()
            async with client.exec("a", "default", ["true"]) as opened:
                await opened.receive()
            async with client.open_socket(f"{ONE}/portforward", "forward", {"ports": "1"}):
                pass
            async with client.stream(f"{ONE}/proxy/metrics", "read metrics", is_proxied=True) as body:
                await body.read()
            await client.create(PODS, {"metadata": {"name": "a"}}, "default")
            await client.patch(PODS, "a", {}, "default")
            await client.delete(PODS, "a", "default")
            assert client.config.acts_as == "jane@lab.org (groups: readers, Forschung ä)"
    assert len(cluster.requests) == 10
    assert all(impersonated(asked) == SENT for asked in cluster.requests)


async def test_empty_impersonation_fields_impersonate_no_user(tmp_path: Path) -> None:
    reached = await load(write(tmp_path / "config", config(user={"token": "t", "as": "", "as-groups": None})))
    assert (reached.impersonation, reached.acts_as, reached.acting_user) == ((), "", "lab-user")


USED: dict[str, Any] = {
    "token": "t",
    "tokenFile": "token",
    "client-certificate": "token",
    "client-certificate-data": "eA==",
    "client-key": "token",
    "client-key-data": "eA==",
    "username": "li",
    "password": "x",
    "exec": {
        "apiVersion": "v1",
        "command": "echo",
        "args": [json.dumps({"apiVersion": "v1", "kind": "ExecCredential", "status": {"token": "t"}})],
    },
    "extensions": [],
    **{key: {"as": "jane", key: value} for key, value in ACTING.items() if key != "as"},
    "as": "jane",
}


@pytest.mark.parametrize("field", USED)
async def test_known_fields_of_a_user_are_used(tmp_path: Path, field: str) -> None:
    write(tmp_path / "token", "t")
    value = USED[field]
    user = value if field.startswith("as-") else {field: value}
    reached = await load(write(tmp_path / "config", config("https://x", user)))
    nobody = await load(write(tmp_path / "nobody", config("https://x")))
    changes_nothing = field in ("extensions", "password")  # a password alone is no login, as for kubectl
    is_same = (reached.identity(), reached.impersonation) == (nobody.identity(), nobody.impersonation)
    assert is_same is changes_nothing


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        ({"as-group": ["a"], "as": "jane"}, {}, "as-group is not a known field"),
        ({"AS": "jane"}, {}, "AS is not a known field"),
        ({"impersonate": "jane"}, {}, "impersonate is not a known field"),
        ({"as": 5}, {}, "as must be text"),
        ({"as": True}, {}, "as must be text"),
        ({"as": ["jane"]}, {}, "as must be text"),
        ({"as": "jane\nx"}, {}, "control characters"),
        ({"as": "jane", "as-groups": "admins"}, {}, "as-groups must be a list"),
        ({"as": "jane", "as-groups": [5]}, {}, "Impersonate-Group"),
        ({"as": "jane", "as-user-extra": {"a": "b"}}, {}, "as-user-extra: a must be a list"),
        ({"as": "jane", "as-user-extra": []}, {}, "as-user-extra must be a mapping"),
        ({"as-groups": ["a"]}, {}, "as-groups needs a user to act as"),
        ({"as-uid": "a"}, {}, "as-uid needs a user to act as"),
        ({"as-user-extra": {"a": ["b"]}}, {}, "as-user-extra needs a user to act as"),
        ({"token": 12}, {}, "token must be text"),
        ({"username": "li", "password": 12}, {}, "password must be text"),
        ({"token": "t", "username": "li"}, {}, "token and username"),
        ({"exec": "aws"}, {}, "exec must be a mapping"),
        ({}, {"insecure-skip-tls-verify": "false"}, "insecure-skip-tls-verify must be true or false"),
        ({}, {"proxy-url": 5}, "proxy-url must be text"),
    ],
    ids=str,
)
async def test_unknown_or_invalid_kubeconfig_fields_that_affect_identity_are_rejected(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], words: str
) -> None:
    path = write(tmp_path / "config", config("https://x", user, cluster=cluster))
    with pytest.raises(NoCluster) as caught:
        await load(path)
    assert words in caught.value.why
    assert path in caught.value.why


@pytest.mark.parametrize("section", ["clusters", "users", "contexts"])
async def test_a_name_that_is_given_twice_is_refused_as_kubectl_does(tmp_path: Path, section: str) -> None:
    made = config()
    made[section] = made[section] * 2
    with pytest.raises(NoCluster) as caught:
        await load(write(tmp_path / "config", made))
    assert f"two {section} are named {made[section][0]['name']}" in caught.value.why


REVIEWS = "/apis/authentication.k8s.io/{}/selfsubjectreviews"
JANE = Answer({"status": {"userInfo": {"username": "jane@lab.org", "groups": ["a"]}}}, 201)


async def test_the_username_is_fetched_from_selfsubjectreviews_and_cached() -> None:
    cases: list[tuple[dict[str, Answer], dict[str, Any], str]] = [
        ({"v1": JANE}, {}, "jane@lab.org"),
        ({"v1beta1": JANE}, {}, "jane@lab.org"),
        ({"v1alpha1": JANE}, {}, "jane@lab.org"),
        ({}, {}, ""),
        ({}, {"impersonation": (("Impersonate-User", "alice"),)}, "alice"),
        ({"v1": refusal(403)}, {}, ""),
        ({"v1": Answer({"status": {"userInfo": None}}, 201)}, {}, ""),
        ({"v1": Answer({"status": "x"}, 201)}, {}, ""),
    ]
    for replies, config_, name in cases:
        async with ScriptedCluster() as cluster, cluster.client(**config_) as client:
            for version, reply in replies.items():
                cluster.say(REVIEWS.format(version), reply, method="POST")
            assert await fetch_username(client) == name
            assert client.config.acting_user == (name or "li")
            asked = len(cluster.requests)
            if name:
                assert await fetch_username(client) == name
                assert len(cluster.requests) == asked
