"""Logging in again: commands that print credentials, tokens in files, certificates that are replaced."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from k8s.client.auth.cluster_config import ClusterConfig, load
from k8s.client.auth.exec_plugin import ExecPlugin, ExecPluginFailed, without_secrets
from k8s.client.client import Client
from k8s.errors import NoCluster, Unauthorized, Unreachable
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.certificates import Certificate, encrypt, issue, make_authority, server_tls
from tests.scripted.server import WAIT_S, Answer, Asked, Compute, ScriptedCluster, refusal

VERSION = "/version"
KNOWN = {"gitVersion": "v1"}
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

PLUGIN = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
number = len(list(folder.glob("run-*"))) + 1
(folder / f"run-{number}").write_text(os.environ["KUBERNETES_EXEC_INFO"])
if (folder / "fail").exists():
    print("your session is over", file=sys.stderr)
    sys.exit(3)
answer = json.loads((folder / "answer").read_text())
status = answer["status"]
if "token" in status:
    status["token"] = status["token"].replace("N", str(number))
for key, ending in (("clientCertificateData", "crt"), ("clientKeyData", "key")):
    if key in status:
        status[key] = (folder / f"client-{number}.{ending}").read_text()
print(json.dumps(answer))
"""
"""An exec plugin: notes each run, then answers as the file `answer` says, with another token each time."""


class Plugin:
    """An exec plugin in a folder, and how often it was run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers(token="token-N", expirationTimestamp="2099-01-01T00:00:00.123456789Z")

    def answers(self, **status: Any) -> None:
        version = "client.authentication.k8s.io/v1"
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        write(self.folder / "answer", json.dumps(answer))

    def fails(self) -> None:
        (self.folder / "fail").touch()

    @property
    def runs(self) -> int:
        return len(list(self.folder.glob("run-*")))

    def exec_part(self, **more: Any) -> dict[str, Any]:
        script = write(self.folder / "login.py", PLUGIN)
        version = "client.authentication.k8s.io/v1"
        words = {"command": sys.executable, "args": [script, str(self.folder)]}
        return {"apiVersion": version, **words, "env": None, **more}

    async def load(self, host: str, **cluster: Any) -> ClusterConfig:
        made = config(host, {"exec": self.exec_part()}, cluster=cluster)
        return await load(write(self.folder / "config", made))


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def guarded(token: str) -> Compute:
    """Answer only those who show this token."""

    def answer(asked: Asked) -> Answer:
        is_known = asked.headers.get("Authorization") == f"Bearer {token}"
        return Answer(KNOWN) if is_known else refusal(401, "Unauthorized")

    return Compute(answer)


class Badge:
    """Answers only those who show a certificate of this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[str] = []

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        assert request.transport is not None
        shown = request.transport.get_extra_info("peercert") or {}
        names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
        self.seen.append(",".join(names))
        reply = Answer(KNOWN) if names == [self.name] else refusal(401, "Unauthorized")
        return await reply.answer(request, closing)


@asynccontextmanager
async def server_that_checks(folder: Path) -> AsyncIterator[tuple[ScriptedCluster, Certificate]]:
    """Serve over TLS, taking certificates of an authority, which is also the server's."""
    authority = make_authority(folder)
    tls = server_tls(issue(authority, "server"), clients_of=authority)
    async with ScriptedCluster(tls) as cluster:
        yield cluster, authority


async def test_a_login_command_is_run_once_more_when_its_token_is_refused(plugin: Plugin) -> None:
    async with ScriptedCluster() as cluster:
        reached = await plugin.load(cluster.host)
        assert reached.authorization() == "Bearer token-1"
        cluster.say(VERSION, guarded("token-2"))
        async with Client(reached) as client:
            assert await client.get_json(VERSION) == KNOWN
            assert await client.get_json(VERSION) == KNOWN
    assert plugin.runs == 2


async def test_fifty_refused_requests_run_the_login_command_once(plugin: Plugin) -> None:
    async with ScriptedCluster() as cluster:
        reached = await plugin.load(cluster.host)
        cluster.say(VERSION, guarded("token-2"))
        async with Client(reached) as client:
            answers = await asyncio.gather(*(client.get_json(VERSION) for _ in range(50)))
    assert answers == [KNOWN] * 50
    assert plugin.runs == 2


async def test_who_gives_up_waiting_for_a_login_does_not_end_it_for_the_others(plugin: Plugin) -> None:
    async with ScriptedCluster() as cluster:
        reached = await plugin.load(cluster.host)
        cluster.say(VERSION, guarded("token-2"))
        async with Client(reached) as client:
            waiting = [asyncio.create_task(client.get_json(VERSION)) for _ in range(3)]
            await cluster.until_asked(VERSION, 3)
            waiting[0].cancel()
            assert await asyncio.gather(*waiting[1:]) == [KNOWN] * 2
    assert plugin.runs == 2


async def test_a_login_that_does_not_help_is_tried_once_and_the_command_named(plugin: Plugin) -> None:
    async with ScriptedCluster() as cluster:
        reached = await plugin.load(cluster.host)
        cluster.say(VERSION, refusal(401, "Unauthorized"))
        async with Client(reached) as client:
            for _ in range(3):
                with pytest.raises(Unauthorized) as caught:
                    await client.get_json(VERSION)
                assert f"Login expired: run {sys.executable} …, then try again." in str(caught.value)
    assert plugin.runs == 2


async def test_a_login_command_that_fails_is_told_in_its_own_words_and_not_run_for_everybody(
    plugin: Plugin,
) -> None:
    async with ScriptedCluster() as cluster:
        reached = await plugin.load(cluster.host)
        cluster.say(VERSION, refusal(401, "Unauthorized"))
        plugin.fails()
        async with Client(reached) as client:
            for _ in range(3):
                failed = await asyncio.gather(
                    *(client.get_json(VERSION) for _ in range(5)), return_exceptions=True
                )
                assert len({str(error) for error in failed}) == 1
                assert isinstance(failed[0], Unauthorized)
            assert plugin.runs == 2
            client.retry_credentials()
            with pytest.raises(Unauthorized, match="your session is over") as caught:
                await client.get_json(VERSION)
            assert plugin.runs == 3
    assert f"Login expired: run {sys.executable} …. It says: your session is over" in caught.value.why
    assert "ctrl" not in str(caught.value)
    with pytest.raises(NoCluster, match="your session is over"):
        await plugin.load(cluster.host)


async def test_credentials_are_renewed_when_they_said_that_they_end(plugin: Plugin) -> None:
    async with ScriptedCluster() as cluster:
        reached = await plugin.load(cluster.host)
        assert reached.expires == datetime(2099, 1, 1, 0, 0, 0, 123456, UTC)
        cluster.say(VERSION, guarded("token-2"))
        async with Client(reached) as client:
            reached.expires = LONG_AGO
            answers = await asyncio.gather(*(client.get_json(VERSION) for _ in range(5)))
            assert answers == [KNOWN] * 5
            assert (len(cluster.asked(VERSION)), plugin.runs) == (5, 2)
            reached.expires = LONG_AGO
            plugin.fails()
            for _ in range(3):
                with pytest.raises(Unauthorized, match="your session is over"):
                    await client.get_json(VERSION)
    assert plugin.runs == 3


async def test_by_a_clock_that_is_ahead_nothing_is_renewed_at_every_request(plugin: Plugin) -> None:
    plugin.answers(token="token-N", expirationTimestamp="2001-01-01T00:00:00Z")
    async with ScriptedCluster() as cluster:
        cluster.say(VERSION, guarded("token-1"))
        async with Client(await plugin.load(cluster.host)) as client:
            await client.get_json(VERSION)
            await client.get_json(VERSION)
    assert plugin.runs == 1


async def test_a_new_certificate_of_a_login_command_is_shown_at_once(plugin: Plugin) -> None:
    plugin.answers(clientCertificateData="", clientKeyData="")
    async with server_that_checks(plugin.folder) as (cluster, authority):
        for number in (1, 2):
            issue(authority, f"client-{number}")
        badge = Badge("client-1")
        cluster.say(VERSION, badge)
        reached = await plugin.load(cluster.host, **{"certificate-authority": str(authority.path)})
        async with Client(reached) as client:
            assert await client.get_json(VERSION) == KNOWN
            badge.name = "client-2"  # what was good is refused, as after its expiry
            answers = await asyncio.gather(*(client.get_json(VERSION) for _ in range(20)))
    assert answers == [KNOWN] * 20
    assert badge.seen[0] == "client-1" and badge.seen[-1] == "client-2"
    assert plugin.runs == 2
    assert reached.authorization() == ""


async def test_a_certificate_that_said_when_it_ends_is_renewed_before_it_is_refused(plugin: Plugin) -> None:
    plugin.answers(clientCertificateData="", clientKeyData="", expirationTimestamp="2099-01-01T00:00:00Z")
    async with server_that_checks(plugin.folder) as (cluster, authority):
        for number in (1, 2):
            issue(authority, f"client-{number}")
        badge = Badge("client-2")
        cluster.say(VERSION, badge)
        reached = await plugin.load(cluster.host, **{"certificate-authority": str(authority.path)})
        async with Client(reached) as client:
            reached.expires = LONG_AGO
            assert await client.get_json(VERSION) == KNOWN
    assert (badge.seen, plugin.runs) == (["client-2"], 2)


async def test_a_login_command_may_give_a_token_and_a_certificate(plugin: Plugin) -> None:
    plugin.answers(token="token-N", clientCertificateData="", clientKeyData="")
    async with server_that_checks(plugin.folder) as (cluster, authority):
        issue(authority, "client-1")
        badge = Badge("client-1")
        cluster.say(VERSION, badge)
        reached = await plugin.load(cluster.host, **{"certificate-authority": str(authority.path)})
        async with Client(reached) as client:
            assert await client.get_json(VERSION) == KNOWN
    assert cluster.asked(VERSION)[0].headers["Authorization"] == "Bearer token-1"


async def test_a_certificate_that_is_replaced_on_disk_is_read_again_when_the_old_one_is_refused(
    tmp_path: Path,
) -> None:
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


async def test_certificates_inside_a_kubeconfig_are_shown(tmp_path: Path) -> None:
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


async def test_an_empty_entry_of_a_kubeconfig_does_not_hide_a_file(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    cluster = {"certificate-authority-data": "", "certificate-authority": "authority.crt"}
    reached = await load(write(tmp_path / "config", config("https://x", cluster=cluster)))
    assert reached.ssl_ca_cert == str(authority.path)


async def test_a_key_that_needs_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    mine = issue(authority, "mine")
    user = {"client-certificate": str(mine.path), "client-key": str(encrypt(mine.key))}
    reached = await load(write(tmp_path / "config", config("https://x", user)))
    with pytest.raises(NoCluster, match=r"mine\.encrypted"):
        Client(reached)


async def test_a_login_command_has_no_terminal_and_knows_what_it_needs(plugin: Plugin) -> None:
    script = (
        "import json,os,sys; extra=os.environ['EXTRA']\n"
        "token=f'{os.getsid(0)==os.getpid()}-{sys.stdin.read()!r}-{extra}'\n"
        "sys.stderr.write('x' * 1_000_000)\n"
        "asked=json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "print(json.dumps({**asked,'status':{'token':token}}))\n"
        f"open({str(plugin.folder / 'asked')!r},'w').write(json.dumps(asked))\n"
    )
    said = {
        **plugin.exec_part(provideClusterInfo=True, env=[{"name": "EXTRA", "value": "yes"}]),
        "args": ["-c", script],
    }
    write(plugin.folder / "ca.crt", "authority")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "lab"}}
    cluster = {"server": "https://lab", "certificate-authority": str(plugin.folder / "ca.crt")}
    command = ExecPlugin.from_user(said, {**cluster, "extensions": [{"name": "x"}, extension]})
    assert (await command.run()).token == "True-''-yes"
    assert json.loads((plugin.folder / "asked").read_text())["spec"] == {
        "interactive": False,
        "cluster": {
            "server": "https://lab",
            "certificate-authority-data": base64.b64encode(b"authority").decode(),
            "config": {"audience": "lab"},
        },
    }


async def test_a_login_command_is_found_beside_the_kubeconfig_that_names_it(plugin: Plugin) -> None:
    made = plugin.exec_part()
    runner = write(plugin.folder / "kube" / "bin" / "login", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    os.chmod(runner, 0o700)
    user = {"exec": {**made, "command": "bin/login"}}
    reached = await load(write(plugin.folder / "kube" / "config", config(user=user)))
    assert reached.authorization() == "Bearer token-1"


def sleeper(folder: Path) -> ExecPlugin:
    """Return an exec plugin that notes its process and takes its time."""
    script = (
        f"import os,time; open({str(folder / 'pid')!r},'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    )
    return ExecPlugin([sys.executable, "-c", script], {}, "v1")


async def until_written(path: Path) -> int:
    async with asyncio.timeout(WAIT_S):
        while not (path.exists() and path.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    return int(path.read_text())


async def test_a_login_that_nobody_waits_for_any_more_leaves_no_process(tmp_path: Path) -> None:
    running = asyncio.create_task(sleeper(tmp_path).run())
    process = await until_written(tmp_path / "pid")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_a_login_command_does_not_keep_everybody_waiting_for_ever(tmp_path: Path) -> None:
    with pytest.raises(ExecPluginFailed, match="did not end in"):
        await sleeper(tmp_path).run(timeout_s=0.05)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"command": "no-such-login", "installHint": "Get it at\x1b[2J example.com"},
            "Get it at example.com",
        ),
        ({"command": "no-such-login"}, "no-such-login: No such file"),
        ({"command": "a\0b"}, "cannot be passed on"),
        ({"command": "aws", "interactiveMode": "Always"}, "wants a terminal of its own"),
        ({"command": "sh", "args": ["-c", "exit 7"]}, "ended with status 7"),
        ({"command": "sh", "args": ["-c", 'echo \'{"token": "SECRET"}\'']}, "no ExecCredential"),
        ({"command": "sh", "args": ["-c", "echo SECRET"]}, "not JSON"),
        ({"command": "sh", "args": "x"}, "makes no sense"),
        ({"command": 5}, "no command"),
        ({}, "no command"),
    ],
)
async def test_a_login_command_that_gives_nothing_says_why(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ExecPluginFailed, match=words) as caught:
        await ExecPlugin.from_user({"apiVersion": "v1", **said}, {}).run()
    assert "SECRET" not in str(caught.value) and "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "neither token nor certificate"),
        ({"token": ""}, "neither token nor certificate"),
        ({"clientKeyData": ""}, "only one of certificate and key"),
        ("SECRET", "no ExecCredential"),
    ],
)
async def test_an_answer_that_holds_no_credentials_is_refused(
    plugin: Plugin, status: Any, words: str
) -> None:
    issue(make_authority(plugin.folder), "client-1")
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    write(plugin.folder / "answer", json.dumps(answer))
    with pytest.raises(ExecPluginFailed, match=words):
        await ExecPlugin.from_user(plugin.exec_part(), {}).run()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["aws", "eks", "get-token", "--cluster-name", "lab"], "aws eks get-token …"),
        (["kubectl", "oidc-login", "--token=SECRET"], "kubectl oidc-login …"),
        (["sh", "-c", "echo SECRET"], "sh …"),
        (["vault", "SECRET1"], "vault …"),
        (["gke-gcloud-auth-plugin"], "gke-gcloud-auth-plugin"),
    ],
)
def test_a_login_command_is_shown_without_what_may_be_secret(words: list[str], shown: str) -> None:
    assert ExecPlugin(words, {}, "v1").shown == shown


def test_a_complaint_keeps_its_words_and_loses_its_secrets() -> None:
    token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl"
    complaint = (
        f'Traceback\nline\nerror: {{"token": "x"}}\nExpired {token}\nSee https://login.example.com/device\n'
    )
    assert without_secrets(complaint) == "error: {…} Expired … See https://login.example.com/device"


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


async def test_a_token_file_is_read_again_in_time_and_half_a_file_is_not_believed(tmp_path: Path) -> None:
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
async def test_a_token_that_cannot_be_sent_is_said_before_anything_is_sent(
    tmp_path: Path, user: dict[str, str]
) -> None:
    with pytest.raises(NoCluster) as caught:
        await load(write(tmp_path / "config", config(user=user)))
    assert str(tmp_path / "config") in caught.value.why
    assert "SECRET" not in str(caught.value)


async def test_inside_a_pod_its_own_account_is_used_and_its_token_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_what_access_holds_is_not_printed_with_its_secrets(plugin: Plugin) -> None:
    plugin.answers(token="SECRET")
    user = {"exec": {**plugin.exec_part(), "env": [{"name": "KEY", "value": "SECRET"}]}}
    made = config(user=user, cluster={"proxy-url": "http://li:SECRET@proxy:3128"})
    reached = await load(write(plugin.folder / "config", made))
    assert reached.authorization() == "Bearer SECRET"
    assert "SECRET" not in repr(reached)


async def test_a_server_is_known_by_another_name_where_the_kubeconfig_says_so(tmp_path: Path) -> None:
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


async def test_what_a_login_command_has_started_ends_with_it(tmp_path: Path) -> None:
    started = tmp_path / "child"
    script = f"sleep 1000 & echo $! > {started}.new; mv {started}.new {started}; wait"
    plugin = ExecPlugin(["sh", "-c", script], {}, "client.authentication.k8s.io/v1")
    with pytest.raises(ExecPluginFailed, match="did not end in"):
        await plugin.run(timeout_s=2.0)
    child = int(started.read_text())
    async with asyncio.timeout(WAIT_S):
        while is_running(child):
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    """Tell whether a process lives; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_an_end_of_credentials_without_a_zone_is_taken_for_utc(plugin: Plugin) -> None:
    plugin.answers(token="token-N", expirationTimestamp="2099-01-01T00:00:00")
    async with ScriptedCluster() as cluster:
        reached = await plugin.load(cluster.host)
        assert reached.expires == datetime(2099, 1, 1, tzinfo=UTC)
        assert not reached.has_expired
