"""Settings of every command: flags, their variables of the environment, and config.yaml."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.scripted.server import Asked, ScriptedCluster
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "persistentvolumeclaims"


def groups_of(asked: Asked) -> list[str]:
    """Return the groups of a request, each of which has a header of its own."""
    return [value for name, value in asked.headers.items() if name == "Impersonate-Group"]


async def test_the_user_to_act_as_is_sent_with_each_request(run: CommandLine) -> None:
    ended = await run("list", "--as", "wu", "--as-group=dev", "--as-group=ops")
    assert ended.status == 0, ended.err
    assert run.cluster.requests
    for asked in run.cluster.requests:
        assert asked.headers.get("Impersonate-User") == "wu"
        assert groups_of(asked) == ["dev", "ops"]
        assert asked.headers["Authorization"] == "Bearer secret-token"
    (await run("list", "--as-group", "dev")).reports(2, "--as-group needs --as")


async def test_a_token_and_a_server_replace_those_of_the_kubeconfig(run: CommandLine) -> None:
    assert (await run("list", "--token", "other", "--server", f"{run.cluster.host}/")).status == 0
    assert run.cluster.asked(PODS)[-1].headers["Authorization"] == "Bearer other"
    gone = await run("list", "--server", "http://127.0.0.1:1")
    assert gone.status == 1
    assert "Traceback" not in gone.err
    (await run("list", "--server", "ftp://x")).reports(1, "https:// or http://")


async def test_a_server_needs_no_kubeconfig(alone: CommandLine, cluster: ScriptedCluster) -> None:
    ended = await alone("list", "--server", cluster.host, "--token", "other")
    assert (ended.status, ended.titles()[0]) == (0, "NAME")
    assert cluster.asked(PODS)[-1].headers["Authorization"] == "Bearer other"
    (await alone("list", "--server", cluster.host, "--context", "lab")).reports(1, "no context lab")
    (await alone("list", "--server", "https://[")).reports(1, "--server")
    (await alone("list")).reports(1, "--sandbox")


async def test_the_console_needs_no_kubeconfig_with_a_server(
    tmp_path: Path, cluster: ScriptedCluster
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    env |= {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    words = [sys.executable, "-P", "-m", "tui", "--server", cluster.host, "--token", "other"]

    def open_console() -> None:
        with Terminal(words, env=env, folder=ROOT) as terminal:
            terminal.wait_for(lambda text: cluster.requests or "sandbox?" in text)
            assert "sandbox?" not in terminal.text
            terminal.send("\x03")
            terminal.wait_for_end()

    await asyncio.to_thread(open_console)
    assert cluster.requests[0].headers["Authorization"] == "Bearer other"


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("NAMESPACE", "vision", f"/api/v1/namespaces/vision/{CLAIMS}"),
        ("ALL_NAMESPACES", "true", f"/api/v1/{CLAIMS}"),
    ],
)
async def test_namespace_flags_are_read_from_environment_variables_and_overridden_by_flags(
    run: CommandLine, name: str, value: str, path: str
) -> None:
    run.set(f"GPUCONSOLE_{name}", value)
    await run("data", "list")
    assert len(run.cluster.asked(path)) == 1
    await run("data", "list", "-n", "default")
    assert len(run.cluster.asked(path)) == 1
    assert run.cluster.asked(f"/api/v1/namespaces/default/{CLAIMS}")


async def test_impersonation_token_readonly_and_timeout_flags_are_read_from_the_environment(
    run: CommandLine,
) -> None:
    run.set("GPUCONSOLE_AS", "wu")
    run.set("GPUCONSOLE_AS_GROUP", "dev,ops")
    run.set("GPUCONSOLE_TOKEN", "other")
    run.set("GPUCONSOLE_READONLY", "1")
    assert (await run("list")).status == 0
    asked = run.cluster.asked(PODS)[-1]
    assert groups_of(asked) == ["dev", "ops"]
    assert asked.headers["Authorization"] == "Bearer other"
    (await run("delete", "running", "--yes")).reports(1, "--readonly")
    run.set("GPUCONSOLE_REQUEST_TIMEOUT", "soon")
    (await run("list")).reports(2, "--request-timeout: 'soon' is not a duration")


async def test_a_kubectl_plugin_prints_its_own_invocation_in_help_and_hints(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/home/li/bin/kubectl-gpuconsole"])
    assert "usage: kubectl gpuconsole " in (await run("list", "--help")).out
    assert "kubectl gpuconsole -n default why fails" in (await run("-n", "default", "wait", "fails")).err
    assert "See kubectl gpuconsole list --help" in (await run("list", "-l", "a in")).err


@pytest.fixture
def config(run: CommandLine) -> Path:
    path = Path(run.home) / "config" / "gpuconsole" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


async def test_list_prints_the_chosen_columns(run: CommandLine, config: Path) -> None:
    config.write_text("columns: {jobs: [gpus, name, {title: TEAM, path: .metadata.labels.team}, duration]}\n")
    wide = (await run("list", "-o", "wide")).out.splitlines()[0].split()
    assert wide == ["GPUS", "NAME", "TEAM", "DURATION"]
    assert (await run("list", "-o", "csv")).out.splitlines()[0] == "gpus,name,TEAM,duration_s"
    assert (await run("list")).out.split()[0] != "GPUS"
    assert "TEAM" not in (await run("list", "-o", "json")).values["items"][0]


async def test_commands_respect_the_context(run: CommandLine, config: Path) -> None:
    config.write_text("contexts: {'*': {readonly: true, namespace: nowhere}}\n")
    refused = await run("delete", "anything", "--yes")
    assert refused.status == 1 and "Changes are disabled by config.yaml in this context." in refused.err
    assert "nowhere" in (await run("list")).err
    assert "nowhere" not in (await run("-n", "default", "list")).err


async def test_a_command_refuses_an_unknown_theme_with_those_there_are(alone: CommandLine) -> None:
    ended = await alone("info", "--theme", "drak")
    ended.reports(2, "There is no theme 'drak'.\nDid you mean dark? There are: dark, light, contrast")
