"""Discovery of the links between a node's GPUs from any source, with a message where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from k8s.gpus.ack import config_map, describe_schedule, other_schedule, set_schedule
from k8s.gpus.gpu_links import NEEDS, UnknownLinks, fetch_known_links, fetch_links
from k8s.gpus.links import MACHINES
from k8s.snapshot import Holder, NodeRow, Share
from k8s.text.errors import KubeError
from tests.k8s.gpus.texts import DGX_1V, LEGEND, TWO_BY_HOST_BRIDGE
from tests.scripted.server import SUCCESS, Answer, ScriptedCluster, Socket, page, refusal
from tests.support.objects import GPU

MAPS = "/api/v1/namespaces/kube-system/configmaps"
PODS = "/api/v1/pods"


def row(gpus: int = 8, schedule: str = "", *holders: Holder) -> NodeRow:
    share = {GPU: Share(gpus, sum(each.gpus for each in holders), 0)}
    return NodeRow(
        "a", "", (), "Ready", False, "Tesla-V100-SXM2-32GB", share, holders, None, schedule=schedule
    )


def pod(name: str, namespace: str = "gpu-operator", image: str = "x", gpus: int = 0) -> dict[str, Any]:
    limits = {"resources": {"limits": {GPU: str(gpus)}}} if gpus else {}
    containers = [{"name": "sidecar", "image": "proxy"}, {"name": "main", "image": image, **limits}]
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": "a", "containers": containers[1:] if gpus else containers},
    }


def exec_of(name: str, namespace: str = "gpu-operator") -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}/exec"


def printed(text: str = DGX_1V + LEGEND) -> Socket:
    return Socket([(1, text[:100].encode()), (1, text[100:].encode()), SUCCESS])


async def test_measured_links_are_preferred() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([config_map("a", MACHINES["dgx-1v"].matrix())]))
        found = await fetch_links(client, row())
        assert found.source == "ConfigMap kube-system/a-gpu-topology"
        (asked,) = cluster.asked(MAPS)
        assert asked.query["labelSelector"] == "ack.node.gpu.schedule=topology,nodename=a"
        assert not cluster.asked(PODS)


async def test_the_command_is_run_in_a_pod_that_sees_all_gpus() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, refusal(403, "no", "Forbidden"))
        exporter = pod("nvidia-dcgm-exporter-x", image="nvcr.io/nvidia/k8s/dcgm-exporter:4.2")
        cluster.say(PODS, page([pod("web", "default"), exporter]))
        cluster.say(exec_of("nvidia-dcgm-exporter-x"), printed())
        found = await fetch_links(client, row())
        assert found.source == "nvidia-smi topo -m in pod gpu-operator/nvidia-dcgm-exporter-x"
        assert found.links == MACHINES["dgx-1v"].matrix().links
        assert found.bandwidth[0][3] == 40.0
        assert cluster.asked(PODS)[0].query["fieldSelector"] == "spec.nodeName=a,status.phase=Running"


async def test_a_pod_without_the_command_does_not_keep_the_next_from_being_tried() -> None:
    ended = Socket([(2, b"sh: nvidia-smi: not found\n"), (3, b'{"status": "Failure"}')])
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([]))
        driver = pod("nvidia-driver-daemonset-b")
        plugin = pod("plugin", "kube-system", "nvcr.io/nvidia/k8s-device-plugin:v0.17")
        few = pod("gpu-feature-discovery-q")
        cluster.say(PODS, page([few, plugin, driver]))
        cluster.say(exec_of("nvidia-driver-daemonset-b"), ended)
        cluster.say(exec_of("plugin", "kube-system"), refusal(403, "not you", "Forbidden"))
        cluster.say(exec_of("gpu-feature-discovery-q"), printed(TWO_BY_HOST_BRIDGE))
        with pytest.raises(UnknownLinks) as raised:
            await fetch_links(client, row())
        assert raised.value.what == "Could not read how the GPUs of a are linked."
        first, second, third = raised.value.why.splitlines()
        assert first == "gpu-operator/nvidia-driver-daemonset-b: sh: nvidia-smi: not found"
        assert second.startswith("kube-system/plugin: ") and "not you" in second
        assert third == "gpu-operator/gpu-feature-discovery-q sees 2 of 8 GPUs."
        assert raised.value.hint == NEEDS
        assert (await fetch_links(client, row(2))).links == (("X", "PHB"), ("PHB", "X"))


async def test_a_job_that_holds_all_gpus_sees_them_too() -> None:
    """Run the command in the user's own pod when no other namespace may be read."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, refusal(403, "no", "Forbidden"))
        cluster.say(PODS, refusal(403, "not all pods", "Forbidden"))
        cluster.say("/api/v1/namespaces/*", refusal(403, "not these", "Forbidden"))
        own = [pod("bert-0", "nlp", gpus=8), pod("a-vit-0", "nlp", gpus=4)]
        cluster.say("/api/v1/namespaces/nlp/pods", page(own))
        cluster.say(exec_of("bert-0", "nlp"), printed())
        assert (await fetch_links(client, row(), "nlp")).source.endswith("pod nlp/bert-0")
        assert not cluster.asked(exec_of("a-vit-0", "nlp"))


async def test_slices_are_not_counted_as_gpus() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([]))
        cluster.say(PODS, page([pod("nvidia-dcgm-exporter-x")]))
        cluster.say(exec_of("nvidia-dcgm-exporter-x"), printed(TWO_BY_HOST_BRIDGE))
        assert len((await fetch_links(client, replace(row(14), mode="mig"))).links) == 2


async def test_unknown_links_are_explained_when_no_pod_sees_all_gpus() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([{"metadata": {"name": "odd"}, "data": {"linkType": "{"}}]))
        cluster.say(PODS, page([pod("web", "default")]))
        with pytest.raises(UnknownLinks) as raised:
            await fetch_links(client, row())
        assert raised.value.why.splitlines() == [
            "ConfigMap odd has no matrix in its linkType.",
            "No pod on it sees all of its GPUs.",
        ]


async def test_measured_links_of_all_nodes_are_read_in_one_request() -> None:
    maps = [config_map(name, MACHINES["dgx-1v"].matrix()) for name in ("a", "b")]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([*maps, {"metadata": {"name": "odd"}}]), refusal(403, "no", "Forbidden"))
        found = await fetch_known_links(client, {"a": "NVIDIA-A100-SXM4-40GB"})
        assert sorted(found) == ["a", "b"]
        assert (found["a"].bandwidth[0][1], found["b"].bandwidth[0][1]) == (20.0, 20.0)
        assert await fetch_known_links(client, {}) == {}


async def test_the_label_is_set_and_the_answer_is_read() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        labelled = {"metadata": {"name": "a", "labels": {"ack.node.gpu.schedule": "topology"}}}
        cluster.say("/api/v1/nodes/a", Answer(labelled), Answer({"metadata": {"name": "a"}}), method="PATCH")
        await set_schedule(client, "a", "topology")
        (asked,) = cluster.asked("/api/v1/nodes/a", method="PATCH")
        assert json.loads(asked.body) == labelled | {"metadata": {"labels": labelled["metadata"]["labels"]}}
        with pytest.raises(KubeError, match="the label is not there"):
            await set_schedule(client, "a", "default")


def test_the_label_goes_back_to_default() -> None:
    assert [other_schedule(row(8, value)) for value in ("", "default", "topology", "share")] == [
        "topology",
        "topology",
        "default",
        "topology",
    ]
    holder = Holder("default", "p", "bert", 4, {GPU: 4})
    words = describe_schedule(row(8, "", holder), "topology")
    assert words[0] == "Label ack.node.gpu.schedule=topology, now not set."
    assert words[-1] == "The pod that holds GPUs there runs on."
    back = describe_schedule(row(8, "topology", holder, holder), "default")
    assert back[0] == "Label ack.node.gpu.schedule=default, now topology."
    assert back[-1] == "The 2 pods that hold GPUs there run on."


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (replace(row(), is_simulated=True), "sandbox start --links dgx-1v"),
        (replace(row(), resources={"amd.com/gpu": Share(8, 0, 0)}), "They are not NVIDIA GPUs"),
    ],
)
async def test_no_pods_are_listed_for_simulated_or_non_nvidia_gpus(node: NodeRow, words: str) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([]))
        with pytest.raises(UnknownLinks) as caught:
            await fetch_links(client, node)
        assert words in str(caught.value) and "DCGM" not in str(caught.value)
        assert not cluster.asked(PODS)
