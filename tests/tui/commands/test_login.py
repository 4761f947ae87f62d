"""Exec plugins that talk to the user: on the terminal of a command, and in the console."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from k8s.errors import SANDBOX_CONTEXT
from tests import ROOT
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.server import Answer, ScriptedCluster
from tests.support.playground import Playground
from tests.support.terminal import Terminal
from tui.app import Console
from tui.options import ConsoleOptions

VERSION = "/version"
PLUGIN = """
import json, os, pathlib, sys, time
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
sys.stderr.write("Open https://login.lab/device [any browser] and enter KXPQ-7731\\nPIN: ")
sys.stderr.flush()
pin = sys.stdin.readline().strip() if info["spec"]["interactive"] else "none"
while pin == "none" and not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
print(json.dumps({**info, "status": {"token": "pin-" + pin}}))
"""


def kubeconfig(folder: Path, host: str, mode: str) -> str:
    """Write a kubeconfig whose user logs in with a plugin that talks; return its path."""
    words = {
        "command": sys.executable,
        "args": [write(folder / "login.py", PLUGIN), str(folder / "confirmed")],
    }
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": mode, **words}
    return write(folder / "kubeconfig", config(host, {"exec": plugin}))


@pytest.mark.parametrize("mode", ["Always", "IfAvailable"])
async def test_a_command_on_a_terminal_lets_its_login_command_prompt(tmp_path: Path, mode: str) -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(VERSION, Answer({"gitVersion": "v1.36.2", "major": "1", "minor": "36"}))
        env = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": kubeconfig(tmp_path, cluster.host, mode)}

        def log_in() -> int:
            with Terminal([sys.executable, "-P", "-m", "tui", "version"], env=env, folder=ROOT) as terminal:
                terminal.wait_for("PIN:")
                assert "enter KXPQ-7731" in terminal.text
                terminal.send("4711\n")
                return terminal.wait_for_end()

        assert await asyncio.to_thread(log_in) == 0
    assert cluster.asked(VERSION)[0].headers["Authorization"] == "Bearer pin-4711"


async def test_a_login_command_that_needs_a_terminal_names_the_line_to_run(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "KUBECONFIG": kubeconfig(tmp_path, "http://127.0.0.1:9", "Always"),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tui", "list", "-n", "rack 7"),
        cwd=ROOT, env=env, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    errors = (await process.communicate())[1].decode()
    assert process.returncode == 1
    assert errors.endswith("Run it on a terminal: gpuconsole list -n 'rack 7'\n")


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_the_console_shows_the_lines_of_the_login_command_while_it_connects(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with ScriptedCluster() as cluster:
        path = kubeconfig(tmp_path, cluster.host, "IfAvailable")
        console = Console(
            ConsoleOptions(
                kubeconfig=path, state_folder=tmp_path / "state", config_folder=tmp_path / "config"
            )
        )
        async with console.run_test(size=size) as pilot:
            play = Playground(cluster, pilot, {})
            await play.until(lambda: "KXPQ-7731" in play.text and "PIN:" in play.text)
            assert "https://login.lab/device [any browser]" in " ".join(play.text.split())
            assert console.snapshot.context != SANDBOX_CONTEXT
            (tmp_path / "confirmed").touch()
            await play.until(lambda: console.session is not None)
            assert play.session.client.config.authorization() == "Bearer pin-none"
            assert "KXPQ-7731" not in play.text


@pytest.mark.end_to_end
async def test_the_console_lends_its_terminal_to_a_login_command_that_needs_one(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        env = {
            **os.environ,
            "HOME": str(tmp_path),
            "KUBECONFIG": kubeconfig(tmp_path, cluster.host, "Always"),
        }

        def log_in() -> None:
            with Terminal([sys.executable, "-P", "-m", "tui"], env=env, folder=ROOT) as terminal:
                terminal.wait_for("PIN:")
                terminal.send("4711\r")
                terminal.wait_for("? help")
                terminal.send("\x03")
                terminal.wait_for_end()

        await asyncio.to_thread(log_in)
    assert cluster.requests[0].headers["Authorization"] == "Bearer pin-4711"
