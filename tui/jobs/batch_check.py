"""Whether a packaged trainer has as many images as one step of all its ranks takes."""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO

from k8s.job_spec import JobSpec
from trainer.catalogue import find
from tui.text.format import count, plural

MNIST_IMAGES = 60_000
"""Training images of MNIST."""


def batch_words(spec: JobSpec) -> str:
    """Return why training would fail for want of images: batch size × ranks; empty where it would not.

    Of a trainer that learns from no images, and of arguments that are wrong in another way, nothing is said.
    """
    if spec.trainer != "ddp" or (words := find(spec.trainer).words_of(spec.command)) is None:
        return ""
    try:
        with redirect_stderr(StringIO()):
            chosen = find(spec.trainer).parser().parse_args(words)
    except SystemExit:
        return ""
    ranks = _ranks(spec)
    step = chosen.batch_size * ranks
    images = MNIST_IMAGES if chosen.dataset == "mnist" else chosen.train_images
    if step <= images:
        return ""
    size = f"{count(chosen.batch_size)} × {plural(ranks, 'rank')} = {plural(step, 'image')}"
    return f"would fail: a step takes {size}, and there are {count(images)}; choose a smaller batch size"


def _ranks(spec: JobSpec) -> int:
    """Return how many the command starts: mpirun is told, torchrun's are in each pod."""
    words = spec.command
    if words[0] == "mpirun" and "-np" in words:
        return int(words[words.index("-np") + 1])
    return spec.workers * spec.processes
