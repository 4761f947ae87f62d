"""kubectl changes the sandbox as it changes any cluster: apply, create, patch, delete, wait."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest
import yaml

from tests import FIXTURES
from tests.k8s.sandbox.api.kubectl import Kubectl
from tests.k8s.sandbox.calls import APPLY, MERGE, config, eventually, job, pod, thing, torch_job

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


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
    misspelt = pod("p")
    misspelt["spec"]["containers"][0]["imagee"] = "x"
    for command in ("apply", "create"):
        done = await kubectl(command, "-f", "-", stdin=yaml.safe_dump(misspelt), code=1)
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
    stored = (await kubectl.api.get("pods", "p")).body
    assert stored["spec"]["containers"][0]["image"] == "new"
    assert stored["metadata"]["labels"] == {"run": "p", "q": "1"}
    assert stored["metadata"]["annotations"] == {"note": "hello"}
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


async def test_the_manifest_of_t9ks_tutorial_can_be_applied(kubectl: Kubectl) -> None:
    path = str(FIXTURES / "t9k" / "job.yaml")
    dry_run = await kubectl("apply", "-f", path, "--dry-run=server")
    assert dry_run.out == "pytorchtrainingjob.batch.tensorstack.dev/mnist created (server dry run)\n"
    await kubectl("apply", "-f", path)
    assert (await kubectl("apply", "-f", path)).out.endswith("mnist unchanged\n")
    patch = {"status": {"phase": "Running"}}
    plural = "batch.tensorstack.dev/v1beta1/pytorchtrainingjobs"
    await kubectl.api.patch(plural, "mnist", patch, subresource="status")
    lines = (await kubectl("get", "pytorchtrainingjobs")).lines
    assert (lines[0], lines[1][:2]) == (["NAME", "STATE", "AGE"], ["mnist", "Running"])
    await kubectl("delete", "-f", path)
    assert (await kubectl("get", "pytorchtrainingjobs")).lines == []


async def test_ignored_fields_are_printed_and_described(kubectl: Kubectl) -> None:
    manifest = job("j", podFailurePolicy={"rules": []})
    done = await kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    assert done.out == "job.batch/j created\n"
    warning = "spec.podFailurePolicy: the sandbox ignores it: every failed pod counts towards backoffLimit"
    assert done.err == f"Warning: {warning}\n"
    assert warning in (await kubectl("describe", "job", "j")).out


async def test_scale_changes_the_replicas_of_a_deployment(kubectl: Kubectl) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await kubectl.api.made("apps/v1/deployments", thing("Deployment", "d", "apps/v1", spec=spec))
    assert "deployment.apps/d scaled" in (await kubectl("scale", "deployment/d", "--replicas", "3")).out
    refused = await kubectl("scale", "deploy", "d", "--current-replicas", "7", "--replicas", "2", code=1)
    assert "Expected replicas to be 7, was 3" in refused.err
    path = kubectl.api.path("apps/v1/deployments", "d", "scale")
    scale = (await kubectl.api.call("GET", path)).body
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 3}, "a=b")
    scale["spec"]["replicas"] = 0
    assert (await kubectl.api.call("PUT", path, scale)).body["spec"] == {"replicas": 0}
    scale["spec"]["replicas"] = 1
    assert (await kubectl.api.call("PUT", path, scale)).code == 409
    bodies: list[object] = [[], {"spec": None}, {"spec": {"replicas": "x"}}, {"spec": {"replicas": -1}}]
    for broken in bodies:
        assert (await kubectl.api.call("PATCH", path, broken, content_type=MERGE)).code in (400, 422)
    assert (await kubectl.api.call("DELETE", path)).code == 405
    assert (await kubectl.api.get("apps/v1/deployments", "d")).body["spec"]["replicas"] == 0
