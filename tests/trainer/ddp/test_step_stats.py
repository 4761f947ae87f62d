"""Figures of a step: times, telemetry of the GPUs, operations, peaks of known GPUs, and throughput."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from torch.utils.flop_counter import FlopCounterMode

from tests.support.nvml import BUSY, ScriptedNvml
from tests.trainer.ddp.states import alone
from trainer.ddp.models import Gpt, GptSize, make_model
from trainer.ddp.step_stats import (
    GpuTelemetry,
    SpeedScale,
    StepTimer,
    bus_id_of,
    open_telemetry,
    peak_flops,
    telemetry_of,
    training_flops,
)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def never(words: str) -> None:
    raise AssertionError(words)


def test_time_waiting_for_samples_is_measured_separately() -> None:
    clock = Clock()

    def slow_batches() -> Iterator[int]:
        for batch in range(4):
            clock.now += 0.030
            yield batch

    timer = StepTimer(torch.nn.Linear(1, 1), alone(), None, 10, clock)
    clock.now += 50  # a validation
    timer.start()
    for batch in timer.timed(slow_batches()):
        clock.now += 0.010
        timer.add(torch.tensor(float(batch)))
    measured = timer.measure()
    assert measured.loss == measured.own_loss == 1.5
    assert measured.wait_s == pytest.approx(0.030)
    assert measured.step_s == pytest.approx(0.040)
    assert measured.text() == "wait 30.0ms step 40.0ms"
    assert measured.text(is_own=True) == measured.text()  # one rank alone
    assert measured.scalars == {"time/wait_ms": pytest.approx(30), "time/step_ms": pytest.approx(40)}
    timer.add(torch.tensor(7.0))
    clock.now += 0.001
    again = timer.measure()
    assert (again.loss, again.wait_s) == (7.0, 0.0)
    assert again.step_s == pytest.approx(0.001)


def scripted(monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], has_driver: bool = True) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", ScriptedNvml(1, told, has_driver=has_driver))


def test_available_nvml_readings_are_drawn_by_rank_and_missing_ones_are_omitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"HandleByUUID": 3, **BUSY}
    del told["PowerUsage"]
    scripted(monkeypatch, told)
    telemetry = telemetry_of("af1c", "", never)
    assert telemetry is not None
    timer = StepTimer(torch.nn.Linear(1, 1), alone(), telemetry, 10)
    timer.add(torch.tensor(1.0))
    drawn = timer.measure().scalars
    assert {tag: value for tag, value in drawn.items() if tag.startswith("gpu/")} == {
        "gpu/rank0/utilization_percent": 93.0,
        "gpu/rank0/memory_used_gib": 61.0,
        "gpu/rank0/temperature_c": 66.0,
    }


def test_nvml_is_read_at_most_once_a_second() -> None:
    clock, nvml = Clock(), ScriptedNvml(1, BUSY)
    telemetry = GpuTelemetry(nvml, 0, clock)
    first = telemetry.read()
    assert first == [93.0, 61.0, pytest.approx(612.345), 66.0]
    assert all(map(math.isnan, telemetry.read()))
    clock.now += 1.0
    assert telemetry.read() == first


def test_a_gpu_is_found_by_its_place_on_the_bus_where_its_uuid_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted(monkeypatch, {"HandleByPciBusId": 5, **BUSY})
    place = bus_id_of(SimpleNamespace(pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0))
    assert place == "00000000:3B:00.0"
    assert bus_id_of(SimpleNamespace()) == ""
    assert telemetry_of("af1c", place, never) is not None
    said: list[str] = []
    assert telemetry_of("af1c", "", said.append) is None
    assert said == ["no GPU telemetry: NVML does not know the GPU af1c"]


def test_missing_driver_or_pynvml_disables_telemetry_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    scripted(monkeypatch, {}, has_driver=False)
    assert telemetry_of("af1c", "", said.append) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert telemetry_of("af1c", "", said.append) is None
    assert said == [
        "no GPU telemetry: NVML does not start (Driver Not Loaded)",
        "no GPU telemetry: pynvml is not installed (pip install nvidia-ml-py)",
    ]


def test_on_a_cpu_no_telemetry_is_opened_or_reported_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, {"HandleByUUID": 0, **BUSY})
    assert open_telemetry(torch.device("cpu"), never) is None


def test_operations_of_a_small_network_are_those_counted_by_hand() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10), torch.nn.Linear(10, 5))
    forward = 2 * (784 * 10 + 10 * 5)
    backward = 2 * (784 * 10 + 2 * 10 * 5)  # images themselves have no gradient
    assert training_flops(network, (1, 28, 28)) == forward + backward
    assert all(weight.device.type == "cpu" and weight.grad is None for weight in network.parameters())


def test_operations_of_a_gpt_by_formula_are_those_that_torch_counts() -> None:
    size = GptSize(vocabulary=64, length=32, layers=3, heads=4, width=32)
    gpt = Gpt(size).to("meta")
    counter = FlopCounterMode(display=False)
    with counter:
        gpt(torch.zeros(2, 32, dtype=torch.int64, device="meta")).sum().backward()
    formula = training_flops(gpt, (32,))
    assert formula == 32 * (6 * (64 * 32 + 3 * 12 * 32 * 32) + 12 * 3 * 32 * 32)
    assert counter.get_total_flops() / 2 == pytest.approx(formula, rel=0.1)


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="needs torchvision")
def test_operations_of_resnet18_are_three_times_those_published_for_its_forward_pass() -> None:
    network = make_model("resnet18", (3, 224, 224), 1000)
    published = 2 * 1.814e9  # multiply-adds
    assert training_flops(network, (3, 224, 224)) == pytest.approx(3 * published, rel=0.04)


def test_uncountable_operations_give_zero_flops() -> None:
    class Odd(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, images: Any) -> Any:
            return images if float(images.sum()) else self.weight

    assert training_flops(Odd(), (1, 2, 2)) == 0


@pytest.mark.parametrize(
    ("name", "precision", "teraflops"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA A100-PCIE-40GB", "fp32", 19.5),
        ("NVIDIA H100 80GB HBM3", "bf16", 989),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H100 NVL", "fp16", 835),
        ("NVIDIA H200", "bf16", 989),
        ("NVIDIA H20", "bf16", 148),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla V100-SXM2-16GB", "bf16", 0),
        ("Tesla T4", "fp16", 65),
        ("NVIDIA L40S", "bf16", 362),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA A10G", "bf16", 0),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("NVIDIA GeForce RTX 4090 D", "bf16", 0),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", 0),
        ("NVIDIA A100-SXM4-80GB", "fp64", 0),
        ("AMD Instinct MI300X", "bf16", 0),
        ("", "fp32", 0),
    ],
)
def test_peak_flops_are_known_only_for_listed_gpus_and_precisions(
    name: str, precision: str, teraflops: float
) -> None:
    assert peak_flops(name, precision) == teraflops * 1e12


def test_speed_is_counted_in_tokens_of_a_gpt_and_mfu_only_where_a_peak_is_known() -> None:
    assert SpeedScale().scalars(40.0) == {"train/images_per_s": 40.0}
    scale = SpeedScale("tokens", 256, flops_per_sample=10**9, peak_flops=4e12)
    assert scale.scalars(1000.0) == {"train/tokens_per_s": 256_000.0, "train/mfu": 0.25}
    assert SpeedScale("tokens", 256, 0, 4e12).scalars(1.0) == {"train/tokens_per_s": 256.0}
