"""The ten words for how a job or an instance is: a contract with scripts."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How a job or an instance is."""

    QUEUED = "Queued"
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"

    @property
    def is_final(self) -> bool:
        """Tell whether nothing more will happen by itself."""
        return self in (Status.SUCCEEDED, Status.FAILED)
