"""Pure rules that give a job or an instance one `Status`, with the reason.

`pod` has the rules for pods, `job` the table for jobs, which reads the job's object *and* its
pods: an operator's conditions alone are not enough.
"""

from __future__ import annotations

from enum import StrEnum

# Reason of a job whose status is unknown until more of its pods are listed.
BEING_READ = "its pods are still being read"


class Status(StrEnum):
    """Status of a job or an instance. Scripts rely on these ten words."""

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
        """Return True if nothing more will happen by itself."""
        return self in (Status.SUCCEEDED, Status.FAILED)

    @property
    def has_failed(self) -> bool:
        """Return True if an attempt has failed, the last one or one that is repeated."""
        return self in (Status.FAILED, Status.RESTARTING)

    @property
    def expects_pods(self) -> bool:
        """Return True if missing pods may still come: not if it is over, suspended or being deleted."""
        return not self.is_final and self not in (Status.SUSPENDED, Status.TERMINATING)


NOT_YET_STARTED = (Status.QUEUED, Status.PENDING, Status.STARTING, Status.SUSPENDED)
