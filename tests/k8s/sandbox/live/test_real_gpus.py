"""A sandbox on a machine with GPUs, of which a stand-in of NVIDIA's driver tells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from k8s import sandbox
from k8s.client.client import Client
from k8s.models.resources import NODES, PODS
from k8s.telemetry.reader import TelemetryReader
from k8s.telemetry.readings import PodContainer, Source
from tests.k8s.sandbox.live.running import comes, phase, pod
from tests.support.objects import joined

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


@pytest.mark.usefixtures("every_gpu")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for a stand-in of the driver")
async def test_what_the_driver_tells_is_shown_with_the_pod_that_has_the_gpu(
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
