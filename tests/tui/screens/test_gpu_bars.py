"""The list of nodes with GPUs that are given in other ways than whole, one to a pod."""

from __future__ import annotations

from pathlib import Path

from tests.support.objects import Object, node
from tests.support.playground import console_on


def offering(name: str, labels: dict[str, str], offered: dict[str, str], **spec: bool) -> Object:
    found = node(name, gpus=0, **spec)
    found["metadata"]["labels"] = labels
    found["status"]["allocatable"] = found["status"]["capacity"] = offered
    return found


async def test_each_node_shows_its_gpu_sharing_mode_and_gpu_memory(tmp_path: Path) -> None:
    h100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81920"}
    nodes = [
        offering("whole", h100, {"nvidia.com/gpu": "8"}),
        offering("shared", {}, {"aliyun.com/gpu-mem": "160", "aliyun.com/gpu-count": "2"}),
        offering("sliced", {}, {"nvidia.com/mig-1g.10gb": "7"}, unschedulable=True),
    ]
    pod = {
        "metadata": {"name": "serve", "namespace": "default", "uid": "p", "resourceVersion": "1"},
        "spec": {
            "nodeName": "shared",
            "containers": [{"name": "a", "resources": {"limits": {"aliyun.com/gpu-mem": "40"}}}],
        },
        "status": {"phase": "Running"},
    }
    async with console_on(tmp_path, nodes=nodes, pods=[pod], size=(200, 40)) as play:
        await play.press("tab")
        for name, words in {
            "whole": ["0/8", "8", "exclusive", "80G"],
            "shared": ["40/160G", "120G", "serve 40G", "share", "80G"],
            "sliced": ["0/7", "0", "Cordoned", "mig"],
        }.items():
            line = next(line for line in play.text.splitlines() if f" {name} " in line)
            assert [word for word in words if word not in line] == [], line
        assert "0 of 8 GPUs and 0 of 7 shares of 1 GPU held · free in blocks of 8" in play.text
