from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from k8s.gpus.gpu_warnings import GpuWarning, WarningKind, slow_gpus, warnings_of
from k8s.gpus.readings import GpuHistory, GpuReading, PodContainer, Throttle, readings_by_rank
from tests.support.objects import joined, node, pod_of, pytorch_job
from tests.support.telemetry import gpu, observed, telemetry_of


def idle_warnings(history: GpuHistory, **fields: Any) -> list[str]:
    key = gpu().key
    last = replace(gpu(pod="bert-0", utilisation=0.0), **fields)
    return [each.text for each in warnings_of(last, history.of(key)) if each.kind is WarningKind.IDLE]


def test_an_allocated_gpu_idle_for_half_an_hour_causes_a_warning() -> None:
    idle = gpu(pod="bert-0", utilisation=4.9)
    assert idle_warnings(observed(idle, for_s=1800)) == ["Allocated to default/bert-0, but idle for 30 min."]
    assert idle_warnings(observed(idle, for_s=1770)) == []


def test_an_unallocated_idle_gpu_causes_no_warning() -> None:
    idle = gpu(utilisation=0.0)
    assert idle_warnings(observed(idle, for_s=3600), holders=()) == []


def test_activity_resets_the_idle_time() -> None:
    history = observed(gpu(pod="bert-0", utilisation=0.0), for_s=1500)
    history.add([gpu(at_s=1530, pod="bert-0", utilisation=60.0)])
    observed(gpu(at_s=1560, pod="bert-0", utilisation=0.0), for_s=1500, history=history)
    assert idle_warnings(history) == []


def test_unknown_utilisation_is_not_idle() -> None:
    assert idle_warnings(observed(gpu(pod="bert-0", utilisation=None), for_s=3600)) == []


def test_a_new_pod_on_a_gpu_resets_the_idle_time() -> None:
    history = observed(gpu(pod="old", utilisation=0.0), for_s=1500)
    observed(gpu(at_s=1530, pod="bert-0", utilisation=0.0), for_s=600, history=history)
    assert idle_warnings(history) == []


def test_a_gap_in_the_samples_does_not_count_as_idle() -> None:
    history = observed(gpu(pod="bert-0", utilisation=0.0), for_s=600)
    observed(gpu(at_s=3000, pod="bert-0", utilisation=0.0), for_s=600, history=history)
    assert idle_warnings(history) == []


def test_a_pod_allocated_after_the_last_reading_causes_no_idle_warning() -> None:
    history = observed(gpu(pod="old", utilisation=0.0), for_s=3600)
    last = gpu(at_s=3600, utilisation=0.0)
    assert warnings_of(last, history.of(last.key), [PodContainer("default", "new")]) == ()
    (warning,) = warnings_of(last, history.of(last.key), [PodContainer("default", "old")])
    assert warning.text == "Allocated to default/old, but idle for 60 min."


def found(**fields: Any) -> list[tuple[WarningKind, str, bool]]:
    return [(each.kind, each.text, each.is_serious) for each in warnings_of(gpu(**fields))]


def test_xid_and_ecc_errors_cause_warnings() -> None:
    assert found(xid=79) == [(WarningKind.XID, "Last XID 79: the GPU has fallen off the bus.", True)]
    assert found(xid=31)[0][2] is False
    assert found(xid=999)[0][1] == "Last XID 999."
    assert found(ecc_errors=1) == [(WarningKind.ECC, "1 uncorrectable memory error (ECC).", True)]
    assert found(row_remap_failed=True)[0][0] is WarningKind.ECC
    assert found(xid=0, ecc_errors=0, row_remap_failed=False, throttles=frozenset()) == []


@pytest.mark.parametrize(
    ("throttles", "kind", "cause"),
    [
        ({Throttle.THERMAL}, WarningKind.THERMAL, "its heat at 91 °C"),
        ({Throttle.HARDWARE, Throttle.HARDWARE_THERMAL}, WarningKind.THERMAL, "its heat at 91 °C"),
        (
            {Throttle.HARDWARE, Throttle.POWER_BRAKE},
            WarningKind.POWER,
            "the power brake: the server lacks power",
        ),
    ],
)
def test_a_throttled_gpu_causes_a_warning(throttles: set[Throttle], kind: WarningKind, cause: str) -> None:
    told = found(throttles=frozenset(throttles), temperature_c=91.0, power_limit_w=400.0)
    assert told == [(kind, f"Slowed down by {cause}.", True)]


def test_a_gpu_at_its_power_limit_is_just_busy() -> None:
    # An H200 that trains a transformer: 98 % busy, 1,965 of 1,980 MHz.
    assert found(throttles=frozenset({Throttle.POWER_CAP}), power_w=689.0, power_limit_w=700.0) == []


def slow(readings: list[GpuReading], for_s: float = 300) -> tuple[GpuWarning, ...]:
    job = pytorch_job("bert", gpus=len(readings))
    _, jobs = joined([node("n1")], [pod_of(job, "master-0", on="n1", gpus=len(readings))], [job])
    history = GpuHistory()
    for reading in readings:
        observed(reading, for_s=for_s, history=history)
    return slow_gpus(readings_by_rank(jobs["bert"], telemetry_of(*readings)), history)


def of_bert(*utilisations: float, clocks: list[float] | None = None) -> list[GpuReading]:
    return [
        gpu(
            index,
            node="n1",
            holders=(PodContainer("default", "bert-master-0"),),
            utilisation=utilisation,
            sm_clock_mhz=clocks[index] if clocks else None,
        )
        for index, utilisation in enumerate(utilisations)
    ]


@pytest.mark.parametrize(
    ("busy", "clocks", "index", "text"),
    [
        ([95, 96, 20, 94], None, 2, "Rank 2: works 20 % of the time, its peers 94 %."),
        ([99] * 4, [1410, 1395, 1410, 765], 3, "Rank 3: runs at 765 MHz, its peers at 1402 MHz."),
    ],
    ids=["less busy", "a lower clock"],
)
def test_a_gpu_that_is_slower_than_its_peers_causes_a_warning(
    busy: list[float], clocks: list[float] | None, index: int, text: str
) -> None:
    assert [(each.gpu.index, each.text) for each in slow(of_bert(*busy, clocks=clocks))] == [(index, text)]


def test_a_low_clock_causes_a_warning_only_while_the_gpu_is_busy() -> None:
    clocks = [1410.0, 1410.0, 765.0]
    assert slow(of_bert(60, 60, 39, clocks=clocks)) == ()
    assert len(slow(of_bert(60, 60, 40, clocks=clocks))) == 1


def test_no_gpu_is_slow_while_too_little_is_known() -> None:
    assert slow(of_bert(95, 96, 20, 94), for_s=30) == ()  # two samples
    assert len(slow(of_bert(95, 96, 20, 94), for_s=60)) == 1
    assert slow(of_bert(95, 20)) == ()  # two GPUs: which is the usual one?
    assert slow(of_bert(10, 12, 1, 11)) == ()  # all wait for data
    assert slow(of_bert(95, 90, 60, 94)) == ()
