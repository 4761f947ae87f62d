from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.gpus.dcgm import METRICS, Sample, gpu_readings, node_of, read_samples
from k8s.gpus.readings import GpuReading, PodContainer, Source, Throttle
from tests import FIXTURES
from tests.support.telemetry import NOON

MIB = 2**20
BERT = PodContainer("vision", "bert-master-0", "pytorch")
UUID = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"


def read(name: str, source: Source = Source.DCGM) -> tuple[GpuReading, ...]:
    text = (FIXTURES / "dcgm" / f"{name}.prom").read_bytes()
    return gpu_readings(read_samples(text, METRICS), "gpu-a", source, NOON)


def test_each_dcgm_metric_is_converted_to_the_unit_of_its_field() -> None:
    busy, free = read("current")
    assert busy == GpuReading(
        node="gpu-a",
        index=0,
        source=Source.DCGM,
        read_at=NOON,
        uuid=UUID,
        model="NVIDIA A100-SXM4-80GB",
        utilisation=98.0,
        tensor_active=100 * 0.413222,
        memory_used=73012 * MIB,
        memory_total=81920 * MIB,
        power_w=387.214,
        temperature_c=64.0,
        memory_temperature_c=61.0,
        sm_clock_mhz=1410.0,
        xid=0,
        row_remap_failed=False,
        holders=(BERT,),
    )
    assert (free.index, free.utilisation, free.holders) == (1, 0.0, ())


@pytest.mark.parametrize("name", ["current", "hostname-with-capital", "lowercase-uuid", "old-namespace"])
def test_every_generation_of_labels_is_understood(name: str) -> None:
    busy, free = read(name)
    assert (busy.uuid, busy.model, busy.utilisation) == (UUID, "NVIDIA A100-SXM4-80GB", 98.0)
    assert busy.holders == (BERT,)
    assert free.holders == ()


def test_gpus_without_pod_labels_have_no_holders() -> None:
    assert [gpu.holders for gpu in read("no-attribution")] == [(), ()]


def test_dcgm_blank_values_are_unknown() -> None:
    first, second = read("blanks")
    for gpu in (first, second):
        assert (gpu.memory_temperature_c, gpu.power_w, gpu.xid, gpu.row_remap_failed) == (None,) * 4
        assert gpu.temperature_c is not None
    assert (first.utilisation, second.utilisation) == (None, 17.0)


def test_mig_instances_take_the_place_of_their_gpu_with_their_own_work_and_memory() -> None:
    large, small, whole = read("mig")
    names = [(gpu.name, gpu.mig_profile) for gpu in (large, small, whole)]
    assert names == [("0:1", "3g.40gb"), ("0:13", "1g.10gb"), ("1", "")]
    assert (large.utilisation, small.utilisation, whole.utilisation) == (91.0, 0.0, 42.0)
    assert (large.memory_total, small.memory_used) == (40304 * MIB, 12 * MIB)
    assert large.holders == (PodContainer("vision", "eda-0", "notebook"),)
    assert small.holders == ()


def test_power_of_a_gpu_is_not_counted_for_each_mig_instance() -> None:
    large, small, whole = read("mig")
    assert (large.power_w, small.power_w, whole.power_w) == (None, None, 61.022)
    assert (large.temperature_c, small.temperature_c, large.xid, small.xid) == (64.0, 64.0, 94, 94)


def test_a_time_sliced_gpu_is_counted_once_with_several_holders() -> None:
    shared, free = read("time-slicing")
    assert shared.holders == (PodContainer("vision", "a-0", "main"), PodContainer("nlp", "b-0", "main"))
    assert (shared.utilisation, shared.memory_used, shared.power_w) == (90.0, 30000 * MIB, 301.5)
    assert (free.index, free.holders) == (1, ())


def test_fields_that_few_exporters_serve_are_read_where_they_are() -> None:
    hot, cool = read("optional-fields")
    assert hot.throttles == frozenset({Throttle.POWER_CAP, Throttle.THERMAL})
    assert cool.throttles == frozenset()  # idle is no throttle
    assert (hot.power_limit_w, hot.ecc_errors, hot.xid) == (400.0, 3, 48)
    old, _ = read("throttle-reasons-of-old")
    assert old.throttles == frozenset({Throttle.HARDWARE, Throttle.HARDWARE_THERMAL})
    assert read("current")[0].throttles is None
    assert read("current")[0].ecc_errors is None


def test_counters_computed_by_the_exporter_are_read() -> None:
    first, second = read("exporter-counts")
    assert (first.throttles, first.xid) == (frozenset({Throttle.POWER_CAP}), 79)
    assert (second.throttles, second.xid) == (frozenset(), 0)


def samples_of(**labels: str) -> list[Sample]:
    return [Sample("DCGM_FI_DEV_GPU_UTIL", {"gpu": "0", **labels}, 5.0)]


def test_the_exporters_own_pod_in_prometheus_labels_is_not_a_holder() -> None:
    taken = {"exported_namespace": "vision", "exported_pod": "bert-master-0", "exported_container": "pytorch"}
    own = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x7k2p", "container": "exporter"}
    for labels, holders in (({**own, **taken}, (BERT,)), (own, ())):
        (gpu,) = gpu_readings(samples_of(**labels), "gpu-a", Source.PROMETHEUS, NOON)
        assert gpu.holders == holders


def test_a_sample_is_found_to_be_of_a_node_by_any_of_the_labels_in_use() -> None:
    for labels, node in [
        ({"Hostname": "gpu-a"}, "gpu-a"),
        ({"hostname": "gpu-b.cluster.internal"}, "gpu-b"),
        ({"node": "gpu-a", "instance": "10.0.0.1:9400"}, "gpu-a"),
        ({"node": "gpu-a:9400"}, "gpu-a"),
        ({"Hostname": "nvidia-dcgm-exporter-x7k2p", "node": "gpu-b"}, "gpu-b"),
        ({"Hostname": "elsewhere"}, ""),
        ({}, ""),
    ]:
        assert node_of(labels, {"gpu-a", "gpu-b"}) == node


def test_label_values_are_cut_to_the_maximum_length_of_a_name() -> None:
    huge = dict.fromkeys(("UUID", "modelName", "GPU_I_ID", "pod", "namespace", "container"), "x" * 10000)
    (gpu,) = gpu_readings(samples_of(**huge), "gpu-a", Source.DCGM, NOON)
    assert {len(word) for word in (gpu.uuid, gpu.model, gpu.mig_id, *gpu.holders[0])} == {253}


WORDS = st.sampled_from(
    ["gpu", "UUID", "GPU_I_ID", "GPU_I_PROFILE", "pod", "namespace", "xid", "clock_event"]
)
VALUES = st.sampled_from(["", "0", "1", "٣", "-1", "9" * 400, "hw_slowdown", "n", "a\n"])


@given(
    st.lists(
        st.builds(
            Sample,
            st.sampled_from(METRICS),
            st.dictionaries(WORDS, VALUES),
            st.floats(allow_nan=True, allow_infinity=True),
        ),
        max_size=12,
    )
)
def test_any_samples_give_readings_within_valid_ranges(samples: list[Sample]) -> None:
    for gpu in gpu_readings(samples, "n", Source.DCGM, NOON):
        assert gpu.utilisation is None or 0 <= gpu.utilisation <= 100
        assert gpu.memory_percent is None or 0 <= gpu.memory_percent <= 100
        assert gpu.xid is None or gpu.xid >= 0
