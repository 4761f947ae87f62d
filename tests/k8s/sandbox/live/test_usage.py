"""Memory limits of containers, and the CPU and memory that they are reported to use."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from k8s.models.resources import EVENTS, PODS
from k8s.telemetry.metrics_server import NODE_METRICS, POD_METRICS, fetch_usage
from k8s.telemetry.readings import Usage
from tests.k8s.sandbox.live.running import PATIENCE_S, Manifest, Space, phase, pod

TAKE = "import time; x = bytearray(b'1') * (200 << 20); time.sleep(600)"
DAEMON = f"""
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        exec({TAKE!r})
    os._exit(0)
time.sleep(600)
"""
SHARE = """
import os
x = bytearray(b'1') * (60 << 20)
children = [os.fork() for _ in "123"]
__import__("time").sleep(600)
"""


def limited(memory: str) -> Manifest:
    return {"resources": {"limits": {"memory": memory}}}


async def usage_of(space: Space, name: str) -> Usage | None:
    found = await fetch_usage(space.client, POD_METRICS, datetime.now(UTC), space.name)
    return found.get((space.name, name))


async def until_used(space: Space, name: str, memory_bytes: int, cpu_cores: float = 0.0) -> Usage:
    """Wait until a pod is reported to use so much."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            used = await usage_of(space, name)
            if used and (used.memory_bytes or 0) >= memory_bytes and (used.cpu_cores or 0) >= cpu_cores:
                return used
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("name", "script"), [("hog", TAKE), ("hog-daemon", DAEMON)])
async def test_a_container_over_its_memory_limit_is_killed(space: Space, name: str, script: str) -> None:
    manifest = pod(name, "python", "-c", script, container=limited("100Mi"))
    helper = {"name": "side", "image": "x", "command": ["sh", "-c", "sleep 1"], **limited("1Gi")}
    manifest["spec"]["containers"].append(helper)
    status = (await space.run_pod(manifest))["status"]
    ended: dict[str, Any] = {
        each["name"]: each["state"]["terminated"] for each in status["containerStatuses"]
    }
    assert (ended["main"]["reason"], ended["main"]["exitCode"]) == ("OOMKilled", 137)
    assert (ended["side"]["reason"], ended["side"]["exitCode"]) == ("Completed", 0)
    (event,) = await space.objects(EVENTS, field_selector=f"involvedObject.name={name},type=Warning")
    assert event["reason"] == "OOMKilling"
    assert event["message"].startswith("Container main was killed: it used ")
    assert event["message"].endswith("Mi of memory, and its limit is 100Mi")


async def test_memory_that_forked_processes_share_counts_once(space: Space) -> None:
    await space.create(PODS, pod("shares", "python", "-c", SHARE, container=limited("150Mi")))
    used = await until_used(space, "shares", 60 << 20)
    assert (used.memory_bytes or 0) < 150 << 20
    assert phase("Running")(await space.get(PODS, "shares"))


async def test_what_a_pod_uses_is_measured_for_it_and_its_node(space: Space) -> None:
    script = "x = bytearray(b'1') * (64 << 20)\nwhile True: pass"
    await space.create(PODS, pod("busy", "sh", "-c", f'python -c "{script}"'))
    node = (await space.comes(PODS, "busy", phase("Running")))["spec"]["nodeName"]
    used = await until_used(space, "busy", 64 << 20, 0.05)
    assert used.memory_bytes is not None and used.memory_bytes < 150 << 20
    nodes = await fetch_usage(space.client, NODE_METRICS, datetime.now(UTC))
    assert (nodes["", node].memory_bytes or 0) >= 64 << 20
    await space.delete(PODS, "busy", grace_period_s=0)
    await space.goes(PODS, "busy")
    async with asyncio.timeout(PATIENCE_S):
        while await usage_of(space, "busy") is not None:
            await asyncio.sleep(0.05)
