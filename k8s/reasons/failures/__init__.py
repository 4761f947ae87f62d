"""Triage of a failed job: the rank that failed first, its error, and the cause if it is a known one.

Pure but for `log_tails`, which reads the ends of logs. `errors` finds errors in lines,
`reports` what launchers say of their ranks, `culprit` picks the first to fail and looks its error up
in `causes.toml`.
"""

from collections.abc import Sequence

from k8s.reasons.failures.causes import CAUSES, ContainerLog, FailureCause, Triage

__all__ = ["CAUSES", "ContainerLog", "FailureCause", "Triage", "triage"]


def triage(logs: Sequence[ContainerLog], causes: Sequence[FailureCause] = CAUSES) -> Triage | None:
    """Find the rank that failed first and its cause; None if nothing has failed."""
    # Compiles a hundred patterns, and most commands meet no failure.
    from k8s.reasons.failures.culprit import find_culprit

    return find_culprit(logs, causes)
