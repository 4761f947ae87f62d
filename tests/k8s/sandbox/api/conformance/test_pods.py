"""Logs and exec: the sandbox and a kubelet must answer the same.

On the real cluster a busybox container runs; on the sandbox the test writes what the node
agent would have written for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.k8s.sandbox.calls import Answer, Api, Object, eventually, pod
from tests.k8s.sandbox.containers import run_exec, waiting_container

LINES = [f"line {number}" for number in range(1, 7)]
LONG = "x" * 40_000
NODE = "real-node-0"


class Pods(msgspec.Struct):
    """Makes pods whose only container prints, waits or fails."""

    api: Api
    root: Path
    containers: AsyncExitStack

    async def run(self, name: str, script: str, *printed: bytes, exit_code: int | None) -> None:
        """Run a pod; wait for its last run to begin, or to end with `exit_code`. Each run has its output."""
        restarts = len(printed) - 1
        wanted = pod(name, node=NODE)
        spec = wanted["spec"]
        spec["containers"][0] |= {
            "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
        }
        spec |= {
            "restartPolicy": "OnFailure" if restarts else "Never",
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "kept", "emptyDir": {}}],
        }
        made = await self.api.made("pods", wanted)
        if not self.api.is_real:
            await self._pretend(made, printed, exit_code)
        key = "running" if exit_code is None else "terminated"

        async def there() -> bool:
            status = (await self.api.get("pods", name)).body.get("status") or {}
            [state] = status.get("containerStatuses") or [{}]
            return key in (state.get("state") or {}) and state["restartCount"] >= restarts

        await eventually(there, 40)

    async def _pretend(self, made: Object, printed: tuple[bytes, ...], exit_code: int | None) -> None:
        folder = self.root / made["metadata"]["uid"] / "a"
        folder.mkdir(parents=True)
        for run, text in enumerate(printed):
            (folder / f"{run}.log").write_bytes(records(text))
        if exit_code is None:
            container = waiting_container(folder, Path("/"), PATH="/usr/bin:/bin")
            await self.containers.enter_async_context(container)
        ended = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}
        status = {
            "name": "a",
            "restartCount": len(printed) - 1,
            "state": {"running": {}} if exit_code is None else ended,
            "lastState": {"terminated": {"exitCode": 1}} if len(printed) > 1 else {},
        }
        patch = {"status": {"phase": "Running", "containerStatuses": [status]}}
        await self.api.patch("pods", made["metadata"]["name"], patch, subresource="status")


def records(text: bytes, moment: str = "") -> bytes:
    moment = moment or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
    encoded = b""
    for line in text.splitlines(keepends=True):
        body, tag = line.rstrip(b"\n"), "F" if line.endswith(b"\n") else "P"
        while len(body) > 16384:
            encoded += f"{moment} stdout P ".encode() + body[:16384] + b"\n"
            body = body[16384:]
        encoded += f"{moment} stdout {tag} ".encode() + body + b"\n"
    return encoded


@pytest.fixture
async def pods(api: Api, tmp_path: Path) -> AsyncIterator[Pods]:
    async with AsyncExitStack() as containers:
        yield Pods(api, tmp_path / "pods", containers)


async def log(api: Api, name: str, **query: str) -> bytes:
    answer = await api.call("GET", api.path("pods", name, "log"), **query)
    assert answer.code == 200, answer.body
    return bytes(answer.body)


def shell_of(lines: list[str]) -> str:
    return "; ".join(f"echo '{line}'" for line in lines)


async def test_logs_are_cut_as_requested(pods: Pods) -> None:
    text = "".join(f"{line}\n" for line in LINES).encode()
    await pods.run("p", shell_of(LINES), text, exit_code=0)
    api = pods.api
    assert await log(api, "p") == text
    assert await log(api, "p", container="a") == text
    assert await log(api, "p", tailLines="2") == b"line 5\nline 6\n"
    assert await log(api, "p", tailLines="0") == b""
    assert await log(api, "p", tailLines="99") == text
    assert await log(api, "p", limitBytes="10") == text[:10]
    assert await log(api, "p", tailLines="2", limitBytes="3") == b"lin"
    assert await log(api, "p", sinceSeconds="3600") == text
    assert await log(api, "p", sinceTime="2001-01-01T00:00:00Z") == text
    assert await log(api, "p", sinceTime="2101-01-01T00:00:00Z") == b""
    assert await log(api, "p", follow="true") == text
    assert await log(api, "p", follow="true", tailLines="1") == b"line 6\n"


async def test_timestamps_precede_each_line(pods: Pods) -> None:
    await pods.run(
        "p",
        f"{shell_of(LINES[:2])}; printf '{LONG}\\n'",
        f"{LINES[0]}\n{LINES[1]}\n{LONG}\n".encode(),
        exit_code=0,
    )
    lines = (await log(pods.api, "p", timestamps="true")).splitlines()
    moments = [datetime.fromisoformat(line.partition(b" ")[0].decode()) for line in lines[:2]]
    assert moments == sorted(moments)
    assert [line.partition(b" ")[2] for line in lines[:2]] == [b"line 1", b"line 2"]


async def test_a_line_longer_than_a_log_record_is_not_split(pods: Pods) -> None:
    await pods.run("p", f"printf '{LONG}\\nshort\\n'", f"{LONG}\nshort\n".encode(), exit_code=0)
    assert await log(pods.api, "p") == f"{LONG}\nshort\n".encode()
    assert await log(pods.api, "p", tailLines="1") == b"short\n"


async def test_bytes_that_are_not_text_are_unchanged(pods: Pods) -> None:
    await pods.run("p", r"printf '\377\376\000a\n'", b"\xff\xfe\0a\n", exit_code=0)
    assert await log(pods.api, "p") == b"\xff\xfe\0a\n"


async def test_the_log_of_a_waiting_container_is_refused(api: Api) -> None:
    waiting = pod("p", node=NODE)
    waiting["spec"]["containers"][0]["image"] = "no-such-image:1"
    await api.made("pods", waiting)
    if not api.is_real:
        state = {"name": "a", "restartCount": 0, "state": {"waiting": {"reason": "ErrImageNeverPull"}}}
        patch = {"status": {"containerStatuses": [state]}}
        await api.patch("pods", "p", patch, subresource="status")

    async def refusal() -> Answer | None:
        answer = await api.call("GET", api.path("pods", "p", "log"))
        return answer if "ErrImageNeverPull" in str(answer.body) else None

    answer: Answer = await eventually(refusal)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.body["message"] == 'container "a" in pod "p" is waiting to start: ErrImageNeverPull'


async def test_the_log_before_the_last_restart_can_be_read(pods: Pods) -> None:
    await pods.run("once", "echo only", b"only\n", exit_code=0)
    answer = await pods.api.call("GET", pods.api.path("pods", "once", "log"), previous="true")
    assert (answer.code, answer.body["message"]) == (
        400,
        'previous terminated container "a" in pod "once" not found',
    )
    script = "test -e /kept/mark && echo second && exec sleep 60; touch /kept/mark; echo first; exit 1"
    await pods.run("again", script, b"first\n", b"second\n", exit_code=None)
    assert await log(pods.api, "again", previous="true") == b"first\n"
    assert await log(pods.api, "again") == b"second\n"


async def test_a_command_runs_in_a_container_and_returns_its_exit_code(pods: Pods) -> None:
    await pods.run("p", "sleep 60", b"", exit_code=None)
    done = await run_exec(pods.api, "p", ["sh", "-c", "echo out; echo err >&2"])
    assert (done.out[1], done.out[2]) == (b"out\n", b"err\n")
    assert done.status == {"metadata": {}, "status": "Success"}
    failed = await run_exec(pods.api, "p", ["sh", "-c", "exit 3"])
    assert (failed.status["status"], failed.status["reason"]) == ("Failure", "NonZeroExitCode")
    assert failed.status["details"] == {"causes": [{"reason": "ExitCode", "message": "3"}]}
    absent = await run_exec(pods.api, "p", ["no-such-program"])
    assert (absent.status["status"], absent.status["code"]) == ("Failure", 500)
    assert absent.status["reason"] == "InternalError"
    assert "no-such-program" in absent.status["message"]


async def test_an_exec_command_reads_stdin_from_the_client(pods: Pods) -> None:
    await pods.run("p", "sleep 60", b"", exit_code=None)
    done = await run_exec(pods.api, "p", ["head", "-n", "1"], stdin=b"hello\n")
    assert (done.out[1], done.status["status"]) == (b"hello\n", "Success")
    big = b"0123456789abcdef" * 16_384
    done = await run_exec(pods.api, "p", ["head", "-c", str(len(big))], stdin=big)
    assert done.out[1] == big


async def test_a_client_may_type_in_text_frames(pods: Pods) -> None:
    await pods.run("p", "sleep 60", b"", exit_code=None)
    api = pods.api
    query = [("command", "head"), ("command", "-n1"), ("stdin", "true"), ("stdout", "true")]
    async with api.session.ws_connect(
        api.url + api.path("pods", "p", "exec"),
        params=query,
        protocols=("v4.channel.k8s.io",),
        headers={"Authorization": f"Bearer {api.token}"},
    ) as socket:
        await socket.send_str("\x00hello\n")
        output = b"".join([message.data[1:] async for message in socket if message.data[:1] == b"\x01"])
    assert output == b"hello\n"


async def test_a_terminal_echoes_and_joins_the_streams(pods: Pods) -> None:
    await pods.run("p", "sleep 60", b"", exit_code=None)
    script = "read word; test -t 0 && echo tty $word; echo err >&2; exit 4"
    done = await run_exec(pods.api, "p", ["sh", "-c", script], stdin=b"hi\n", tty=True)
    assert (done.out[1], done.out[2]) == (b"hi\r\ntty hi\r\nerr\r\n", b"")
    assert done.status["details"]["causes"][0]["message"] == "4"


async def test_exec_into_a_missing_pod_or_container_is_refused(api: Api) -> None:
    await api.made("pods", pod("p"))
    for name, query, code in (("none", "command=x", 404), ("p", "command=x&container=zz", 400)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            await api.session.ws_connect(
                f"{api.url}{api.path('pods', name, 'exec')}?{query}&stdout=true",
                headers={"Authorization": f"Bearer {api.token}"},
                protocols=("v4.channel.k8s.io",),
            )
        assert error.value.status == code
