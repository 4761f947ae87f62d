"""The command of a job that runs a packaged trainer, under the launcher that its kind has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from k8s.job_spec import JOB_FIELDS
from k8s.kinds.base import CreatableKind
from trainer.catalogue import Trainer


def trainer_command(
    trainer: Trainer,
    arguments: Mapping[str, str] | Sequence[str],
    kind: CreatableKind,
    fields: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return the argv that starts a trainer's ranks.

    mpirun starts as many as the workers have slots, and takes along the job's variables: over ssh
    a rank in another pod has none of its pod's.

    Args:
        trainer: The trainer.
        arguments: Its arguments, by name or as words.
        kind: Of the job.
        fields: Of `JobSpec`; those that are not there are at their default.
    """
    workers, gpus, slots, env = (
        fields.get(name, JOB_FIELDS[name].default) for name in ("workers", "gpus", "slots", "env")
    )
    ranks = workers * (max(1, gpus) if slots is None else slots)
    return tuple(trainer.command(arguments, launcher=kind.launcher, ranks=ranks, variables=sorted(env)))
