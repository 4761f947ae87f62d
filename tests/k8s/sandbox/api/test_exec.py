"""Streams of the sandbox: forwarded ports, and commands in containers that leave no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import sys
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.jobs.port_forward import forward
from k8s.sandbox.api.pod_forward import DICTIONARY, POLL_S, TUNNEL_PROTOCOL
from k8s.sandbox.paths import port_socket
from k8s.text.errors import KubeError
from tests.k8s.sandbox.calls import PATIENCE_S, Api, eventually, pod
from tests.k8s.sandbox.containers import Exec, run_exec, waiting_container


@pytest.fixture
async def running(sandbox: Api, tmp_path: Path) -> AsyncIterator[Api]:
    """Make a pod `p` whose container `a` the server takes for running."""
    made = await sandbox.made("pods", pod("p", node="n"))
    folder = tmp_path / "pods" / made["metadata"]["uid"] / "a"
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    async with waiting_container(folder, tmp_path, PATH=path, RANK="3"):
        await set_state(sandbox, {"running": {}})
        yield sandbox


async def set_state(api: Api, state: dict[str, object]) -> None:
    status = {"name": "a", "restartCount": 0, "state": state}
    await api.patch("pods", "p", {"status": {"containerStatuses": [status]}}, subresource="status")


def has_begun(session: Exec) -> bool:
    return b"begun" in session.out[1]


async def ended(pid_file: Path) -> bool:
    return pid_file.exists() and not Path(f"/proc/{pid_file.read_text().strip()}").exists()


async def test_a_command_has_the_environment_of_its_container(running: Api, tmp_path: Path) -> None:
    done = await run_exec(running, "p", ["sh", "-c", "echo $RANK; pwd; echo ${HOME:-none}"])
    assert done.out[1].decode().split() == ["3", str(tmp_path), "none"]
    done = await run_exec(running, "p", ["python", "-c", "import sys; print(sys.prefix)"])
    assert done.out[1].decode().strip() == sys.prefix


async def test_stdin_can_be_closed_before_the_command_ends(running: Api) -> None:
    done = await run_exec(
        running, "p", ["sh", "-c", "cat; echo done"], stdin=b"abc", closes=True, protocol="v5.channel.k8s.io"
    )
    assert (done.out[1], done.status["status"]) == (b"abcdone\n", "Success")


async def test_a_terminal_has_the_size_that_the_client_sends(running: Api) -> None:
    size = json.dumps({"Width": 123, "Height": 45}).encode()
    script = "read word; stty size; test -t 1"
    done = await run_exec(running, "p", ["sh", "-c", script], tty=True, resize=size, stdin=b"go\n")
    assert b"45 123" in done.out[1]
    assert done.status["status"] == "Success"


async def test_a_terminal_passes_control_c_on(running: Api) -> None:
    script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done"
    done = await run_exec(running, "p", ["sh", "-c", script], tty=True, stdin=b"\x03", ready=b"ready")
    assert done.status["details"]["causes"][0]["message"] == "7"


@pytest.mark.parametrize("tty", [False, True])
async def test_commands_are_killed_when_the_client_leaves(running: Api, tmp_path: Path, tty: bool) -> None:
    script = "echo $$ > pid; echo begun; sleep 100 & wait"

    await run_exec(running, "p", ["sh", "-c", script], tty=tty, until=has_begun)
    await eventually(lambda: ended(tmp_path / "pid"))


async def test_children_in_another_process_group_end_with_the_command(running: Api, tmp_path: Path) -> None:
    script = (
        "import subprocess; child = subprocess.Popen(['sleep', '100'], process_group=0); "
        "open('pid', 'w').write(str(child.pid)); print('begun', flush=True); child.wait()"
    )

    await run_exec(running, "p", [sys.executable, "-c", script], until=has_begun)
    await eventually(lambda: ended(tmp_path / "pid"))


@pytest.mark.parametrize("how", ["deleted", "terminated"])
async def test_a_command_ends_with_its_container(running: Api, tmp_path: Path, how: str) -> None:
    running_exec = asyncio.create_task(run_exec(running, "p", ["sh", "-c", "echo $$ > pid; exec sleep 100"]))

    async def begun() -> bool:
        return (tmp_path / "pid").exists()

    await eventually(begun)
    if how == "deleted":
        await running.delete("pods", "p", {"gracePeriodSeconds": 0})
    else:
        await set_state(running, {"terminated": {"exitCode": 0}})
    done = await running_exec
    assert done.status["details"]["causes"][0]["message"] == "137"
    await eventually(lambda: ended(tmp_path / "pid"))


async def test_large_output_arrives_completely(running: Api) -> None:
    done = await run_exec(running, "p", ["sh", "-c", "head -c 5000000 /dev/zero; echo end >&2; exit 9"])
    assert (len(done.out[1]), done.out[2]) == (5_000_000, b"end\n")
    assert done.status["details"]["causes"][0]["message"] == "9"


async def test_exec_without_a_websocket_is_refused(running: Api) -> None:
    path = running.path("pods", "p", "exec")
    for method in ("GET", "POST"):
        answer = await running.call(method, path, command="ls")
        assert (answer.code, "websocket" in answer.body["message"]) == (400, True)
    assert (await running.call("GET", path)).body["message"].startswith("you must specify at least 1 command")


async def test_exec_into_a_waiting_container_is_refused(running: Api) -> None:
    await set_state(running, {"waiting": {"reason": "ContainerCreating"}})
    answer = await running.call("GET", running.path("pods", "p", "exec"), command="ls")
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert 'container not found ("a")' in answer.body["message"]


@pytest.fixture
async def client(sandbox: Api) -> AsyncIterator[Client]:
    reached = ClusterConfig(
        host=sandbox.url,
        context="sandbox",
        namespace=sandbox.namespace,
        user="li",
        api_key={"BearerToken": f"Bearer {sandbox.token}"},
    )
    async with Client(reached) as client:
        yield client


@pytest.fixture
async def forwardable(sandbox: Api) -> Api:
    """Make a pod `p` that the server takes for running."""
    await sandbox.made("pods", pod("p", node="n"))
    await set_phase(sandbox, "Running")
    return sandbox


async def set_phase(api: Api, phase: str) -> None:
    await api.patch("pods", "p", {"status": {"phase": phase}}, subresource="status")


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(65536):
            writer.write(content)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_pods_port_is_reached_by_many_at_once(forwardable: Api, client: Client, echo: int) -> None:
    async def talk(local_port: int, sent: bytes) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", local_port)
        writer.write(sent)
        received = await reader.readexactly(len(sent))
        writer.close()
        return received == sent

    async with asyncio.timeout(PATIENCE_S), forward(client, "p", forwardable.namespace, echo) as opened:
        talks = [talk(opened.local_port, bytes([number]) * 500_000) for number in range(5)]
        assert all(await asyncio.gather(*talks))
        assert opened.bytes_received == 2_500_000


async def test_a_port_without_a_listener_is_reported(forwardable: Api, client: Client, echo: int) -> None:
    async with asyncio.timeout(PATIENCE_S), forward(client, "p", forwardable.namespace, 1) as opened:
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.local_port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        assert "error forwarding port 1 to pod p" in opened.last_error


async def test_a_tensorboard_that_is_still_starting_is_waited_for(
    sandbox: Api, client: Client, tmp_path: Path
) -> None:
    made = pod("p", node="n")
    made["spec"]["containers"][0]["command"] = ["tensorboard"]
    uid = (await sandbox.made("pods", made))["metadata"]["uid"]
    await set_phase(sandbox, "Running")
    path = port_socket(tmp_path / "pods", uid, 6006)
    path.parent.parent.mkdir(parents=True)
    async with asyncio.timeout(PATIENCE_S), forward(client, "p", sandbox.namespace, 6006) as opened:
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.local_port)
        await asyncio.sleep(2 * POLL_S)
        path.parent.mkdir()
        with socket.socket(socket.AF_UNIX) as served:
            # Between `bind` and `listen` there is a file, but connections are refused.
            with contextlib.chdir(path.parent):  # the whole path is too long for a socket's address
                served.bind(path.name)
            await asyncio.sleep(2 * POLL_S)
            served.listen()
            served.setblocking(False)
            reached, _ = await asyncio.get_running_loop().sock_accept(served)
            with reached:
                reached.send(b"ready")
                assert await reader.readexactly(5) == b"ready"
        writer.close()
        # Without the pod's folder nothing is waited for.
        shutil.rmtree(path.parent.parent)
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.local_port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_a_pod_that_does_not_run_has_no_ports(forwardable: Api, client: Client, echo: int) -> None:
    await set_phase(forwardable, "Succeeded")
    with pytest.raises(KubeError, match=r"pod is not running\. Current status=Succeeded"):
        async with forward(client, "p", forwardable.namespace, echo):
            pytest.fail("it does not run")


async def test_invalid_ports_are_refused(forwardable: Api) -> None:
    for ports in ("", "0", "65536", "x", "1,", "-1", "9" * 30, ",".join("1" * 20)):
        answer = await forwardable.call("GET", forwardable.path("pods", "p", "portforward"), ports=ports)
        assert (answer.code, answer.reason) == (400, "BadRequest"), ports
        assert "numbers of ports" in answer.body["message"]


async def test_forwarding_without_a_websocket_is_refused_with_advice(forwardable: Api) -> None:
    for method in ("GET", "POST"):
        answer = await forwardable.call(method, forwardable.path("pods", "p", "portforward"), ports="80")
        assert (answer.code, "websockets only" in answer.body["message"]) == (400, True)
        assert answer.body["message"].endswith("gpuconsole --sandbox forward p PORT")


class SpdyClient:
    """Opens streams in a tunnel as client-go does, and collects what comes back."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.deflate = zlib.compressobj(zdict=DICTIONARY)
        self.inflate = zlib.decompressobj(zdict=DICTIONARY)
        self.received: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.replies: list[tuple[int, bytes]] = []

    async def open(self, stream: int, **headers: str) -> None:
        words = [word.encode() for pair in headers.items() for word in pair]
        text = len(headers).to_bytes(4) + b"".join(len(word).to_bytes(4) + word for word in words)
        block = self.deflate.compress(text) + self.deflate.flush(zlib.Z_SYNC_FLUSH)
        await self.send(0x80030001, stream.to_bytes(4) + bytes(6) + block)

    async def open_pair(self, stream: int, port: int) -> None:
        await self.open(stream, streamtype="error", port=str(port), requestid=str(stream))
        await self.open(stream + 2, streamtype="data", port=str(port), requestid=str(stream))

    async def send(self, kind: int, body: bytes, flags: int = 0) -> None:
        # In pieces, as a client may cut its stream of bytes anywhere.
        frame = kind.to_bytes(4) + bytes([flags]) + len(body).to_bytes(3) + body
        for piece in (frame[:5], frame[5:]):
            await self.socket.send_bytes(piece)

    async def until_ended(self, *streams: int) -> None:
        while not self.ended.issuperset(streams):
            await self.receive()

    async def receive(self) -> None:
        frame = await self.socket.receive_bytes()
        kind, flags, body = int.from_bytes(frame[:4]), frame[4], frame[8:]
        assert int.from_bytes(frame[5:8]) == len(body)
        if kind >> 31:
            self.replies.append((kind & 0xFFFF, body))
            return
        self.received[kind] = self.received.get(kind, b"") + body
        if flags & 1:
            self.ended.add(kind)


@contextlib.asynccontextmanager
async def tunnel(api: Api) -> AsyncIterator[SpdyClient]:
    url, headers = api.url + api.path("pods", "p", "portforward"), {"Authorization": f"Bearer {api.token}"}
    async with (
        asyncio.timeout(PATIENCE_S),
        api.session.ws_connect(url, protocols=[TUNNEL_PROTOCOL], headers=headers, max_msg_size=0) as socket,
    ):
        assert socket.protocol == TUNNEL_PROTOCOL
        yield SpdyClient(socket)


async def test_kubectls_tunnel_carries_several_connections(forwardable: Api, echo: int) -> None:
    async with tunnel(forwardable) as client:
        for stream in (1, 5, 9):
            await client.open_pair(stream, echo)
        for stream in (1, 5, 9):
            for _ in range(10):
                await client.send(stream + 2, bytes([stream]) * 50_000)
            await client.send(stream + 2, b"", flags=1)
        await client.until_ended(1, 3, 5, 7, 9, 11)
        assert {stream: client.received[stream] for stream in (1, 3)} == {1: b"", 3: b"\x01" * 500_000}
        assert (client.received[7], client.received[11]) == (b"\x05" * 500_000, b"\x09" * 500_000)
        assert [(kind, int.from_bytes(body[:4])) for kind, body in client.replies] == [
            (2, stream) for stream in (1, 3, 5, 7, 9, 11)
        ]
        assert client.inflate.decompress(client.replies[0][1][4:]) == bytes(4)
        await client.send(0x80030006, b"ping")
        await client.receive()
        assert client.replies[-1] == (6, b"ping")


async def test_a_connection_that_ends_early_leaves_the_tunnel_to_the_others(
    forwardable: Api, echo: int
) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    deaf = await asyncio.start_server(close, "127.0.0.1", 0)
    async with deaf, tunnel(forwardable) as client:
        await client.open_pair(1, deaf.sockets[0].getsockname()[1])
        for _ in range(200):
            await client.send(3, b"x" * 50_000)
        await client.open_pair(5, 1)
        await client.until_ended(1, 3, 5, 7)
        assert client.received[5].startswith(b"error forwarding port 1 to pod p: ")
        await client.open_pair(9, echo)
        await client.send(0x80030003, (11).to_bytes(4) + (5).to_bytes(4))
        await client.until_ended(9, 11)


@pytest.mark.parametrize(
    "headers",
    [
        {"streamtype": "data", "port": "80", "requestid": "1"},
        {"streamtype": "error", "port": "x", "requestid": "1"},
        {"streamtype": "error", "port": "99999", "requestid": "1"},
        {"streamtype": "error", "port": "80"},
        None,
    ],
    ids=["no error stream", "no number", "no port", "no request", "no zlib"],
)
async def test_a_tunnel_that_violates_the_protocol_is_closed(
    forwardable: Api, headers: dict[str, str] | None
) -> None:
    async with tunnel(forwardable) as client:
        if headers is None:
            await client.send(0x80030001, b"x" * 40)
        else:
            await client.open(1, **headers)
        while (await client.socket.receive()).type is not aiohttp.WSMsgType.CLOSE:
            pass
