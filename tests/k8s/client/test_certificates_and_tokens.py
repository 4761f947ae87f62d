"""Certificates, keys and tokens of a kubeconfig or a pod: sent, and read again when replaced."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from k8s.client.auth.cluster_config import load
from k8s.client.client import Client, fetch_username
from k8s.cluster.backoff import Backoff
from k8s.logs import Follower, LogRequest, Target
from k8s.models.resources import PODS
from k8s.text.errors import NoCluster, Unauthorized, Unreachable
from tests.k8s.client.login import KNOWN, VERSION, Badge, Plugin, guarded, server_that_checks
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.certificates import encrypt, issue, make_authority, server_tls
from tests.scripted.mirror import ALL, Watched, pod
from tests.scripted.server import (
    WAIT_S,
    Answer,
    Asked,
    Compute,
    Reply,
    ScriptedCluster,
    Stream,
    page,
    refusal,
)


async def test_a_certificate_replaced_on_disk_is_read_again_after_a_refusal(tmp_path: Path) -> None:
    async with server_that_checks(tmp_path) as (cluster, authority):
        mine, newer = issue(authority, "mine"), issue(authority, "newer")
        badge = Badge("mine")
        cluster.say(VERSION, badge)
        user = {"client-certificate": "mine.crt", "client-key": "mine.key"}
        made = config(cluster.host, user, cluster={"certificate-authority": "authority.crt"})
        async with Client(await load(write(tmp_path / "config", made))) as client:
            await client.get_json(VERSION)
            badge.name = "newer"
            with pytest.raises(Unauthorized, match="Log in to the cluster again"):
                await client.get_json(VERSION)
            mine.path.write_bytes(newer.path.read_bytes())
            mine.key.write_bytes(newer.key.read_bytes())
            client.retry_credentials()
            assert await client.get_json(VERSION) == KNOWN
    assert badge.seen == ["mine", "mine", "mine", "newer"]


async def test_inline_client_certificate_data_is_sent_to_the_server(tmp_path: Path) -> None:
    async with server_that_checks(tmp_path) as (cluster, authority):
        mine = issue(authority, "mine")
        cluster.say(VERSION, Badge("mine"))

        def inline(path: Path) -> str:
            return base64.b64encode(path.read_bytes()).decode()

        user = {"client-certificate-data": inline(mine.path), "client-key-data": inline(mine.key)}
        trusted = {"certificate-authority-data": inline(authority.path)}
        reached = await load(write(tmp_path / "config", config(cluster.host, user, cluster=trusted)))
        async with Client(reached) as client:
            assert await client.get_json(VERSION) == KNOWN


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "mine"),
        ({"token": "t"}, ""),
        ({"as": "alice"}, "alice"),
        ({"as": "alice", "token": "t"}, "alice"),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_inline", [False, True])
async def test_username_falls_back_to_the_client_certificate_subject_without_a_selfsubjectreview(
    tmp_path: Path, more: dict[str, str], name: str, is_inline: bool
) -> None:
    async with server_that_checks(tmp_path) as (cluster, authority):
        mine = issue(authority, "mine")
        user = {"client-certificate": str(mine.path), "client-key": str(mine.key)}
        if is_inline:
            held = {key: base64.b64encode(Path(path).read_bytes()).decode() for key, path in user.items()}
            user = {f"{key}-data": value for key, value in held.items()}
        made = config(cluster.host, {**user, **more}, cluster={"certificate-authority": "authority.crt"})
        async with Client(await load(write(tmp_path / "config", made))) as client:
            assert await fetch_username(client) == name


async def test_an_empty_entry_of_a_kubeconfig_does_not_hide_a_file(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    cluster = {"certificate-authority-data": "", "certificate-authority": "authority.crt"}
    reached = await load(write(tmp_path / "config", config("https://x", cluster=cluster)))
    assert reached.ssl_ca_cert == str(authority.path)


async def test_an_encrypted_client_key_is_rejected_without_a_password_prompt(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    mine = issue(authority, "mine")
    user = {"client-certificate": str(mine.path), "client-key": str(encrypt(mine.key))}
    reached = await load(write(tmp_path / "config", config("https://x", user)))
    with pytest.raises(NoCluster, match=r"mine\.encrypted"):
        Client(reached)


@pytest.mark.parametrize(
    ("section", "field", "value", "why"),
    [
        ("cluster", "certificate-authority", "bad", "authority {}/bad: it is not a PEM certificate."),
        ("cluster", "certificate-authority-data", "aGVsbG8=", "-data: it is not a PEM certificate."),
        ("cluster", "certificate-authority-data", "%%%", "certificate-authority-data is not base64"),
        ("cluster", "certificate-authority", "gone.crt", "gone.crt"),
        ("cluster", "certificate-authority", "/dev/zero", "/dev/zero: Not a regular file"),
        (
            "user",
            "client-certificate",
            "bad",
            "client certificate {}/bad: it is not a PEM certificate, or does not",
        ),
        ("user", "client-certificate-data", "aGVsbG8=", "client certificate: it is not a PEM certificate"),
        ("user", "client-certificate-data", "%%%", "client-certificate-data is not base64"),
    ],
)
async def test_an_invalid_certificate_is_named(
    tmp_path: Path, section: str, field: str, value: str, why: str
) -> None:
    (tmp_path / "bad").write_text("no certificate")
    user, cluster = ({field: value} if section == each else {} for each in ("user", "cluster"))
    made = write(tmp_path / "config", config("https://127.0.0.1:1", user, cluster=cluster))
    with pytest.raises(NoCluster) as caught:
        Client(await load(made))
    assert why.format(tmp_path) in caught.value.why


async def test_a_token_in_the_kubeconfig_is_used_before_a_login_command(plugin: Plugin) -> None:
    user = {"exec": plugin.exec_part(), "token": "own"}
    reached = await load(write(plugin.folder / "config", config(user=user)))
    assert (reached.authorization(), plugin.runs) == ("Bearer own", 0)


async def test_a_token_file_is_read_again_when_its_token_is_refused(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        token = tmp_path / "token"
        token.write_text("old\n")
        made = config(cluster.host, {"tokenFile": "token", "token": "older still"})
        reached = await load(write(tmp_path / "config", made))
        cluster.say(VERSION, guarded("new"))
        async with Client(reached) as client:
            token.write_text("new\n")
            assert await client.get_json(VERSION) == KNOWN
    assert [each.headers["Authorization"] for each in cluster.asked(VERSION)] == ["Bearer old", "Bearer new"]


async def test_a_token_file_is_reread_periodically_and_a_malformed_one_is_ignored(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    reached = await load(write(tmp_path / "config", config(user={"tokenFile": "token"})))
    token.write_text("new\n")
    assert reached.authorization() == "Bearer old"
    reached.token_file_s = 0.0
    assert reached.authorization() == "Bearer new"
    for broken in (b"", b"\n", b"\xff\xfe", b"a\nb", "ключ".encode()):
        token.write_bytes(broken)
        assert reached.authorization() == "Bearer new"
    token.unlink()
    assert reached.authorization() == "Bearer new"


@pytest.mark.parametrize("user", [{"tokenFile": "gone"}, {"token": "SECRET\nX"}, {"token": "SECRETключ"}])
async def test_an_unusable_token_is_reported_before_anything(tmp_path: Path, user: dict[str, str]) -> None:
    with pytest.raises(NoCluster) as caught:
        await load(write(tmp_path / "config", config(user=user)))
    assert str(tmp_path / "config") in caught.value.why
    assert "SECRET" not in str(caught.value)


class Rotating:
    """The server's side of a token that is replaced: replies only to the newest one."""

    def __init__(self, token: str) -> None:
        self.token = token

    def guard(self, *replies: Reply) -> Compute:
        """Reply in turn, repeating the last one; 401 without the newest token."""
        left = list(replies)

        def answer(asked: Asked) -> Reply:
            if asked.headers.get("Authorization") != f"Bearer {self.token}":
                return refusal(401, "Unauthorized")
            return left.pop(0) if len(left) > 1 else left[0]

        return Compute(answer)


class Unhurried(Backoff, frozen=True):
    """Backoff that waits longer than any test, but checks files often."""

    first_s: float = 0.01
    unauthorized_s: float = 600.0

    def delay_s(self, failures: int) -> float:
        return 600.0


@pytest.mark.parametrize("is_in_cluster", [False, True])
async def test_a_token_that_is_rotated_after_it_was_refused_is_used_at_once(
    is_in_cluster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    token, server, stream = tmp_path / "token", Rotating("old"), Stream()
    token.write_text("old")
    async with server_that_checks(tmp_path) as (cluster, authority):
        cluster.say(VERSION, server.guard(Answer(KNOWN)))
        cluster.say(ALL, server.guard(page([pod("a")])))
        cluster.say(ALL, server.guard(stream, Stream()), watch=True)
        if is_in_cluster:
            write(tmp_path / "ca.crt", authority.path.read_text())
            write(tmp_path / "namespace", "lab")
            host, _, port = cluster.host.removeprefix("https://").rpartition(":")
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
            reached = await load(service_account=tmp_path)
        else:
            trusted = {"certificate-authority": str(authority.path)}
            made = config(cluster.host, {"tokenFile": "token"}, cluster=trusted)
            reached = await load(write(tmp_path / "config", made))
        async with Client(reached) as client:
            backoff = Backoff(first_s=0.01, longest_s=0.02, unauthorized_s=600.0)
            watched = Watched(client, ("",), backoff)
            mirroring = asyncio.create_task(watched.mirror.run())
            await watched.until(lambda: watched.mirror.state.is_live)
            server.token = "new"
            stream.end()
            await watched.until_problem(Unauthorized)
            await cluster.until_asked(VERSION)
            token.write_text("new")
            await watched.until(lambda: watched.mirror.state.is_live)
            mirroring.cancel()
    assert watched.names == ["a"]


async def test_a_log_goes_on_when_the_token_that_was_refused_is_rotated(tmp_path: Path) -> None:
    token, server = tmp_path / "token", Rotating("new")
    token.write_text("old")
    container = {"name": "pytorch", "state": {"running": {}}}
    spec = {"containers": [{"name": "pytorch"}]}
    running = {
        "metadata": {"name": "a", "uid": "a"},
        "spec": spec,
        "status": {"containerStatuses": [container]},
    }
    line = Answer(b"2026-05-14T10:00:00.000000001Z step 1\n")
    async with ScriptedCluster() as cluster:
        cluster.say("/api/v1/namespaces/lab/pods/a", server.guard(Answer(running)))
        cluster.say("/api/v1/namespaces/lab/pods/a/log", server.guard(line, Stream()))
        reached = await load(write(tmp_path / "config", config(cluster.host, {"tokenFile": "token"})))
        followed = Target("lab", "a", "pytorch")
        async with Client(reached) as client, asyncio.timeout(WAIT_S):
            with pytest.raises(Unauthorized):
                await client.get(PODS, "a", "lab")
            follower = Follower(client, followed, LogRequest(follow=True), backoff=Unhurried())
            async with aclosing(follower.batches()) as batches:
                first = asyncio.ensure_future(anext(batches))
                await cluster.until_asked("/api/v1/namespaces/lab/pods/a", 2)
                token.write_text("new")
                assert [item.text for item in await first] == [b"step 1"]


async def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    folder = tmp_path / "account"
    async with server_that_checks(tmp_path) as (cluster, authority):
        for name, content in (
            ("token", "old"),
            ("ca.crt", authority.path.read_text()),
            ("namespace", "lab\n"),
        ):
            write(folder / name, content)
        host, _, port = cluster.host.removeprefix("https://").rpartition(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        reached = await load(service_account=folder)
        assert (reached.context, reached.namespace) == ("in-cluster", "lab")
        assert reached.authorization() == "Bearer old"
        cluster.say(VERSION, guarded("new"))
        async with Client(reached) as client:
            write(folder / "token", "new\n")
            assert await client.get_json(VERSION) == KNOWN
    assert (await load(namespace="mine", service_account=folder)).namespace == "mine"
    with pytest.raises(NoCluster, match="kube/config"):
        await load(service_account=tmp_path / "nowhere")


async def test_tls_server_name_of_the_kubeconfig_overrides_the_verified_host_name(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    tls = server_tls(issue(authority, "server", names="DNS:api.lab"))
    async with ScriptedCluster(tls) as cluster:
        cluster.say(VERSION, Answer(KNOWN))
        trusted = {"certificate-authority": str(authority.path)}
        for more, is_known in (({"tls-server-name": "api.lab"}, True), ({"tls-server-name": "no"}, False)):
            made = config(cluster.host, cluster={**trusted, **more})
            async with Client(await load(write(tmp_path / "config", made))) as client:
                if is_known:
                    assert await client.get_json(VERSION) == KNOWN
                else:
                    with pytest.raises(Unreachable, match="certificate"):
                        await client.get_json(VERSION)


async def test_an_authority_without_key_identifiers_is_accepted_and_names_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ssl.create_default_context

    def create_strict(*args: Any, **options: Any) -> ssl.SSLContext:
        made = create(*args, **options)
        made.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN  # as Python 3.13
        return made

    monkeypatch.setattr(ssl, "create_default_context", create_strict)
    authority = make_authority(tmp_path, has_key_ids=False)
    (tmp_path / "other").mkdir()
    stranger = make_authority(tmp_path / "other", has_key_ids=False)
    tls = server_tls(issue(authority, "server", has_key_ids=False))
    async with ScriptedCluster(tls) as cluster:
        cluster.say(VERSION, Answer(KNOWN))
        for trusted, more, why in (
            (authority, {}, ""),
            (authority, {"tls-server-name": "lab"}, "for another name"),
            (stranger, {}, "not trusted"),
        ):
            entry = {"certificate-authority": str(trusted.path), **more}
            reached = await load(write(tmp_path / "config", config(cluster.host, cluster=entry)))
            tls_settings = reached.ssl_context()
            assert tls_settings is not None and tls_settings.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
            async with Client(reached) as client:
                if not why:
                    assert await client.get_json(VERSION) == KNOWN
                    continue
                with pytest.raises(Unreachable, match=why):
                    await client.get_json(VERSION)
