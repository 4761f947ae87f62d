"""The most operations a second that a GPU of a known model does, by its name: what MFU is measured against.

Sources: NVIDIA's data sheets and architecture whitepapers, dense tensor-core
figures (those "with sparsity" halved), fp32 accumulation.
"""

import re

_TABLE = (
    # name, as the driver says it               bf16   fp16   tf32   fp32
    (r"B200\b", 2250, 2250, 1125, 75),
    (r"H20\b", 148, 148, 74, 44),
    (r"H[12]00 NVL", 835, 835, 417, 60),
    (r"(H100|H800) PCIe", 756, 756, 378, 51),
    (r"(H100|H200|H800|GH200)\b", 989, 989, 494, 67),
    (r"(A100|A800)\b", 312, 312, 156, 19.5),
    (r"A30\b", 165, 165, 82, 10.3),
    (r"A40\b", 149.7, 149.7, 74.8, 37.4),
    (r"A10\b", 125, 125, 62.5, 31.2),
    (r"L40S\b", 362, 362, 183, 91.6),
    (r"L40\b", 181, 181, 90.5, 90.5),
    (r"L20\b", 119.5, 119.5, 59.8, 59.8),
    (r"L4\b", 121, 121, 60, 30.3),
    (r"V100-SXM", 0, 125, 0, 15.7),
    (r"V100-PCIE", 0, 112, 0, 14),
    (r"T4\b", 0, 65, 0, 8.1),
    (r"RTX 4090\b(?! D)", 165.2, 165.2, 82.6, 82.6),
    (r"RTX 3090\b(?! Ti)", 71, 71, 35.6, 35.6),
)
"""Teraflops; 0 where the GPU has no such numbers."""

_COLUMNS = {"bf16": 1, "fp16": 2, "tf32": 3, "fp32": 4}
_TERA = 1e12


def peak_flops(name: str, precision: str) -> float:
    """Return the peak of a GPU in operations a second, 0 if it is not known.

    >>> peak_flops("NVIDIA A100-SXM4-80GB", "bf16")
    312000000000000.0
    >>> peak_flops("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16")
    0.0
    """
    column = _COLUMNS.get(precision)
    if column is None or "MIG" in name:
        return 0.0
    for row in _TABLE:
        if re.search(rf"\b{row[0]}", name):
            return float(row[column]) * _TERA
    return 0.0
