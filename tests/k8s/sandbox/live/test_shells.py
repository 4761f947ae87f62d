"""Shells and ports of the sandbox's pods, and what other users of the machine can reach of them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from k8s.jobs.port_forward import forward
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.models.resources import JOBS, PODS
from k8s.sandbox.node.nodes import Ports
from tests.k8s.sandbox.live.running import (
    PATIENCE_S,
    Space,
    batch_job,
    has,
    listening_sockets,
    marked,
    phase,
    pod,
    pytorch_job,
)
from tests.support import second_account
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


async def shell_into(space: Space, name: str, use: Callable[[Terminal], None]) -> None:
    """Open a shell in a new job by the command line, and check that it leaves its terminal as it was."""
    await space.create(JOBS, batch_job(name, "sleep", "600"))
    await space.comes(JOBS, name, lambda job: (job.get("status") or {}).get("active"))
    found = await space.objects(PODS, label_selector=f"batch.kubernetes.io/job-name={name}")
    await space.comes(PODS, found[0]["metadata"]["name"], phase("Running"))
    words = [sys.executable, "-P", "-m", "tui", "shell", name, *space.options]

    def run() -> None:
        with Terminal(words, columns=80, lines=24) as terminal:
            before = terminal.attributes
            terminal.wait_for("exit or ctrl+d ends it")
            use(terminal)
            assert terminal.attributes == before

    await asyncio.to_thread(run)


@pytest.mark.slow
async def test_the_command_line_opens_a_shell_in_a_job(space: Space) -> None:
    def use(terminal: Terminal) -> None:
        terminal.send("echo $((40 + 2)); exit 3\r")
        assert terminal.wait_for_end() == 3
        assert "42" in terminal.text

    await shell_into(space, "worked", use)


@pytest.mark.slow
async def test_a_signal_ends_a_shell_and_restores_the_terminal(space: Space) -> None:
    def use(terminal: Terminal) -> None:
        terminal.wait_for(lambda _: terminal.is_raw)
        terminal.signal(signal.SIGTERM)
        assert terminal.wait_for_end() == 143

    await shell_into(space, "signalled", use)


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


RANKS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", int(total), "port", os.environ["MASTER_PORT"], flush=True)
while not os.path.exists(os.environ["RELEASE"]):
    time.sleep(0.05)
dist.destroy_process_group()
"""
KNOCK = """
import socket, sys
for address, port in (word.split(":") for word in sys.argv[1:]):
    try:
        socket.create_connection((address, int(port)), timeout=5).close()
    except OSError as error:
        print(type(error).__name__)
    else:
        print("open")
"""


def own_address() -> str:
    """Return an address of this machine that others can reach; empty when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


@pytest.mark.slow
async def test_the_ranks_of_a_job_listen_on_loopback_only(space: Space, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    release = tmp_path / "release"
    (tmp_path / "ranks.py").write_text(RANKS)
    command = ("torchrun", str(tmp_path / "ranks.py"))
    job = pytorch_job("local", *command, env={"MARK": space.name, "RELEASE": str(release)})
    await space.create(PYTORCH_JOBS, job)
    try:
        await space.comes(PYTORCH_JOBS, "local", has("Running"))
        said = await space.says("local-master-0", "sum 2 port ")
        found = listening_sockets(marked(space.name))
        assert {str(address) for address, _ in found} == {"127.0.0.1"}
        outside = own_address()
        port = int(said.split("port ")[1].split()[0])
        assert port not in {number for _, number in found}, "they meet at a file"
        if os.geteuid() == 0:
            assert second_account.said(KNOCK, f"127.0.0.1:{port}").split() == ["ConnectionRefusedError"]
        if os.geteuid() == 0 and outside:
            words = [f"{outside}:{port}" for _, port in found]
            answers = second_account.said(KNOCK, *words).split()
            assert set(answers) == {"ConnectionRefusedError"}
    finally:
        release.touch()
    await space.comes(PYTORCH_JOBS, "local", has("Succeeded"))
