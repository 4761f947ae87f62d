"""kubectl against the sandbox: what people type works as on any cluster.

No node agent runs here: pods are made "running" by writing what an agent would write.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import shutil
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.sandbox.api.http.certificate import server_context
from k8s.sandbox.api.http.server import Server
from k8s.sandbox.api.served import SERVED
from k8s.sandbox.api.storage.store import Store
from tests import FIXTURES
from tests.k8s.sandbox.calls import PATIENCE_S, Api, Object, config, eventually, job, pod, thing, torch_job
from tests.k8s.sandbox.conftest import TOKEN
from tests.k8s.sandbox.containers import waiting_container

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line that was printed."""
        return [line.split() for line in self.out.splitlines()]


class Kubectl:
    """Runs kubectl on one sandbox."""

    def __init__(self, api: Api, folder: Path, root: Path) -> None:
        self.api = api
        self.root = root
        self.folder = folder
        self.started: list[asyncio.subprocess.Process] = []
        self.containers = AsyncExitStack()
        self.environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}

    async def start(self, *words: str, **streams: Any) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        settings = {"stdin": pipe, "stdout": pipe, "stderr": pipe, **streams}
        process = await asyncio.create_subprocess_exec("kubectl", *words, env=self.environment, **settings)
        self.started.append(process)
        return process

    async def end_all(self) -> None:
        """Leave nothing running behind a test that failed."""
        for process in self.started:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        await self.containers.aclose()

    async def __call__(self, *words: str, stdin: str = "", code: int = 0) -> Done:
        """Run to the end, and expect an exit code."""
        process = await self.start(*words)
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        done = Done(process.returncode or 0, out.decode(), err.decode())
        assert done.code == code, f"kubectl {' '.join(words)}: {done.out}{done.err}"
        return done

    async def run_pod(self, name: str, *log: str, **metadata: Any) -> Object:
        """Make a pod that runs, as far as the server can tell, and has printed some lines."""
        wanted = pod(name, node="node-0", **metadata)
        made = await self.api.made("pods", wanted)
        folder = self.root / made["metadata"]["uid"] / "a"
        folder.mkdir(parents=True)
        text = "".join(f"2026-11-20T10:00:00.000000000Z stdout F {line}\n" for line in log)
        (folder / "2.log").write_text(text)
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        await self.containers.enter_async_context(waiting_container(folder, Path("/"), PATH=path))
        now = made["metadata"]["creationTimestamp"]
        status = {"name": "a", "ready": True, "restartCount": 2, "state": {"running": {"startedAt": now}}}
        ready = {"type": "Ready", "status": "True"}
        patch = {
            "status": {
                "phase": "Running",
                "podIP": "127.0.0.1",
                "conditions": [ready],
                "containerStatuses": [{"image": "busybox", "imageID": "", **status}],
            }
        }
        await self.api.patch("pods", name, patch, subresource="status")
        return made


@pytest.fixture
async def kubectl(store: Store, tmp_path: Path) -> AsyncIterator[Kubectl]:
    root = tmp_path / "pods"
    server = Server(store, token=TOKEN, pods_root=root)
    context, trusted = server_context(tmp_path)
    port = await server.start(tls=context)
    url = f"https://127.0.0.1:{port}"
    authority = base64.b64encode(trusted.encode()).decode()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "s", "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": "s", "user": {"token": TOKEN}}],
        "contexts": [{"name": "s", "context": {"cluster": "s", "user": "s"}}],
        "current-context": "s",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    tls = ssl.create_default_context(cadata=trusted)
    async with Api(url, TOKEN, tls, is_real=False) as api:
        kubectl = Kubectl(api, tmp_path, root)
        try:
            yield kubectl
        finally:
            await kubectl.end_all()
    await server.stop()


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


async def test_apply_creates_changes_and_removes(kubectl: Kubectl) -> None:
    manifests = [config("c", {"a": "1", "b": "2"}), pod("p"), job("j"), torch_job("t")]
    text = yaml.safe_dump_all(manifests)
    first = await kubectl("apply", "-f", "-", stdin=text)
    assert [line[1] for line in first.lines] == ["created"] * 4
    again = await kubectl("apply", "-f", "-", stdin=text)
    assert [line[1] for line in again.lines] == ["unchanged"] * 4
    manifests[0]["data"] = {"a": "3"}
    manifests[1]["metadata"]["labels"] = {"x": "z"}
    manifests[1]["spec"]["containers"][0]["image"] = "other"
    manifests[3]["spec"]["nprocPerNode"] = "2"
    changed = await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests))
    assert [line[1] for line in changed.lines] == ["configured", "configured", "unchanged", "configured"]
    assert (await kubectl.api.get("configmaps", "c")).body["data"] == {"a": "3"}
    found = (await kubectl.api.get("pods", "p")).body
    assert (found["spec"]["containers"][0]["image"], found["metadata"]["labels"]) == ("other", {"x": "z"})
    difference = await kubectl("diff", "-f", "-", stdin=text, code=1)
    assert "nprocPerNode" in difference.out


async def test_apply_on_the_server_meets_conflicts(kubectl: Kubectl) -> None:
    def text(value: str) -> str:
        return yaml.safe_dump(config("c", {"a": value}))

    done = await kubectl("apply", "--server-side", "-f", "-", stdin=text("1"))
    assert "serverside-applied" in done.out
    other = ("apply", "--server-side", "--field-manager", "other", "-f", "-")
    refused = await kubectl(*other, stdin=text("2"), code=1)
    assert 'conflict with "kubectl": .data.a' in refused.err
    await kubectl(*other, "--force-conflicts", stdin=text("2"))
    assert (await kubectl.api.get("configmaps", "c")).body["data"] == {"a": "2"}


async def test_apply_and_create_find_mistakes(kubectl: Kubectl) -> None:
    misspelt = pod("p")
    misspelt["spec"]["containers"][0]["imagee"] = "x"
    for command in (("apply",), ("create",), ("apply", "--server-side")):
        done = await kubectl(*command, "-f", "-", stdin=yaml.safe_dump(misspelt), code=1)
        assert 'unknown field "spec.containers[0].imagee"' in done.err
    wrong = pod("p", containers=("A",))
    done = await kubectl("apply", "-f", "-", stdin=yaml.safe_dump(wrong), code=1)
    assert "is invalid: spec.containers[0].name" in done.err
    done = await kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod("p")))
    assert "created (server dry run)" in done.out
    assert (await kubectl.api.get("pods", "p")).code == 404


async def test_create_label_annotate_and_patch(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "c", "--from-literal=a=1")
    await kubectl("create", "secret", "generic", "s", "--from-literal=a=1")
    await kubectl("create", "job", "j", "--image=x", "--", "sleep", "1")
    await kubectl("create", "namespace", "n")
    await kubectl("run", "p", "--image=x", "--restart=Never")
    await kubectl("label", "pod", "p", "x=y")
    await kubectl("annotate", "pod", "p", "note=hello")
    await kubectl("patch", "pod", "p", "-p", '{"spec":{"containers":[{"name":"p","image":"new"}]}}')
    await kubectl("patch", "pod", "p", "--type=merge", "-p", '{"metadata":{"labels":{"x":null}}}')
    await kubectl(
        "patch", "pod", "p", "--type=json", "-p", '[{"op":"add","path":"/metadata/labels/q","value":"1"}]'
    )
    found = (await kubectl.api.get("pods", "p")).body
    assert found["spec"]["containers"][0]["image"] == "new"
    assert found["metadata"]["labels"] == {"run": "p", "q": "1"}
    assert found["metadata"]["annotations"] == {"note": "hello"}
    await kubectl("set", "image", "pod/p", "p=newer")
    await kubectl("replace", "-f", "-", stdin=yaml.safe_dump(config("c", {"b": "2"})))
    assert (await kubectl.api.get("configmaps", "c")).body["data"] == {"b": "2"}


async def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl) -> None:
    await kubectl.run_pod("p")
    deleting = asyncio.create_task(kubectl("delete", "pod", "p"))

    async def is_terminating() -> bool:
        return "deletionTimestamp" in (await kubectl.api.get("pods", "p")).body["metadata"]

    await eventually(is_terminating)
    assert (await kubectl("get", "po", "p")).lines[1][2] == "Terminating"
    assert not deleting.done()
    await kubectl.api.delete("pods", "p", {"gracePeriodSeconds": 0})
    assert 'pod "p" deleted' in (await deleting).out
    await kubectl.api.made("batch/v1/jobs", job("j"))
    for cascade in ("foreground", "background", "orphan"):
        await kubectl("delete", "job", "j", f"--cascade={cascade}")
        await kubectl.api.made("batch/v1/jobs", job("j"))
    await kubectl("create", "namespace", "n")
    await kubectl("delete", "namespace", "n")
    await kubectl("delete", "jobs", "--all")
    await kubectl.run_pod("q")
    await kubectl("delete", "pod", "q", "--now", "--wait=false")
    await kubectl("delete", "pod", "q", "--force", "--grace-period=0")


async def test_wait_waits(kubectl: Kubectl) -> None:
    await kubectl.api.made("batch/v1/jobs", job("j"))
    waiting = asyncio.create_task(kubectl("wait", "--for=condition=Complete", "job/j", "--timeout=30s"))
    gone = asyncio.create_task(kubectl("wait", "--for=delete", "job/j", "--timeout=30s"))
    patch = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    await kubectl.api.patch("batch/v1/jobs", "j", patch, subresource="status")
    assert "condition met" in (await waiting).out
    await kubectl.api.delete("batch/v1/jobs", "j", {"propagationPolicy": "Background"})
    await gone
    late = await kubectl("wait", "--for=condition=Ready", "pod/none", "--timeout=1s", code=1)
    assert "not found" in late.err


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


async def test_t9ks_tutorial_is_applied_as_it_stands(kubectl: Kubectl) -> None:
    path = str(FIXTURES / "t9k" / "job.yaml")
    said = await kubectl("apply", "-f", path, "--dry-run=server")
    assert said.out == "pytorchtrainingjob.batch.tensorstack.dev/mnist created (server dry run)\n"
    await kubectl("apply", "-f", path)
    assert (await kubectl("apply", "-f", path)).out.endswith("mnist unchanged\n")
    patch = {"status": {"phase": "Running"}}
    plural = "batch.tensorstack.dev/v1beta1/pytorchtrainingjobs"
    await kubectl.api.patch(plural, "mnist", patch, subresource="status")
    lines = (await kubectl("get", "pytorchtrainingjobs")).lines
    assert (lines[0], lines[1][:2]) == (["NAME", "PHASE", "AGE"], ["mnist", "Running"])
    await kubectl("delete", "-f", path)
    assert (await kubectl("get", "pytorchtrainingjobs")).lines == []


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


async def test_what_is_ignored_is_warned_of_and_described(kubectl: Kubectl) -> None:
    manifest = job("j", podFailurePolicy={"rules": []})
    done = await kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    assert done.out == "job.batch/j created\n"
    words = "spec.podFailurePolicy: the sandbox ignores it: every failed pod counts towards backoffLimit"
    assert done.err == f"Warning: {words}\n"
    assert words in (await kubectl("describe", "job", "j")).out


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
