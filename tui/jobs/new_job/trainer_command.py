"""Command of a job that runs a packaged trainer, under the launcher of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

from k8s.job_spec import JOB_FIELDS, JobSpec
from k8s.kinds.base import CreatableKind
from trainer.catalogue import Trainer, find
from tui.text.format import count, plural


def trainer_command(
    trainer: Trainer,
    arguments: Mapping[str, str] | Sequence[str],
    kind: CreatableKind,
    fields: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return the argv that starts a trainer's ranks.

    mpirun starts one process per slot and exports the job's variables: over ssh a rank in another pod
    would not have them.

    Args:
        trainer: The trainer.
        arguments: Its arguments, by name or as words.
        kind: Kind of the job.
        fields: Fields of `JobSpec`; missing ones have their default.
    """
    workers, gpus, slots, env = (
        fields.get(name, JOB_FIELDS[name].default) for name in ("workers", "gpus", "slots", "env")
    )
    ranks = workers * (max(1, gpus) if slots is None else slots)
    return tuple(trainer.command(arguments, launcher=kind.launcher, ranks=ranks, variables=sorted(env)))


IMAGES = {"mnist": 60_000, "folder": None, "tokens": None}
"""Training images of fixed data sets, None if unknown; the others are generated on demand."""


def describe_batch(spec: JobSpec) -> str:
    """Return an error if batch size × ranks exceeds the images; empty if not.

    Ignores trainers without images, and arguments that are invalid for other reasons.
    """
    if spec.trainer != "ddp" or (words := find(spec.trainer).words_of(spec.command)) is None:
        return ""
    try:
        with redirect_stderr(StringIO()):
            chosen = find(spec.trainer).parser().parse_args(words)
    except SystemExit:
        return ""
    ranks = _ranks(spec)
    batch = chosen.batch_size
    step = batch * chosen.accumulate * ranks
    images = IMAGES.get(chosen.dataset, chosen.train_images)
    if images is None or step <= images:
        return ""
    size = f"{count(batch * chosen.accumulate)} × {plural(ranks, 'rank')} = {plural(step, 'image')}"
    return f"would fail: a step takes {size}, and there are {count(images)}; choose a smaller batch size"


def _ranks(spec: JobSpec) -> int:
    # mpirun gets the number of processes; torchrun starts its own in each pod.
    words = spec.command
    if words[0] == "mpirun" and "-np" in words:
        return int(words[words.index("-np") + 1])
    return spec.workers * spec.processes
