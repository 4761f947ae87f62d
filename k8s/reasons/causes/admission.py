"""The server refuses to create pods: quota, limits, missing names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from k8s.models import Event, Meta, Quantities
from k8s.models.namespace import Quota, QuotaStatus
from k8s.reasons.cause import Cause, Fact
from k8s.reasons.evidence import Evidence
from k8s.reasons.phrases import cut, names
from k8s.reasons.pod_rules import counted_resource, limit_causes, missing_priority, quota_causes
from k8s.reasons.scheduling import requests


def cannot_create(evidence: Evidence) -> Cause | None:
    """Detect pods that the server refused, from events."""
    if not evidence.podless:
        return None
    for event in evidence.events_of(None, "FailedCreate"):
        message = cut(event.message)
        for pattern, explain in _REJECTIONS:
            if (found := pattern.search(message)) and (cause := explain(evidence, found)):
                return Cause(cause.sentence, (_event_fact(event), *cause.facts), cause.help)
        return Cause(f"Its pods cannot be created: {message}.", (_event_fact(event),))
    return None


def _event_fact(event: Event) -> Fact:
    about = event.involved_object
    return Fact("event", f"{about.kind}/{about.name} {event.reason}: {cut(event.message)}")


def _over_quota(evidence: Evidence, found: re.Match[str]) -> Cause | None:
    name, requested, used, limited = found.groups()
    quota = Quota(Meta(name), status=QuotaStatus(_format_amounts(limited), _format_amounts(used)))
    # The server may have set requests that the template lacks.
    quantities = {counted_resource(key): value for key, value in _format_amounts(requested).items()}
    asked = requests.from_quantities(quantities)
    pods = {each.name: {**asked, **requests.of_pod(evidence.spec(each))} for each in evidence.podless}
    return _quota_cause(evidence, quota, pods)


def _quota_cause(evidence: Evidence, quota: Quota, pods: Mapping[str, requests.ResourceList]) -> Cause | None:
    together = [pods.get(name, each.requested) for each in evidence.together for name in each.instances]
    causes = quota_causes(quota, pods, together, evidence.job.ref.namespace)
    return min(causes, key=lambda cause: cause.severity, default=None)  # an error first


def _out_of_limits(evidence: Evidence, found: re.Match[str]) -> Cause:
    sentence = f"Its pods cannot be created: a LimitRange says {found[1]}."
    return out_of_limits(evidence) or Cause(sentence, help=("Request an amount within the limits.",))


def _format_amounts(text: str) -> Quantities:
    return {key: value for key, _, value in (each.partition("=") for each in text.split(",")) if value}


def _rejected(sentence: str, *help_lines: str) -> Callable[[Evidence, re.Match[str]], Cause]:
    return lambda _, found: Cause(sentence.format(*found.groups()), help=help_lines)


# Messages of servers that refuse a pod, and their explanations; the first match wins.
_REJECTIONS: tuple[tuple[re.Pattern[str], Callable[[Evidence, re.Match[str]], Cause | None]], ...] = (
    (re.compile(r"exceeded quota: ([^,]+), requested: (\S+), used: (\S+), limited: (\S+)"), _over_quota),
    (
        re.compile(r"failed quota: ([^:]+): must specify (.+)"),
        _rejected(
            "Its pods cannot be created: quota {0} requires every container to set {1}.",
            "Set these in every container.",
        ),
    ),
    (
        re.compile(r"((?:maximum|minimum) \S+ usage per \w+ is .+|\S+ max limit to request ratio .+)"),
        _out_of_limits,
    ),
    (
        re.compile(r"no PriorityClass with name (\S+) was found"),
        lambda _, found: missing_priority(found[1]),
    ),
    (
        re.compile(r"service ?account \"?([^\s\":]+)\"? (?:was )?not found"),
        lambda _, found: _no_account(found[1]),
    ),
    (
        re.compile(r"violates PodSecurity \"([^\"]+)\":? ?(.*)"),
        _rejected("Its pods cannot be created: PodSecurity {0} forbids them: {1}."),
    ),
    (
        re.compile(r"admission webhook \"([^\"]+)\" denied the request:? ?(.*)"),
        _rejected("Its pods cannot be created: admission webhook {0} denies them: {1}."),
    ),
)


def no_such_priority(evidence: Evidence) -> Cause | None:
    """Detect a missing PriorityClass."""
    missing = [name for name, found in evidence.priorities.items() if found is None]
    if not missing or not evidence.podless:
        return None
    return missing_priority(names(missing))


def no_such_account(evidence: Evidence) -> Cause | None:
    """Detect a missing ServiceAccount."""
    missing = [name for name, found in evidence.accounts.items() if found is None]
    if not missing or not evidence.podless:
        return None
    return _no_account(names(missing))


def _no_account(name: str) -> Cause:
    sentence = f"Its pods cannot be created: there is no ServiceAccount {name}."
    return Cause(sentence, help=("Create the ServiceAccount, or name one that exists.",))


def over_quota(evidence: Evidence) -> Cause | None:
    """Detect an exceeded quota by arithmetic, if no event names it."""
    pods = {each.name: requests.of_pod(evidence.spec(each)) for each in evidence.podless}
    causes = (_quota_cause(evidence, quota, pods) for quota in evidence.quotas if pods)
    return next(filter(None, causes), None)


def out_of_limits(evidence: Evidence) -> Cause | None:
    """Detect a violated LimitRange by arithmetic, if no event names it."""
    pods = ((each.name, evidence.spec(each)) for each in evidence.podless)
    return next(iter(limit_causes(evidence.limit_ranges, pods)), None)
