"""What a node's labels tell of its GPUs: the model, their memory, how they are cut up.

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
_MEMORIES = (
    ("nvidia.com/gpu.memory", "Mi"),
    ("aliyun.accelerator/nvidia_mem", "Mi"),
    ("amd.com/gpu.vram", "Gi"),
    ("beta.amd.com/gpu.vram", "Gi"),
    ("karpenter.k8s.aws/instance-gpu-memory", "Mi"),
)
"""Label to the unit of a value that names none."""
_AMOUNT = re.compile(r"([0-9]{1,12})\s*(?:([KMGT])i?B?)?")
_SHARED_SUFFIX = "-SHARED"
"""What GPU feature discovery adds to the model of GPUs that pods take turns on."""


def gpu_model(meta: Meta) -> str:
    """Return the model of a node's GPUs, as `NVIDIA-H100-80GB-HBM3`; empty when no label tells."""
    found = next((model for label in _MODELS if (model := meta.label(label))), "")
    return found.removesuffix(_SHARED_SUFFIX)


def gpu_memory(meta: Meta) -> int:
    """Return the bytes of memory of each of a node's GPUs; 0 when no label tells."""
    for label, unit in _MEMORIES:
        amount = _AMOUNT.fullmatch(meta.label(label))
        if amount is not None:
            return int(quantity.parse(f"{amount[1]}{f'{amount[2]}i' if amount[2] else unit}"))
    return 0


def sharing(meta: Meta) -> str:
    """Return how several pods share a GPU here, `time-slicing` or `mps`; empty when they do not."""
    strategy = meta.label("nvidia.com/gpu.sharing-strategy")
    return "" if strategy == "none" else strategy


def is_cut_into_slices(meta: Meta) -> bool:
    """Tell whether what counts as a GPU here is a slice of one, as with MIG's strategy `single`."""
    return meta.label("nvidia.com/mig.strategy") == "single" and "-MIG-" in meta.label(_MODELS[0])
