"""kubectl reads and changes the sandbox as it does any cluster; what cannot run there is refused or ignored.

No node agent runs here: pods are made "running" by writing what an agent would write.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
from typing import Any

import pytest
import yaml

from k8s.sandbox.api.validation import MAX_WARNING_LENGTH, MAX_WARNINGS, REFUSED, warnings_of
from tests.k8s.sandbox.api.kubectl import Kubectl
from tests.k8s.sandbox.calls import (
    APPLY,
    PATIENCE_S,
    TORCH_JOBS,
    Answer,
    Api,
    Object,
    config,
    eventually,
    job,
    pod,
    thing,
    torch_job,
)

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


async def test_get_lists_and_watches_names_and_ages(kubectl: Kubectl) -> None:
    await kubectl.api.made("pods", pod("p", labels={"run": "p"}))
    await kubectl.api.made("kubeflow.org/v1/pytorchjobs", torch_job("t"))
    assert (await kubectl("get", "po")).lines[0] == ["NAME", "AGE"]
    everything = (await kubectl("get", "pods,pytorchjobs,ns", "-A", "--no-headers")).lines
    named = [["default", "pod/p"], ["default", "pytorchjob.kubeflow.org/t"], ["namespace/default"]]
    assert [line[:-1] for line in everything] == named
    assert (await kubectl("get", "pod", "p", "-o", "jsonpath={.status.phase}")).out == "Pending"
    missing = await kubectl("get", "pod", "none", code=1)
    assert missing.err == 'Error from server (NotFound): pods "none" not found\n'
    process = await kubectl.start("get", "pods", "-w", "-L", "run")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        assert (await process.stdout.readline()).split() == [b"NAME", b"AGE", b"RUN"]
        assert (await process.stdout.readline()).split()[::2] == [b"p", b"p"]
        await kubectl.api.patch("pods", "p", {"metadata": {"labels": {"run": "q"}}})
        assert (await process.stdout.readline()).split()[::2] == [b"p", b"q"]
    process.terminate()
    await process.communicate()


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


@pytest.mark.slow
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


async def test_whoami_names_the_owner_of_the_token(kubectl: Kubectl) -> None:
    lines = (await kubectl("auth", "whoami")).lines
    account = pwd.getpwuid(os.getuid()).pw_name
    assert lines[1:] == [["Username", account], ["Groups", "[system:masters", "system:authenticated]"]]


async def test_top_shows_the_measured_usage(kubectl: Kubectl) -> None:
    status = {"allocatable": {"cpu": "2", "memory": "1Gi"}, "capacity": {"cpu": "2", "memory": "1Gi"}}
    for name in ("node-0", "node-1"):
        await kubectl.api.call("POST", "/api/v1/nodes", thing("Node", name, status=status))
    uids = [(await kubectl.run_pod(name, labels={"app": name}))["metadata"]["uid"] for name in ("p", "q")]
    kubectl.server.usage = lambda: {uids[0]: {"a": (0.25, 100 << 20), "b": (0.5, 1 << 20)}}
    assert (await kubectl("top", "pod")).lines[1:] == [["p", "750m", "101Mi"]]
    assert (await kubectl("top", "pod", "--containers")).lines[2] == ["p", "b", "500m", "1Mi"]
    assert (await kubectl("top", "pod", "-l", "app=p", "-A")).lines[1][:2] == ["default", "p"]
    assert (await kubectl("top", "node")).lines[1:] == [
        ["node-0", "750m", "37%", "101Mi", "9%"],
        ["node-1", "0m", "0%", "0Mi", "0%"],
    ]
    assert (
        await kubectl("get", "pods.metrics.k8s.io", "p", "-o", "name")
    ).out == "podmetrics.metrics.k8s.io/p\n"
    missing = await kubectl("top", "pod", "q", code=1)
    assert 'podmetrics.metrics.k8s.io "default/q" not found' in missing.err
    path = "/apis/metrics.k8s.io/v1beta1/nodes"
    assert [(await kubectl.api.call(method, path, {})).code for method in ("POST", "DELETE")] == [405, 405]


async def test_port_forward_reaches_a_pods_port(kubectl: Kubectl) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    version = json.loads((await kubectl("version", "--client", "-o", "json")).out)["clientVersion"]
    if (int(version["major"]), int(version["minor"].rstrip("+"))) < (1, 31):
        pytest.skip("this kubectl forwards ports over SPDY alone")
    await kubectl.run_pod("p")
    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE_S):
        process = await kubectl.start(
            "port-forward", "--address", "127.0.0.1", "p", f":{server.sockets[0].getsockname()[1]}"
        )
        assert process.stdout is not None
        local_port = int((await process.stdout.readline()).split()[2].rpartition(b":")[2])
        for _ in "ab":
            reader, writer = await asyncio.open_connection("127.0.0.1", local_port)
            writer.write(b"hello\n")
            assert await reader.read() == b"HELLO\n"
            writer.close()
        process.terminate()
        await process.communicate()


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
    stored = (await kubectl.api.get("pods", "p")).body
    assert (stored["spec"]["containers"][0]["image"], stored["metadata"]["labels"]) == ("other", {"x": "z"})
    difference = await kubectl("diff", "-f", "-", stdin=text, code=1)
    assert "nprocPerNode" in difference.out


async def test_server_side_apply_is_refused_and_client_side_apply_named(kubectl: Kubectl) -> None:
    text = yaml.safe_dump(config("c"))
    refused = await kubectl("apply", "--server-side", "-f", "-", stdin=text, code=1)
    assert "use client-side apply, kubectl apply without --server-side" in refused.err
    assert len(refused.err.splitlines()) == 1
    answer = await kubectl.api.patch("configmaps", "c", config("c"), APPLY, fieldManager="x")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")


async def test_apply_and_create_find_mistakes(kubectl: Kubectl) -> None:
    wrong = pod("p", containers=("A",))
    for command in ("apply", "create"):
        done = await kubectl(command, "-f", "-", stdin=yaml.safe_dump(wrong), code=1)
        assert "is invalid: spec.containers[0].name" in done.err
    done = await kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod("p")))
    assert "created (server dry run)" in done.out
    assert (await kubectl.api.get("pods", "p")).code == 404


@pytest.mark.slow
async def test_create_label_annotate_patch_and_wait_work(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "c", "--from-literal=a=1")
    await kubectl("create", "job", "j", "--image=x", "--", "sleep", "1")
    await kubectl("run", "p", "--image=x", "--restart=Never")
    await kubectl("label", "pod", "p", "x=y")
    await kubectl("annotate", "pod", "p", "note=hello")
    await kubectl("patch", "pod", "p", "-p", '{"spec":{"containers":[{"name":"p","image":"new"}]}}')
    await kubectl("patch", "pod", "p", "--type=merge", "-p", '{"metadata":{"labels":{"x":null}}}')
    addition = '[{"op":"add","path":"/metadata/labels/q","value":"1"}]'
    await kubectl("patch", "pod", "p", "--type=json", "-p", addition)
    stored = (await kubectl.api.get("pods", "p")).body
    assert stored["spec"]["containers"][0]["image"] == "new"
    assert stored["metadata"]["labels"] == {"run": "p", "q": "1"}
    assert stored["metadata"]["annotations"] == {"note": "hello"}
    waiting = asyncio.create_task(kubectl("wait", "--for=condition=Complete", "job/j", "--timeout=100s"))
    complete = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    await kubectl.api.patch("batch/v1/jobs", "j", complete, subresource="status")
    assert "condition met" in (await waiting).out
    late = await kubectl("wait", "--for=condition=Ready", "pod/none", "--timeout=1s", code=1)
    assert "not found" in late.err


@pytest.mark.slow
async def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl) -> None:
    await kubectl.run_pod("p")
    deleting = asyncio.create_task(kubectl("delete", "pod", "p"))

    async def is_terminating() -> bool:
        return "deletionTimestamp" in (await kubectl.api.get("pods", "p")).body["metadata"]

    await eventually(is_terminating)
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


async def test_ignored_fields_are_printed(kubectl: Kubectl) -> None:
    manifest = job("j", podFailurePolicy={"rules": []})
    done = await kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    assert done.out == "job.batch/j created\n"
    warning = "spec.podFailurePolicy: the sandbox ignores it: every failed pod counts towards backoffLimit"
    assert done.err == f"Warning: {warning}\n"


PROBE = {"exec": {"command": ["true"]}}


def with_container(obj: Object, **fields: Any) -> Object:
    obj["spec"]["containers"][0] |= fields
    return obj


def warned(answer: Answer) -> list[str]:
    return [warning for name, warning in answer.headers.items() if name == "Warning"]


async def test_ignored_fields_cause_a_warning_that_names_them(sandbox: Api) -> None:
    fields: Object = {
        "livenessProbe": PROBE,
        "readinessProbe": PROBE,
        "lifecycle": {"preStop": PROBE},
        "securityContext": {"privileged": True},
        "resources": {"limits": {"ephemeral-storage": "1"}},
    }
    manifest = with_container(pod("p"), **fields)
    beside = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]}
    manifest["spec"] |= {
        "securityContext": {},
        "hostAliases": [{"ip": "::1"}],
        "affinity": {"podAffinity": beside},
    }
    answer = await sandbox.create("pods", manifest)
    named = [warning.split('"')[1].split(": ") for warning in warned(answer)]
    assert [path for path, *_ in named] == [
        *(f"spec.containers[0].{field}" for field in fields if field != "resources"),
        "spec.containers[0].resources.limits.ephemeral-storage",
        # The server's own defaults.
        "spec.containers[0].resources.requests.ephemeral-storage",
        "spec.hostAliases",
        "spec.affinity.podAffinity",
    ]
    assert named[0][1:] == ["the sandbox ignores it", "a container that hangs is not restarted"]


async def test_honoured_fields_cause_no_warning(sandbox: Api) -> None:
    manifest = with_container(pod("p"), terminationMessagePath="/tmp/end")
    for answer in (await sandbox.create("pods", manifest), await sandbox.create("batch/v1/jobs", job("j"))):
        assert (answer.code, warned(answer)) == (201, [])


async def test_a_sidecar_is_refused(sandbox: Api) -> None:
    manifest = pod("p")
    manifest["spec"]["initContainers"] = [{"name": "s", "image": "x", "restartPolicy": "Always"}]
    answer = await sandbox.create("pods", manifest)
    assert (answer.code, answer.fields) == (422, ["spec.initContainers[0].restartPolicy"])


async def test_names_in_a_warning_cannot_break_the_header(sandbox: Api) -> None:
    manifest = torch_job("t")
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    roles['a"\\\r\nX-Evil: 1\u00e9'] = roles["Master"]
    roles["Master"]["template"]["spec"]["containers"][0]["livenessProbe"] = PROBE
    answer = await sandbox.create("kubeflow.org/v1/pytorchjobs", manifest)
    assert answer.code == 201 and "X-Evil" not in answer.headers
    assert 'Specs.a\\"\\\\??X-Evil: 1?.template' in warned(answer)[1]


def test_warnings_about_one_object_are_limited() -> None:
    containers = [{"name": f"c{number}", "livenessProbe": PROBE} for number in range(100)]
    spec = {"x" * 500: {"containers": containers[:1]}, "template": {"containers": containers}}
    warnings = warnings_of({"spec": spec})
    assert (len(warnings), max(map(len, warnings))) == (MAX_WARNINGS, MAX_WARNING_LENGTH)
    odds: tuple[Any, ...] = (None, 5, [], {"containers": 5}, {"containers": [5, {"volumeMounts": 5}]})
    assert [warnings_of({"spec": odd}) for odd in odds] == [[]] * len(odds)


T9K_JOBS = "batch.tensorstack.dev/v1beta1/pytorchtrainingjobs"


def elastic(**policy: Any) -> Object:
    job = torch_job("t")
    job["spec"]["elasticPolicy"] = policy
    return job


def t9k_job(**torchrun: Any) -> Object:
    role = {"type": "node", "template": {"spec": pod("p")["spec"]}}
    spec = {"replicaSpecs": [role], "torchrunConfig": {"enabled": True, **torchrun}}
    kind = {"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "PyTorchTrainingJob"}
    return {**kind, "metadata": {"name": "t"}, "spec": spec}


async def test_objects_are_changed_by_patches_alone(sandbox: Api) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = await sandbox.made("apps/v1/deployments", thing("Deployment", "d", "apps/v1", spec=spec))
    path = sandbox.path("apps/v1/deployments", "d")
    replaced = await sandbox.call("PUT", path, made)
    assert (replaced.code, replaced.reason) == (405, "MethodNotAllowed")
    for method in ("GET", "PUT", "PATCH"):
        assert (await sandbox.call(method, f"{path}/scale", {"spec": {"replicas": 2}})).code == 404
    patched = await sandbox.patch("apps/v1/deployments", "d", {"spec": {"replicas": 2}})
    assert patched.body["spec"]["replicas"] == 2


def pod_with(**container: Any) -> Object:
    made = pod("p")
    made["spec"]["containers"][0] |= container
    return made


async def test_the_c10d_rendezvous_is_refused_with_advice(sandbox: Api) -> None:
    for plural, obj, field in (
        (TORCH_JOBS, elastic(rdzvBackend="c10d"), "spec.elasticPolicy.rdzvBackend"),
        (TORCH_JOBS, elastic(rdzvBackend=" C10d"), "spec.elasticPolicy.rdzvBackend"),
        (
            "pods",
            pod_with(env=[{"name": "A", "value": "b"}, {"name": "PET_RDZV_BACKEND", "value": "c10d"}]),
            "spec.containers[0].env[1].value",
        ),
        ("pods", pod_with(command=["torchrun", "--rdzv-backend", "c10d"]), "spec.containers[0].command"),
        (T9K_JOBS, t9k_job(extraOptions=["--rdzv-backend", "c10d"]), "spec.torchrunConfig.extraOptions"),
        ("pods", pod_with(args=["-c", "torchrun --rdzv_backend=c10d x.py"]), "spec.containers[0].args"),
    ):
        for query in ({}, {"dryRun": "All"}):
            answer = await sandbox.create(plural, obj, **query)
            assert (answer.code, answer.reason, answer.fields) == (422, "Invalid", [field])
            assert f"Forbidden: {REFUSED}" in answer.body["message"]


@pytest.mark.parametrize(
    ("plural", "obj"),
    [
        (TORCH_JOBS, elastic(minReplicas=1, maxReplicas=2)),
        (TORCH_JOBS, elastic(rdzvBackend="etcd-v2")),
        ("pods", pod_with(command=["torchrun", "--rdzv-backend", "static", "--tag", "c10d"])),
        ("pods", pod_with(command=["torchrun", "--standalone"])),
        (T9K_JOBS, t9k_job(rdzvBackend="c10d", extraOptions=["--tee=3"])),
    ],
)
async def test_other_rendezvous_back_ends_are_accepted(sandbox: Api, plural: str, obj: Object) -> None:
    assert (await sandbox.create(plural, obj)).code == 201


async def test_a_change_may_not_add_the_c10d_rendezvous(sandbox: Api) -> None:
    await sandbox.made(TORCH_JOBS, torch_job("t"))
    patch = {"spec": {"elasticPolicy": {"rdzvBackend": "c10d"}}}
    answer = await sandbox.patch(TORCH_JOBS, "t", patch)
    assert (answer.code, answer.fields) == (422, ["spec.elasticPolicy.rdzvBackend"])
