"""The earlier runs of packaged trainers whose checkpoints a new job can go on from, as far as known."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from k8s.jobs.run_folders import CHECKPOINTS, RunFolder, job_of_run
from k8s.snapshot import Job
from k8s.status import Status
from tui.text.format import age

DELETED = "deleted"
"""Stands for the status of a job that is not there any more."""
_ENDED = (Status.SUCCEEDED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A run that a job can go on from."""

    job: str
    """Name of the job that wrote it."""
    folder: str
    """Where it lies in the pods."""
    status: str = ""
    """The job's status, or `deleted`; empty while that is not known."""
    step: int | None = None
    """Of its newest checkpoint; None while that is not known."""
    saved_s: float | None = None
    """When that was written, in seconds since 1970."""

    def words(self, now_s: float) -> str:
        """Say what it is: `step 520 of digits (deleted), saved 5m ago`."""
        step = f"step {self.step} of " if self.step is not None else ""
        status = f" ({self.status})" if self.status else ""
        saved = f", saved {age(now_s - self.saved_s)} ago" if self.saved_s is not None else ""
        return f"{step}{self.job}{status}{saved}"


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """All that are known, by the name of their job and by their folder."""

    by_job: Mapping[str, EarlierRun] = field(default_factory=dict)
    """The newest of each job."""
    by_folder: Mapping[str, EarlierRun] = field(default_factory=dict)
    writers: Mapping[str, str] = field(default_factory=dict)
    """Folder to the job that writes there, and that job's status."""
    is_complete: bool = False
    """The volume was looked into: there are no others."""

    def find(self, text: str) -> EarlierRun:
        """Return the run that a job's name or a folder means.

        Raises:
            LookupError: There is none that can be continued; the message is a sentence.
        """
        found = self._by_folder(text) if text.startswith("/") else self.by_job.get(text)
        if found is None:
            raise LookupError(self._unknown(text))
        if writer := self.writers.get(found.folder):
            raise LookupError(f"{writer}: wait until it has ended, or delete it.")
        if self.is_complete and found.step is None:
            raise LookupError(f"There is no checkpoint in {found.folder}.")
        return found

    def _by_folder(self, text: str) -> EarlierRun:
        folder = posixpath.normpath(text).removesuffix(f"/{CHECKPOINTS}")
        return self.by_folder.get(folder) or EarlierRun(job_of_run(posixpath.basename(folder)), folder)

    def _unknown(self, text: str) -> str:
        if self.is_complete:
            names = ", ".join(list(self.by_job)[:5])
            return f"No earlier run of {text!r} on this volume; there is {names or 'none'}."
        return f"No job {text!r} here runs a packaged trainer: name its folder, e.g. /workspace/{text}-2026…"


def earlier_runs(
    jobs: Iterable[Job], runs: Sequence[RunFolder] | None, root: str, *, knows_all_jobs: bool = False
) -> EarlierRuns:
    """Gather the runs that can be continued.

    Args:
        jobs: Those of the namespace.
        runs: What the volume holds, newest first; None where it cannot be looked into.
        root: Where the volume is mounted in the pods.
        knows_all_jobs: Whether a job that is none of `jobs` was deleted.
    """
    gone = DELETED if knows_all_jobs else ""
    by_folder = {
        folder: EarlierRun(run.job, folder, gone, run.step, run.saved_s)
        for run in runs or ()
        for folder in (posixpath.join(root, run.name),)
    }
    by_job: dict[str, EarlierRun] = {}
    for found in by_folder.values():
        by_job.setdefault(found.job, found)
    writers = {}
    for job in jobs:
        if not (job.trainer and job.log_dir):
            continue
        folder = posixpath.dirname(job.log_dir)
        found = replace(
            by_folder.get(folder, EarlierRun("", folder)), job=job.ref.name, status=str(job.status)
        )
        by_job[job.ref.name] = by_folder[folder] = found
        if job.status not in _ENDED:
            writers[folder] = f"{job.ref.name} is {job.status}"
    return EarlierRuns(by_job, by_folder, writers, is_complete=runs is not None)
