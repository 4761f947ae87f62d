"""Memory limits of containers, and the CPU and memory that they are reported to use."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.models.resources import EVENTS, PODS
from k8s.telemetry.metrics_server import NODE_METRICS, POD_METRICS, fetch_usage
from k8s.telemetry.readings import Usage
from tests.k8s.sandbox.live.running import PATIENCE_S, Manifest, comes, create_pod, goes, phase, pod

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
if all(children):
    print("up", flush=True)
    __import__("time").sleep(1.5)
else:
    __import__("time").sleep(600)
"""


def limited(memory: str) -> Manifest:
    return {"resources": {"limits": {"memory": memory}}}


async def usage_of(client: Client, name: str) -> Usage | None:
    found = await fetch_usage(client, POD_METRICS, datetime.now(UTC), "default")
    return found.get(("default", name))


async def until_used(client: Client, name: str, memory_bytes: int, cpu_cores: float) -> Usage:
    """Wait until a pod is reported to use so much."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            used = await usage_of(client, name)
            if used and (used.memory_bytes or 0) >= memory_bytes and (used.cpu_cores or 0) >= cpu_cores:
                return used
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("name", "script"), [("hog", TAKE), ("hog-daemon", DAEMON)])
async def test_a_container_over_its_memory_limit_is_killed(client: Client, name: str, script: str) -> None:
    manifest = pod(name, "python", "-c", script, container=limited("100Mi"))
    helper = {"name": "side", "image": "x", "command": ["sh", "-c", "sleep 1"], **limited("1Gi")}
    manifest["spec"]["containers"].append(helper)
    status = (await create_pod(client, manifest))["status"]
    ended: dict[str, Any] = {
        each["name"]: each["state"]["terminated"] for each in status["containerStatuses"]
    }
    assert (ended["main"]["reason"], ended["main"]["exitCode"]) == ("OOMKilled", 137)
    assert (ended["side"]["reason"], ended["side"]["exitCode"]) == ("Completed", 0)
    (event,) = await client.list(EVENTS, "default", field_selector=f"involvedObject.name={name},type=Warning")
    assert event["reason"] == "OOMKilling"
    assert event["message"].startswith("Container main was killed: it used ")
    assert event["message"].endswith("Mi of memory, and its limit is 100Mi")


async def test_memory_that_forked_processes_share_counts_once(client: Client) -> None:
    done = await create_pod(client, pod("shares", "python", "-c", SHARE, container=limited("150Mi")))
    assert done["status"]["phase"] == "Succeeded"


async def test_what_a_pod_uses_is_measured_for_it_and_its_node(client: Client) -> None:
    script = "x = bytearray(b'1') * (64 << 20)\nwhile True: pass"
    await client.create(PODS, pod("busy", "sh", "-c", f'python -c "{script}"'), "default")
    node = (await comes(client, PODS, "busy", phase("Running")))["spec"]["nodeName"]
    used = await until_used(client, "busy", 64 << 20, 0.2)
    assert used.memory_bytes is not None and used.memory_bytes < 150 << 20
    nodes = await fetch_usage(client, NODE_METRICS, datetime.now(UTC))
    assert (nodes["", node].memory_bytes or 0) >= 64 << 20
    await client.delete(PODS, "busy", "default", grace_period_s=0)
    await goes(client, PODS, "busy")
    async with asyncio.timeout(PATIENCE_S):
        while await usage_of(client, "busy") is not None:
            await asyncio.sleep(0.05)
