"""GPUs that the sandbox gives out: simulated ones linked as in a DGX-1, and real ones."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from k8s import sandbox
from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.gpus.ack import set_schedule
from k8s.gpus.gpu_links import fetch_known_links
from k8s.gpus.links import MACHINES
from k8s.gpus.reader import TelemetryReader
from k8s.gpus.readings import PodContainer, Source
from k8s.jobs.create import delete_job
from k8s.kinds import JobRef
from k8s.models.resources import JOBS, NODES, PODS
from tests.k8s.sandbox.live.running import (
    PATIENCE_S,
    Manifest,
    Space,
    batch_job,
    comes,
    own_space,
    phase,
    pod,
)
from tests.support.guide_runs import GUIDE
from tests.support.objects import joined
from tui.runs.compare import Comparison, fit
from tui.runs.run_records import NodesAndPods, read_run
from tui.runs.store import RunStore
from tui.session.last_facts import record_runs

BENCHMARK = """for i in 0 1 2; do echo "Iter #$i: $RATE img/sec per GPU"; done
echo "Total img/sec on 4 GPU(s): $TOTAL +-2.5"; sleep 600"""
DRIVER = """
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) { *gpu = (void *)(index + 1L); return 0; }
int nvmlDeviceGetName(void *gpu, char *name, unsigned size) { strncpy(name, "Test 80GB", size); return 0; }
int nvmlDeviceGetUUID(void *gpu, char *uuid, unsigned size) { strncpy(uuid, "GPU-1", size); return 0; }
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts) { *milliwatts = 612345; return 0; }
struct utilisation { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *gpu, struct utilisation *rates) {
    rates->gpu = 89 + (long)gpu;
    rates->memory = 5;
    return 0;
}
"""


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.SandboxAddress]:
    """A sandbox of one node with eight simulated GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        address = asyncio.run(sandbox.start(sandbox.SandboxOptions(nodes=1, links="dgx-1v")))
        yield address
        assert asyncio.run(sandbox.stop())


@pytest.fixture
async def space(linked: sandbox.SandboxAddress) -> AsyncIterator[Space]:
    async with own_space(linked.kubeconfig) as made:
        yield made


def job(name: str, gpus: int, pods: int, *command: str, **env: str) -> Manifest:
    made = batch_job(name, *command, completions=pods, parallelism=pods)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    container["env"] = [{"name": key, "value": text} for key, text in env.items()]
    return made


async def test_a_job_gets_closely_linked_gpus_and_the_ack_label_changes_the_resource_name(
    space: Space,
) -> None:
    """Four pods of one GPU each, as in Alibaba Cloud's guide; then the label that the guide sets."""
    known = await fetch_known_links(space.client, {"sandbox-0": "Tesla-V100"})
    assert known["sandbox-0"].links == MACHINES["dgx-1v"].matrix().links
    show = 'echo "gpu=$GPUCONSOLE_SIMULATED_GPUS"'
    await space.create(JOBS, job("four", 1, 4, "sh", "-c", show))
    await space.comes(JOBS, "four", lambda found: found.get("status", {}).get("succeeded") == 4)
    pods = await space.objects(PODS)
    given = {each["metadata"]["name"]: each["metadata"]["annotations"] for each in pods}
    numbers = {name: found["topology.kubernetes.io/gpu-group"] for name, found in given.items()}
    assert set(numbers.values()) in ({"0", "1", "2", "3"}, {"4", "5", "6", "7"})
    for name, number in numbers.items():
        assert f"gpu={number}" in await space.log(name)
    await set_schedule(space.client, "sandbox-0", "topology")
    await comes(space.client, NODES, "sandbox-0", lambda node: _offers(node) == {"aliyun.com/gpu": "8"}, "")
    await set_schedule(space.client, "sandbox-0", "default")
    await comes(space.client, NODES, "sandbox-0", lambda node: _offers(node) == {"nvidia.com/gpu": "8"}, "")


def is_ready(found: Manifest) -> bool:
    return bool(found.get("status", {}).get("ready"))


def _offers(node: Manifest) -> dict[str, str]:
    return {name: amount for name, amount in node["status"]["allocatable"].items() if "gpu" in name}


@pytest.mark.slow
async def test_the_jobs_of_the_guide_are_compared_after_they_are_gone(space: Space, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "state")

    async def delete(name: str) -> None:
        await delete_job(space.client, JobRef(space.name, name, "Job", "batch/v1"))
        labels = ("job-name", name)
        await space.until(
            PODS, lambda pods: not any(labels in each["metadata"]["labels"].items() for each in pods.values())
        )

    for name, model, _, _, rate in GUIDE:
        held = [] if "topo" in name else [f"hold-{number}" for number in range(4)]
        for each in held:
            await space.create(JOBS, job(each, 2, 1, "sleep", "600"))
            await space.comes(JOBS, each, is_ready)
        for each in held[::2]:  # free GPUs on both CPU sockets
            await delete(each)
        words = ("sh", "-c", BENCHMARK, "benchmark.py", f"--model={model}", "--batch-size=64")
        await space.create(JOBS, job(name, 1, 4, *words, RATE=f"{rate / 4:.1f}", TOTAL=f"{rate:.1f}"))
        await space.comes(JOBS, name, is_ready)
        feed = ClusterMirror(space.client, space.name)
        snapshot = await feed.read_once()
        found = next(each for each in snapshot.jobs if each.ref.name == name)
        place = NodesAndPods(snapshot.nodes, feed.pods)
        async with asyncio.timeout(PATIENCE_S):
            while (await read_run(space.client, found, place)).throughput is None:
                await asyncio.sleep(0.02)  # its pods run, and may not have printed yet
        await record_runs(space.client, [found], store, place)
        for each in (name, *held[1::2]):
            await delete(each)
    comparison = Comparison(RunStore(tmp_path / "state").records(), now_s=0, sort_by="-throughput")
    fields, rows, _ = fit(comparison, 140)
    assert [row[0] for row in rows] == [name for name, *_ in sorted(GUIDE, key=lambda each: -each[-1])]
    columns = {field.key: [row[at] for row in rows] for at, field in enumerate(fields)}
    assert columns["throughput"] == ["1252", "822", "820", "481"]
    assert columns["model"] == ["resnet50", "resnet50", "vgg16", "vgg16"]
    assert [text.partition(" ")[0] for text in columns["link"]] == ["NV1", "SYS", "NV1", "SYS"]
    assert [len(bar) for bar in columns["bar"]] == sorted(map(len, columns["bar"]), reverse=True)


@pytest.mark.usefixtures("every_gpu")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for a stand-in of the driver")
async def test_nvml_readings_are_shown_with_the_pod_that_holds_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    address = await sandbox.start(sandbox.SandboxOptions())
    try:
        async with await Client.connect(str(address.kubeconfig)) as client:
            await client.create(PODS, pod("holds", "sleep", "600", gpus=2), "default")
            await comes(client, PODS, "holds", phase("Running"))
            nodes, pods = await client.list(NODES), await client.list(PODS)
            rows, _ = joined(nodes, pods, [])
            found = (await TelemetryReader(client).read(rows.values())).nodes["sandbox-0"]
    finally:
        assert await sandbox.stop()
    held = (PodContainer("default", "holds", "main"),)
    assert [
        (gpu.index, gpu.utilisation, gpu.power_w, gpu.temperature_c, gpu.source, gpu.holders)
        for gpu in found.gpus
    ] == [
        (0, 90.0, 612.345, None, Source.NVML, held),
        (1, 91.0, 612.345, None, Source.NVML, held),
        (2, 92.0, 612.345, None, Source.NVML, ()),
    ]
