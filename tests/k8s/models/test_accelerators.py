"""How many accelerators a pod holds."""

from __future__ import annotations

import asyncio

from k8s.models import Container, PodSpec, Resources
from k8s.models.accelerators import count, is_accelerator, is_countable, of_pod, recognising

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"


def box(gpus: int | str, resource: str = GPU, *, is_sidecar: bool = False) -> Container:
    return Container(
        resources=Resources(limits={resource: gpus}), restart_policy="Always" if is_sidecar else ""
    )


def test_accelerators_are_told_from_the_rest() -> None:
    for name, is_one in [
        (GPU, True),
        ("nvidia.com/gpu.shared", True),
        (MIG, True),
        ("amd.com/gpu", True),
        ("huawei.com/Ascend910", True),
        ("aliyun.com/gpu", True),
        ("aliyun.com/gpu-mem", True),
        ("google.com/tpu", True),
        ("habana.ai/gaudi", True),
        ("gpu.intel.com/i915", True),
        ("cpu", False),
        ("rdma/hca", False),
        ("nvidia.com/gpu-driver", False),
        ("example.com/nvidia.com/gpu", False),
    ]:
        assert is_accelerator(name) is is_one


def test_gigabytes_of_a_shared_gpu_are_not_devices() -> None:
    assert not is_countable("aliyun.com/gpu-mem")
    assert count({"aliyun.com/gpu-mem": 40, GPU: 2}) == 2


def test_a_pod_holds_what_its_containers_hold_together() -> None:
    assert of_pod(PodSpec(containers=[box(2), box("3"), Container()])) == {GPU: 5}


def test_an_init_container_that_needs_more_decides() -> None:
    assert of_pod(PodSpec(containers=[box(2)], init_containers=[box(8)])) == {GPU: 8}
    assert of_pod(PodSpec(containers=[box(8)], init_containers=[box(2), box(3)])) == {GPU: 8}


def test_a_gpu_may_be_held_by_an_init_container_alone() -> None:
    assert of_pod(PodSpec(containers=[Container()], init_containers=[box(1)])) == {GPU: 1}


def test_a_sidecar_holds_its_part_all_the_time() -> None:
    assert of_pod(PodSpec(containers=[box(2)], init_containers=[box(1, is_sidecar=True)])) == {GPU: 3}


def test_a_sidecar_counts_beside_init_containers_that_start_after_it() -> None:
    before = PodSpec(containers=[box(1)], init_containers=[box(4), box(1, is_sidecar=True)])
    after = PodSpec(containers=[box(1)], init_containers=[box(1, is_sidecar=True), box(4)])
    assert of_pod(before) == {GPU: 4}
    assert of_pod(after) == {GPU: 5}


def test_resources_of_several_kinds_are_kept_apart() -> None:
    spec = PodSpec(containers=[box(1), box(2, MIG)], init_containers=[box(3, MIG)])
    assert of_pod(spec) == {GPU: 1, MIG: 3}


def test_a_limit_counts_before_a_request() -> None:
    both = Container(resources=Resources(requests={GPU: "1", MIG: "2"}, limits={GPU: "4"}))
    assert of_pod(PodSpec(containers=[both])) == {GPU: 4, MIG: 2}


def test_a_pod_without_accelerators_holds_none() -> None:
    spec = PodSpec(containers=[Container(resources=Resources(limits={"cpu": "4", "memory": "1Gi"}))])
    assert of_pod(spec) == {}
    assert of_pod(PodSpec()) == {}


def test_what_only_comes_with_an_accelerator_is_none() -> None:
    for name in [
        "gpu.intel.com/millicores",
        "gpu.intel.com/i915_monitoring",
        "gpu.intel.com/memory.max",
        "aliyun.com/gpu-count",
        "aliyun.com/gpu-core.percentage",
        "compute-domain.nvidia.com",
        "nvidia.com/GPU",
    ]:
        assert not is_accelerator(name)


def test_further_resources_are_accelerators_where_the_user_says_so() -> None:
    assert not is_accelerator("example.com/npu-2")
    with recognising(["example.com/npu-*"]):
        assert is_accelerator("example.com/npu-2")
        with recognising(["other.com/x"]):
            assert is_accelerator("example.com/npu-2")
            assert is_accelerator("other.com/x")
        assert not is_accelerator("other.com/x")
        assert is_accelerator(GPU)
    assert not is_accelerator("example.com/npu-2")


async def test_what_runs_beside_learns_it_too() -> None:
    with recognising(["example.com/npu"]):
        task = asyncio.create_task(asyncio.to_thread(is_accelerator, "example.com/npu"))
    assert await task


def test_what_a_pod_asks_for_as_a_whole_takes_the_place_of_its_containers() -> None:
    spec = PodSpec(containers=[box(1), box(1)], resources=Resources(limits={GPU: "4"}))
    assert of_pod(spec) == {GPU: 4}
    assert of_pod(PodSpec(containers=[box(2)], resources=Resources(limits={"cpu": "4"}))) == {GPU: 2}


def test_what_a_pods_runtime_needs_is_added() -> None:
    assert of_pod(PodSpec(containers=[box(2)], overhead={GPU: "1", "memory": "1Gi"})) == {GPU: 3}


def test_a_quantity_that_is_zero_or_makes_no_sense_is_no_device() -> None:
    assert of_pod(PodSpec(containers=[box("many"), box(0), box("0", MIG)])) == {}
