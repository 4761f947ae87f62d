"""Pure rules from decoded objects to one `Status` of a job or an instance, with the reason.

A pod's word comes from `pod`, a job's from the table of rules in `job`, which knows the
job's object *and* its pods: an operator's list of conditions alone does not tell.
"""

from k8s.status.status import Status

__all__ = ["Status"]
