from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from k8s.telemetry.history import GpuHistory, since_gap
from k8s.telemetry.readings import GpuKey
from tests.support.gpu_readings import gpu, observed


def test_a_reading_that_came_twice_is_one_sample() -> None:
    history = GpuHistory()
    for at_s in (0, 0, 30, 30, 10):
        history.add([gpu(at_s=at_s)])
    assert [sample.at.second for sample in history.of(gpu().key)] == [0, 30]


def test_mig_instances_of_one_gpu_have_histories_of_their_own() -> None:
    history = GpuHistory()
    history.add([gpu(mig_id="1", utilisation=3.0), gpu(mig_id="2", utilisation=80.0)])
    assert [sample.utilisation for sample in history.of(GpuKey("a100-1", 0, "2"))] == [80.0]
    assert history.of(GpuKey("a100-1", 0)) == ()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1000)), max_size=80))
def test_a_history_is_bounded_by_gpus_and_by_samples_and_in_order(found: list[tuple[int, int]]) -> None:
    history = GpuHistory(most_samples=4, most_gpus=3)
    for index, at_s in found:
        history.add([gpu(index, at_s=at_s)])
    assert len(history.keys) <= 3
    for key in history.keys:
        samples = history.of(key)
        assert 1 <= len(samples) <= 4
        assert [sample.at for sample in samples] == sorted({sample.at for sample in samples})


def test_the_gpu_that_was_not_read_for_longest_is_forgotten_first() -> None:
    history = GpuHistory(most_gpus=2)
    history.add([gpu(0), gpu(1)])
    history.add([gpu(0, at_s=30)])
    history.add([gpu(2, at_s=60)])
    assert [key.index for key in history.keys] == [0, 2]


def test_what_was_before_a_gap_is_no_part_of_what_was_observed_since() -> None:
    history = observed(gpu(), for_s=300)
    observed(gpu(at_s=2000), for_s=60, history=history)
    history.add([gpu(1), gpu(1, at_s=2000)])
    assert len(since_gap(history.of(gpu(1).key))) == 1
    assert len(since_gap(history.of(gpu(2).key))) == 0
    since = since_gap(history.of(gpu().key))
    assert len(since) == 3
    assert since[-1].at - since[0].at == timedelta(seconds=60)
