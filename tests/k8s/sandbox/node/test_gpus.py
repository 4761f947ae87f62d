"""The GPUs of a sandbox: this machine's if a driver finds any, with their metrics, else simulated ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import pynvml
import pytest

from k8s.gpus.dcgm import METRICS, gpu_readings, read_samples
from k8s.gpus.readings import GpuReading, PodContainer, Source, Throttle
from k8s.sandbox.node import nodes
from k8s.sandbox.node.nodes import GpuHolder, Shape, cores, exporter_text, manifest, shape_of, status
from k8s.text.errors import KubeError
from tests.support.nvml import BUSY, ScriptedNvml
from tests.support.telemetry import NOON


class PartitionedNvml(ScriptedNvml):
    """A driver of two GPUs, the second with two MIG instances; handles are numbers, instances from 10 on."""

    UUIDS: ClassVar = {0: "GPU-5a1c", 1: "GPU-77e0", 10: "MIG-c0de-1", 11: "MIG-c0ff-2"}

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return self.UUIDS[handle].encode()

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA A30 MIG 2g.12gb" if handle >= 10 else "NVIDIA A30"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        for handle, name in self.UUIDS.items():
            if name == uuid:
                return handle
        raise self.NVMLError("Not Found")

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: int) -> int:
        return 4 * gpu

    def nvmlDeviceGetMigDeviceHandleByIndex(self, _gpu: int, instance: int) -> int:
        if instance > 1:
            raise self.NVMLError("Not Found")
        return 10 + instance


@pytest.mark.parametrize(
    ("visible", "models"),
    [
        ("MIG-c0de-1", ["NVIDIA-A30-MIG-2g.12gb"]),
        ("MIG-c0f,GPU-7", ["NVIDIA-A30-MIG-2g.12gb", "NVIDIA-A30"]),
        ("GPU-5a1c,1", ["NVIDIA-A30", "NVIDIA-A30"]),
        ("GPU-5,GPU-nope,1", ["NVIDIA-A30"]),
        ("1,-1,0", ["NVIDIA-A30"]),
        *((hidden, []) for hidden in ("", "-1", "NoDevFiles")),
    ],
)
def test_gpus_and_instances_are_found_by_whole_and_shortened_uuids(
    monkeypatch: pytest.MonkeyPatch, visible: str, models: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nodes.real_gpus(PartitionedNvml(2)) == models


@pytest.mark.parametrize("visible", ["MIG-c0", "GPU-9", "7"])
def test_visible_devices_that_no_gpu_has_are_refused_instead_of_simulated(
    monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(KubeError, match="no GPU or MIG instance here has that name") as refused:
        nodes.real_gpus(PartitionedNvml(2))
    assert f"CUDA_VISIBLE_DEVICES is {visible}," in refused.value.why
    assert "sandbox start --gpus-per-node" in refused.value.hint
    assert nodes.real_gpus(PartitionedNvml(2, has_driver=False)) == []


def test_named_gpus_of_a_machine_without_a_driver_are_simulated_with_a_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "real_gpus", list)
    for visible, notice in (
        ("3,5", "CUDA_VISIBLE_DEVICES is 3,5, but no NVIDIA driver answers: the GPUs are simulated."),
        ("GPU-7c\x1b[2J", "CUDA_VISIBLE_DEVICES is GPU-7c"),
        ("", ""),
        ("-1", ""),
    ):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found = shape_of()
        assert found.is_simulated and found.notice.startswith(notice) and bool(found.notice) == bool(notice)
        assert "\x1b" not in found.notice
        assert (
            shape_of(gpus_per_node=2).notice == shape_of(1).notice == shape_of(links="dgx-h100").notice == ""
        )


def test_an_explicit_shape_gives_simulated_gpus() -> None:
    assert shape_of(3, 8) == Shape(("sandbox-0", "sandbox-1", "sandbox-2"), 8, "simulated", is_simulated=True)


def test_a_simulated_gpu_is_never_shown_as_real() -> None:
    labels = manifest("n", shape_of(1, 1))["metadata"]["labels"]
    assert labels["gpuconsole.dev/simulated"] == "true"
    assert labels["nvidia.com/gpu.product"] == "simulated"
    real = manifest("n", Shape(("n",), 1, "NVIDIA-H100", is_simulated=False))["metadata"]["labels"]
    assert "gpuconsole.dev/simulated" not in real


def test_a_node_with_simulated_gpus_takes_jobs_written_for_a_node_with_real_ones() -> None:
    machine = status(Shape(("n",), 4, "A100", is_simulated=False), "")["capacity"]
    assert machine["cpu"] == str(cores())
    simulated = status(Shape(("n",), 64, "simulated", is_simulated=True), "")["capacity"]
    assert (simulated["cpu"], simulated["memory"]) == (str(64 * 8), f"{64 * 32 * 2**20}Ki")
    assert status(Shape(("n",), 0, "", is_simulated=True), "")["capacity"]["cpu"] == str(cores())


def read(text: str) -> tuple[GpuReading, ...]:
    return gpu_readings(read_samples(text.encode(), METRICS), "sandbox-0", Source.NVML, NOON)


@pytest.mark.usefixtures("every_gpu")
def test_nvml_metrics_survive_exporting_and_parsing() -> None:
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


@pytest.mark.usefixtures("every_gpu")
def test_values_missing_from_nvml_are_not_exported() -> None:
    (gpu,) = read(exporter_text("sandbox-0", {}, ScriptedNvml(1, {"Temperature": 41})))
    measured = gpu.temperature_c, gpu.utilisation, gpu.power_w, gpu.xid, gpu.throttles
    assert measured == (41.0, None, None, None, None)


@pytest.mark.usefixtures("every_gpu")
@pytest.mark.parametrize("nvml", [ScriptedNvml(0), ScriptedNvml(8, BUSY, has_driver=False), None])
def test_no_metrics_are_exported_without_a_driver_or_a_gpu(nvml: ScriptedNvml | None) -> None:
    if nvml is None:
        try:
            pynvml.nvmlInit()
            pytest.skip("this machine has a driver")
        except pynvml.NVMLError:
            pass
    assert exporter_text("sandbox-0", {}, nvml) == ""


@pytest.mark.usefixtures("every_gpu")
def test_every_nvml_name_in_use_exists_in_pynvml() -> None:
    source = Path(nodes.__file__).read_text()
    names = set(re.findall(r"nvml\.(\w+)", source))
    assert len(names) > 12
    assert {name for name in names if not hasattr(pynvml, name)} == set()
