"""Nothing acts on a job: it is deleted, or its operator is absent or slow."""

from __future__ import annotations

from k8s.reasons.cause import Cause, Fact
from k8s.reasons.evidence import Evidence, dig
from k8s.reasons.phrases import condition_text, count, cut, names, order, span
from k8s.status import Status

# Seconds before the silence of an operator or scheduler means something.
PATIENCE_S = 60.0


def gone(evidence: Evidence) -> Cause | None:
    """Detect a job that no longer exists."""
    if not evidence.is_gone:
        return None
    ref = evidence.job.ref
    return Cause(f"It is gone: {ref.kind} {ref.name} was deleted.")


def unreadable(evidence: Evidence) -> Cause | None:
    """Detect a field of the wrong type in the job's object."""
    if not evidence.manifest or evidence.declared is not None:
        return None
    why = cut(evidence.job.reason) or "its object cannot be read"
    return Cause(f"Cannot tell: {why}.", help=("Correct that field in its object.",))


def being_deleted(evidence: Evidence) -> Cause | None:
    """Detect a deletion that something delays."""
    if evidence.job.status is not Status.TERMINATING:
        return None
    pods = [each for each in evidence.unfinished if each.pod]
    found = dig(evidence.manifest, "metadata", "finalizers")
    finalizers = [each for each in (found if isinstance(found, list) else ()) if isinstance(each, str)]
    held = f"; finalizers keep it: {names(finalizers)}" if finalizers and not pods else ""
    nodes = f" on {names(each.node for each in pods if each.node)}" if any(each.node for each in pods) else ""
    return Cause(f"Is being deleted: {count(len(pods), 'pod')} left{nodes}{held}.")


def operator_absent(evidence: Evidence) -> Cause | None:
    """Detect an operator that does not react."""
    has_answer = bool(evidence.manifest.get("status")) or any(each.pod for each in evidence.job.instances)
    if not evidence.manifest or has_answer or evidence.events_of(None, names={evidence.job.ref.name}):
        return None
    ref, age = evidence.job.ref, span(evidence.age_s)
    if evidence.age_s < PATIENCE_S:
        return Cause(f"Was created {age} ago; its operator has not reacted yet.")
    return Cause(
        f"No operator acts on it: {ref.kind} {ref.name} has no status and no pods after {age}.",
        (Fact("job", f"{ref.api_version} {ref.kind}, no status, no events, no pods"),),
        (f"Ask an administrator whether the operator for {ref.kind} is running.",),
    )


def refused(evidence: Evidence) -> Cause | None:
    """Detect a spec that the operator finds invalid; it may say so in an event only.

    Source: training-operator's PyTorchJobFailedValidation, mpi-operator's ValidationError.
    """
    if not evidence.podless:
        return None
    for event in evidence.events_of(None, names={evidence.job.ref.name}):
        if (event.reason or "").endswith(("FailedValidation", "ValidationError")):
            return Cause(
                f"Its operator rejects its spec: {cut(event.message)}.",
                (Fact("event", f"{event.involved_object.kind} {event.reason}: {cut(event.message)}"),),
                ("Correct the spec, and submit the job again.",),
            )
    return None


def no_pods_yet(evidence: Evidence) -> Cause | None:
    """Detect missing pods without a known reason."""
    if not evidence.podless or evidence.job.status is Status.SUSPENDED:
        return None
    made = len(evidence.job.instances) - len(evidence.podless)
    newest = max(
        (each for each in evidence.job.conditions if each.status == "True" and each.message),
        key=lambda each: order(each.last_transition_time),
        default=None,
    )
    facts = (Fact("job", condition_text(newest)),) if newest is not None else ()
    if not evidence.job.instances:
        return None
    total, age = len(evidence.job.instances), span(evidence.age_s)
    sentence = (
        f"Has {made} of {count(total, 'pod')}: its operator has not created the rest."
        if made
        else f"Has no pods: its operator has created none of {total}, {age} after it was created."
    )
    return Cause(sentence, facts)
