"""Metrics of real GPUs: the text of an exporter, from the driver; nothing without a driver."""

from __future__ import annotations

import re
from pathlib import Path

import pynvml
import pytest

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.sandbox.api.store import Store
from k8s.sandbox.node import nodes
from k8s.sandbox.node.nodes import GpuHolder, exporter_text
from k8s.telemetry.dcgm import METRICS, gpu_readings
from k8s.telemetry.exporters import ExporterReader
from k8s.telemetry.prometheus_text import read_samples
from k8s.telemetry.proxied import Refusals
from k8s.telemetry.readings import GpuReading, PodContainer, Source, Throttle
from tests.k8s.sandbox.conftest import TOKEN, serving
from tests.support.gpu_readings import NOON
from tests.support.nvml import BUSY, ScriptedNvml

pytestmark = pytest.mark.usefixtures("every_gpu")


def read(text: str) -> tuple[GpuReading, ...]:
    return gpu_readings(read_samples(text.encode(), METRICS), "sandbox-0", Source.NVML, NOON)


def test_what_the_driver_tells_is_read_back_as_it_was() -> None:
    nvml = ScriptedNvml(2, BUSY)
    text = exporter_text("sandbox-0", {1: GpuHolder("default", "bert-0", "pytorch")}, nvml)
    free, held = read(text)
    assert held == GpuReading(
        node="sandbox-0",
        index=1,
        source=Source.NVML,
        read_at=NOON,
        uuid="GPU-1",
        model="NVIDIA H100 80GB HBM3",
        utilisation=93.0,
        memory_used=61 * 2**30,
        memory_total=80 * 2**30,
        power_w=612.345,
        power_limit_w=700.0,
        temperature_c=66.0,
        sm_clock_mhz=1755.0,
        throttles=frozenset({Throttle.POWER_CAP}),
        ecc_errors=0,
        row_remap_failed=False,
        holders=(PodContainer("default", "bert-0", "pytorch"),),
    )
    assert (free.index, free.holders) == (0, ())
    assert nvml.opened == 0


def test_what_the_driver_does_not_tell_is_left_out() -> None:
    (gpu,) = read(exporter_text("sandbox-0", {}, ScriptedNvml(1, {"Temperature": 41})))
    assert (gpu.temperature_c, gpu.utilisation, gpu.power_w, gpu.xid, gpu.throttles) == (
        41.0,
        None,
        None,
        None,
        None,
    )


@pytest.mark.parametrize("nvml", [ScriptedNvml(0), ScriptedNvml(8, BUSY, has_driver=False), None])
def test_without_a_driver_or_a_gpu_nothing_is_told(nvml: ScriptedNvml | None) -> None:
    if nvml is None:
        try:
            pynvml.nvmlInit()
            pytest.skip("this machine has a driver")
        except pynvml.NVMLError:
            pass
    assert exporter_text("sandbox-0", {}, nvml) == ""


def test_all_that_the_driver_is_asked_exists_in_pynvml() -> None:
    source = Path(nodes.__file__).read_text()
    names = set(re.findall(r"nvml\.(\w+)", source))
    assert len(names) > 12
    assert {name for name in names if not hasattr(pynvml, name)} == set()


async def test_the_console_reads_it_through_the_sandboxs_server(store: Store, tmp_path: Path) -> None:
    async def metrics(node: str) -> str:
        return exporter_text(node, {}, ScriptedNvml(4, BUSY)) if node == "sandbox-0" else ""

    async with serving(store, tmp_path / "pods") as (server, api):
        server.gpu_metrics = metrics
        for name in ("sandbox-0", "sandbox-1"):
            await api.call("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        path = "/api/v1/nodes/{}:9400/proxy/metrics"
        assert (await api.call("POST", path.format("sandbox-0"), {})).code == 405
        assert (await api.call("GET", path.format("gone"))).code == 404
        access = ClusterConfig(host=api.url, api_key={"BearerToken": f"Bearer {TOKEN}"})
        async with Client(access) as client:
            found = await ExporterReader(client, Refusals(), lambda: NOON).read(["sandbox-0", "sandbox-1"])
    assert [gpu.source for gpu in found["sandbox-0"].gpus] == [Source.NVML] * 4
    missing = found["sandbox-1"].missing
    assert missing is not None
    assert missing.words == "The driver reports no GPUs on this machine."
