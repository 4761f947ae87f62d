"""Kubeconfigs as people have them: several files, relative paths, login commands, mistakes."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from k8s.access import SANDBOX_HINT, Access, load
from k8s.client import Client
from k8s.errors import KubeError, NoCluster, Unauthorized
from tests.scripted import Answer, Asked, Compute, ScriptedCluster, refusal

VERSION = "/version"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a kubeconfig, outside any cluster."""
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


async def test_a_kubeconfig_says_where_the_cluster_is_and_who_asks(tmp_path: Path) -> None:
    access = await load(write(tmp_path / "config", config("https://10.0.0.1:6443/", {"token": "t"})))
    assert (access.host, access.context, access.namespace) == ("https://10.0.0.1:6443", "lab", "lab-ns")
    assert (access.user, access.authorization()) == ("lab-user", "Bearer t")
    assert (await load(access_path(tmp_path), namespace="mine")).namespace == "mine"


def access_path(tmp_path: Path) -> str:
    return str(tmp_path / "config")


async def test_several_files_are_merged_and_the_first_of_a_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "a", config(user={"token": "first"}))
    again = write(tmp_path / "b", config(user={"token": "again"}) | {"current-context": "lab"})
    other = write(tmp_path / "c", config(name="prod", user={"token": "prod"}) | {"current-context": "lab"})
    missing = str(tmp_path / "missing")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([first, again, missing, other]))
    access = await load()
    assert (access.context, access.authorization()) == ("lab", "Bearer first")
    access = await load(context="prod")
    assert (access.context, access.namespace, access.authorization()) == ("prod", "prod-ns", "Bearer prod")


async def test_the_kubeconfig_in_the_home_folder_is_found(tmp_path: Path) -> None:
    write(tmp_path / "home" / ".kube" / "config", config())
    assert (await load()).context == "lab"


async def test_paths_in_a_kubeconfig_begin_at_its_folder(tmp_path: Path) -> None:
    for name in ("ca.crt", "me.crt", "me.key"):
        write(tmp_path / "kube" / "pki" / name, name)
    user = {"client-certificate": "pki/me.crt", "client-key": "pki/me.key"}
    made = config("https://10.0.0.1", user, cluster={"certificate-authority": "pki/ca.crt"})
    access = await load(write(tmp_path / "kube" / "config", made))
    folder = tmp_path / "kube" / "pki"
    assert access.ssl_ca_cert == str(folder / "ca.crt")
    assert (access.cert_file, access.key_file) == (str(folder / "me.crt"), str(folder / "me.key"))


async def test_a_certificate_that_is_none_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    write(tmp_path / "ca.crt", "this is no certificate")
    access = await load(
        write(tmp_path / "config", config("https://x", cluster={"certificate-authority": "ca.crt"}))
    )
    with pytest.raises(NoCluster, match=r"ca\.crt"):
        Client(access)


async def test_a_certificate_that_is_missing_is_named(tmp_path: Path) -> None:
    made = config("https://x", cluster={"certificate-authority": "gone.crt"})
    with pytest.raises(NoCluster, match=r"gone\.crt"):
        await load(write(tmp_path / "config", made))


async def test_a_server_need_not_be_verified(tmp_path: Path) -> None:
    made = config("https://x", cluster={"insecure-skip-tls-verify": True, "tls-server-name": "y"})
    access = await load(write(tmp_path / "config", made))
    context = access.ssl_context()
    assert context is not None and not context.check_hostname
    assert access.tls_server_name == "y"


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
async def test_a_kubeconfig_that_cannot_be_used_is_named_and_the_sandbox_offered(
    tmp_path: Path, content: object
) -> None:
    path = write(tmp_path / "broken", content)
    with pytest.raises(NoCluster) as caught:
        await load(path)
    assert path in caught.value.why
    assert caught.value.hint == SANDBOX_HINT


async def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match="prod"):
        await load(write(tmp_path / "config", config()), context="prod")


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
async def test_no_secret_of_a_kubeconfig_is_said_in_an_error(
    tmp_path: Path, user: dict[str, Any], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    made = config("https://127.0.0.1:1", user)
    with caplog.at_level(logging.DEBUG), pytest.raises(KubeError) as caught:
        Client(await load(write(tmp_path / "config", made)))
    printed = capfd.readouterr()
    assert "SECRET" not in f"{caught.value} {caught.value.args} {caplog.text} {printed.out} {printed.err}"


def guarded(token: str) -> Compute:
    """Answer only those who show this token."""

    def answer(asked: Asked) -> Answer:
        is_known = asked.headers.get("Authorization") == f"Bearer {token}"
        return Answer({"gitVersion": "v1"}) if is_known else refusal(401, "Unauthorized")

    return Compute(answer)


async def test_a_token_file_is_read_again_when_its_token_is_refused(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        token = tmp_path / "token"
        token.write_text("old")
        access = await load(write(tmp_path / "config", config(cluster.host, {"tokenFile": "token"})))
        cluster.say(VERSION, guarded("new"))
        async with Client(access) as client:
            token.write_text("new")
            assert await client.get_json(VERSION) == {"gitVersion": "v1"}
    assert len(cluster.asked(VERSION)) == 2


PLUGIN = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
runs = folder / "runs"
number = len(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text("x" * number)
if (folder / "fail").exists():
    print("your session is over", file=sys.stderr)
    sys.exit(3)
status = {"token": f"token-{number}", "expirationTimestamp": "2099-01-01T00:00:00Z"}
answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
print(json.dumps(answer))
"""


async def plugged(tmp_path: Path, host: str) -> Access:
    """Return access by a login command that gives another token each time it is run."""
    script = write(tmp_path / "login.py", PLUGIN)
    exec_part = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [script, str(tmp_path)],
        "env": [{"name": "LOGIN", "value": "yes"}],
    }
    return await load(write(tmp_path / "config", config(host, {"exec": exec_part})))


def runs_of(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text())


async def test_a_login_command_is_run_once_more_when_its_token_is_refused(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        access = await plugged(tmp_path, cluster.host)
        assert access.authorization() == "Bearer token-1"
        cluster.say(VERSION, guarded("token-2"))
        async with Client(access) as client:
            await client.get_json(VERSION)
            await client.get_json(VERSION)
    assert runs_of(tmp_path) == 2


async def test_ten_refused_requests_run_the_login_command_once(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        access = await plugged(tmp_path, cluster.host)
        cluster.say(VERSION, guarded("token-2"))
        async with Client(access) as client:
            answers = await asyncio.gather(*(client.get_json(VERSION) for _ in range(10)))
    assert answers == [{"gitVersion": "v1"}] * 10
    assert runs_of(tmp_path) == 2


async def test_a_login_that_does_not_help_is_tried_once_and_said(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        access = await plugged(tmp_path, cluster.host)
        cluster.say(VERSION, refusal(401, "Unauthorized"))
        async with Client(access) as client:
            with pytest.raises(Unauthorized, match="Login expired: run"):
                await client.get_json(VERSION)
    assert runs_of(tmp_path) == 2
    assert len(cluster.asked(VERSION)) == 2


async def test_a_login_command_that_fails_is_told_in_its_own_words(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        access = await plugged(tmp_path, cluster.host)
        cluster.say(VERSION, refusal(401, "Unauthorized"))
        (tmp_path / "fail").touch()
        async with Client(access) as client:
            with pytest.raises(Unauthorized, match="your session is over"):
                await client.get_json(VERSION)
            failed = await asyncio.gather(
                *(client.get_json(VERSION) for _ in range(10)), return_exceptions=True
            )
            assert all(isinstance(error, Unauthorized) for error in failed)
    assert runs_of(tmp_path) <= 5
    with pytest.raises(NoCluster, match="your session is over"):
        await plugged(tmp_path, cluster.host)


async def test_a_login_command_that_is_not_installed_is_named(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login"}}
    with pytest.raises(NoCluster, match="no-such-login"):
        await load(write(tmp_path / "config", config(user=user)))


async def test_a_name_and_password_become_a_header(tmp_path: Path) -> None:
    access = await load(write(tmp_path / "config", config(user={"username": "li", "password": "x"})))
    assert access.authorization() == "Basic " + base64.b64encode(b"li:x").decode()


async def test_a_user_without_credentials_sends_none(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(VERSION, Answer({}))
        async with Client(await load(write(tmp_path / "config", config(cluster.host)))) as client:
            await client.get_json(VERSION)
    assert "Authorization" not in cluster.asked(VERSION)[0].headers


async def test_a_kubeconfig_may_be_json(tmp_path: Path) -> None:
    assert (await load(write(tmp_path / "config", json.dumps(config())))).context == "lab"
