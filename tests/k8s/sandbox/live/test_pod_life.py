"""Readiness, sidecars, preStop and leftovers: what else a kubelet does between a pod's start and its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from k8s.models.resources import PODS
from tests.k8s.sandbox.live.running import (
    Manifest,
    Space,
    command_line,
    conditions,
    eventually,
    has,
    leave,
    marked,
    parent_of,
    phase,
    pod,
    sleepers,
    until_unmarked,
)
from tests.trainer.jobs import free_port

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


async def messages(space: Space, name: str, reason: str) -> list[str]:
    events = await space.events(name)
    return [event["message"] for event in events if event["reason"] == reason]


def is_unready(found: Manifest) -> bool:
    return phase("Running")(found) and conditions(found).get("Ready") == "False"


async def test_a_container_is_ready_while_its_readiness_probe_succeeds(space: Space) -> None:
    probe = {"exec": {"command": ["cat", "ready"]}, "periodSeconds": 1, "failureThreshold": 1}
    manifest = pod("asked-for", "sh", "-c", STAY, container={"readinessProbe": probe})
    await space.create(PODS, manifest)
    found = await space.comes(PODS, "asked-for", is_unready)
    assert found["status"]["containerStatuses"][0]["ready"] is False
    assert found["status"]["containerStatuses"][0]["started"] is True
    await space.run_in("asked-for", "sh", "-c", "touch ready")
    found = await space.comes(PODS, "asked-for", has("Ready"))
    assert found["status"]["containerStatuses"][0]["ready"] is True
    await space.run_in("asked-for", "sh", "-c", "rm ready")
    await space.comes(PODS, "asked-for", is_unready)
    (words, *_) = await messages(space, "asked-for", "Unhealthy")
    assert words == "Readiness probe failed: cat: ready: No such file or directory"


async def test_a_restarted_container_is_probed_again(space: Space) -> None:
    probe = {"exec": {"command": ["test", "-e", "ready"]}, "periodSeconds": 1}
    script = "until test -e leave; do sleep 0.05; done; rm ready leave"
    manifest = pod("probed", "sh", "-c", script, container={"readinessProbe": probe}, restartPolicy="Always")
    await space.create(PODS, manifest)
    await space.comes(PODS, "probed", is_unready)
    await space.run_in("probed", "sh", "-c", "touch ready")
    await space.comes(PODS, "probed", has("Ready"))
    await space.run_in("probed", "sh", "-c", "touch leave")

    def runs_again(found: Manifest) -> bool:
        status = found["status"]["containerStatuses"][0]
        return bool(status["restartCount"] and "running" in status["state"])

    assert is_unready(await space.comes(PODS, "probed", runs_again))


@pytest.mark.parametrize("handler", ["httpGet", "tcpSocket"])
async def test_a_server_is_ready_once_it_answers(space: Space, handler: str) -> None:
    port, name = free_port(), f"serves-{handler.lower()}"
    serve = f"until test -e go; do sleep 0.05; done; exec python -m http.server {port} --bind 127.0.0.1"
    container = {
        "ports": [{"name": "web", "containerPort": int(port)}],
        "readinessProbe": {handler: {"port": "web"}, "periodSeconds": 1, "timeoutSeconds": 5},
    }
    await space.create(PODS, pod(name, "sh", "-c", serve, container=container))
    await space.comes(PODS, name, is_unready)
    await space.run_in(name, "sh", "-c", "touch go")
    await space.comes(PODS, name, has("Ready"))


async def test_without_a_probe_a_container_is_ready_once_it_runs(space: Space) -> None:
    probe = {"grpc": {"port": 1}}
    await space.create(PODS, pod("plain", "sleep", "300", container={"readinessProbe": probe}))
    await space.comes(PODS, "plain", has("Ready"))


async def test_a_sidecar_is_there_before_the_others_and_until_they_have_ended(space: Space) -> None:
    watch = (
        "echo sidecar up >>/v/order; trap 'echo sidecar down >>/v/order; cat /v/order; exit 7' TERM; " + STAY
    )
    init = {**sidecar("setup", "echo setup >>/v/order"), "restartPolicy": None}
    main = "echo main >>/v/order; sleep 0.3; echo main over >>/v/order"
    mark = space.name
    watcher = sidecar("watch", watch, env=[{"name": "MARK", "value": mark}])
    manifest = pod("beside", "sh", "-c", main, initContainers=[watcher, init], **VOLUME)
    await space.run_pod(manifest)
    await space.run_pod(pod("after-it", "true"))
    assert not marked(mark)
    done = await space.get(PODS, "beside")
    status = done["status"]
    assert status["initContainerStatuses"][0]["restartCount"] == 0
    assert status["phase"] == "Succeeded"
    order = await space.log("beside", container="watch")
    assert order.splitlines() == ["sidecar up", "setup", "main", "main over", "sidecar down"]
    assert conditions(done)["Initialized"] == "True"
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


async def test_a_sidecar_counts_for_readiness_and_keeps_its_pod_running(space: Space) -> None:
    probe = {"exec": {"command": ["test", "-e", "/v/ready"]}, "periodSeconds": 1}
    slow = f"trap 'test -e /v/leave && exit 0' TERM; {STAY}"
    spec = {"initContainers": [sidecar("proxy", slow, readinessProbe=probe)], **VOLUME}
    wait = "until test -e /v/over; do sleep 0.05; done"
    await space.create(PODS, pod("watched", "sh", "-c", wait, **spec))
    await space.comes(PODS, "watched", is_unready)
    await space.run_in("watched", "sh", "-c", "touch /v/ready")
    await space.comes(PODS, "watched", has("Ready"))
    await space.run_in("watched", "sh", "-c", "touch /v/over")

    def main_is_over(found: Manifest) -> bool:
        return "terminated" in found["status"]["containerStatuses"][0]["state"]

    assert (await space.comes(PODS, "watched", main_is_over))["status"]["phase"] == "Running"
    await space.delete(PODS, "watched", grace_period_s=0)
    await space.goes(PODS, "watched")


async def test_an_ended_sidecar_is_restarted_despite_the_restart_policy_of_the_pod(space: Space) -> None:
    init = sidecar("flaky", "echo x >>/v/tries; exit 0")
    wait = "until test $(wc -l </v/tries) -ge 3; do sleep 0.05; done"
    done = await space.run_pod(pod("again", "sh", "-c", wait, initContainers=[init], **VOLUME))
    assert done["status"]["phase"] == "Succeeded"
    assert done["status"]["initContainerStatuses"][0]["restartCount"] >= 2


async def test_sidecars_end_after_the_others_and_in_reverse(space: Space) -> None:
    def script(name: str, last: str = "") -> str:
        return f"trap 'echo {name} >>/v/order; {last} exit 0' TERM; {STAY}"

    inits = [sidecar("first", script("first", "cat /v/order;")), sidecar("second", script("second"))]
    manifest = pod("order", "sh", "-c", script("main"), initContainers=inits, **VOLUME)
    manifest["spec"]["activeDeadlineSeconds"] = 1
    done = await space.run_pod(manifest)
    assert done["status"]["reason"] == "DeadlineExceeded"
    assert (await space.log("order", container="first")).split() == ["main", "second", "first"]


async def test_a_sidecar_does_not_outlive_an_init_container_that_failed(space: Space) -> None:
    mark = space.name
    side = sidecar("side", STAY, env=[{"name": "MARK", "value": mark}])
    broken = {"name": "broken", "image": "x", "command": ["false"]}
    spec = {"initContainers": [side, broken], "terminationGracePeriodSeconds": 1, **VOLUME}
    done = await space.run_pod(pod("stuck-beside", "true", **spec))
    assert done["status"]["phase"] == "Failed"
    until_unmarked(mark)


async def test_a_container_gets_sigterm_after_its_prestop_hook(space: Space) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "sleep 0.2; echo hook >>/v/order"]}}}
    script = f"trap 'echo asked >>/v/order; cat /v/order; exit 0' TERM; {STAY}"
    manifest = pod("hooked", "sh", "-c", script, **VOLUME)
    manifest["spec"]["containers"][0]["lifecycle"] = hook
    manifest["spec"]["activeDeadlineSeconds"] = 1
    await space.run_pod(manifest)
    assert await space.log("hooked") == "hook\nasked\n"


async def test_a_failing_prestop_hook_is_reported_and_does_not_block_deletion(space: Space) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo no; exit 3"]}}}
    await space.create(PODS, pod("no-hook", "sleep", "300", container={"lifecycle": hook}))
    await space.comes(PODS, "no-hook", phase("Running"))
    await space.delete(PODS, "no-hook")
    await space.goes(PODS, "no-hook")
    assert await messages(space, "no-hook", "FailedPreStopHook") == ["PreStopHook failed: no"]


async def test_a_prestop_hook_is_limited_by_the_grace_period_and_leaves_no_process(space: Space) -> None:
    mark = space.name
    container = {
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo x >>runs; sleep 300"]}}},
        "env": [{"name": "MARK", "value": mark}],
    }
    script = f"trap 'echo asked $(wc -l <runs); exit 0' TERM; {STAY}"
    manifest = pod("hanging", "sh", "-c", script, container=container, terminationGracePeriodSeconds=1)
    await space.create(PODS, manifest)
    await space.comes(PODS, "hanging", phase("Running"))
    async with space.client.log("hanging", space.name, follow=True) as body:
        await space.delete(PODS, "hanging")
        await space.delete(PODS, "hanging")
        assert (await body.read()).decode() == "asked 1\n"
    await space.goes(PODS, "hanging")
    until_unmarked(mark)


async def test_a_hook_runs_once_though_its_pod_is_ended_twice(space: Space) -> None:
    hook = ["sh", "-c", "echo x >>runs; sleep 1; true"]
    container = {"lifecycle": {"preStop": {"exec": {"command": hook}}}}
    script = f"trap 'echo asked $(wc -l <runs); exit 0' TERM; {STAY}"
    manifest = pod("twice-ended", "sh", "-c", script, container=container, activeDeadlineSeconds=1)
    await space.create(PODS, manifest)
    await space.comes(PODS, "twice-ended", phase("Running"))
    async with space.client.log("twice-ended", space.name, follow=True) as body:
        await space.run_in("twice-ended", "sh", "-c", "until test -e runs; do sleep 0.02; done")
        await space.delete(PODS, "twice-ended")
        assert (await body.read()).decode() == "asked 1\n"
    await space.goes(PODS, "twice-ended")


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
