"""Shells and ports of the sandbox's pods, by the command line and from a terminal."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from k8s.jobs.port_forward import forward
from k8s.models.resources import JOBS, PODS
from k8s.sandbox.node.nodes import Ports
from tests.k8s.sandbox.live.running import PATIENCE_S, Space, batch_job, phase, pod
from tests.support.shell_app import InTerminal
from tests.support.terminal import Terminal

SERVE = """
import http.server, sys
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""


@pytest.mark.slow
async def test_the_console_gives_its_terminal_to_a_pod_and_comes_back(space: Space) -> None:
    await space.create(PODS, pod("shelled", "sleep", "600"))
    await space.comes(PODS, "shelled", phase("Running"))

    def use() -> None:
        with InTerminal(str(space.kubeconfig), space.name, "shelled") as terminal:
            terminal.wait_for("no shell yet")
            terminal.send("s")
            terminal.wait_for("-- shelled: exit or ctrl+d ends it")
            terminal.send("stty size; echo $((40 + 2))\r")
            terminal.wait_for("24 80")
            terminal.wait_for("42")
            terminal.resize(100, 30)
            terminal.send("until stty size | grep '30 100'; do sleep 0.1; done; exit 7\r")
            terminal.wait_for("ended with 7")
            terminal.send("x")
            screen = terminal.wait_for("keys 1")
            assert "went on" in screen
            assert "stty" not in screen

    await asyncio.to_thread(use)


@pytest.mark.slow
async def test_the_command_line_opens_a_shell_in_a_job(space: Space) -> None:
    await space.create(JOBS, batch_job("worked", "sleep", "600"))
    await space.comes(JOBS, "worked", lambda job: (job.get("status") or {}).get("active"))
    found = await space.objects(PODS, label_selector="batch.kubernetes.io/job-name=worked")
    await space.comes(PODS, found[0]["metadata"]["name"], phase("Running"))
    words = [sys.executable, "-P", "-m", "tui", "shell", "worked"]

    def use() -> None:
        with Terminal([*words, *space.options], columns=80, lines=24) as terminal:
            before = terminal.attributes
            terminal.wait_for("exit or ctrl+d ends it")
            terminal.send("echo $((40 + 2)); exit 3\r")
            assert terminal.wait_for_end() == 3
            assert "42" in terminal.text
            assert terminal.attributes == before

    await asyncio.to_thread(use)


async def test_a_web_server_in_a_pod_is_reached_until_the_pod_is_gone(space: Space) -> None:
    port = Ports().of("this test")
    await space.create(PODS, pod("serving", "python", "-c", SERVE, str(port)))
    await space.comes(PODS, "serving", phase("Running"))
    async with asyncio.timeout(PATIENCE_S), forward(space.client, "serving", space.name, port) as opened:

        async def fetch() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", opened.local_port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        while not (answer := await fetch()):  # it runs, but does not listen yet
            await asyncio.sleep(0.05)
        assert b"200 OK" in answer
        await space.delete(PODS, "serving", grace_period_s=0)
        while await fetch():
            await asyncio.sleep(0.05)
        assert opened.last_error


@pytest.mark.slow
async def test_a_signal_ends_a_shell_and_restores_the_terminal(space: Space) -> None:
    await space.create(JOBS, batch_job("signalled", "sleep", "600"))
    await space.comes(JOBS, "signalled", lambda job: (job.get("status") or {}).get("active"))
    found = await space.objects(PODS, label_selector="batch.kubernetes.io/job-name=signalled")
    await space.comes(PODS, found[0]["metadata"]["name"], phase("Running"))
    words = [sys.executable, "-P", "-m", "tui", "shell", "signalled"]

    def use() -> None:
        with Terminal([*words, *space.options], columns=80, lines=24) as terminal:
            before = terminal.attributes
            terminal.wait_for("exit or ctrl+d ends it")
            terminal.wait_for(lambda _: terminal.is_raw)
            terminal.signal(signal.SIGTERM)
            assert terminal.wait_for_end() == 143
            assert terminal.attributes == before

    await asyncio.to_thread(use)
