"""Commands and files in containers: bytes both ways, their end, and every way in which that fails."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.client import session
from k8s.client.client import Client
from k8s.jobs import exec
from k8s.jobs.pod_files import _READ, RemoteFile, _list_script, list_files, local_folder, read_from
from k8s.text.errors import ExecFailed, Forbidden, Invalid, KubeError, NotFound, ServerFailed, Unreachable
from tests.scripted.server import SUCCESS, V4, WAIT_S, Answer, ScriptedCluster, Socket, Speaker, Talk, refusal

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


CLAIM = "/api/v1/namespaces/ns/persistentvolumeclaims/workspace"


async def test_event_files_are_listed_with_their_sizes() -> None:
    endless = b"9" * 5000 + b" /logs/c/events.out.tfevents.3\n"
    lines = endless + b" 12 /logs/b/events.out.tfevents.2\n340 /logs/a b/events.out.tfevents.1\n352 total\n"
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Socket([(1, lines[:30]), (1, lines[30:]), SUCCESS]))
        assert await list_files(client, "a", "ns", "/logs", ["*tfevents*"], container="main") == [
            RemoteFile("/logs/a b/events.out.tfevents.1", 340),
            RemoteFile("/logs/b/events.out.tfevents.2", 12),
        ]


async def test_bytes_from_the_offset_are_returned_unchanged() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Socket([(1, b"\x00\xff"), (1, b"\r\n"), SUCCESS]))
        assert await read_from(client, "a", "ns", "/logs/it's $HOME", 7) == b"\x00\xff\r\n"


async def test_the_shell_script_reads_any_file_from_any_offset(tmp_path: Path) -> None:
    file = tmp_path / "it's $(odd) -n"
    file.write_bytes(bytes(range(256)) * 10)
    for offset, most, found in ((0, 5, 5), (2555, 100, 5), (2560, 100, 0), (9999, 100, 0)):
        words = ["-c", _READ, "sh", str(file), str(offset + 1), str(most)]
        shell = await asyncio.create_subprocess_exec("sh", *words, stdout=asyncio.subprocess.PIPE)
        output, _ = await shell.communicate()
        assert (output, shell.returncode) == (file.read_bytes()[offset : offset + found], 0)
    words = ["-c", _READ, "sh", str(tmp_path / "gone"), "1", "5"]
    shell = await asyncio.create_subprocess_exec("sh", *words, stderr=asyncio.subprocess.PIPE)
    _, errors = await shell.communicate()
    assert shell.returncode != 0
    assert b"gone" in errors


@pytest.mark.parametrize("tools", ["coreutils", "busybox"])
async def test_the_shell_script_follows_links_and_ends_in_loops(tmp_path: Path, tools: str) -> None:
    env = {"PATH": os.environ["PATH"]}
    if tools == "busybox":
        if (busybox := shutil.which("busybox")) is None:
            pytest.skip("there is no busybox")
        (tmp_path / "bin").mkdir()
        for name in ("sh", "find", "wc"):
            (tmp_path / "bin" / name).symlink_to(busybox)
        env = {"PATH": str(tmp_path / "bin")}
    top, far = tmp_path / "log dir", tmp_path / "far"
    for folder, size in (
        (top / "own", 3),
        (far / "exp 7*", 4),
        (far / "deep/er", 5),
        (tmp_path / "other", 6),
    ):
        folder.mkdir(parents=True)
        (folder / "events.out.tfevents.1").write_bytes(b"x" * size)
        (folder / "model.pt").write_bytes(b"x")
    links = {
        top / "linked": far / "exp 7*",
        top / "again": far / "exp 7*",
        top / "up": top.parent,
        top / "self": top,
        top / "root": Path("/"),
        top / "gone": tmp_path / "nowhere",
        top / "own/model.tfevents": far / "deep/er/model.pt",
        top / "own/folder.tfevents": far / "deep",
        far / "exp 7*/back": top,
        far / "exp 7*/next": tmp_path / "other",
        tmp_path / "other/round": tmp_path / "other",
    }
    for link, target in links.items():
        link.symlink_to(target)
    words = ["-c", _list_script(["*tfevents*"]), "sh"]
    pipe = asyncio.subprocess.PIPE
    shell = await asyncio.create_subprocess_exec("sh", *words, str(top), stdout=pipe, env=env)
    output, _ = await shell.communicate()
    lines = (line.strip().partition(" ") for line in output.decode().splitlines())
    found = {path.removeprefix(f"{top}/"): int(size) for size, _, path in lines if path.startswith("/")}
    first = next(name for name in ("linked", "again") if f"{name}/events.out.tfevents.1" in found)
    assert (shell.returncode, found) == (
        0,
        {
            "own/events.out.tfevents.1": 3,
            "own/model.tfevents": 1,
            "own/folder.tfevents/er/events.out.tfevents.1": 5,
            f"{first}/events.out.tfevents.1": 4,
            f"{first}/next/events.out.tfevents.1": 6,
        },
    )
    shell = await asyncio.create_subprocess_exec("sh", *words, f"{top}/none", stderr=pipe, env=env)
    _, errors = await shell.communicate()
    assert shell.returncode != 0 and b"No such file" in errors


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([(2, b"find: /logs: No such file or directory\n"), (3, b'{"status": "Failure"}')], "No such file"),
        ([(3, b'{"status": "Failure", "message": "command terminated with exit code 1"}')], "exit code 1"),
        ([(1, b"half")], "The connection broke"),
        ([(3, b"nonsense")], "nonsense"),
        ([(3, b"[]")], "The connection broke"),
        ([(3, b"")], "The connection broke"),
        ([(2, b"x" * 100_000 + b"the end"), (3, b'{"status": "Failure"}')], "the end"),
    ],
)
async def test_a_failed_command_reports_the_reason(frames: list[tuple[int, bytes]], words: str) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, Socket(frames))
        with pytest.raises(ExecFailed, match=words) as caught:
            await client.run("a", "ns", ["find"])
    assert len(str(caught.value)) < 1000


async def test_a_command_that_falls_silent_is_given_up() -> None:
    async with ScriptedCluster() as cluster, cluster.client(request_s=0.1) as client:
        cluster.say(EXEC, Socket([(1, b"half")], is_left_open=True))
        with pytest.raises(Unreachable, match="in time"):
            await client.run("a", "ns", ["cat"])


async def test_a_forbidden_command_raises_the_server_message() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EXEC, refusal(403, "cannot create pods/exec"))
        with pytest.raises(KubeError, match="cannot create pods/exec"):
            await client.run("a", "ns", ["cat"])


def template(*mounts: dict[str, Any]) -> dict[str, Any]:
    volumes = [
        {"name": "w", "persistentVolumeClaim": {"claimName": "workspace"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "e", "emptyDir": {}},
    ]
    return {"spec": {"volumes": volumes, "containers": [{"volumeMounts": list(mounts)}, {"name": "sidecar"}]}}


async def folder_of(root: Path | None, path: str, *mounts: dict[str, Any]) -> Path | None:
    annotations = {"gpuconsole.dev/path": str(root)} if root else None
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(CLAIM, Answer({"metadata": {"annotations": annotations}}))
        return await local_folder(client, template(*mounts), "ns", path)


async def test_a_path_on_a_mounted_claim_resolves_to_the_local_folder(tmp_path: Path) -> None:
    at = {"name": "w", "mountPath": "/workspace/"}
    assert await folder_of(tmp_path, "/workspace/logs/x", at) == tmp_path / "logs" / "x"
    assert await folder_of(tmp_path, "/workspace", at) == tmp_path
    assert await folder_of(tmp_path, "/workspaces/logs", at) is None
    assert await folder_of(tmp_path, "/elsewhere", at) is None
    assert await folder_of(None, "/workspace/logs", at) is None
    assert await folder_of(tmp_path / "gone", "/workspace/logs", at) is None


async def test_a_sub_path_is_resolved_below_the_volume_root(tmp_path: Path) -> None:
    at = {"name": "w", "mountPath": "/logs", "subPath": "team/li"}
    assert await folder_of(tmp_path, "/logs/x", at) == tmp_path / "team" / "li" / "x"


async def test_the_nearest_mount_decides(tmp_path: Path) -> None:
    outer, inner = {"name": "d", "mountPath": "/w"}, {"name": "w", "mountPath": "/w/logs"}
    assert await folder_of(tmp_path, "/w/logs/x", outer, inner) == tmp_path / "x"
    assert await folder_of(tmp_path, "/w/logs/x", inner, outer) == tmp_path / "x"
    hidden = {"name": "e", "mountPath": "/w/logs/x"}
    assert await folder_of(tmp_path, "/w/logs/x/y", inner, hidden) is None


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/w/../../etc", {"mountPath": "/w"}),
        ("/w/x", {"mountPath": "/w", "subPath": "../../etc"}),
        ("/w/x", {"mountPath": "/w", "subPath": "/etc"}),
        ("/w/x", {"mountPath": "/w", "subPathExpr": "$(POD_NAME)"}),
    ],
)
async def test_nothing_outside_a_volume_is_read(tmp_path: Path, path: str, mount: dict[str, Any]) -> None:
    assert await folder_of(tmp_path, path, {"name": "w", **mount}) is None


async def test_a_missing_claim_has_no_local_folder() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        at = {"name": "w", "mountPath": "/w"}
        assert await local_folder(client, template(at), "ns", "/w/logs") is None
        assert await local_folder(client, {}, "ns", "/w/logs") is None
