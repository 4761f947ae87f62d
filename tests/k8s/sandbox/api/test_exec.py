"""Commands in the sandbox's containers: environment, terminal, end, and no process left behind."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.k8s.sandbox.calls import Api, eventually, pod
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
