"""Readiness, sidecars and leftovers: what else a kubelet does between a pod's start and its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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


async def test_a_container_is_ready_once_it_runs(space: Space) -> None:
    probes = {key: {"exec": {"command": ["false"]}} for key in ("readinessProbe", "startupProbe")}
    await space.create(PODS, pod("plain", "sleep", "300", container=probes))
    await space.comes(PODS, "plain", has("Ready"))


async def test_a_sidecar_is_there_before_the_others_and_until_they_have_ended(space: Space) -> None:
    watch = (
        "echo sidecar up >>/v/order; "
        'trap \'echo sidecar down >>"/v/order"; cat "/v/order"; exit 7\' TERM; ' + STAY
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


async def test_a_sidecar_keeps_its_pod_running(space: Space) -> None:
    slow = f"trap 'test -e \"/v/leave\" && exit 0' TERM; {STAY}"
    manifest = pod("watched", "true", initContainers=[sidecar("proxy", slow)], **VOLUME)
    await space.create(PODS, manifest)

    def main_is_over(found: Manifest) -> bool:
        statuses = found["status"].get("containerStatuses") or [{}]
        return "terminated" in statuses[0].get("state", ())

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
        return f"trap 'echo {name} >>\"/v/order\"; {last} exit 0' TERM; {STAY}"

    inits = [sidecar("first", script("first", 'cat "/v/order";')), sidecar("second", script("second"))]
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
