"""Ports of the sandbox's pods, which are this machine's: reached as on any cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.jobs.port_forward import forward
from tests.k8s.sandbox.calls import PATIENCE_S, Api, pod


@pytest.fixture
async def client(sandbox: Api) -> AsyncIterator[Client]:
    """A client of the sandbox."""
    reached = ClusterConfig(
        host=sandbox.url,
        context="sandbox",
        namespace=sandbox.namespace,
        user="li",
        api_key={"BearerToken": f"Bearer {sandbox.token}"},
    )
    async with Client(reached) as found:
        yield found


@pytest.fixture
async def running(sandbox: Api) -> Api:
    """A pod `p` that runs as far as the server can tell."""
    await sandbox.made("pods", pod("p", node="n"))
    await set_phase(sandbox, "Running")
    return sandbox


async def set_phase(api: Api, phase: str) -> None:
    await api.patch("pods", "p", {"status": {"phase": phase}}, subresource="status")


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """A program that says back what it hears; its port."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(65536):
            writer.write(content)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_pods_port_is_reached_by_many_at_once(running: Api, client: Client, echo: int) -> None:
    async def talk(local_port: int, sent: bytes) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", local_port)
        writer.write(sent)
        heard = await reader.readexactly(len(sent))
        writer.close()
        return heard == sent

    async with asyncio.timeout(PATIENCE_S), forward(client, "p", running.namespace, echo) as opened:
        talks = [talk(opened.local_port, bytes([number]) * 500_000) for number in range(5)]
        assert all(await asyncio.gather(*talks))
        assert opened.bytes_received == 2_500_000


async def test_a_port_where_nobody_listens_is_said(running: Api, client: Client, echo: int) -> None:
    async with asyncio.timeout(PATIENCE_S), forward(client, "p", running.namespace, 1) as opened:
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.local_port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        assert "error forwarding port 1 to pod p" in opened.last_error


async def test_a_pod_that_does_not_run_has_no_ports(running: Api, client: Client, echo: int) -> None:
    await set_phase(running, "Succeeded")
    with pytest.raises(KubeError, match=r"pod is not running\. Current status=Succeeded"):
        async with forward(client, "p", running.namespace, echo):
            pytest.fail("it does not run")


@pytest.mark.parametrize("ports", ["", "0", "65536", "x", "1,", "-1", "9" * 30, ",".join("1" * 20)])
async def test_what_is_no_port_is_refused(running: Api, ports: str) -> None:
    answer = await running.call("GET", running.path("pods", "p", "portforward"), ports=ports)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert "numbers of ports" in answer.body["message"]


async def test_a_client_without_websockets_is_told(running: Api) -> None:
    for method in ("GET", "POST"):
        answer = await running.call(method, running.path("pods", "p", "portforward"), ports="80")
        assert (answer.code, "websockets only" in answer.body["message"]) == (400, True)
