"""Readiness and leftovers: what else a kubelet does between a pod's start and its end."""

from __future__ import annotations

import os
from pathlib import Path

from k8s.models.resources import PODS
from tests.k8s.sandbox.live.running import (
    Space,
    command_line,
    eventually,
    has,
    leave,
    parent_of,
    phase,
    pod,
    sleepers,
)


async def test_a_container_is_ready_once_it_runs(space: Space) -> None:
    probes = {key: {"exec": {"command": ["false"]}} for key in ("readinessProbe", "startupProbe")}
    await space.create(PODS, pod("plain", "sleep", "300", container=probes))
    await space.comes(PODS, "plain", has("Ready"))


async def test_processes_left_by_exec_end_when_the_pod_is_deleted(space: Space) -> None:
    seconds = f"7{os.getpid()}.1"
    await space.create(PODS, pod("haunted", "sleep", "1000"))
    await space.comes(PODS, "haunted", phase("Running"))
    await leave(space.client, space.name, "haunted", seconds)
    await space.delete(PODS, "haunted", grace_period_s=0)
    await space.goes(PODS, "haunted")
    eventually(lambda: not sleepers(seconds))


async def test_processes_left_by_exec_end_when_the_container_ends(space: Space, tmp_path: Path) -> None:
    seconds = f"7{os.getpid()}.2"
    script = f"while [ ! -e {tmp_path}/end ]; do sleep 0.05; done"
    await space.create(PODS, pod("fading", "sh", "-c", script))
    await space.comes(PODS, "fading", phase("Running"))
    await leave(space.client, space.name, "fading", seconds)
    (tmp_path / "end").touch()
    await space.comes(PODS, "fading", phase("Succeeded"))
    assert sleepers(seconds) == []


async def test_processes_left_by_a_killed_shim_end_with_the_pod(space: Space) -> None:
    seconds = f"7{os.getpid()}.3"
    shell = f"setsid sleep {seconds} & sleep 1000"
    await space.create(PODS, pod("beheaded", "sh", "-c", shell))
    await space.comes(PODS, "beheaded", phase("Running"))
    eventually(lambda: sleepers(seconds))
    [orphan] = sleepers(seconds)
    shim = parent_of(parent_of(orphan))
    assert b"shim.py" in command_line(shim)
    os.kill(shim, 9)
    await space.comes(PODS, "beheaded", phase("Failed"))
    assert sleepers(seconds) == []
