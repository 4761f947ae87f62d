"""Devices that pods hold by resource claims are counted as those in limits are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from k8s.models import Container, Node, Pod, PodSpec, Reader, Resources
from k8s.models.accelerators import count, is_accelerator, is_countable, of_pod, recognising
from k8s.models.dra import (
    Advertised,
    DeviceClaims,
    ResourceClaim,
    ResourceSlice,
    advertised_by_node,
    held_by_pod,
)
from k8s.snapshot import Share
from tests.support.objects import GPU, join, listed, node, pod_of, pytorch_job, read_jobs

DRIVER = "gpu.nvidia.com"


def given(device: str, driver: str = DRIVER, pool: str = "n1", **more: Any) -> dict[str, Any]:
    return {"request": "gpu", "driver": driver, "pool": pool, "device": device, **more}


def claims(*found: tuple[str, list[dict[str, Any]], list[str]]) -> list[ResourceClaim]:
    """Read claims of a name, the devices they got, and the uids of the pods that use them."""
    return Reader[ResourceClaim](ResourceClaim).read_list(
        listed(
            *(
                {
                    "metadata": {"name": name, "namespace": "default", "uid": name},
                    "spec": {"devices": {"requests": [{"name": "gpu"}]}},
                    "status": {
                        "allocation": {"devices": {"results": devices, "config": []}},
                        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in pods],
                    },
                }
                for name, devices, pods in found
            )
        )
    )[1]


def slices(*specs: dict[str, Any]) -> list[ResourceSlice]:
    found = [{"metadata": {"name": f"s{number}"}, "spec": spec} for number, spec in enumerate(specs)]
    return Reader[ResourceSlice](ResourceSlice).read_list(listed(*found))[1]


def offer(count: int, on: str = "n1", driver: str = DRIVER, generation: int = 1) -> dict[str, Any]:
    """Return a slice of whole GPUs, as v1 says it."""
    devices = [{"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}}} for n in range(count)]
    pool = {"name": on, "generation": generation, "resourceSliceCount": 1}
    return {"driver": driver, "nodeName": on, "pool": pool, "devices": devices}


def all_usable(cards: int) -> Advertised:
    return Advertised({DRIVER: cards}, {DRIVER: cards}, {})


def test_each_pod_holds_the_devices_of_its_claims() -> None:
    found = claims(
        ("a", [given("gpu-0"), given("gpu-1")], ["p1"]), ("b", [given("gpu-0", pool="n2")], ["p2"])
    )
    assert held_by_pod(found) == {"p1": {DRIVER: 2}, "p2": {DRIVER: 1}}


def test_a_device_that_several_pods_share_is_counted_once() -> None:
    found = claims(("b", [given("gpu-0")], ["p3"]), ("a", [given("gpu-0"), given("gpu-0")], ["p1", "p2"]))
    assert held_by_pod(found) == {"p1": {DRIVER: 1}, "p2": {DRIVER: 0}, "p3": {DRIVER: 0}}


def test_resource_claims_without_a_gpu_are_not_counted() -> None:
    for claim in [
        ("unused", [given("gpu-0")], []),
        ("looks after it", [given("gpu-0", adminAccess=True)], ["p1"]),
        ("a network card", [given("eth1", driver="dra.net")], ["p1"]),
        ("memory channels", [given("channel-0", driver="compute-domain.nvidia.com")], ["p1"]),
        ("got nothing", [], ["p1"]),
    ]:
        assert held_by_pod(claims(claim)) == {}


def test_a_claim_that_has_not_been_allocated_holds_nothing() -> None:
    waiting = {"metadata": {"name": "a"}, "spec": {}}
    reserved = waiting | {"status": {"reservedFor": [{"resource": "pods", "uid": "p1"}], "allocation": None}}
    found = Reader[ResourceClaim](ResourceClaim).read_list(listed(waiting, reserved))[1]
    assert len(found) == 2
    assert held_by_pod(found) == {}


def test_a_node_offers_the_devices_of_the_newest_slices() -> None:
    found = slices(
        offer(4, generation=1), offer(8, generation=2), offer(2, on="n2"), offer(3, driver="dra.net")
    )
    assert advertised_by_node(found) == {"n1": all_usable(8), "n2": all_usable(2)}


def test_slices_of_a_gpu_are_not_offered_beside_the_whole() -> None:
    whole = {"name": "gpu-0", "basic": {"attributes": {"type": {"string": "gpu"}, "index": {"int": 0}}}}
    part = {"name": "mig-0", "basic": {"attributes": {"type": {"string": "mig"}}}}
    old = offer(0) | {"devices": [whole, part, {"name": "unnamed"}]}
    assert advertised_by_node(slices(old)) == {"n1": all_usable(2)}


def test_a_slice_may_name_the_node_of_each_device() -> None:
    each = {"driver": DRIVER, "pool": {"name": "all"}, "perDeviceNodeSelection": True}
    devices = [
        {"name": "a", "nodeName": "n1"},
        {"name": "b", "nodeName": "n2"},
        {"name": "c", "nodeName": "n2"},
    ]
    assert advertised_by_node(slices(each | {"devices": devices})) == {
        "n1": all_usable(1),
        "n2": all_usable(2),
    }


def read(*objects: dict[str, Any], of: Any) -> list[Any]:
    found: list[Any] = Reader[Any](of).read_list(listed(*objects))[1]
    return found


def test_claimed_devices_add_up_on_nodes_and_in_jobs() -> None:
    bert = pytorch_job("bert", gpus=0)
    pods = read(pod_of(bert, "master-0", on="n1", gpus=0, uid="p1"), of=Pod)
    nodes = read(node("n1", gpus=8), node("n2", gpus=0), of=Node)
    merged_nodes, merged_pods = DeviceClaims().merge(
        nodes, pods, [*claims(("a", [given("gpu-0"), given("gpu-1")], ["p1"])), *slices(offer(4))]
    )
    rows, jobs = join(merged_nodes, merged_pods, read_jobs(bert))
    assert dict(rows[0].resources) == {GPU: Share(8, 0, 0), DRIVER: Share(4, 2, 0)}
    assert [(holder.job, holder.gpus) for holder in rows[0].holders] == [("bert", 2)]
    assert [job.gpus_allocated for job in jobs] == [2]
    assert (rows[0].mode, rows[1].mode) == ("exclusive", "normal")


def test_a_node_offering_gpus_only_by_resource_claims_has_mode_dra() -> None:
    nodes, _ = DeviceClaims().merge(read(node("n1", gpus=0), of=Node), [], slices(offer(4)))
    rows, _ = join(nodes, [], [])
    assert (rows[0].mode, rows[0].gpus_total) == ("dra", 4)


def test_merging_unchanged_claims_returns_the_identical_objects() -> None:
    bert = pytorch_job("bert")
    pods = read(pod_of(bert, "master-0", on="n1", uid="p1"), pod_of(bert, "worker-0", on="n1"), of=Pod)
    nodes = read(node("n1"), node("n2"), of=Node)
    both = DeviceClaims()
    offer_4 = slices(offer(4))

    def merged(*devices: dict[str, Any]) -> tuple[list[Node], list[Pod]]:
        found = both.merge(nodes, pods, [*claims(("a", list(devices), ["p1"])), *offer_4])
        return list(found[0]), list(found[1])

    before, again, more = (
        merged(given("gpu-0")),
        merged(given("gpu-0")),
        merged(given("gpu-0"), given("gpu-1")),
    )
    none = both.merge(nodes, pods, [])
    for old, new in zip((*before[0], *before[1]), (*again[0], *again[1]), strict=True):
        assert old is new
    assert more[1][0] is not before[1][0]
    assert more[1][1] is pods[1]
    assert none[0] is nodes
    assert none[1] is pods


MIG = "nvidia.com/mig-1g.10gb"


def box(gpus: int | str, resource: str = GPU, *, is_sidecar: bool = False) -> Container:
    return Container(
        resources=Resources(limits={resource: gpus}), restart_policy="Always" if is_sidecar else ""
    )


def test_accelerators_are_distinguished_from_other_resources() -> None:
    for name in (
        *(GPU, "nvidia.com/gpu.shared", MIG, "amd.com/gpu", "huawei.com/Ascend910", "aliyun.com/gpu"),
        *("aliyun.com/gpu-mem", "google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/i915"),
    ):
        assert is_accelerator(name), name
    for name in (
        *("cpu", "rdma/hca", "nvidia.com/gpu-driver", "example.com/nvidia.com/gpu", "nvidia.com/GPU"),
        *("gpu.intel.com/millicores", "gpu.intel.com/i915_monitoring", "gpu.intel.com/memory.max"),
        *("aliyun.com/gpu-count", "aliyun.com/gpu-core.percentage", "compute-domain.nvidia.com"),
    ):
        assert not is_accelerator(name), name


def test_gigabytes_of_a_shared_gpu_are_not_devices() -> None:
    assert not is_countable("aliyun.com/gpu-mem")
    assert count({"aliyun.com/gpu-mem": 40, GPU: 2}) == 2


SIDECAR = box(1, is_sidecar=True)
BOTH = Container(resources=Resources(requests={GPU: "1", MIG: "2"}, limits={GPU: "4"}))
CPUS = Resources(limits={"cpu": "4", "memory": "1Gi"})


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        (PodSpec(containers=[box(2), box("3"), Container()]), {GPU: 5}),
        (PodSpec(containers=[box(2)], init_containers=[box(8)]), {GPU: 8}),
        (PodSpec(containers=[box(8)], init_containers=[box(2), box(3)]), {GPU: 8}),
        (PodSpec(containers=[Container()], init_containers=[box(1)]), {GPU: 1}),
        (PodSpec(containers=[box(2)], init_containers=[SIDECAR]), {GPU: 3}),
        # A sidecar counts beside init containers that start after it.
        (PodSpec(containers=[box(1)], init_containers=[box(4), SIDECAR]), {GPU: 4}),
        (PodSpec(containers=[box(1)], init_containers=[SIDECAR, box(4)]), {GPU: 5}),
        (PodSpec(containers=[box(1), box(2, MIG)], init_containers=[box(3, MIG)]), {GPU: 1, MIG: 3}),
        # A limit counts before a request, and the limits of the pod before those of its containers.
        (PodSpec(containers=[BOTH]), {GPU: 4, MIG: 2}),
        (PodSpec(containers=[box(1), box(1)], resources=Resources(limits={GPU: "4"})), {GPU: 4}),
        (PodSpec(containers=[box(2)], resources=CPUS), {GPU: 2}),
        (PodSpec(containers=[box(2)], overhead={GPU: "1", "memory": "1Gi"}), {GPU: 3}),
        (PodSpec(containers=[Container(resources=CPUS)]), {}),
        (PodSpec(), {}),
        (PodSpec(containers=[box("many"), box(0), box("0", MIG)]), {}),
    ],
)
def test_a_pod_holds_the_devices_that_its_containers_need_at_once(
    spec: PodSpec, held: dict[str, int]
) -> None:
    assert of_pod(spec) == held


def test_user_configured_resources_are_accelerators() -> None:
    assert not is_accelerator("example.com/npu-2")
    with recognising(["example.com/npu-*"]):
        assert is_accelerator("example.com/npu-2")
        with recognising(["other.com/x"]):
            assert is_accelerator("example.com/npu-2")
            assert is_accelerator("other.com/x")
        assert not is_accelerator("other.com/x")
        assert is_accelerator(GPU)
    assert not is_accelerator("example.com/npu-2")


async def test_configured_accelerators_are_recognised_in_background_tasks() -> None:
    with recognising(["example.com/npu"]):
        task = asyncio.create_task(asyncio.to_thread(is_accelerator, "example.com/npu"))
    assert await task
