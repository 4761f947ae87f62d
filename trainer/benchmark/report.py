"""What a benchmark prints: the lines of Horovod's synthetic benchmark, to the letter.

Source: examples/pytorch/pytorch_synthetic_benchmark.py of horovod/horovod.
"""

from collections.abc import Sequence
from statistics import fmean, pstdev

_DEVIATIONS = 1.96
"""Standard deviations that 95 % of a normal distribution lie within."""


def head_lines(model: str, batch_size: int, ranks: int, device: str) -> list[str]:
    """Say what is measured.

    >>> head_lines("vgg16", 64, 4, "GPU")
    ['Model: vgg16', 'Batch size: 64', 'Number of GPUs: 4']
    """
    return [f"Model: {model}", f"Batch size: {batch_size}", f"Number of {device}s: {ranks}"]


def iteration_line(iteration: int, img_per_sec: float, device: str) -> str:
    """Say one measurement of rank 0.

    >>> iteration_line(0, 205.14, "GPU")
    'Iter #0: 205.1 img/sec per GPU'
    """
    return f"Iter #{iteration}: {img_per_sec:.1f} img/sec per {device}"


def result_lines(img_per_sec: Sequence[float], ranks: int, device: str) -> list[str]:
    """Say the mean of all measurements and how far they lie from it, for one rank and for all.

    >>> result_lines([204.0, 206.0], 4, "GPU")
    ['Img/sec per GPU: 205.0 +-2.0', 'Total img/sec on 4 GPU(s): 820.0 +-7.8']
    """
    mean, spread = fmean(img_per_sec), _DEVIATIONS * pstdev(img_per_sec)
    return [
        f"Img/sec per {device}: {mean:.1f} +-{spread:.1f}",
        f"Total img/sec on {ranks} {device}(s): {ranks * mean:.1f} +-{ranks * spread:.1f}",
    ]
