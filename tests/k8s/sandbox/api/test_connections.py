"""Limits on connections to the sandbox's server, for this user and for others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from k8s.sandbox.api.http.certificate import server_context
from k8s.sandbox.api.http.connections import MAX_OF_OTHERS, Connections, uid_of_peer
from tests.k8s.sandbox.calls import Api, config
from tests.support import second_account

FLOOD = """
import select, socket, sys
opened = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) for _ in range(300)]
def closed(each):
    each.settimeout(0.5)
    try:
        return each.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False
print(sum(not closed(each) for each in opened[::-1]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Close everything that the test opens."""
    with ExitStack() as stack:
        yield stack


def port_of(api: Api) -> int:
    port = urlsplit(api.url).port
    assert port
    return port


def connect(port: int, opened: ExitStack) -> socket.socket:
    connection = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
    connection.setblocking(False)
    return connection


async def until_closed(connection: socket.socket) -> None:
    """Wait until the peer has closed a connection."""
    try:
        async with asyncio.timeout(20):
            while await asyncio.get_running_loop().sock_recv(connection, 4096):
                pass
    except ConnectionError:
        return


@second_account.only_root
async def test_connections_of_other_users_are_recognised(sandbox: Api) -> None:
    with socket.socket() as listening, ExitStack() as opened:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        connect(port, opened)
        ours = opened.enter_context(listening.accept()[0])
        program = (
            "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
        )
        other = opened.enter_context(second_account.start(program, str(port)))
        theirs = opened.enter_context(listening.accept()[0])
        assert (uid_of_peer(ours), uid_of_peer(theirs)) == (0, second_account.NOBODY)
        theirs.close()
        other.wait()
        assert uid_of_peer(theirs) is None


@second_account.only_root
async def test_another_user_cannot_take_all_connections(sandbox: Api) -> None:
    with second_account.start(FLOOD, str(port_of(sandbox))) as flood:
        assert flood.stdout is not None and flood.stdin is not None
        held = int(await asyncio.to_thread(flood.stdout.readline))
        assert held <= MAX_OF_OTHERS
        assert (await sandbox.get("configmaps")).code == 200
        assert (await sandbox.create("configmaps", config("c"))).code == 201
        flood.stdin.close()


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nA: "], ids=["silent", "half a header"])
async def test_connections_without_a_request_are_closed(
    tmp_path: Path, opened: ExitStack, sent: bytes, has_tls: bool
) -> None:
    tls = server_context(tmp_path)[0] if has_tls else None
    connections = Connections(asyncio.Protocol, tls, unproven_s=0.2)
    port = connections.listen("127.0.0.1", 0)
    connection = connect(port, opened)
    connection.send(sent)
    await until_closed(connection)
    await connections.close()


async def test_connections_with_the_token_may_stay_idle(opened: ExitStack) -> None:
    protocols: list[asyncio.Protocol] = []

    def protocol() -> asyncio.Protocol:
        protocols.append(asyncio.Protocol())
        return protocols[-1]

    connections = Connections(protocol, None, unproven_s=0.2)
    port = connections.listen("127.0.0.1", 0)
    proven = connect(port, opened)
    while not protocols:
        await asyncio.sleep(0)
    connections.prove(protocols[0])
    await until_closed(connect(port, opened))
    with pytest.raises(BlockingIOError):
        proven.recv(1)
    await connections.close()


async def test_at_the_limit_the_oldest_unproven_connection_is_closed(opened: ExitStack) -> None:
    protocols: list[asyncio.Protocol] = []

    def protocol() -> asyncio.Protocol:
        protocols.append(asyncio.Protocol())
        return protocols[-1]

    connections = Connections(protocol, None, unproven_s=60.0, most=3)
    port = connections.listen("127.0.0.1", 0)
    held = []
    for number in range(4):
        held.append(connect(port, opened))
        while len(protocols) <= number:
            await asyncio.sleep(0)
        if number == 0:
            connections.prove(protocols[0])
    await until_closed(held[1])
    for each in (held[0], held[2], held[3]):
        with pytest.raises(BlockingIOError):
            each.recv(1)
    for made in protocols:
        connections.prove(made)
    await until_closed(connect(port, opened))
    await connections.close()


async def test_requests_without_the_token_are_refused_and_closed(sandbox: Api, opened: ExitStack) -> None:
    connection = connect(port_of(sandbox), opened)
    connection.send(b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(5):
        answer = b""
        while chunk := await asyncio.get_running_loop().sock_recv(connection, 4096):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_many_connections_at_once_stay_within_the_limit(opened: ExitStack) -> None:
    connections = Connections(asyncio.Protocol, None, unproven_s=60.0, most=2)
    port = connections.listen("127.0.0.1", 0)
    held = [connect(port, opened) for _ in range(6)]
    for each in held[:4]:
        await until_closed(each)
    for each in held[4:]:
        with pytest.raises(BlockingIOError):
            each.recv(1)
    await connections.close()
