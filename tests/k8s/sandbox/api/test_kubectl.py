"""kubectl against the sandbox: what people type works as on any cluster.

No node agent runs here: pods are made "running" by writing what an agent would write.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
from contextlib import suppress
from typing import Any

import pytest
import yaml

from k8s.sandbox.api.served import SERVED
from tests.k8s.sandbox.api.kubectl import Kubectl
from tests.k8s.sandbox.calls import PATIENCE_S, Object, eventually, job, pod, thing, torch_job

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


async def test_get_shows_the_tables_people_know(kubectl: Kubectl) -> None:
    await kubectl.run_pod("p")
    node_status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.31.0", "osImage": "Linux"},
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
    }
    labels = {"node-role.kubernetes.io/worker": ""}
    node = thing("Node", "node-0", metadata={"labels": labels}, status=node_status)
    await kubectl.api.call("POST", "/api/v1/nodes", node)
    await kubectl.api.made("batch/v1/jobs", job("j"))
    await kubectl.api.made("kubeflow.org/v1/pytorchjobs", torch_job("t"))
    patch = {"status": {"conditions": [{"type": "Running", "status": "True"}]}}
    await kubectl.api.patch("kubeflow.org/v1/pytorchjobs", "t", patch, subresource="status")
    assert (await kubectl("get", "po")).lines[1][:4] == ["p", "1/1", "Running", "2"]
    wide = (await kubectl("get", "pods", "-o", "wide")).lines
    headings = "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"
    assert wide[0] == headings.split()
    assert wide[1][5:7] == ["127.0.0.1", "node-0"]
    assert (await kubectl("get", "no")).lines[1][:3] == ["node-0", "Ready", "worker"]
    assert (await kubectl("get", "jobs")).lines[1][:3] == ["j", "Running", "0/1"]
    assert (await kubectl("get", "pytorchjobs")).lines[1][:2] == ["t", "Running"]
    assert (await kubectl("get", "ns")).lines[1][:2] == ["default", "Active"]
    everything = (await kubectl("get", "all", "-A")).out
    assert "pod/p" in everything and "job.batch/j" in everything
    assert "No resources found" in (await kubectl("get", "cm")).err
    missing = await kubectl("get", "pod", "none", code=1)
    assert missing.err == 'Error from server (NotFound): pods "none" not found\n'


async def test_get_writes_yaml_json_names_and_paths(kubectl: Kubectl) -> None:
    await kubectl.run_pod("p", labels={"a": "b"})
    assert yaml.safe_load((await kubectl("get", "po", "p", "-o", "yaml")).out)["spec"]["nodeName"] == "node-0"
    assert json.loads((await kubectl("get", "po", "-o", "json")).out)["items"][0]["kind"] == "Pod"
    assert (await kubectl("get", "po", "-l", "a=b", "-o", "name")).out == "pod/p\n"
    assert (await kubectl("get", "po", "-o", "jsonpath={.items[*].status.podIP}")).out == "127.0.0.1"
    assert (await kubectl("get", "po", "--field-selector", "status.phase=Pending", "-o", "name")).out == ""


async def test_get_watches(kubectl: Kubectl) -> None:
    await kubectl.api.made("pods", pod("p"))
    process = await kubectl.start("get", "pods", "-w")
    assert process.stdout is not None

    async def next_line() -> list[str]:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            return (await process.stdout.readline()).decode().split()

    assert (await next_line())[0] == "NAME"
    assert (await next_line())[:3] == ["p", "0/1", "Pending"]
    await kubectl.api.patch("pods", "p", {"status": {"phase": "Failed"}}, subresource="status")
    assert (await next_line())[:3] == ["p", "0/1", "Failed"]
    process.terminate()
    await process.communicate()


async def test_describe_tells_a_story_with_events(kubectl: Kubectl) -> None:
    made = await kubectl.run_pod("p")
    about = {"kind": "Pod", "name": "p", "namespace": "default", "uid": made["metadata"]["uid"]}
    event = thing("Event", "e", involvedObject=about, reason="Pulled", message="is there", type="Normal")
    await kubectl.api.made("events", event | {"lastTimestamp": made["metadata"]["creationTimestamp"]})
    await kubectl.api.made("batch/v1/jobs", job("j"))
    await kubectl.api.made("kubeflow.org/v1/pytorchjobs", torch_job("t"))
    node = thing("Node", "node-0", status={"capacity": {"cpu": "2", "nvidia.com/gpu": "8"}})
    await kubectl.api.call("POST", "/api/v1/nodes", node)
    described = (await kubectl("describe", "pod", "p")).out
    assert "Pulled" in described and "is there" in described and "Restart Count:  2" in described
    described = (await kubectl("describe", "node", "node-0")).out
    assert "nvidia.com/gpu" in described and "default" in described and " p " in described
    assert "Pods Statuses:" in (await kubectl("describe", "job", "j")).out
    assert "Pytorch Replica Specs" in (await kubectl("describe", "pytorchjob", "t")).out


async def test_what_may_be_done_and_what_is_served(kubectl: Kubectl) -> None:
    assert (await kubectl("auth", "can-i", "create", "pods")).out == "yes\n"
    assert "*.*" in (await kubectl("auth", "can-i", "--list")).out
    resources = (await kubectl("api-resources")).lines
    assert ["pods", "po", "v1", "true", "Pod"] in resources
    assert ["pytorchjobs", "kubeflow.org/v1", "true", "PyTorchJob"] in resources
    assert {"v1", "batch/v1", "kubeflow.org/v1"} <= set((await kubectl("api-versions")).out.split())
    version = json.loads((await kubectl("version", "-o", "json")).out)
    assert "sandbox" in version["serverVersion"]["gitVersion"]
    assert "is running at" in (await kubectl("cluster-info")).out
    refused = await kubectl("--token=wrong", "get", "pods", code=1)
    assert "logged in" in refused.err


async def test_logs_are_read_and_followed(kubectl: Kubectl) -> None:
    made = await kubectl.run_pod("p", "one", "two")
    assert (await kubectl("logs", "p")).out == "one\ntwo\n"
    assert (
        await kubectl("logs", "p", "--tail=1", "--timestamps")
    ).out == "2026-11-20T10:00:00.000000000Z two\n"
    assert (await kubectl("logs", "-l", "absent=1")).out == ""
    process = await kubectl.start("logs", "-f", "p")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        assert [await process.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        with (kubectl.root / made["metadata"]["uid"] / "a" / "2.log").open("a") as file:
            file.write("2026-11-20T10:00:01.000000000Z stderr F three\n")
        assert await process.stdout.readline() == b"three\n"
        status = {"name": "a", "restartCount": 2, "state": {"terminated": {"exitCode": 0}}}
        patch = {"status": {"containerStatuses": [status]}}
        await kubectl.api.patch("pods", "p", patch, subresource="status")
        assert await process.wait() == 0
    await process.communicate()
    previous = await kubectl("logs", "p", "--previous", code=1)
    assert 'previous terminated container "a" in pod "p" not found' in previous.err


async def test_exec_runs_commands(kubectl: Kubectl) -> None:
    await kubectl.run_pod("p")
    assert (await kubectl("exec", "p", "--", "sh", "-c", "echo out; echo err >&2")).out == "out\n"
    assert "exit code 3" in (await kubectl("exec", "p", "--", "sh", "-c", "exit 3", code=3)).err
    assert (await kubectl("exec", "-i", "p", "--", "cat", stdin="typed\n")).out == "typed\n"
    assert (await kubectl("exec", "p", "-c", "a", "--", "python", "-c", "print(1+1)")).out == "2\n"
    assert "no-such" in (await kubectl("exec", "p", "--", "no-such", code=1)).err
    assert "not found" in (await kubectl("exec", "none", "--", "ls", code=1)).err
    copied = kubectl.folder / "copied"
    (kubectl.folder / "original").write_bytes(os.urandom(100_000))
    await kubectl("cp", str(kubectl.folder / "original"), f"p:{copied}")
    assert copied.read_bytes() == (kubectl.folder / "original").read_bytes()


async def test_exec_gives_a_terminal(kubectl: Kubectl) -> None:
    await kubectl.run_pod("p")
    outer, inner = pty.openpty()
    process = await kubectl.start("exec", "-it", "p", "--", "sh", stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    os.set_blocking(outer, False)
    seen = b""

    async def shows(text: bytes) -> bool:
        nonlocal seen
        with suppress(BlockingIOError, OSError):
            seen += os.read(outer, 65536)
        return text in seen

    os.write(outer, b"echo sum:$((6*7)); tty\n")
    await eventually(lambda: shows(b"sum:42"))
    await eventually(lambda: shows(b"/dev/pts/"))
    os.write(outer, b"exit 5\n")
    async with asyncio.timeout(PATIENCE_S):
        assert await process.wait() == 5
    os.close(outer)


async def test_events_are_shown(kubectl: Kubectl) -> None:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default"}
    event = thing("Event", "e", involvedObject=about, reason="Failed", message="bad", type="Warning", count=3)
    await kubectl.api.made("events", event | {"lastTimestamp": "2026-11-20T10:00:00Z"})
    assert (await kubectl("get", "events")).lines[1][1:] == ["Warning", "Failed", "pod/p", "bad"]
    assert "Warning" in (await kubectl("events", "--for", "pod/p")).out
    assert "Warning" in (await kubectl("get", "ev", "--field-selector", "type=Warning")).out


async def test_explain_says_what_fields_there_are(kubectl: Kubectl) -> None:
    pod_words = (await kubectl("explain", "pods")).out
    assert "KIND:       Pod" in pod_words and "VERSION:    v1" in pod_words
    assert "spec\t<PodSpec>" in pod_words
    container = (await kubectl("explain", "pod.spec.containers")).out
    assert "FIELD: containers <[]Container>" in container
    assert "image\t<string> -required-" in container
    policy = (await kubectl("explain", "job.spec.template.spec.restartPolicy")).out
    assert "OnFailure" in policy and "GROUP:      batch" in policy
    everything = (await kubectl("explain", "pytorchjobs", "--recursive")).out
    assert "pytorchReplicaSpecs\t<map[string]Replicas>" in everything
    unknown = await kubectl("explain", "pod.spec.containrs", code=1)
    assert 'field "containrs" does not exist' in unknown.err


async def test_a_job_set_is_shown_as_its_own_columns_say(kubectl: Kubectl) -> None:
    pods = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    spec = {"replicatedJobs": [{"name": "g", "template": {"spec": pods}}]}
    manifest = {**thing("JobSet", "s", spec=spec), "apiVersion": "jobset.x-k8s.io/v1alpha2"}
    await kubectl.api.made("jobset.x-k8s.io/v1alpha2/jobsets", manifest)
    lines = (await kubectl("get", "jobsets")).lines
    assert lines[0] == ["NAME", "TERMINALSTATE", "RESTARTS", "COMPLETED", "SUSPENDED", "AGE"]
    assert lines[1][:3] == ["s", "0", "false"]


@pytest.mark.parametrize("kind", sorted(served.resource.plural for served in SERVED))
async def test_every_kind_that_is_served_can_be_explained(kubectl: Kubectl, kind: str) -> None:
    assert "FIELDS:" in (await kubectl("explain", kind)).out


async def test_whoami_names_the_owner_of_the_token(kubectl: Kubectl) -> None:
    lines = (await kubectl("auth", "whoami")).lines
    assert lines[1:] == [["Username", "sandbox"], ["Groups", "[system:masters", "system:authenticated]"]]


def _container(name: str, limits: Object | None = None, requests: Object | None = None) -> Object:
    return {"name": name, "image": "x", "resources": {"limits": limits or {}, "requests": requests or {}}}


FULL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "qos"),
    [
        ({"containers": [_container("a")]}, "BestEffort"),
        ({"containers": [_container("a", {"nvidia.com/gpu": "1"})]}, "BestEffort"),
        ({"containers": [_container("a", {"cpu": "0", "memory": "0"})]}, "BestEffort"),
        ({"containers": [_container("a", FULL)]}, "Guaranteed"),
        ({"containers": [_container("a", FULL, {"cpu": "1000m"})]}, "Guaranteed"),
        ({"containers": [_container("a", FULL, {"cpu": "500m"})]}, "Burstable"),
        ({"containers": [_container("a", {"cpu": "1"})]}, "Burstable"),
        ({"containers": [_container("a", FULL), _container("b")]}, "Burstable"),
        ({"containers": [_container("a", FULL)], "initContainers": [_container("i")]}, "Burstable"),
        ({"containers": [_container("a", None, {"memory": "1Gi"})]}, "Burstable"),
    ],
)
async def test_the_quality_of_service_is_true(kubectl: Kubectl, spec: Object, qos: str) -> None:
    made = thing("Pod", "p", spec={"schedulerName": "nobody", **spec})
    await kubectl("create", "-f", "-", stdin=json.dumps(made))
    assert (await kubectl("get", "pod", "p", "-o", "jsonpath={.status.qosClass}")).out == qos


async def test_a_sidecar_counts_among_the_containers_of_its_pod(kubectl: Kubectl) -> None:
    made = pod("p", node="node-0")
    inits = [{"name": "proxy", "image": "x", "restartPolicy": "Always"}, {"name": "setup", "image": "x"}]
    made["spec"]["initContainers"] = inits
    await kubectl.api.made("pods", made)
    running = {"state": {"running": {}}, "ready": True, "started": True}
    over = {"state": {"terminated": {"exitCode": 0}}}
    waiting = {"name": "a", "state": {"waiting": {"reason": "PodInitializing"}}}

    async def row(*statuses: Object, main: Object = waiting, **status: Any) -> list[str]:
        inits = [{"name": name, **each} for name, each in zip(("proxy", "setup"), statuses, strict=True)]
        said = {"initContainerStatuses": inits, "containerStatuses": [{"name": "a", **main}], **status}
        await kubectl.api.patch("pods", "p", {"status": {"phase": "Running", **said}}, subresource="status")
        words = (await kubectl("get", "pod", "p", "--no-headers")).lines[0]
        return words[1:4]

    assert await row(running, {"state": {"running": {}}}) == ["1/2", "Init:1/2", "0"]
    again = {"restartCount": 3}
    assert await row({**running, **again}, over, main=running) == ["2/2", "Running", "3"]
    assert await row({**running, "ready": False}, over, main=running) == ["1/2", "Running", "0"]
    ended = {"state": {"terminated": {"exitCode": 7, "reason": "Error"}}}
    done = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    initialized = [{"type": "Initialized", "status": "True"}]
    states = await row(ended, over, main=done, conditions=initialized, phase="Succeeded")
    assert states == ["0/2", "Completed", "0"]
