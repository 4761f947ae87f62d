"""Pure rules from decoded objects to one `Status` of a job or an instance, with the reason.

A pod's word comes from `pod`, a job's from the table of rules in `job`, which knows the
job's object *and* its pods: an operator's list of conditions alone does not tell.
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How a job or an instance is: ten words, a contract with scripts."""

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

    @property
    def expects_pods(self) -> bool:
        """Tell whether pods that are missing may still come: nobody has suspended it, and it goes on."""
        return not self.is_final and self not in (Status.SUSPENDED, Status.TERMINATING)
