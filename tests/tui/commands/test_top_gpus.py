"""What `top nodes` says of GPUs that are shared, sliced, of other makers, or named in config.yaml."""

from __future__ import annotations

from typing import Any

import pytest

from tests.k8s.cluster.test_discovery import holds, say_groups
from tests.scripted.server import ScriptedCluster, page, refusal
from tests.support.objects import node
from tests.tui.commands.conftest import CommandLine


def offering(name: str, labels: dict[str, str] | None = None, **resources: str) -> dict[str, Any]:
    """Return a node that offers resources, whose names have `__` for `.com/`."""
    found = node(name, gpus=0)
    offered = {key.replace("__", ".com/").replace("_", "-"): value for key, value in resources.items()}
    found["metadata"]["labels"] = labels or {}
    found["status"]["allocatable"] = found["status"]["capacity"] = offered
    return found


def has_pod(name: str, on: str, **resources: str) -> dict[str, Any]:
    limits = {key.replace("__", ".com/").replace("_", "-"): value for key, value in resources.items()}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
        "spec": {"nodeName": on, "containers": [{"name": "a", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


def serve(cluster: ScriptedCluster, nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> None:
    for name, items in (("nodes", nodes), ("pods", pods)):
        cluster.forget(f"/api/v1/{name}")
        cluster.say(f"/api/v1/{name}", page(items))


async def test_shared_memory_is_shown_in_gigabytes_and_no_gpu_is_made_up_of_it(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    share = offering("s1", aliyun__gpu_mem="160", aliyun__gpu_count="2")
    pod = has_pod("a", "s1", aliyun__gpu_mem="40")
    pod["metadata"]["annotations"] = {"ALIYUN_COM_GPU_MEM_IDX": "1"}
    serve(cluster, [share, offering("n1", nvidia__gpu="8")], [pod, has_pod("b", "n1", nvidia__gpu="3")])
    found = (await run("top", "nodes", "-o", "json")).values
    assert [found[key] for key in ("gpus_total", "gpus_allocated", "gpus_free", "largest_free")] == [
        8,
        3,
        5,
        5,
    ]
    by_name = {each["name"]: each for each in found["items"]}
    assert by_name["n1"]["shared_memory"] is None
    assert (by_name["s1"]["mode"], by_name["s1"]["gpus_total"]) == ("share", 0)
    assert by_name["s1"]["shared_memory"] == {
        "total_gib": 160,
        "allocated_gib": 40,
        "devices": 2,
        "devices_allocated": 0.5,
        "allocated_gib_by_device": {"1": 40},
    }
    printed = await run("top", "nodes", "-o", "wide")
    assert printed.row("s1")[-7:] == ["40G", "0", "share", "80G", "0", "a", "40G"]
    assert printed.out.endswith(
        "in cluster: 3/8 (37 %), 40/160G of shared GPUs' memory; 5 can be had now, at most 5 on one node\n"
    )


async def test_gpus_behind_a_taint_or_a_cordon_are_none_that_can_be_had(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    tainted, of_gpus, cordoned = (offering(name, nvidia__gpu="3") for name in ("n1", "n2", "n3"))
    tainted["spec"]["taints"] = [{"key": "team", "value": "nlp", "effect": "NoSchedule"}]
    serve(cluster, [tainted], [])
    out = (await run("top", "nodes")).out
    assert "Ready, tainted" in out
    assert "0/3 (0 %); none can be had now, 3 more by tolerating a taint" in out
    of_gpus["spec"]["taints"] = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    cordoned["spec"]["unschedulable"] = True
    serve(cluster, [tainted, of_gpus, cordoned], [])
    out = (await run("top", "nodes")).out
    assert "0/9 (0 %); 3 can be had now, at most 3 on one node, 3 more by tolerating a taint" in out


async def test_models_and_memory_are_told_by_labels(run: CommandLine, cluster: ScriptedCluster) -> None:
    labels = {"amd.com/gpu.product-name": "MI300X", "amd.com/gpu.vram": "192G"}
    serve(cluster, [offering("a1", labels, amd__gpu="8")], [])
    ended = await run("top", "nodes", "-o", "wide")
    assert {"MI300X", "192G", "exclusive"} < set(ended.row("a1"))


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize("may_read_slices", [True, False])
async def test_devices_held_by_claims_are_counted_where_the_server_knows_them(
    run: CommandLine, cluster: ScriptedCluster, version: str, may_read_slices: bool
) -> None:
    serve(cluster, [offering("n1")], [has_pod("a", "n1")])
    offered = {"driver": "gpu.nvidia.com", "nodeName": "n1", "devices": [{"name": "g0"}, {"name": "g1"}]}
    given = {"results": [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "g1"}]}
    used = {"allocation": {"devices": given}, "reservedFor": [{"resource": "pods", "uid": "a"}]}
    api = f"resource.k8s.io/{version}"
    say_groups(cluster, resource_k8s_io=[version])
    cluster.say(f"/apis/{api}", holds("resourceclaims", "resourceslices"))
    claim = {"metadata": {"name": "c", "namespace": "default", "uid": "c"}, "status": used}
    cluster.say(f"/apis/{api}/resourceclaims", page([claim]))
    slices = page([{"metadata": {"name": "s", "uid": "s"}, "spec": offered}])
    cluster.say(f"/apis/{api}/resourceslices", slices if may_read_slices else refusal(403, "no", "Forbidden"))
    found = (await run("top", "nodes", "-o", "json")).values
    (row,) = found["items"]
    total = 2 if may_read_slices else 1
    assert row["resources"] == {"gpu.nvidia.com": {"total": total, "allocated": 1, "unhealthy": 0}}
    assert row["mode"] == "dra"
    jobs = (await run("top", "jobs", "-o", "json")).values
    assert jobs["gpus_allocated"] == 1


async def test_a_resource_named_in_the_settings_counts_as_an_accelerator(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    serve(cluster, [offering("n1", example__npu_v2="4")], [has_pod("a", "n1", example__npu_v2="1")])
    assert (await run("top", "nodes", "-o", "json")).values["gpus_total"] == 0
    folder = run.home / "config/gpuconsole"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("accelerators:\n- example.com/npu-*\ncolour: red\n")
    ended = await run("top", "nodes", "-o", "json")
    assert (ended.values["gpus_total"], ended.values["gpus_allocated"]) == (4, 1)
    assert ended.err == f"{folder / 'config.yaml'}: unknown setting colour (line 3)\n"
    assert (await run("info", "-o", "json")).values["files"]["settings"] == str(folder / "config.yaml")


async def test_settings_that_make_no_sense_are_refused_before_anything_is_asked(alone: CommandLine) -> None:
    folder = alone.home / "config/gpuconsole"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("\naccelerators: all\n")
    ended = await alone("top", "nodes")
    assert (ended.status, ended.out) == (1, "")
    assert f"{folder / 'config.yaml'}, line 2, accelerators: a list of resource names" in ended.err
