"""GPU properties in node labels: model, memory, versions, sharing.

Sources: NVIDIA's GPU feature discovery (`nvidia.com/gpu.*`, memory in MiB), ACK
(`aliyun.accelerator/nvidia_*`, memory as `16384MiB`), AMD's node labeller
(`amd.com/gpu.vram`, as `64G`), and the labels of GKE, Karpenter and Ascend.
"""

from __future__ import annotations

import re

from k8s.models import Meta, quantity

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
