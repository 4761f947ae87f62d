"""Connections to the sandbox's server: this user's are served, those of others are closed."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

from k8s.sandbox.api.http.listening import listen, uid_of_peer
from tests.k8s.sandbox.calls import Api, config
from tests.support import second_account

FLOOD = """
import socket, sys
opened = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) for _ in range(300)]
def is_closed(each):
    try:
        return each.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False
print(all(map(is_closed, opened)), flush=True)
"""


def port_of(api: Api) -> int:
    port = urlsplit(api.url).port
    assert port
    return port


def test_our_own_connections_are_recognised() -> None:
    with listen("127.0.0.1", 0) as listening, ExitStack() as opened:
        opened.enter_context(socket.create_connection(listening.getsockname()))
        ours, _ = listening.accept()
        opened.enter_context(ours)
        assert uid_of_peer(ours) in (os.getuid(), None)


@second_account.only_root
async def test_another_user_cannot_hold_connections(sandbox: Api) -> None:
    flood = asyncio.create_task(asyncio.to_thread(second_account.said, FLOOD, str(port_of(sandbox))))
    assert (await sandbox.get("configmaps")).code == 200
    assert await flood == "True\n"
    assert (await sandbox.create("configmaps", config("c"))).code == 201


async def test_requests_without_the_token_are_refused_and_closed(sandbox: Api) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(sandbox))
    writer.write(b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(5):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 401 ")
    writer.close()
