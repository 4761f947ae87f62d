"""Whether a packaged trainer has as many images as one step of all its ranks takes."""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO

from k8s.job_spec import JobSpec
from trainer.catalogue import find
from tui.text.format import count, plural

BATCH_SIZE = 32
"""Images in a step of one rank where none are chosen and there is no GPU."""
IMAGES = {"mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000, "folder": None, "tokens": None}
"""Training images of data sets that are files, None where not known; others are made as asked."""


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
    batch = chosen.batch_size or BATCH_SIZE
    step = batch * chosen.accumulate * ranks
    images = IMAGES.get(chosen.dataset, chosen.train_images)
    if images is None or step <= images:
        return ""
    size = f"{count(batch * chosen.accumulate)} × {plural(ranks, 'rank')} = {plural(step, 'image')}"
    return f"would fail: a step takes {size}, and there are {count(images)}; choose a smaller batch size"


def _ranks(spec: JobSpec) -> int:
    """Return how many the command starts: mpirun is told, torchrun's are in each pod."""
    words = spec.command
    if words[0] == "mpirun" and "-np" in words:
        return int(words[words.index("-np") + 1])
    return spec.workers * spec.processes
