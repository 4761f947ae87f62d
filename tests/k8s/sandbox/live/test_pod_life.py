"""Readiness, sidecars and preStop: what else a kubelet does between a pod's start and its end."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.models.resources import EVENTS, PODS
from tests.k8s.sandbox.live.running import (
    Manifest,
    comes,
    conditions,
    create_pod,
    eventually,
    goes,
    has,
    log_of,
    marked,
    phase,
    pod,
)

STAY = "exec 2>/dev/null; while :; do sleep 0.05; done"
VOLUME: Manifest = {
    "volumes": [{"name": "v", "emptyDir": {}}],
    "container": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
}
"""A folder that a pod's containers share."""


def sidecar(name: str, script: str, **more: Any) -> Manifest:
    """An init container that runs on beside the others."""
    mounts = VOLUME["container"]
    command = ["sh", "-c", script]
    return {"name": name, "image": "x", "command": command, "restartPolicy": "Always", **mounts, **more}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def run_in(client: Client, name: str, script: str) -> None:
    async with client.exec(name, "default", ["sh", "-c", script]) as shell:
        async for _ in shell:
            pass


async def messages(client: Client, name: str, reason: str) -> list[str]:
    events = await client.list(EVENTS, "default", field_selector=f"involvedObject.name={name}")
    return [event["message"] for event in events if event["reason"] == reason]


def is_unready(found: Manifest) -> bool:
    return phase("Running")(found) and conditions(found).get("Ready") == "False"


async def test_a_container_is_ready_while_its_probe_says_so(client: Client) -> None:
    probe = {"exec": {"command": ["cat", "ready"]}, "periodSeconds": 1, "failureThreshold": 1}
    manifest = pod("asked-for", "sh", "-c", STAY, container={"readinessProbe": probe})
    await client.create(PODS, manifest, "default")
    found = await comes(client, PODS, "asked-for", is_unready)
    assert found["status"]["containerStatuses"][0]["ready"] is False
    assert found["status"]["containerStatuses"][0]["started"] is True
    await run_in(client, "asked-for", "touch ready")
    found = await comes(client, PODS, "asked-for", has("Ready"))
    assert found["status"]["containerStatuses"][0]["ready"] is True
    await run_in(client, "asked-for", "rm ready")
    await comes(client, PODS, "asked-for", is_unready)
    (words, *_) = await messages(client, "asked-for", "Unhealthy")
    assert words == "Readiness probe failed: cat: ready: No such file or directory"
    await client.delete(PODS, "asked-for", "default", grace_period_s=0)


async def test_a_restarted_container_is_probed_again(client: Client) -> None:
    probe = {"exec": {"command": ["test", "-e", "ready"]}, "periodSeconds": 1}
    script = "until test -e leave; do sleep 0.05; done; rm ready leave"
    manifest = pod("probed", "sh", "-c", script, container={"readinessProbe": probe}, restartPolicy="Always")
    await client.create(PODS, manifest, "default")
    await comes(client, PODS, "probed", is_unready)
    await run_in(client, "probed", "touch ready")
    await comes(client, PODS, "probed", has("Ready"))
    await run_in(client, "probed", "touch leave")

    def runs_again(found: Manifest) -> bool:
        status = found["status"]["containerStatuses"][0]
        return bool(status["restartCount"] and "running" in status["state"])

    assert is_unready(await comes(client, PODS, "probed", runs_again))
    await client.delete(PODS, "probed", "default", grace_period_s=0)


@pytest.mark.parametrize("handler", ["httpGet", "tcpSocket"])
async def test_a_server_is_ready_once_it_answers(client: Client, handler: str) -> None:
    port, name = free_port(), f"serves-{handler.lower()}"
    serve = f"until test -e go; do sleep 0.05; done; exec python -m http.server {port} --bind 127.0.0.1"
    container = {
        "ports": [{"name": "web", "containerPort": port}],
        "readinessProbe": {handler: {"port": "web"}, "periodSeconds": 1, "timeoutSeconds": 5},
    }
    await client.create(PODS, pod(name, "sh", "-c", serve, container=container), "default")
    await comes(client, PODS, name, is_unready)
    await run_in(client, name, "touch go")
    await comes(client, PODS, name, has("Ready"))
    await client.delete(PODS, name, "default", grace_period_s=0)


async def test_without_a_probe_a_container_is_ready_once_it_runs(client: Client) -> None:
    probe = {"grpc": {"port": 1}}
    await client.create(PODS, pod("plain", "sleep", "300", container={"readinessProbe": probe}), "default")
    await comes(client, PODS, "plain", has("Ready"))
    await client.delete(PODS, "plain", "default", grace_period_s=0)


async def test_a_sidecar_is_there_before_the_others_and_until_they_have_ended(client: Client) -> None:
    watch = (
        "echo sidecar up >>/v/order; trap 'echo sidecar down >>/v/order; cat /v/order; exit 7' TERM; " + STAY
    )
    init = {**sidecar("setup", "echo setup >>/v/order"), "restartPolicy": None}
    main = "echo main >>/v/order; sleep 0.3; echo main over >>/v/order"
    mark = f"beside-{os.getpid()}"
    watcher = sidecar("watch", watch, env=[{"name": "MARK", "value": mark}])
    manifest = pod("beside", "sh", "-c", main, initContainers=[watcher, init], **VOLUME)
    await create_pod(client, manifest)
    await create_pod(client, pod("after-it", "true"))
    assert not marked(mark)
    done = await client.get(PODS, "beside", "default")
    status = done["status"]
    assert status["initContainerStatuses"][0]["restartCount"] == 0
    assert status["phase"] == "Succeeded"
    order = await log_of(client, "beside", container="watch")
    assert order.splitlines() == ["sidecar up", "setup", "main", "main over", "sidecar down"]
    assert conditions(done)["Initialized"] == "True"
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


async def test_a_sidecar_counts_for_readiness_and_keeps_its_pod_running(client: Client) -> None:
    probe = {"exec": {"command": ["test", "-e", "/v/ready"]}, "periodSeconds": 1}
    slow = f"trap 'test -e /v/leave && exit 0' TERM; {STAY}"
    spec = {"initContainers": [sidecar("proxy", slow, readinessProbe=probe)], **VOLUME}
    wait = "until test -e /v/over; do sleep 0.05; done"
    await client.create(PODS, pod("watched", "sh", "-c", wait, **spec), "default")
    await comes(client, PODS, "watched", is_unready)
    await run_in(client, "watched", "touch /v/ready")
    await comes(client, PODS, "watched", has("Ready"))
    await run_in(client, "watched", "touch /v/over")

    def main_is_over(found: Manifest) -> bool:
        return "terminated" in found["status"]["containerStatuses"][0]["state"]

    assert (await comes(client, PODS, "watched", main_is_over))["status"]["phase"] == "Running"
    await client.delete(PODS, "watched", "default", grace_period_s=0)
    await goes(client, PODS, "watched")


async def test_a_sidecar_that_ends_is_started_again_whatever_the_pods_policy(client: Client) -> None:
    init = sidecar("flaky", "echo x >>/v/tries; exit 0")
    wait = "until test $(wc -l </v/tries) -ge 3; do sleep 0.05; done"
    done = await create_pod(client, pod("again", "sh", "-c", wait, initContainers=[init], **VOLUME))
    assert done["status"]["phase"] == "Succeeded"
    assert done["status"]["initContainerStatuses"][0]["restartCount"] >= 2


async def test_sidecars_end_after_the_others_and_in_reverse(client: Client) -> None:
    def script(name: str, last: str = "") -> str:
        return f"trap 'echo {name} >>/v/order; {last} exit 0' TERM; {STAY}"

    inits = [sidecar("first", script("first", "cat /v/order;")), sidecar("second", script("second"))]
    manifest = pod("order", "sh", "-c", script("main"), initContainers=inits, **VOLUME)
    manifest["spec"]["activeDeadlineSeconds"] = 1
    done = await create_pod(client, manifest)
    assert done["status"]["reason"] == "DeadlineExceeded"
    assert (await log_of(client, "order", container="first")).split() == ["main", "second", "first"]


async def test_a_sidecar_does_not_outlive_an_init_container_that_failed(client: Client) -> None:
    mark = f"orphan-{os.getpid()}"
    side = sidecar("side", STAY, env=[{"name": "MARK", "value": mark}])
    broken = {"name": "broken", "image": "x", "command": ["false"]}
    spec = {"initContainers": [side, broken], "terminationGracePeriodSeconds": 1, **VOLUME}
    done = await create_pod(client, pod("stuck-beside", "true", **spec))
    assert done["status"]["phase"] == "Failed"
    eventually(lambda: not marked(mark))


async def test_a_container_is_asked_to_end_after_its_prestop_hook(client: Client) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "sleep 0.2; echo hook >>/v/order"]}}}
    script = f"trap 'echo asked >>/v/order; cat /v/order; exit 0' TERM; {STAY}"
    manifest = pod("hooked", "sh", "-c", script, **VOLUME)
    manifest["spec"]["containers"][0]["lifecycle"] = hook
    manifest["spec"]["activeDeadlineSeconds"] = 1
    await create_pod(client, manifest)
    assert await log_of(client, "hooked") == "hook\nasked\n"


async def test_a_prestop_hook_that_fails_is_told_and_stops_nothing(client: Client) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo no; exit 3"]}}}
    await client.create(PODS, pod("no-hook", "sleep", "300", container={"lifecycle": hook}), "default")
    await comes(client, PODS, "no-hook", phase("Running"))
    await client.delete(PODS, "no-hook", "default")
    await goes(client, PODS, "no-hook")
    assert await messages(client, "no-hook", "FailedPreStopHook") == ["PreStopHook failed: no"]


async def test_a_hook_has_no_more_time_than_the_pod_and_leaves_nothing(client: Client) -> None:
    mark = f"hanging-{os.getpid()}"
    container = {
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo x >>runs; sleep 300"]}}},
        "env": [{"name": "MARK", "value": mark}],
    }
    script = f"trap 'echo asked $(wc -l <runs); exit 0' TERM; {STAY}"
    manifest = pod("hanging", "sh", "-c", script, container=container, terminationGracePeriodSeconds=1)
    await client.create(PODS, manifest, "default")
    await comes(client, PODS, "hanging", phase("Running"))
    async with client.log("hanging", "default", follow=True) as body:
        await client.delete(PODS, "hanging", "default")
        await client.delete(PODS, "hanging", "default")
        assert (await body.read()).decode() == "asked 1\n"
    await goes(client, PODS, "hanging")
    eventually(lambda: not marked(mark))


async def test_a_hook_runs_once_though_its_pod_is_ended_twice(client: Client) -> None:
    hook = ["sh", "-c", "echo x >>runs; sleep 1; true"]
    container = {"lifecycle": {"preStop": {"exec": {"command": hook}}}}
    script = f"trap 'echo asked $(wc -l <runs); exit 0' TERM; {STAY}"
    manifest = pod("twice-ended", "sh", "-c", script, container=container, activeDeadlineSeconds=1)
    await client.create(PODS, manifest, "default")
    await comes(client, PODS, "twice-ended", phase("Running"))
    async with client.log("twice-ended", "default", follow=True) as body:
        await run_in(client, "twice-ended", "until test -e runs; do sleep 0.02; done")
        await client.delete(PODS, "twice-ended", "default")
        assert (await body.read()).decode() == "asked 1\n"
    await goes(client, PODS, "twice-ended")
