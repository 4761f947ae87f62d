"""Figures of a step: times, and telemetry of the GPUs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.support.nvml import BUSY, ScriptedNvml
from trainer.ddp.step_stats import StepTimer
from trainer.distributed.gpu_telemetry import GpuTelemetry, bus_id_of, open_telemetry, telemetry_of
from trainer.distributed.process_group import ProcessGroup
from trainer.messages import progress_line
from trainer.ranks import Ranks


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def alone() -> ProcessGroup:
    return ProcessGroup(Ranks(0, 1, 0, 1, "alone"), torch.device("cpu"), 1)


def never(words: str) -> None:
    raise AssertionError(words)


def test_waiting_for_samples_is_told_from_the_rest_of_a_step() -> None:
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
    assert measured.text == "wait 30.0ms step 40.0ms"
    assert measured.scalars == {"time/wait_ms": pytest.approx(30), "time/step_ms": pytest.approx(40)}
    timer.add(torch.tensor(7.0))
    clock.now += 0.001
    again = timer.measure()
    assert (again.loss, again.wait_s) == (7.0, 0.0)
    assert again.step_s == pytest.approx(0.001)


def test_a_line_of_progress_ends_with_the_times() -> None:
    line = progress_line(
        epoch=1, epochs=3, step=120, steps=564, loss=0.1, lr=1e-3, per_s=412, eta_s=72,
        times="wait 0.3ms step 41.0ms comm 12.1ms",
    )  # fmt: skip
    assert line.endswith(" 412 images/s eta 1m12s wait 0.3ms step 41.0ms comm 12.1ms")


def scripted(monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], has_driver: bool = True) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", ScriptedNvml(1, told, has_driver=has_driver))


def test_what_nvml_tells_is_drawn_by_rank_and_what_it_does_not_tell_is_left_out(
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
    timer.add(torch.tensor(1.0))
    assert not [tag for tag in timer.measure().scalars if tag.startswith("gpu/")], "asked again too soon"


def test_nvml_is_asked_once_a_second_at_most() -> None:
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


def test_without_a_driver_or_without_pynvml_nothing_is_drawn_and_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    scripted(monkeypatch, {}, has_driver=False)
    assert telemetry_of("af1c", "", said.append) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert telemetry_of("af1c", "", said.append) is None
    assert said == [
        "no GPU telemetry: NVML does not start (Driver Not Loaded)",
        "no GPU telemetry: pynvml is not installed (pip install nvidia-ml-py)",
    ]


def test_on_the_processor_no_gpu_is_asked_nor_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, {"HandleByUUID": 0, **BUSY})
    assert open_telemetry(torch.device("cpu"), never) is None
