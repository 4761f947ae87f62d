"""Nothing of a pod outlives it: not what exec started, in a session of its own and without the pod's mark."""

from __future__ import annotations

import os
from pathlib import Path

from k8s.client.client import Client
from k8s.models.resources import PODS
from tests.k8s.sandbox.live.running import comes, eventually, goes, phase, pod


def sleepers(seconds: str) -> list[int]:
    """Return the processes that sleep for so long."""
    words = f"sleep\0{seconds}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "cmdline").read_bytes().endswith(words):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def leave(client: Client, name: str, seconds: str) -> None:
    """Start two processes in a pod by exec that leave its session, one of them with a cleared environment."""
    daemon = f"setsid sleep {seconds} & setsid env -i $(command -v sleep) {seconds} & sleep 0.2; echo left"
    async with client.exec(name, "default", ["sh", "-c", f"({daemon}) </dev/null 2>&1"]) as socket:
        async for _ in socket:
            continue


async def test_what_exec_left_in_a_pod_ends_with_it(client: Client) -> None:
    seconds = f"7{os.getpid()}.1"
    await client.create(PODS, pod("haunted", "sleep", "1000"), "default")
    await comes(client, PODS, "haunted", phase("Running"))
    await leave(client, "haunted", seconds)
    assert len(sleepers(seconds)) == 2, "as in a container, it lives on while the container does"
    await client.delete(PODS, "haunted", "default", grace_period_s=0)
    await goes(client, PODS, "haunted")
    eventually(lambda: not sleepers(seconds))


async def test_what_exec_left_ends_with_its_containers_own_end(client: Client, tmp_path: Path) -> None:
    seconds = f"7{os.getpid()}.2"
    script = f"while [ ! -e {tmp_path}/end ]; do sleep 0.05; done"
    await client.create(PODS, pod("fading", "sh", "-c", script), "default")
    await comes(client, PODS, "fading", phase("Running"))
    await leave(client, "fading", seconds)
    assert len(sleepers(seconds)) == 2
    (tmp_path / "end").touch()
    await comes(client, PODS, "fading", phase("Succeeded"))
    assert sleepers(seconds) == []


async def test_what_was_left_when_a_shim_was_killed_ends_with_the_pod(client: Client) -> None:
    seconds = f"7{os.getpid()}.3"
    shell = f"setsid sleep {seconds} & sleep 1000"
    await client.create(PODS, pod("beheaded", "sh", "-c", shell), "default")
    await comes(client, PODS, "beheaded", phase("Running"))
    eventually(lambda: sleepers(seconds))
    [orphan] = sleepers(seconds)
    shell_pid = int(Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[1])
    shim = int(Path(f"/proc/{shell_pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"shim.py" in Path(f"/proc/{shim}/cmdline").read_bytes()
    os.kill(shim, 9)
    await comes(client, PODS, "beheaded", phase("Failed"))
    assert sleepers(seconds) == []
