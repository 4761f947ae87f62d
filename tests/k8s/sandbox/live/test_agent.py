"""The node agent: pods run as processes with limits, and are reported on as a kubelet would."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from k8s.gpus.reader import NODE_METRICS, POD_METRICS, fetch_usage
from k8s.gpus.readings import Usage
from k8s.models.resources import CLAIMS, CONFIG_MAPS, EVENTS, NODES, PODS, SECRETS
from k8s.sandbox.node.containers import ON_LOOPBACK
from tests.k8s.sandbox.live.running import (
    PATIENCE_S,
    Manifest,
    Space,
    command_line,
    eventually,
    has,
    leave,
    marked,
    parent_of,
    phase,
    pod,
    sleepers,
    until_marked,
    until_unmarked,
)


async def test_a_succeeded_pod_has_the_status_that_a_kubelet_reports(space: Space) -> None:
    done = await space.run_pod(pod("works", "sh", "-c", "echo hello"))
    status = done["status"]
    assert status["phase"] == "Succeeded"
    assert (status["podIP"], status["hostIP"]) == ("127.0.0.1", "127.0.0.1")
    conditions = {each["type"]: (each["status"], each.get("reason")) for each in status["conditions"]}
    assert conditions == {
        "PodScheduled": ("True", None),
        "Initialized": ("True", "PodCompleted"),
        "ContainersReady": ("False", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),
    }
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert await space.log("works") == "hello\n"
    assert {"Scheduled", "Pulled", "Created", "Started"} <= await space.reasons("works")


async def test_a_pod_has_ended_only_when_its_gpus_are_free(space: Space) -> None:
    version = json.loads(await space.client.list_page(PODS, space.name))["metadata"]["resourceVersion"]
    statuses: list[Manifest] = []
    await space.create(PODS, pod("told", "sh", "-c", "exit 0"))
    async with aclosing(space.client.watch(PODS, space.name, version=version)) as lines:
        while not statuses or statuses[-1]["phase"] != "Succeeded":
            statuses.append(json.loads(await anext(lines))["object"]["status"])
    phases = [
        status["phase"]
        for status in statuses
        if "terminated" in status.get("containerStatuses", [{}])[0].get("state", {})
    ]
    assert phases == ["Running", "Succeeded"], "the processes that it left are ended in between"


@pytest.mark.parametrize(
    ("name", "command", "code", "reason", "signal"),
    [("fails", "exit 3", 3, "Error", None), ("killed", "kill -9 $$$$", 137, "Error", 9)],
)
async def test_a_failed_container_reports_its_exit_code_and_signal(
    space: Space, name: str, command: str, code: int, reason: str, signal: int | None
) -> None:
    done = await space.run_pod(pod(name, "sh", "-c", command))
    ended = done["status"]["containerStatuses"][0]["state"]["terminated"]
    assert done["status"]["phase"] == "Failed"
    assert (ended["exitCode"], ended["reason"], ended.get("signal")) == (code, reason, signal)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (pod("no-command", "no-such-program"), "executable file not found in $PATH"),
        (pod("no-entry"), "must say its command"),
        (
            pod("no-folder", "true", container={"workingDir": "/workspace/code"}),
            "workingDir /workspace/code is in no volume",
        ),
    ],
    ids=["no command", "no entry point", "no folder"],
)
async def test_a_container_that_cannot_start_reports_the_reason(
    space: Space, manifest: Manifest, words: str
) -> None:
    done = await space.run_pod(manifest)
    ended = done["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert words in ended["message"]
    assert "Failed" in await space.reasons(manifest["metadata"]["name"])


async def test_variables_come_from_everywhere_kubernetes_lets_them(space: Space) -> None:
    config = {"metadata": {"name": "settings"}, "data": {"LR": "0.1", "extra": "no"}}
    secret = {"metadata": {"name": "keys"}, "data": {"TOKEN": base64.b64encode(b"s3cret").decode()}}
    await space.create(CONFIG_MAPS, config)
    await space.create(SECRETS, secret)
    env = [
        {"name": "PLAIN", "value": "x"},
        {"name": "NESTED", "value": "$(PLAIN)/$(NOBODY)/$$(PLAIN)"},
        {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "LR"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "TOKEN"}}},
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "TEAM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
    ]
    manifest = pod("variables", "sh", "-c", "echo $(ME) $TEAM; env", container={"env": env})
    manifest["spec"]["containers"][0]["envFrom"] = [{"prefix": "P_", "configMapRef": {"name": "settings"}}]
    manifest["metadata"]["labels"] = {"team": "vision"}
    await space.run_pod(manifest)
    first, *lines = (await space.log("variables")).splitlines()
    env_of = dict(line.split("=", 1) for line in lines if "=" in line)
    assert first == "variables vision"
    assert env_of["NESTED"] == "x/$(NOBODY)/$(PLAIN)"
    assert (env_of["LR"], env_of["P_extra"], env_of["TOKEN"]) == ("0.1", "no", "s3cret")
    assert env_of["NODE"].startswith("sandbox-")
    assert env_of["IP"] == "127.0.0.1"
    assert env_of["HOSTNAME"] == "variables"


async def test_a_pod_sees_nothing_of_the_users_environment(space: Space) -> None:
    await space.run_pod(pod("clean", "env"))
    names = {line.split("=", 1)[0] for line in (await space.log("clean")).splitlines()}
    allowed = {
        "GPUCONSOLE_POD_UID",
        "GPUCONSOLE_SANDBOX",
        "GPUCONSOLE_HOSTS",
        "GPUCONSOLE_JOB_PORT",
        "GPUCONSOLE_TERMINATION_LOG",
        "PYTHONPATH",
        "PATH",
        "HOME",
        "TMPDIR",
        "HOSTNAME",
        *ON_LOOPBACK,
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
    }
    allowed |= {"LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "PWD"}
    allowed |= {"NO_PROXY", "no_proxy"}  # the ranks reach each other without a proxy
    assert names <= allowed


async def test_a_claim_is_backed_by_a_folder_that_pods_mount(space: Space) -> None:
    folder = await space.claim_folder("workspace")
    volumes = [
        {"name": "shared", "persistentVolumeClaim": {"claimName": "workspace"}},
        {"name": "dshm", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [
        {"name": "shared", "mountPath": "/workspace"},
        {"name": "shared", "mountPath": "/workspace/deep", "subPath": "below/it"},
        {"name": "dshm", "mountPath": "/dev/shm"},
    ]
    command = "echo 1 >/workspace/a; echo 2 >/workspace/deep/b; test -d /dev/shm && echo $OUT; pwd"
    container = {
        "volumeMounts": mounts,
        "workingDir": "/workspace/run-1",
        "env": [{"name": "OUT", "value": "file=/workspace/out:/workspaces/no"}],
    }
    await space.run_pod(pod("writes", "sh", "-c", command, volumes=volumes, container=container))
    assert folder.is_relative_to(space.kubeconfig.parent)
    assert (folder / "a").read_text() == "1\n"
    assert (folder / "below/it/b").read_text() == "2\n"
    lines = (await space.log("writes")).splitlines()
    assert lines == [f"file={folder}/out:/workspaces/no", f"{folder}/run-1"]


async def test_a_new_claim_is_bound_and_a_pod_waits_for_a_missing_one(space: Space) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "later"}}]
    await space.create(PODS, pod("patient", "true", volumes=volumes))
    waits = await space.comes(PODS, "patient", lambda each: each["status"].get("conditions"))
    assert 'persistentvolumeclaim "later" not found' in waits["status"]["conditions"][0]["message"]
    await space.claim_folder("later")
    await space.comes(PODS, "patient", phase("Succeeded"))
    bound = await space.get(CLAIMS, "later")
    assert bound["status"]["capacity"] == {"storage": "1Gi"}


async def test_config_and_secret_volumes_are_files(space: Space) -> None:
    config = {"metadata": {"name": "files"}, "data": {"a.yaml": "x: 1\n", "b": "no"}}
    await space.create(CONFIG_MAPS, config)
    items = [{"key": "a.yaml", "path": "sub/c.yaml"}]
    volumes = [{"name": "v", "configMap": {"name": "files", "items": items}}]
    mounts = [{"name": "v", "mountPath": "/etc/conf"}]
    manifest = pod(
        "reads", "cat", "/etc/conf/sub/c.yaml", volumes=volumes, container={"volumeMounts": mounts}
    )
    await space.run_pod(manifest)
    assert await space.log("reads") == "x: 1\n"


async def test_init_containers_come_first_and_one_that_fails_is_the_end(space: Space) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    mounts = [{"name": "v", "mountPath": "/shared"}]
    init = {
        "name": "init",
        "image": "i",
        "command": ["sh", "-c", "echo ready >/shared/x"],
        "volumeMounts": mounts,
    }
    manifest = pod(
        "ordered",
        "cat",
        "/shared/x",
        volumes=volumes,
        initContainers=[init],
        container={"volumeMounts": mounts},
    )
    done = await space.run_pod(manifest)
    assert await space.log("ordered", container="main") == "ready\n"
    assert done["status"]["initContainerStatuses"][0]["ready"]
    broken = {"name": "init", "image": "i", "command": ["sh", "-c", "exit 4"]}
    done = await space.run_pod(pod("stuck", "true", initContainers=[broken]))
    assert done["status"]["phase"] == "Failed"
    assert "waiting" in done["status"]["containerStatuses"][0]["state"]


async def test_a_failing_container_is_restarted_with_a_growing_delay(space: Space) -> None:
    command = "n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) >n; echo try $n; test $n -ge 2"
    manifest = pod("retries", "sh", "-c", command, restartPolicy="OnFailure")
    await space.create(PODS, manifest)
    done = await space.comes(PODS, "retries", phase("Succeeded"))
    status = done["status"]["containerStatuses"][0]
    assert status["restartCount"] == 2
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert await space.log("retries") == "try 2\n"
    assert await space.log("retries", previous=True) == "try 1\n"
    assert "BackOff" in await space.reasons("retries")


async def test_python_is_this_python_even_from_a_shell(space: Space) -> None:
    import sys

    program = "import sys; print(sys.executable, sys.prefix)"
    await space.run_pod(pod("direct", "python3", "-c", program))
    await space.run_pod(pod("shell", "sh", "-c", f"python -c '{program}'"))
    expected = f"{sys.executable} {sys.prefix}\n"
    assert await space.log("direct") == expected
    assert await space.log("shell") == expected


async def test_simulated_gpus_are_given_out_once_and_never_to_cuda(space: Space) -> None:
    show = 'echo "cuda=[$CUDA_VISIBLE_DEVICES] simulated=$GPUCONSOLE_SIMULATED_GPUS"; sleep 300'
    for name in ("one", "two"):
        await space.create(PODS, pod(name, "sh", "-c", show, gpus=2, terminationGracePeriodSeconds=1))
        await space.comes(PODS, name, phase("Running"))
    said = {await space.says("one", "\n"), await space.says("two", "\n")}
    assert said == {"cuda=[] simulated=0,1\n", "cuda=[] simulated=2,3\n"}
    node = await space.client.get(NODES, "sandbox-0")
    assert node["metadata"]["labels"]["gpuconsole.dev/simulated"] == "true"


async def test_a_deleted_pod_leaves_no_process_behind(space: Space) -> None:
    mark = space.name
    script = "trap 'echo asked; exit 0' TERM; (setsid sleep 300 &) ; echo up; while :; do sleep 0.1; done"
    container = {"env": [{"name": "MARK", "value": mark}]}
    await space.create(PODS, pod("leaves", "sh", "-c", script, container=container))
    await space.comes(PODS, "leaves", phase("Running"))
    until_marked(mark, 2)
    await space.delete(PODS, "leaves")
    await space.goes(PODS, "leaves")
    assert marked(mark) == []
    assert "Killing" in await space.reasons("leaves")


async def test_a_pod_whose_shim_is_killed_leaves_no_process_behind(space: Space) -> None:
    mark = space.name
    container = {"env": [{"name": "MARK", "value": mark}]}
    script = "(setsid sleep 300 &); sleep 300"
    await space.create(PODS, pod("bereft", "sh", "-c", script, container=container))
    await space.comes(PODS, "bereft", phase("Running"))
    until_marked(mark, 3)
    (first,) = (pid for pid in marked(mark) if os.getsid(pid) == pid and b"-c" in command_line(pid))
    os.kill(parent_of(first), signal.SIGKILL)
    done = await space.comes(PODS, "bereft", phase("Failed"))
    assert done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    until_unmarked(mark)


async def test_a_command_run_in_a_pod_finds_its_volumes(space: Space) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    container = {"volumeMounts": [{"name": "v", "mountPath": "/logs"}]}
    script = "echo 0.5 >/logs/loss; sleep 300"
    await space.create(PODS, pod("asked", "sh", "-c", script, volumes=volumes, container=container))
    await space.comes(PODS, "asked", phase("Running"))
    look = "until test -s /logs/loss; do sleep 0.02; done; cat /logs/loss"
    assert await space.run_in("asked", "sh", "-c", look) == "0.5\n"


async def test_a_pod_that_ignores_its_end_is_killed_after_its_grace_period(space: Space) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    for name, grace_s in (("stubborn", 1), ("patient", 3600)):
        container = {"env": [{"name": "MARK", "value": f"{name}-{space.name}"}]}
        manifest = pod(name, "sh", "-c", script, container=container, terminationGracePeriodSeconds=grace_s)
        await space.create(PODS, manifest)
        await space.says(name, "up")
    for name in ("patient", "stubborn"):
        await space.delete(PODS, name)
    await space.goes(PODS, "stubborn")
    assert marked(f"stubborn-{space.name}") == []
    assert marked(f"patient-{space.name}"), "its grace period is longer"
    await space.delete(PODS, "patient", grace_period_s=0)
    until_unmarked(f"patient-{space.name}")


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


@pytest.mark.slow
async def test_usage_is_measured_for_a_pod_and_its_node(space: Space) -> None:
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
