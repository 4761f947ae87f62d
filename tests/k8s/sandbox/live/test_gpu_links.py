"""A sandbox whose simulated GPUs are linked as in a DGX-1: jobs get those that are near each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from k8s import sandbox
from k8s.client.client import Client
from k8s.models.resources import JOBS, NODES, PODS
from k8s.topology.ack import set_schedule
from k8s.topology.gpu_links import fetch_known_links
from k8s.topology.machines import MACHINES
from tests.k8s.sandbox.live.running import comes, log_of


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.SandboxAddress]:
    """A sandbox of one node with eight simulated GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        address = asyncio.run(sandbox.start(sandbox.SandboxOptions(nodes=1, links="dgx-1v")))
        yield address
        assert asyncio.run(sandbox.stop())


async def test_a_job_gets_gpus_that_are_near_each_other_and_ack_s_label_is_heeded(
    linked: sandbox.SandboxAddress,
) -> None:
    """Four pods of one GPU each, as in Alibaba Cloud's guide; then the label that the guide sets."""
    async with await Client.connect(str(linked.kubeconfig)) as client:
        known = await fetch_known_links(client, {"sandbox-0": "Tesla-V100"})
        assert known["sandbox-0"].links == MACHINES["dgx-1v"].matrix().links
        container = {
            "name": "c",
            "image": "x",
            "command": ["sh", "-c", 'echo "gpu=$GPUCONSOLE_SIMULATED_GPUS"'],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "four", "namespace": "default"},
            "spec": {"completions": 4, "parallelism": 4, "template": template},
        }
        await client.create(JOBS, job, "default")
        await comes(client, JOBS, "four", lambda found: found.get("status", {}).get("succeeded") == 4)
        pods = await client.list(PODS, "default", label_selector="job-name=four")
        given = {each["metadata"]["name"]: each["metadata"]["annotations"] for each in pods}
        numbers = {name: found["topology.kubernetes.io/gpu-group"] for name, found in given.items()}
        assert set(numbers.values()) in ({"0", "1", "2", "3"}, {"4", "5", "6", "7"})
        for name, number in numbers.items():
            assert f"gpu={number}" in await log_of(client, name)
        await set_schedule(client, "sandbox-0", "topology")
        await comes(client, NODES, "sandbox-0", lambda node: _offers(node) == {"aliyun.com/gpu": "8"}, "")
        await set_schedule(client, "sandbox-0", "default")
        await comes(client, NODES, "sandbox-0", lambda node: _offers(node) == {"nvidia.com/gpu": "8"}, "")


def _offers(node: dict[str, dict[str, dict[str, str]]]) -> dict[str, str]:
    return {name: amount for name, amount in node["status"]["allocatable"].items() if "gpu" in name}
