"""`describe node` prints how its GPUs are linked."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.gpus.ack import config_map
from k8s.gpus.links import MACHINES
from tests.k8s.gpus.texts import DGX_1V, LEGEND
from tests.scripted.server import SUCCESS, ScriptedCluster, Socket, page, refusal
from tests.support.objects import node
from tests.tui.commands.conftest import CommandLine

NODES, NODE = "/api/v1/nodes", "/api/v1/nodes/a"
MAPS = "/api/v1/namespaces/kube-system/configmaps"
LABEL = "ack.node.gpu.schedule"


def serve(cluster: ScriptedCluster, **labels: str) -> dict[str, Any]:
    """Serve one node of the name a, whose GPUs are all free."""
    found = node("a")
    found["metadata"]["labels"] = {
        "nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB",
        **{key.replace("__", "/").replace("_", "."): value for key, value in labels.items()},
    }
    for path, items in ((NODES, [found]), ("/api/v1/pods", []), (MAPS, [])):
        cluster.forget(path)
        cluster.say(path, page(items))
    return found


async def test_a_node_is_described_with_its_links(run: CommandLine) -> None:
    serve(run.cluster, topology_kubernetes_io__zone="z")
    exporter = {
        "metadata": {
            "name": "nvidia-dcgm-exporter-x",
            "namespace": "gpu-operator",
            "uid": "u",
            "resourceVersion": "1",
        },
        "spec": {"nodeName": "a", "containers": [{"name": "exporter"}]},
    }
    run.cluster.forget("/api/v1/pods")
    run.cluster.say("/api/v1/pods", page([exporter]))
    path = "/api/v1/namespaces/gpu-operator/pods/nvidia-dcgm-exporter-x/exec"
    run.cluster.say(path, Socket([(1, (DGX_1V + LEGEND).encode()), SUCCESS]))
    ended = await run("describe", "node", "a")
    assert (ended.status, ended.err) == (0, "")
    assert ended.row("GPUs:") == ["GPUs:", "8", "Tesla-V100-SXM2-32GB"]
    assert ended.row("Network:") == ["Network:", "zone", "z"]
    assert "\nby nvidia-smi topo -m in pod gpu-operator/nvidia-dcgm-exporter-x:\n" in ended.out
    assert "  NVLink   0 1 2 3 | 4 5 6 7\n" in ended.out
    values = (await run("describe", "node/a", "-o", "json")).values
    assert values["links"]["matrix"] == [list(line) for line in MACHINES["dgx-1v"].matrix().links]
    assert values["links"]["groups"] == [{"title": "NVLink", "gpus": [[0, 1, 2, 3], [4, 5, 6, 7]]}]
    best = {"gpus": [0, 3], "link": "NV2", "bottleneck_gb_s": 40.0, "total_gb_s": 40.0}
    assert values["links"]["best_sets"][0] == best
    assert (values["network"], values["schedule"], values["links_missing"]) == ({"zone": "z"}, "", "")
    assert values["links"]["free_gpus"] == list(range(8))


async def test_describe_node_without_gpu_links_prints_the_rest_and_the_reason(run: CommandLine) -> None:
    serve(run.cluster)
    ended = await run("describe", "node", "a")
    assert ended.status == 0
    assert ended.row("Allocated:") == ["Allocated:", "0", "of", "8"]
    assert "Could not read how the GPUs of a are linked.\nNo pod on it sees all of its GPUs.\n" in ended.err
    values = (await run("describe", "node", "a", "-o", "json")).values
    assert values["links"] is None
    assert values["links_missing"].startswith("Could not read how")


async def test_describe_node_prints_the_topology_from_alibaba_clouds_configmap(run: CommandLine) -> None:
    serve(run.cluster, ack_node_gpu_schedule="topology")
    run.cluster.forget(MAPS)
    run.cluster.say(MAPS, page([config_map("a", MACHINES["dgx-1v"].matrix())]))
    ended = await run("describe", "node", "a")
    assert ended.row("Schedule:") == ["Schedule:", "ack.node.gpu.schedule=topology"]
    assert "\nby ConfigMap kube-system/a-gpu-topology:\n" in ended.out


@pytest.mark.parametrize("words", [("running",), ("PyTorchJob/running",), ("pytorchjob", "running")])
async def test_describe_job_prints_the_same_status_as_get(words: tuple[str, ...], run: CommandLine) -> None:
    described, got = await run("describe", *words), await run("get", "running")
    assert (described.status, described.row("Status:")) == (0, got.row("Status:"))
    assert "Instances:" in described.out


@pytest.mark.parametrize("words", ["node", "node a b", "node/"])
async def test_describe_node_requires_exactly_one_name(run: CommandLine, words: str) -> None:
    (await run("describe", *words.split())).reports(1, "is not a node.\nUse node NODE or node/NODE.")


async def test_describe_reports_a_missing_node(run: CommandLine) -> None:
    serve(run.cluster)
    ended = await run("describe", "node", "b")
    assert (ended.status, ended.err) == (1, "There is no node b.\nTo list all nodes: gpuconsole top nodes\n")


async def test_describe_node_without_list_permission_does_not_claim_the_node_is_missing(
    run: CommandLine,
) -> None:
    serve(run.cluster)
    run.cluster.forget(NODES)
    run.cluster.say(NODES, refusal(403, 'nodes is forbidden: User "li" cannot list', "Forbidden"))
    ended = await run("describe", "node", "b")
    assert ended.status == 1
    assert ended.err.startswith("Cannot tell whether there is a node b.\nThis user may not list nodes.")


async def test_the_versions_of_a_node_are_printed(run: CommandLine) -> None:
    found = serve(run.cluster)
    driver, cuda = "nvidia.com/cuda.driver", "nvidia.com/cuda.runtime"
    found["metadata"]["labels"] |= {
        f"{driver}.major": "580",
        f"{driver}.minor": "95",
        f"{driver}.rev": "05",
        f"{cuda}-version.full": "13.0",
    }
    found["status"]["nodeInfo"] = {
        "osImage": "Debian GNU/Linux 12 (bookworm)",
        "kernelVersion": "6.8.0-generic",
        "containerRuntimeVersion": "containerd://2.1.9",
        "kubeletVersion": "v1.36.2",
    }
    run.cluster.forget(NODES)
    run.cluster.say(NODES, page([found]))
    ended = await run("describe", "node", "a")
    assert ended.row("Kubelet:") == ["Kubelet:", "v1.36.2"]
    assert ended.row("CUDA:") == ["CUDA:", "13.0"]
    assert (await run("describe", "node", "a", "-o", "json")).values["versions"] == {
        "os": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.8.0-generic",
        "container_runtime": "containerd://2.1.9",
        "kubelet": "v1.36.2",
        "gpu_driver": "580.95.05",
        "cuda": "13.0",
    }
