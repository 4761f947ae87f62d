"""Commands in containers: bytes both ways, their end, and every way in which that fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import WSMsgType
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.client import session
from k8s.client.client import Client
from k8s.jobs import exec
from k8s.text.errors import Forbidden, Invalid, KubeError, NotFound, ServerFailed, Unreachable
from tests.scripted.server import V4, WAIT_S, Answer, ScriptedCluster, Speaker, Talk, refusal

EXEC = "/api/v1/namespaces/ns/pods/a/exec"
Speak = Callable[[Speaker], Awaitable[None]]
Output = list[tuple[int, bytes]]


async def run(client: Client, **how: Any) -> tuple[Output, int | None]:
    """Run a command to its end; return what it wrote, and its exit code."""
    async with asyncio.timeout(WAIT_S), exec.start(client, "a", "ns", ["sh"], **how) as command:
        output = [piece async for piece in command.output()]
        return output, command.exit_code


async def say(speaker: Speaker, *frames: tuple[int, bytes]) -> None:
    for channel, content in frames:
        await speaker.say(channel, content)


async def run_against(speak: Speak, **how: Any) -> tuple[Output, int | None]:
    """Run a command that a function plays."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Talk(speak))
        return await run(client, **how)


async def test_bytes_go_both_ways_and_the_input_can_end() -> None:
    async def cat(speaker: Speaker) -> None:
        async for channel, content in speaker.heard():
            if channel == exec.CLOSE:
                assert content == bytes([exec.STDIN])
                break
            await speaker.say(exec.STDOUT, content)
        await speaker.say(exec.STDERR, b"oops")
        await speaker.end()

    sent = bytes(range(256)) * 1000
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Talk(cat))
        async with exec.start(client, "a", "ns", ["cat"]) as command:
            assert command.can_end_input
            await command.write(sent)
            await command.end_input()
            output = [piece async for piece in command.output()]
    assert b"".join(content for channel, content in output if channel == exec.STDOUT) == sent
    assert output[-1] == (exec.STDERR, b"oops")
    assert command.exit_code == 0


async def test_end_of_input_is_not_sent_on_the_v4_channel_protocol() -> None:
    heard: Output = []

    async def old(speaker: Speaker) -> None:
        heard.append(await speaker.hear())
        await speaker.end()

    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Talk(old, (V4,)))
        async with exec.start(client, "a", "ns", ["cat"]) as command:
            assert not command.can_end_input
            await command.end_input()
            await command.write(b"x")
            assert [piece async for piece in command.output()] == []
    assert heard == [(exec.STDIN, b"x")]


async def test_exec_options_become_query_parameters() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Talk(lambda speaker: speaker.end()))
        for how in ({"has_terminal": True, "container": "main"}, {"has_input": False}):
            await run(client, **how)
        asked = [request.query for request in cluster.asked(EXEC)]
    assert asked == [
        {"command": "sh", "stdin": "true", "stdout": "true", "tty": "true", "container": "main"},
        {"command": "sh", "stdout": "true", "stderr": "true"},
    ]


async def test_a_terminal_resize_is_sent() -> None:
    async def tell(speaker: Speaker) -> None:
        channel, content = await speaker.hear()
        await speaker.say(exec.STDOUT, bytes([channel]) + content)
        await speaker.end()

    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Talk(tell))
        async with exec.start(client, "a", "ns", ["sh"], has_terminal=True) as command:
            await command.resize(120, 40)
            ((_, output),) = [piece async for piece in command.output()]
    assert output[0] == exec.RESIZE
    assert json.loads(output[1:]) == {"Width": 120, "Height": 40}


async def test_output_chunks_are_kept_and_empty_or_unknown_ones_are_dropped() -> None:
    async def split(speaker: Speaker) -> None:
        await say(speaker, (1, b""), (1, b"\xc3"), (2, b""), (9, b"?"), (1, b"\xa9"))
        await speaker.socket.send_str("\x01text")
        await speaker.end()

    assert await run_against(split) == ([(1, b"\xc3"), (1, b"\xa9"), (1, b"text")], 0)


async def test_an_exit_status_split_over_several_messages_gives_the_exit_code() -> None:
    cause = {"reason": "ExitCode", "message": "137"}
    status = json.dumps({"status": "Failure", "details": {"causes": [cause]}}).encode()

    async def fail(speaker: Speaker) -> None:
        await say(speaker, (1, b"x"), (3, status[:20]), (3, status[20:]))
        await speaker.hear()  # nobody has to close for the end to be noticed

    assert await run_against(fail) == ([(1, b"x")], 137)


@pytest.mark.parametrize(
    "status",
    [
        {"status": "Failure", "message": 'exec: "zsh": not found', "reason": "InternalError"},
        {"status": "Failure", "message": "not found", "details": None},
        {"status": "Failure", "message": "not found", "details": {"causes": "no"}},
        {"status": "Failure", "message": "not found", "details": {"causes": [1, {"reason": "ExitCode"}]}},
    ],
)
async def test_a_command_that_fails_to_start_raises_the_server_message(status: dict[str, Any]) -> None:
    with pytest.raises(ServerFailed, match="not found"):
        await run_against(lambda speaker: speaker.end(**status))


@settings(max_examples=50)
@given(st.binary(max_size=300))
async def test_any_end_is_a_code_or_an_error(ending: bytes) -> None:
    async def end(speaker: Speaker) -> None:
        await speaker.say(exec.ENDED, ending)

    try:
        _, code = await run_against(end)
    except KubeError:
        return
    assert code == 0


async def test_a_connection_that_ends_before_the_command_is_an_error() -> None:
    async def close(speaker: Speaker) -> None:
        await speaker.say(exec.STDOUT, b"half")

    async def drop(speaker: Speaker) -> None:
        await speaker.say(exec.STDOUT, b"half")
        speaker.drop()

    async def crash(speaker: Speaker) -> None:
        await speaker.socket.close(code=1011)

    for speak in (close, drop, crash):
        with pytest.raises(Unreachable):
            await run_against(speak)


async def test_a_server_that_stops_answering_pings_is_detected() -> None:
    async def freeze(speaker: Speaker) -> None:
        while not speaker.socket.closed:
            await speaker.socket.receive()

    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Talk(freeze, is_ponging=False))
        with pytest.raises(Unreachable, match="did not answer in time"):
            await run(client, ping_s=0.05)


@pytest.mark.slow
async def test_a_silent_server_that_answers_pings_is_waited_for() -> None:
    async def quiet(speaker: Speaker) -> None:
        for _ in range(2):
            message = await speaker.socket.receive()
            assert message.type is WSMsgType.PING
            await speaker.socket.pong(message.data)
        await speaker.socket.ping(b"and you?")
        while (message := await speaker.socket.receive()).type is WSMsgType.PING:
            await speaker.socket.pong(message.data)
        assert (message.type, message.data) == (WSMsgType.PONG, b"and you?")
        await speaker.end()

    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Talk(quiet, is_ponging=False))
        assert await run(client, ping_s=2.0) == ([], 0)


async def test_a_server_that_keeps_sending_does_not_block_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flood(speaker: Speaker) -> None:
        while True:
            await speaker.say(exec.STDOUT, bytes(100_000))

    monkeypatch.setattr(session, "CLOSE_S", 0.1)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Talk(flood))
        async with asyncio.timeout(WAIT_S), exec.start(client, "a", "ns", ["yes"]) as command:
            await anext(command.output())


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (refusal(403, 'user "li" cannot get pods/exec', "Forbidden"), Forbidden, "cannot get pods/exec"),
        (refusal(404, 'pods "a" not found', "NotFound"), NotFound, 'pods "a" not found'),
        (refusal(500, "container not running"), ServerFailed, "container not running"),
        (refusal(400, "container zz is not valid for pod a", "BadRequest"), Invalid, "zz is not valid"),
        (refusal(400, "Upgrade request required", "BadRequest"), Invalid, "does not pass on websockets"),
        (Answer(b"hello"), Unreachable, "does not pass on websockets"),
    ],
)
async def test_a_refusal_quotes_the_server(reply: Answer, kind: type[KubeError], words: str) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, reply)
        with pytest.raises(kind, match=words):
            await run(client)
