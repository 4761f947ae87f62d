"""Devices of clusters of 1.34 to 1.37, whole, shared and claimed, and the sums that they become."""

from __future__ import annotations

import json

from tests.k8s.cluster.situations import (
    AMD,
    NVIDIA,
    Case,
    bare,
    check,
    claim,
    class_of,
    device,
    in_group,
    lone,
    recorded,
    served,
    shown,
    slice_of,
    taint_rule,
)
from tests.support.objects import GPU, Object, node, pod_of, pytorch_job


def test_a_device_counts_once_on_its_node_in_its_job_and_in_every_sum() -> None:
    unclaimed = "0/2 nodes are available: 2 cannot allocate all claims"
    no_devices = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unclaimed}
    sora = pytorch_job("sora", gpus=0)
    all_tainted = "devices g0, g1, g2, … tainted ops/drain:NoSchedule (rule all)"
    bert = pytorch_job("bert", gpus=3)
    extended = served(pod_of(bert, "master-0", on="n1", gpus=3, uid="p1"), GPU)
    of_bert = claim("bert-x", "n1", "a,b,c", "p1", driver=NVIDIA)
    offer = slice_of("n1", "a", "b", "c", "d", driver=NVIDIA)
    whole_class = class_of(GPU, NVIDIA, "gpu")
    parts = [device(f"gpu-{card}-{part}", of=f"gpu-{card}") for card in (0, 1) for part in range(4)]
    cut = slice_of("n1", *parts, device("gpu-0", of="gpu-0"), device("gpu-1", of="gpu-1"))
    check([
        Case("limits that a recorded 1.36 cluster serves with a claim",
             [bare("gpu-node-0"), *recorded("dra-extended-resource")],
             ["gpu-node-0: 2 of 4, dra-ext 2",
              "dra-ext: Starting 2 of 2 (pod-0 its container is being created)"]),
        Case("the same for a user who may not read device classes",
             [bare("gpu-node-0"), *recorded("dra-extended-resource")[1:]],
             ["gpu-node-0: 2 of 4, dra-ext 2",
              "dra-ext: Starting 2 of 2 (pod-0 its container is being created)"]),
        Case("a job whose limits a claim serves",
             [bare("n1"), extended, bert, of_bert, offer, whole_class],
             ["n1: 3 of 4, bert 3", "bert: Running 3 of 3"]),
        Case("limits whose slices may not be read",
             [bare("n1"), node("n2"), extended, bert, of_bert],
             ["n1: 3 of 3, bert 3", "n2: 0 of 8", "bert: Running 3 of 3"]),
        Case("limits of which nothing but the pod may be read",
             [bare("n1"), node("n2"), extended, bert],
             ["n1: 3 of 3, bert 3", "n2: 0 of 8", "bert: Running 3 of 3"]),
        Case("limits whose claim may not be read",
             [bare("n1"), extended, bert, offer, whole_class],
             ["n1: 3 of 4, bert 3", "bert: Running 3 of 3"]),
        Case("limits, and a claim of its own",
             [bare("n1"), extended, bert, of_bert, claim("own", "n1", "d", "p1", driver=NVIDIA), offer,
              whole_class],
             ["n1: 4 of 4, bert 4", "bert: Running 4 of 4"]),
        Case("a node with a device plugin beside one with slices",
             [bare("n1"), node("n2", gpus=8), extended, bert, of_bert, lone("probe", "n2", {GPU: 5}), offer,
              whole_class],
             ["n1: 3 of 4, bert 3", "n2: 5 of 8, probe 5", "bert: Running 3 of 3",
              "probe: Running 5 of 5"]),
        Case("two classes of one driver for different extended resources",
             [bare("n1"), extended, bert, of_bert, offer, class_of("amd.com/gpu", NVIDIA), whole_class],
             ["n1: 3 of 4, bert 3", "bert: Running 3 of 3"]),
        Case("a class for the partitions of a card",
             [bare("n1"),
              served(lone("eval", "n1", {"nvidia.com/mig-1g.10gb": 1}), "nvidia.com/mig-1g.10gb"),
              claim("e", "n1", "m", "eval", driver=NVIDIA),
              slice_of("n1", device("a", of="a"), device("m", of="a", kind="mig"), driver=NVIDIA),
              class_of("nvidia.com/mig-1g.10gb", NVIDIA, "mig"), whole_class],
             ["n1: 1 of 1, eval 1", "eval: Running 1 of 1"]),
        Case("a job that gets its devices by claims alone",
             [bare("n1"), pytorch_job("glm", gpus=0),
              pod_of(pytorch_job("glm"), "master-0", on="n1", gpus=0, uid="g"),
              claim("g", "n1", "a,b", "g", driver=NVIDIA), offer, whole_class],
             ["n1: 2 of 4, glm 2", "glm: Running 2 of 2"]),
        Case("partitions of a card in two claims",
             [bare("n1"), lone("eval", "n1"), lone("tune", "n1"), cut, claim("a", "n1", "gpu-1-0", "tune"),
              claim("b", "n1", "gpu-1-2,gpu-1-3", "eval")],
             ["n1: 1 of 2, tune 1, eval shared", "eval: Running 0 of 0", "tune: Running 1 of 1"]),
        Case("partitions of both cards in one claim",
             [bare("n1"), lone("eval", "n1"), cut, claim("a", "n1", "gpu-0-1,gpu-1-1,gpu-1-2", "eval")],
             ["n1: 2 of 2, eval 2", "eval: Running 2 of 2"]),
        Case("shares of a device that several claims have",
             [bare("n1"), lone("eval", "n1"), lone("tune", "n1"),
              slice_of("n1", device("x") | {"allowMultipleAllocations": True}, "y"),
              claim("a", "n1", "x", "eval"), claim("b", "n1", "x", "tune")],
             ["n1: 1 of 2, eval 1, tune shared", "eval: Running 1 of 1", "tune: Running 0 of 0"]),
        Case("a claim that two pods share, of which the first has ended",
             [bare("n1"), lone("eval", "n1") | {"status": {"phase": "Succeeded"}}, lone("tune", "n1"),
              slice_of("n1", "x"), claim("a", "n1", "x", "eval", "tune")],
             ["n1: 1 of 1, tune 1", "tune: Running 1 of 1"]),
        Case("a claim reserved for a PodGroup",
             [bare("n1"), in_group(lone("eval", "n1"), "gang", "shared-x"),
              in_group(lone("tune", "n1"), "gang", "shared-x"),
              in_group(lone("odd", "n1"), "others", "shared-x"), slice_of("n1", "x", "y"),
              claim("shared-x", "n1", "x,y", group="gang")],
             ["n1: 2 of 2, eval 2, tune shared", "eval: Running 2 of 2", "tune: Running 0 of 0"]),
        Case("tainted devices are out of order, unless a taint only informs",
             [bare("n1"), slice_of("n1", "a", device("b", taint="NoExecute"), device("c", taint="None"))],
             ["n1: 0 of 2, 1 out of order, device b tainted lab.io/xid=79:NoExecute"]),
        Case("a card is out of order once all its parts are tainted",
             [bare("n1"), slice_of("n1", device("a-0", of="a", taint="NoSchedule"), device("a-1", of="a"),
              device("b-0", of="b", taint="NoSchedule"), device("b-1", of="b", taint="NoSchedule"))],
             ["n1: 0 of 1, 1 out of order, devices a-0, b-0, b-1 tainted lab.io/xid=79:NoSchedule"]),
        Case("rules taint the devices that they select",
             [bare("n1"), slice_of("n1", "x", "y", "z"), bare("n2"), slice_of("n2", "x", "y"),
              taint_rule("drain-x", {"driver": AMD, "device": "x"}),
              taint_rule("drain-n1", {"pool": "n1", "device": "y"}, "NoExecute"),
              taint_rule("dry-run", {"pool": "n2"}, "None"), taint_rule("of-nothing", None),
              taint_rule("of-others", {"driver": NVIDIA}),
              taint_rule("by-cel", {"selectors": [{"cel": {"expression": "true"}}]}),
              taint_rule("by-class", {"deviceClassName": "gpu.amd.com"})],
             ["n1: 0 of 1, 2 out of order, device x tainted ops/drain:NoSchedule (rule drain-x); "
              "device y tainted ops/drain:NoExecute (rule drain-n1)",
              "n2: 0 of 1, 1 out of order, device x tainted ops/drain:NoSchedule (rule drain-x)"]),
        Case("why a claim waits where a rule taints all devices",
             [bare("n1"), slice_of("n1", "g0", "g1", "g2", "g3"), bare("n2"), taint_rule("all", {}), sora,
              pod_of(sora, "master-0", gpus=0, phase="Pending", conditions=[no_devices])],
             [f"n1: 0 of 0, 4 out of order, {all_tainted}", "n2: 0 of 0",
              f"sora: Pending 0 of 0 (master-0: {unclaimed})",
              f"why sora: Waits for a node: master-0; the scheduler says {unclaimed}."
              f" | n1: {all_tainted} | by requests and labels alone there would be room"]),
        Case("a v1beta1 slice nests the properties of a device",
             [bare("n1"),
              slice_of("n1", {"name": "a", "basic": device("", of="card-a")}, {"name": "b", "basic": {}})],
             ["n1: 0 of 2"]),
    ])  # fmt: skip


def amounts_of(text: str) -> dict[str, int]:
    return {name: int(amount) for name, _, amount in (each.rpartition("=") for each in text.split())}


def offering(text: str, marks: dict[str, str]) -> Object:
    """Return a node with amounts, `nvidia.com/gpu=8 …`, and with labels and annotations (`@key`)."""
    found = bare("n1")
    found["metadata"] |= {
        "labels": {key: value for key, value in marks.items() if key[0] != "@"},
        "annotations": {key[1:]: value for key, value in marks.items() if key[0] == "@"},
    }
    for name in ("allocatable", "capacity"):
        found["status"][name] |= amounts_of(text)
    return found


def test_parts_of_gpus_are_not_counted_as_gpus() -> None:
    card = "GPU-%d,10,81559,100,NVIDIA-NVIDIA A100-SXM4-80GB,0,true:"
    gfd = {"nvidia.com/gpu.product": "NVIDIA-A10-SHARED", "nvidia.com/gpu.count": "2"}
    gke = "cloud.google.com/gke-"
    clients = {f"{gke}gpu-sharing-strategy": "time-sharing", f"{gke}max-shared-clients-per-gpu": "6"}
    hami = {"@hami.io/node-nvidia-register": "".join(card % n for n in range(8))}
    as_json = {"@hami.io/node-nvidia-register": json.dumps([{"id": f"GPU-{n}", "count": 5} for n in "ab"])}
    single = {
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.20gb",
    }
    volcano = {"@volcano.sh/node-vgpu-register": card % 1 + card % 2}
    odd = {"accelerator": "acme-x1", "zone": "a"}
    amd = "amd.com/compute-memory-partition"
    cce = "volcano.sh/gpu-mem.128Mi=%d volcano.sh/gpu-core.percentage=%d"
    qgpu = "tke.cloud.tencent.com/qgpu-core=%d tke.cloud.tencent.com/qgpu-memory=%d"
    neuron = " ".join(f"aws.amazon.com/neuron{each}" for each in ("=16", "core=32", "device=16"))
    nv = "nvidia.com"
    rows: list[tuple[str, str, dict[str, str], str, str]] = [
        ("HAMi", f"{nv}/gpu=80", hami, f"{nv}/gpu=3", "3 of 80 shares of 8 GPUs (vgpu), a 3"),
        ("HAMi with JSON", f"{nv}/gpu=10", as_json, "", "0 of 10 shares of 2 GPUs (vgpu)"),
        ("HAMi with one share a card", f"{nv}/gpu=8", hami, "", "0 of 8"),
        ("a broken register", f"{nv}/gpu=8", {"@hami.io/node-nvidia-register": "[{"}, "", "0 of 8"),
        ("Volcano", "volcano.sh/vgpu-number=20", volcano, "volcano.sh/vgpu-number=1",
         "1 of 20 shares of 2 GPUs (vgpu), a 1"),
        ("time slices", f"{nv}/gpu=8", gfd | {f"{nv}/gpu.replicas": "4"}, f"{nv}/gpu=1",
         "1 of 8 shares of 2 GPUs (time-slicing), a 1"),
        ("MPS", f"{nv}/gpu=8", gfd | {f"{nv}/gpu.sharing-strategy": "mps"}, "",
         "0 of 8 shares of 2 GPUs (mps)"),
        ("slices by name", f"{nv}/gpu.shared=8", {}, f"{nv}/gpu.shared=2",
         "2 of 8 shares (time-slicing), a 2"),
        ("GKE's time-sharing", f"{nv}/gpu=12", clients, "", "0 of 12 shares of 2 GPUs (time-slicing)"),
        ("GKE's partitions", f"{nv}/gpu=24", {f"{gke}gpu-partition-size": "2g.10gb"}, "",
         "0 of 24 shares of 8 GPUs (mig)"),
        ("both of them", f"{nv}/gpu=84", {f"{gke}gpu-partition-size": "1g.5gb"} | clients, "",
         "0 of 84 shares of 2 GPUs (mig)"),
        ("MIG as GPUs", f"{nv}/gpu=16", single, "", "0 of 16 shares of 4 GPUs (mig)"),
        ("whole GPUs and slices", f"{nv}/gpu=4 {nv}/mig-3g.40gb=8", {}, f"{nv}/gpu=4",
         "4 of 4 GPUs and 0 of 8 shares of 4 GPUs (exclusive, mig), a 4"),
        ("slices of two sizes", f"{nv}/mig-3g.40gb=4 {nv}/mig-1g.10gb=8", {}, "", "0 of 12 shares (mig)"),
        ("AMD's CPX", "amd.com/gpu=64", {amd: "cpx_nps4"}, "", "0 of 64 shares of 8 GPUs (partitions)"),
        ("the same by name", "amd.com/cpx_nps4=16", {}, "amd.com/cpx_nps4=3",
         "3 of 16 shares of 2 GPUs (partitions), a 3"),
        ("whole GPUs of AMD", "amd.com/gpu=8", {amd: "spx_nps1"}, "", "0 of 8"),
        ("CCE", cce % (640, 200), {}, cce % (40, 25), "5 of 80G of 2 GPUs, a 5G"),
        ("qGPU", qgpu % (400, 96), {}, qgpu % (20, 8), "8 of 96G of 4 GPUs, a 8G"),
        ("vGPUs of virtual machines", f"{nv}/GRID_T4-8Q=4", {}, f"{nv}/GRID_T4-8Q=1",
         "1 of 4 shares (vgpu), a 1"),
        ("passed through", f"{nv}/GH100_H100_SXM5_80GB=8", {}, f"{nv}/GH100_H100_SXM5_80GB=2", "2 of 8, a 2"),
        ("Ascend on CCE", "huawei.com/ascend-1980=8", {}, "huawei.com/ascend-1980=8", "8 of 8, a 8"),
        ("Neuron's chips and cores", neuron, {}, "aws.amazon.com/neuroncore=3", "2 of 16, a 3"),
        ("Neuron's chips", neuron, {}, "aws.amazon.com/neuron=4", "4 of 16, a 4"),
        ("unknown", "acme.io/npu=8 rdma/ib=4", odd, "", "0 of 0, acme.io/npu is not counted"),
        ("the same without a label", "acme.io/npu=8", {}, "", "0 of 0"),
    ]  # fmt: skip
    for name in ("hygon.com/dcunum", "mthreads.com/gpu", "cambricon.com/mlu370"):
        rows.append((name, f"{name}=8", {}, f"{name}=2", "2 of 8, a 2"))
    for title, offers, marks, takes, line in rows:
        pods = [lone("a", "n1", amounts_of(takes))] if takes else []
        assert shown([offering(offers, marks), *pods])[0] == f"n1: {line}", title
