"""GPUs of a node by its labels: model, memory, versions, and devices that are parts of GPUs.

Sources: NVIDIA's GPU feature discovery and MIG user guide, HAMi (`docs/develop/protocol.md`), Volcano vGPU,
GKE (GPU sharing, accelerator labels), ACK (`aliyun.accelerator/nvidia_*`, memory as `16384MiB`), AMD's node
labeller (`amd.com/gpu.vram`, as `64G`) and device plugin (`compute-memory-partition`), KubeVirt, AWS Neuron.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from k8s.models import Meta, quantity
from k8s.text.sanitize import parse_integer

# Alibaba Cloud's label of a node and of the ConfigMap with its links; and annotations of a pod: the GPUs
# that the scheduler chose.
SCHEDULE_LABEL, TOPOLOGY = "ack.node.gpu.schedule", "topology"
GPU_GROUP, GPU_VISIBLE = "topology.kubernetes.io/gpu-group", "topology.kubernetes.io/gpu-visible"

_MODELS = (
    "nvidia.com/gpu.product",
    "aliyun.accelerator/nvidia_name",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "accelerator",
)
# Label, and the unit of a value without one.
_MEMORIES = (
    ("nvidia.com/gpu.memory", "Mi"),
    ("aliyun.accelerator/nvidia_mem", "Mi"),
    ("amd.com/gpu.vram", "Gi"),
    ("beta.amd.com/gpu.vram", "Gi"),
    ("karpenter.k8s.aws/instance-gpu-memory", "Mi"),
)
_AMOUNT = re.compile(r"([0-9]{1,12})\s*(?:([KMGT])i?B?)?")
# GPU feature discovery adds it to the model of time-sliced GPUs.
_SHARED_SUFFIX = "-SHARED"


def gpu_model(meta: Meta) -> str:
    """Return the model of a node's GPUs, as `NVIDIA-H100-80GB-HBM3`; empty without such a label."""
    found = next((model for label in _MODELS if (model := meta.label(label))), "")
    return found.removesuffix(_SHARED_SUFFIX)


def gpu_memory(meta: Meta) -> int:
    """Return the memory of each of a node's GPUs in bytes; 0 without such a label."""
    for label, unit in _MEMORIES:
        amount = _AMOUNT.fullmatch(meta.label(label))
        if amount is not None:
            return int(quantity.parse(f"{amount[1]}{f'{amount[2]}i' if amount[2] else unit}"))
    return 0


def nvidia_versions(meta: Meta) -> dict[str, str]:
    """Return the versions of the GPU driver and of CUDA; empty where there is no label."""
    found = {}
    for name, part in (("gpu_driver", "driver"), ("cuda", "runtime")):
        numbers = [meta.label(f"nvidia.com/cuda.{part}.{each}") for each in ("major", "minor", "rev")]
        full = meta.label(f"nvidia.com/cuda.{part}-version.full")
        found[name] = full or ".".join(each for each in numbers if each)
    return found


_GPU = "nvidia.com/gpu"
# Annotations in which vGPU plugins list their cards, by the start of the resource with the shares.
_REGISTERS = (
    (_GPU, "hami.io/node-nvidia-register"),
    ("volcano.sh/vgpu-number", "volcano.sh/node-vgpu-register"),
    ("hygon.com/", "hami.io/node-dcu-register"),
    ("cambricon.com/", "hami.io/node-mlu-register"),
)
_MARKS = (
    f"{_GPU}.product", f"{_GPU}.sharing-strategy", "cloud.google.com/gke-gpu-sharing-strategy",
    "cloud.google.com/gke-gpu-partition-size", "cloud.google.com/gke-max-shared-clients-per-gpu",
    f"{_GPU}.count", f"{_GPU}.replicas", "amd.com/compute-memory-partition",
    "amd.com/gpu.compute-memory-partition",
)  # fmt: skip
_AMD_PARTS = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
# Partitions of a whole GPU by MIG profile: by its compute slices, unless it has twice the usual memory.
_MIG = re.compile(r"(?:^|-MIG-|/mig-)([1-7])g\.(\d{1,3})gb")
_MIG_PARTS = {1: 7, 2: 3, 3: 2, 4: 1, 7: 1}
_WIDE_MIG = frozenset({"1.20", "1.35", "1.45"})
# A vGPU of NVIDIA, as KubeVirt names it (`GRID_T4-8Q`), or of Ascend (`Ascend310P-2c`).
_VIRTUAL = re.compile(r"/(?:.*-\d+[ABCQ]|[Aa]scend\w+-\d+c(?:\.\w+)*)$|/v(?:gpu|mlu)")
_NEURON, _CORES = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"


class GpuParts(NamedTuple):
    """The way in which GPUs are cut or shared, and their number; 0 if unknown."""

    mode: str
    cards: int


def parts_of(meta: Meta, totals: Mapping[str, int]) -> dict[str, GpuParts]:
    """Return the resources of a node whose devices are parts of GPUs; `totals` has the devices of each."""
    labels = meta.labels or {}
    marks = tuple([labels.get(key, "") for key in _MARKS])
    found = {}
    for name, total in totals.items():
        mark = (*marks, labels.get(f"{name}.replicas", "")) if "/mig-" in name else marks
        parts = _parts(name, total, mark)
        for prefix, key in _REGISTERS if meta.annotations else ():
            if name.startswith(prefix) and (cards := _registered(meta.annotation(key))):
                parts = GpuParts("vgpu", cards) if total > cards else None
        if parts is not None:
            found[name] = parts
    profiles = [name for name in found if "/mig-" in name]
    # How different partitions lie on the cards is not known.
    return found if len(profiles) < 2 else found | {name: GpuParts(found[name].mode, 0) for name in profiles}


@lru_cache(maxsize=4096)
def _parts(name: str, total: int, marks: tuple[str, ...]) -> GpuParts | None:
    product, strategy, gke_strategy, size, clients, count, replicas, *amd = marks
    if _VIRTUAL.search(name):
        return GpuParts("vgpu", 0)
    if name == _CORES:
        return GpuParts("cores", 0)
    if name.startswith("amd.com/"):
        sizes = [_AMD_PARTS.get(each.partition("_")[0], 1) for each in (name.removeprefix("amd.com/"), *amd)]
        return GpuParts("partitions", -(-total // max(sizes))) if max(sizes) > 1 else None
    if name not in (_GPU, f"{_GPU}.shared") and "/mig-" not in name:
        return None
    clients_of_each = max(_number(clients), _number(amd[-1] if "/mig-" in name else replicas), 1)
    if profile := _MIG.search(name) or (_MIG.search(size or product) if name == _GPU else None):
        is_wide = f"{profile[1]}.{profile[2]}" in _WIDE_MIG
        each = 4 if is_wide else _MIG_PARTS.get(int(profile[1]), 1)
        return GpuParts("mig", -(-total // (clients_of_each * each)))
    how = {"none": "", "time-sharing": "time-slicing"}.get(strategy or gke_strategy, strategy or gke_strategy)
    if clients_of_each == 1 and not how and not product.endswith("-SHARED") and name == _GPU:
        return None
    cards = _number(count) or (-(-total // clients_of_each) if clients_of_each > 1 else 0)
    return GpuParts(how or "time-slicing", cards)


# Label of the pods that share a GPU by KAI or Run:ai, and of the pod that reserves it for them.
_GPU_GROUP = "runai-gpu-group"


def fraction_of(meta: Meta) -> float | None:
    """Return the GPUs, usually less than one, that annotations of KAI or Run:ai request for a pod.

    None for other pods, and 0 if only memory is requested. Source: KAI Scheduler, "GPU sharing".
    """
    text = meta.annotation("gpu-fraction")
    if not text:
        return 0.0 if meta.annotation("gpu-memory") else None
    try:
        fraction = float(text) * max(1, _number(meta.annotation("gpu-fraction-num-devices")))
    except ValueError:
        return None
    return fraction if 0 < fraction < 1000 else None


def reserves_gpu(meta: Meta) -> bool:
    """Return True if a pod with GPUs only reserves one that others share."""
    return meta.labels is not None and _GPU_GROUP in meta.labels


def _registered(text: str) -> int:
    """Return the number of cards that an annotation lists: as JSON, or as `UUID,10,32768,…:UUID,…:`."""
    if not text.startswith("["):
        return sum("," in each for each in text.split(":"))
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return 0
    return len(found) if isinstance(found, list) else 0


def _number(label: str) -> int:
    return int(label) if label.isascii() and label.isdecimal() and len(label) < 7 else 0


def without_cores(totals: dict[str, int], held: dict[str, int]) -> None:
    """Count the NeuronCores of chips that a node offers as such, too, as chips."""
    chips, cores = totals.get(_NEURON, 0), totals.get(_CORES, 0)
    totals.pop("aws.amazon.com/neurondevice", 0)
    if chips and cores:
        held_cores = held.pop(_CORES, 0)
        del totals[_CORES]
        if held_cores:
            held[_NEURON] = held.get(_NEURON, 0) - (-held_cores * chips // cores)


def uncounted(meta: Meta, allocatable: Mapping[str, object]) -> tuple[str, ...]:
    """Return the extended resources of a node with an accelerator label, of which none is counted."""
    if not gpu_model(meta):
        return ()
    return tuple(
        name
        for name, amount in allocatable.items()
        if "/" in name and not name.startswith(_NO_ACCELERATORS) and str(amount) != "0"
    )


# Extended resources that are certainly something else.
_NO_ACCELERATORS = (
    "rdma/",
    "vpc.amazonaws.com/",
    "devices.kubevirt.io/",
    "smarter-devices/",
    "kubernetes.io/",
)


def given_gpus(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the GPU indices that a scheduler wrote on a pod; empty if missing or malformed."""
    annotations = metadata.get("annotations") or {}
    return gpu_numbers(str(annotations.get(GPU_GROUP) or annotations.get(GPU_VISIBLE) or ""))


def gpu_numbers(text: str) -> tuple[int, ...]:
    """Parse `0,1,4`; return an empty tuple if any part is not a number."""
    numbers = [parse_integer(word) for word in text.split(",")] if text else []
    known = tuple(number for number in numbers if number is not None)
    return known if len(known) == len(numbers) else ()
