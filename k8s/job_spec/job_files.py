"""What of this machine comes along with a job: its code, files, the packaged trainers, credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The contents that a `JobSpec` only names, as they were read. Where none is needed: `NO_FILES`."""

    code: bytes = b""
    """The local folder as a gzipped tar, without a leading folder; empty unless `sync_mode` is folder."""
    config_files: Mapping[str, bytes] = field(default_factory=dict)
    """By the `local_path` of `JobSpec.config_files`."""
    trainer: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the packaged trainers by their path below the package's parent: `trainer/ranks.py`."""
    git_login: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For a Secret that is made for the job: `username` and `password`, or `ssh-privatekey`."""
    left_out: tuple[str, ...] = ()
    """Paths in the local folder that are not sent though no .gitignore says so: links that lead out."""


NO_FILES = JobFiles()
"""For a job that needs nothing of this machine."""
