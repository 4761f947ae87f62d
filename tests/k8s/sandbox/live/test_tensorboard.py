"""A job's TensorBoard: a Deployment beside it, reached by port-forward, closed to other users."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess

import pytest

from k8s.client.client import Client
from k8s.models.resources import DEPLOYMENTS, PODS, SERVICES
from k8s.sandbox import SandboxAddress
from tests import ROOT
from tests.k8s.sandbox.live.running import (
    Manifest,
    claim_folder,
    comes,
    conditions,
    eventually,
    goes,
    listening_sockets,
    marked,
    scalars,
    the_pod,
)
from trainer.tfevents.writer import EventWriter

ARENA = ROOT / "tests" / "fixtures" / "arena"


def made_by_arena(part: str) -> Manifest:
    found: Manifest = json.loads((ARENA / f"pytorch-dist.tensorboard-{part}.json").read_text())
    return found


async def test_what_arena_makes_beside_a_job_is_a_process_that_forward_reaches(client: Client) -> None:
    pytest.importorskip("tensorboard")
    folder = await claim_folder(client, "training-data")
    with EventWriter(folder / "pytorch_data" / "logs") as events:
        events.write_scalar("train/loss", 1, 0.5)
    await client.create(DEPLOYMENTS, made_by_arena("deployment"), "default")
    service = await client.create(SERVICES, made_by_arena("service"), "default")
    assert "nodePort" not in service["spec"]["ports"][0]
    running = await the_pod(client, "pytorch-dist", "Running")
    name = running["metadata"]["name"]
    assert await scalars(client, name) == {
        ".": {"train/loss": {"displayName": "train/loss", "description": ""}}
    }
    assert listening_sockets(marked(f"GPUCONSOLE_POD_UID={running['metadata']['uid']}")) == []
    done = await comes(
        client, DEPLOYMENTS, "pytorch-dist-tensorboard", lambda each: each["status"].get("availableReplicas")
    )
    assert conditions(done) == {"Available": "True"}
    assert done["status"]["observedGeneration"] == done["metadata"]["generation"] == 1
    await client.delete(DEPLOYMENTS, "pytorch-dist-tensorboard", "default")
    await goes(client, PODS, name)
    eventually(lambda: not marked(f"GPUCONSOLE_POD_UID={running['metadata']['uid']}"))


async def test_a_deployment_keeps_its_pods_through_deletion_change_and_scale(client: Client) -> None:
    mark = f"deployed-{os.getpid()}"
    deployment = made_by_arena("deployment")
    deployment["metadata"] = {"name": "keeps"}
    spec = deployment["spec"]["template"]["spec"]
    for field in ("affinity", "volumes"):
        del spec[field]
    spec["terminationGracePeriodSeconds"] = 1
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sleep", "300"],
        "env": [{"name": "MARK", "value": mark}],
    }
    spec["containers"] = [container]
    deployment["spec"]["template"]["metadata"]["labels"]["release"] = "keeps"
    deployment["spec"]["selector"]["matchLabels"]["release"] = "keeps"
    await client.create(DEPLOYMENTS, deployment, "default")
    first = await the_pod(client, "keeps", "Running")
    await client.delete(PODS, first["metadata"]["name"], "default")
    await goes(client, PODS, first["metadata"]["name"])
    second = await the_pod(client, "keeps", "Running")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    change = {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
    await client.patch(DEPLOYMENTS, "keeps", change, "default")
    await goes(client, PODS, second["metadata"]["name"])
    third = await the_pod(client, "keeps", "Running")
    assert third["metadata"]["annotations"] == {"restarted": "now"}
    await client.patch(DEPLOYMENTS, "keeps", {"spec": {"replicas": 0}}, "default")
    await goes(client, PODS, third["metadata"]["name"])
    assert marked(mark) == []
    await client.delete(DEPLOYMENTS, "keeps", "default")


async def test_kubectl_sees_a_deployment_and_waits_for_it(client: Client, running: SandboxAddress) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    deployment = made_by_arena("deployment")
    for field in ("namespace", "annotations"):
        del deployment["metadata"][field]
    deployment["metadata"]["name"] = "seen"
    spec = deployment["spec"]["template"]["spec"]
    del spec["affinity"], spec["volumes"]
    spec["containers"] = [{"name": "c", "image": "busybox", "command": ["sleep", "300"]}]

    def kubectl(*words: str, given: str = "") -> str:
        command = ["kubectl", "--kubeconfig", str(running.kubeconfig), *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert await asyncio.to_thread(kubectl, "apply", "-f", "-", given=json.dumps(deployment)) == (
        "deployment.apps/seen created\n"
    )
    said = await asyncio.to_thread(kubectl, "rollout", "status", "deployment/seen", "--timeout=90s")
    assert said.endswith('deployment "seen" successfully rolled out\n')
    rows = (await asyncio.to_thread(kubectl, "get", "deploy")).splitlines()
    assert rows[0].split() == ["NAME", "READY", "AGE"]
    assert rows[1].split()[:2] == ["seen", "1/1"]
    await asyncio.to_thread(kubectl, "delete", "deploy", "seen")
