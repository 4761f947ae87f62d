"""Draft of a job: the way from the values of flags, the form or a template to a `JobSpec`."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k8s.jobs.run_folders import CHECKPOINTS, LOGS, run_name
from k8s.kinds.base import CreatableKind
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec
from trainer.catalogue import Trainer

DIRECTORIES: Mapping[str, str] = {"log-dir": LOGS, "checkpoint-dir": CHECKPOINTS}
"""Arguments of trainers that name a folder of a run, with the folder's own name."""


@dataclass(frozen=True, slots=True)
class JobDraft:
    """Job before its namespace, the version of its kind, and the folders of its run are known."""

    fields: Mapping[str, Any]
    """Values by field of `JobSpec`; missing ones have their default."""
    trainer: Trainer | None = None
    arguments: Sequence[str] = ()
    """The trainer's arguments as words."""
    root: str = ""
    """Folder in the pods for the folder of the run; empty for the trainer's defaults."""

    @property
    def open_folders(self) -> tuple[str, ...]:
        """Names of the trainer's arguments for folders that `arguments` does not set."""
        known = {each.name for each in self.trainer.arguments} if self.trainer is not None else ()
        return tuple(name for name in DIRECTORIES if name in known and not argument_in(name, self.arguments))

    def spec(self, kind: CreatableKind, stamp: str = "", *, continued: str = "", **more: Any) -> JobSpec:
        """Return the job; it may be invalid, see `problems_of`.

        Args:
            kind: Its kind, which launches the ranks of a trainer.
            stamp: Distinguishes the folder of the run from those of earlier jobs of this name.
            continued: Folder of the run that the trainer continues.
            more: Fields that `fields` lacks.
        """
        fields = {**self.fields, **more}
        fields.setdefault("processes", max(1, fields.get("gpus", 0)))
        if self.trainer is not None:
            fields |= self._of_trainer(self.trainer, kind, fields, stamp, continued)
        return JobSpec(**fields)

    def _of_trainer(
        self, trainer: Trainer, kind: CreatableKind, fields: Mapping[str, Any], stamp: str, continued: str
    ) -> dict[str, Any]:
        run = run_name(fields.get("name", ""), stamp)
        folder = continued or (posixpath.join(self.root, run) if self.root else "")
        words = [*self.arguments]
        for name in self.open_folders if folder else ():
            leaf = f"{LOGS}-{run}" if continued and name == "log-dir" else DIRECTORIES[name]
            words += [f"--{name}", f"{folder}/{leaf}"]
        words += ["--resume", "must"] if continued else []
        workers, gpus, slots, env = (
            fields.get(name, JOB_FIELDS[name].default) for name in ("workers", "gpus", "slots", "env")
        )
        # mpirun starts one process per slot and exports the job's variables: over ssh a rank in another
        # pod would not have them.
        ranks = workers * (max(1, gpus) if slots is None else slots)
        command = trainer.command(words, launcher=kind.launcher, ranks=ranks, variables=sorted(env))
        log_dir = argument_in("log-dir", words) or str(trainer.argument("log-dir").default)
        return {
            "trainer": trainer.name,
            "command": tuple(command),
            "log_dir": posixpath.join(fields.get("working_dir", ""), log_dir),
        }


def argument_in(name: str, words: Sequence[str]) -> str:
    """Return the value of an argument among a trainer's; empty if it is not set."""
    value = ""
    for index, word in enumerate(words):
        flag, equals, text = word.partition("=")
        if flag == f"--{name}":
            value = text if equals else next(iter(words[index + 1 :]), "")
    return value
