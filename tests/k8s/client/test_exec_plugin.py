"""Renewal of credentials: exec plugins, token files, certificates that are replaced."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest

from k8s.client import connection
from k8s.client.auth.cluster_config import load
from k8s.client.auth.exec_plugin import ExecPlugin, ExecPluginFailed, LoginDialog, without_secrets
from k8s.client.client import Client
from k8s.text.errors import NoCluster, Unauthorized
from tests.k8s.client.login import KNOWN, LONG_AGO, VERSION, Badge, Plugin, guarded, server_that_checks
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.certificates import issue, make_authority
from tests.scripted.server import WAIT_S, ScriptedCluster, refusal


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


async def test_cancelling_one_request_does_not_cancel_the_shared_exec_plugin_run(plugin: Plugin) -> None:
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


async def test_a_failing_exec_plugin_is_quoted_and_not_run_per_request(plugin: Plugin) -> None:
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


async def test_after_a_pause_a_failing_exec_plugin_is_run_again(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedCluster() as cluster:
        reached = await plugin.load(cluster.host)
        cluster.say(VERSION, refusal(401, "Unauthorized"))
        plugin.fails()
        async with Client(reached) as client:
            for pause_s, runs in ((inf, 2), (inf, 2), (0.0, 3), (inf, 3)):
                monkeypatch.setattr(connection, "RENEWAL_PAUSE_S", pause_s)
                with pytest.raises(Unauthorized, match="your session is over"):
                    await client.get_json(VERSION)
                assert plugin.runs == runs


async def test_exec_plugin_credentials_are_renewed_after_their_expiration_timestamp(plugin: Plugin) -> None:
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


async def test_already_expired_credentials_are_not_renewed_at_every_request(plugin: Plugin) -> None:
    plugin.answers(token="token-N", expirationTimestamp="2001-01-01T00:00:00Z")
    async with ScriptedCluster() as cluster:
        cluster.say(VERSION, guarded("token-1"))
        async with Client(await plugin.load(cluster.host)) as client:
            await client.get_json(VERSION)
            await client.get_json(VERSION)
    assert plugin.runs == 1


async def test_a_new_client_certificate_from_an_exec_plugin_is_used_after_a_401(plugin: Plugin) -> None:
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


async def test_an_expired_exec_plugin_certificate_is_renewed_before_the_next_request(plugin: Plugin) -> None:
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


async def test_an_exec_plugin_gets_no_terminal_but_its_env_and_cluster_info(plugin: Plugin) -> None:
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
    """Return an exec plugin that records its process id and takes long."""
    script = (
        f"import os,time; open({str(folder / 'pid')!r},'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    )
    return ExecPlugin([sys.executable, "-c", script], {}, "v1")


async def until_written(path: Path) -> int:
    async with asyncio.timeout(WAIT_S):
        while not (path.exists() and path.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    return int(path.read_text())


async def test_a_cancelled_exec_plugin_run_kills_its_process(tmp_path: Path) -> None:
    running = asyncio.create_task(sleeper(tmp_path).run())
    process = await until_written(tmp_path / "pid")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_an_exec_plugin_that_hangs_times_out(tmp_path: Path) -> None:
    with pytest.raises(ExecPluginFailed, match="did not finish in"):
        await sleeper(tmp_path).run(timeout_s=0.05)


async def test_a_failed_exec_plugin_reports_the_reason_without_secrets() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"command": "no-such-login", "installHint": "Get it at\x1b[2J example.com"},
         "Get it at example.com"),
        ({"command": "no-such-login"}, "no-such-login: No such file"),
        ({"command": "a\0b"}, "cannot be passed on"),
        ({"command": "aws", "interactiveMode": "Always"},
         r"aws needs a terminal \(interactiveMode: Always\)"),
        ({"command": "sh", "args": ["-c", "exit 7"]}, "exited with status 7"),
        ({"command": "sh", "args": ["-c", 'echo \'{"token": "SECRET"}\'']},
         "did not print an ExecCredential"),
        ({"command": "sh", "args": ["-c", "echo SECRET"]}, "did not print JSON"),
        ({"command": "sh", "args": "x"}, "is malformed"),
        ({"command": 5}, "no command"),
        ({}, "no command"),
    ]  # fmt: skip
    for said, words in cases:
        with pytest.raises(ExecPluginFailed, match=words) as caught:
            await ExecPlugin.from_user({"apiVersion": "v1", **said}, {}).run()
        assert "SECRET" not in str(caught.value) and "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "neither token nor certificate"),
        ({"token": ""}, "neither token nor certificate"),
        ({"clientKeyData": ""}, "only one of certificate and key"),
        ("SECRET", "did not print an ExecCredential"),
    ],
)
async def test_an_answer_without_credentials_is_refused(plugin: Plugin, status: Any, words: str) -> None:
    issue(make_authority(plugin.folder), "client-1")
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    write(plugin.folder / "answer", json.dumps(answer))
    with pytest.raises(ExecPluginFailed, match=words):
        await ExecPlugin.from_user(plugin.exec_part(), {}).run()


def test_an_exec_plugin_command_is_shown_without_possibly_secret_arguments() -> None:
    cases: list[tuple[list[str], str]] = [
        (["aws", "eks", "get-token", "--cluster-name", "lab"], "aws eks get-token …"),
        (["kubectl", "oidc-login", "--token=SECRET"], "kubectl oidc-login …"),
        (["sh", "-c", "echo SECRET"], "sh …"),
        (["vault", "SECRET1"], "vault …"),
        (["gke-gcloud-auth-plugin"], "gke-gcloud-auth-plugin"),
    ]
    for words, shown in cases:
        assert ExecPlugin(words, {}, "v1").shown == shown


def test_exec_plugin_error_output_is_shown_without_secrets() -> None:
    token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl"
    complaint = (
        f'Traceback\nline\nerror: {{"token": "x"}}\nExpired {token}\nSee https://login.example.com/device\n'
    )
    assert without_secrets(complaint) == "error: {…} Expired … See https://login.example.com/device"


async def test_repr_of_a_cluster_config_hides_secrets(plugin: Plugin) -> None:
    plugin.answers(token="SECRET")
    user = {"exec": {**plugin.exec_part(), "env": [{"name": "KEY", "value": "SECRET"}]}}
    made = config(user=user, cluster={"proxy-url": "http://li:SECRET@proxy:3128"})
    reached = await load(write(plugin.folder / "config", made))
    assert reached.authorization() == "Bearer SECRET"
    assert "SECRET" not in repr(reached)


async def test_child_processes_of_a_timed_out_exec_plugin_are_killed(tmp_path: Path) -> None:
    started = tmp_path / "child"
    script = f"sleep 1000 & echo $! > {started}.new; mv {started}.new {started}; wait"
    plugin = ExecPlugin(["sh", "-c", script], {}, "client.authentication.k8s.io/v1")
    with pytest.raises(ExecPluginFailed, match="did not finish in"):
        await plugin.run(timeout_s=2.0)
    child = int(started.read_text())
    async with asyncio.timeout(WAIT_S):
        while is_running(child):
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    """Return True if a process is alive and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_an_expiration_timestamp_without_a_time_zone_is_read_as_utc(plugin: Plugin) -> None:
    plugin.answers(token="token-N", expirationTimestamp="2099-01-01T00:00:00")
    async with ScriptedCluster() as cluster:
        reached = await plugin.load(cluster.host)
        assert reached.expires == datetime(2099, 1, 1, tzinfo=UTC)
        assert not reached.has_expired


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_login_command_that_never_stops_printing_is_ended(stream: str) -> None:
    program = f"import sys\nwhile True: sys.{stream}.write('x' * 65536)"
    plugin = ExecPlugin(argv=[sys.executable, "-c", program], env={}, api_version="v1")
    with pytest.raises(ExecPluginFailed, match="printed more than 1 MiB"):
        await plugin.run(WAIT_S)


async def test_the_lines_of_an_exec_plugin_are_shown_while_it_waits_for_the_user(tmp_path: Path) -> None:
    script = (
        "import json,os,sys,time\n"
        "sys.stderr.write('Enter KXPQ-7731\\r\\n\\x1b[2JPIN: '); sys.stderr.flush()\n"
        f"while not os.path.exists({str(tmp_path / 'confirmed')!r}): time.sleep(0.01)\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "print(json.dumps({**info, 'status': {'token': str(info['spec']['interactive'])}}))"
    )
    shown: list[str] = []
    confirmed = tmp_path / "confirmed"

    def show(text: str) -> None:
        shown.append(text)
        if "PIN: " in "".join(shown):
            confirmed.touch()

    entry = {"apiVersion": "v1", "command": sys.executable, "args": ["-c", script]}
    plugin = ExecPlugin.from_user(entry, {}, LoginDialog(show))
    assert (await plugin.run(WAIT_S)).token == "False"
    assert "".join(shown) == "Enter KXPQ-7731\nPIN: "


async def test_a_plugin_that_always_needs_a_terminal_is_refused_with_advice_and_not_run(
    plugin: Plugin,
) -> None:
    user = {"exec": plugin.exec_part(interactiveMode="Always")}
    made = write(plugin.folder / "config", config(user=user))
    with pytest.raises(NoCluster, match="needs a terminal") as caught:
        await load(made, dialog=LoginDialog(hint="Run it on a terminal: gpuconsole list"))
    assert (caught.value.hint, plugin.runs) == ("Run it on a terminal: gpuconsole list", 0)
