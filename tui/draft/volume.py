"""Content of the claim's volume, and the earlier runs from which a job can continue.

A volume can be read if it is a local folder, as in the sandbox.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from k8s.client.client import Client
from k8s.jobs.pod_files import claim_folder
from k8s.jobs.run_folders import CHECKPOINTS, RunFolder, job_of_run, list_runs
from k8s.snapshot import Job
from k8s.status import Status
from k8s.text.errors import KubeError
from tui.text.format import age

DELETED = "deleted"
_ENDED = (Status.SUCCEEDED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """Run from which a job can continue."""

    job: str
    folder: str
    status: str = ""
    """The job's status, or `deleted`; empty if unknown."""
    step: int | None = None
    """Step of its newest checkpoint; None if unknown."""
    saved_s: float | None = None
    """Time of that checkpoint, in seconds since 1970; None if unknown."""

    def words(self, now_s: float) -> str:
        """Describe the run: `step 520 of digits (deleted), saved 5m ago`."""
        step = f"step {self.step} of " if self.step is not None else ""
        status = f" ({self.status})" if self.status else ""
        saved = f", saved {age(now_s - self.saved_s)} ago" if self.saved_s is not None else ""
        return f"{step}{self.job}{status}{saved}"


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Known earlier runs."""

    by_job: Mapping[str, EarlierRun] = field(default_factory=dict)
    by_folder: Mapping[str, EarlierRun] = field(default_factory=dict)
    writers: Mapping[str, str] = field(default_factory=dict)
    """Folder to its running writer and that job's status."""
    is_complete: bool = False
    """True if the volume was read, so that there are no other runs."""

    def find(self, text: str) -> EarlierRun:
        """Return the run that a job's name or a folder refers to.

        Raises:
            LookupError: No such run can be continued; the message is a sentence.
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
    """Collect the runs that can be continued.

    Args:
        jobs: The jobs of the namespace.
        runs: The runs on the volume, newest first; None if the volume cannot be read.
        root: The mount path of the volume in the pods.
        knows_all_jobs: Whether a job that is not in `jobs` was deleted.
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


# The packaged trainer reads these below MNIST/raw, as torchvision lays them out.
MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True, slots=True)
class VolumeContent:
    """Content of a volume, as far as it is visible."""

    is_visible: bool = False
    runs: tuple[RunFolder, ...] = ()
    missing_mnist: str = ""
    """A missing MNIST file; empty if all exist."""


async def inspect_volume(
    client: Client, namespace: str, claim: str, mount_path: str, mnist: str
) -> VolumeContent:
    """Return the content of a claim's volume, as far as it is visible from here; `mnist` may be empty."""
    try:
        volume = await claim_folder(client, claim, namespace) if claim else None
    except KubeError:
        return VolumeContent()
    if volume is None:
        return VolumeContent()
    return await asyncio.to_thread(_look, volume, mount_path, mnist)


def _look(volume: Path, mount_path: str, mnist: str) -> VolumeContent:
    return VolumeContent(
        True, tuple(list_runs(volume)), _missing_mnist(volume, mount_path, mnist) if mnist else ""
    )


def _missing_mnist(volume: Path, mount_path: str, mnist: str) -> str:
    folder = PurePosixPath(posixpath.normpath(posixpath.join(mount_path, mnist)))
    if not folder.is_relative_to(mount_path):
        return ""  # on another volume, or in the image
    raw = folder if folder.parts[-2:] == ("MNIST", "raw") else folder / "MNIST" / "raw"
    here = volume / raw.relative_to(mount_path)
    return next((f"{raw / name}" for name in MNIST_FILES if not (here / name).is_file()), "")
