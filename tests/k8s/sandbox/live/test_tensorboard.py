"""A job's TensorBoard: a Deployment beside it, reached by port-forward, closed to other users."""

from __future__ import annotations

import json

import pytest

from k8s.models.resources import DEPLOYMENTS, PODS, SERVICES
from tests import ROOT
from tests.k8s.sandbox.live.running import (
    Manifest,
    Space,
    conditions,
    listening_sockets,
    marked,
    pod,
    until_unmarked,
)
from trainer.tfevents.writer import EventWriter

ARENA = ROOT / "tests" / "fixtures" / "arena"


def made_by_arena(part: str) -> Manifest:
    found: Manifest = json.loads((ARENA / f"pytorch-dist.tensorboard-{part}.json").read_text())
    return found


@pytest.mark.slow
async def test_the_tensorboard_of_an_arena_job_is_reachable_by_port_forward(space: Space) -> None:
    pytest.importorskip("tensorboard")
    folder = await space.claim_folder("training-data")
    with EventWriter(folder / "pytorch_data" / "logs") as events:
        events.write_scalar("train/loss", 1, 0.5)
    await space.create(DEPLOYMENTS, made_by_arena("deployment"))
    service = await space.create(SERVICES, made_by_arena("service"))
    assert "nodePort" not in service["spec"]["ports"][0]
    running = await space.board_pod("pytorch-dist")
    name = running["metadata"]["name"]
    assert await space.scalars(name) == {
        ".": {"train/loss": {"displayName": "train/loss", "description": ""}}
    }
    assert listening_sockets(marked(f"GPUCONSOLE_POD_UID={running['metadata']['uid']}")) == []
    done = await space.comes(
        DEPLOYMENTS, "pytorch-dist-tensorboard", lambda each: each["status"].get("availableReplicas")
    )
    assert conditions(done) == {"Available": "True"}
    assert done["status"]["observedGeneration"] == done["metadata"]["generation"] == 1
    await space.delete(DEPLOYMENTS, "pytorch-dist-tensorboard")
    await space.goes(PODS, name)
    until_unmarked(f"GPUCONSOLE_POD_UID={running['metadata']['uid']}")


async def test_a_deployment_keeps_its_pods_through_deletion_change_and_scale(space: Space) -> None:
    env = [{"name": "MARK", "value": space.name}]
    deployment = made_by_arena("deployment")
    deployment["metadata"] = {"name": "keeps"}
    spec = deployment["spec"]["template"]["spec"]
    for field in ("affinity", "volumes"):
        del spec[field]
    spec["terminationGracePeriodSeconds"] = 1
    spec["containers"] = pod("c", "sleep", "300", container={"env": env})["spec"]["containers"]
    deployment["spec"]["template"]["metadata"]["labels"]["release"] = "keeps"
    deployment["spec"]["selector"]["matchLabels"]["release"] = "keeps"
    await space.create(DEPLOYMENTS, deployment)
    first = await space.board_pod("keeps")
    await space.delete(PODS, first["metadata"]["name"])
    await space.goes(PODS, first["metadata"]["name"])
    second = await space.board_pod("keeps")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    change = {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
    await space.patch(DEPLOYMENTS, "keeps", change)
    await space.goes(PODS, second["metadata"]["name"])
    third = await space.board_pod("keeps")
    assert third["metadata"]["annotations"] == {"restarted": "now"}
    await space.patch(DEPLOYMENTS, "keeps", {"spec": {"replicas": 0}})
    await space.goes(PODS, third["metadata"]["name"])
    assert marked(space.name) == []
