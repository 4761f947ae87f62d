"""The server refuses to create pods: quota, limits, missing names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from k8s.diagnosis.evidence import Evidence
from k8s.models import Event, Quantities
from k8s.reasons.cause import Cause, Fact
from k8s.reasons.limits import beyond
from k8s.reasons.phrases import amount, bare_amount, cut, names
from k8s.scheduling import requests


def cannot_create(evidence: Evidence) -> Cause | None:
    """Detect pods that the server refused, from events."""
    if not evidence.podless:
        return None
    for event in evidence.events_of(None, "FailedCreate"):
        message = cut(event.message)
        for pattern, explain in _REJECTIONS:
            if found := pattern.search(message):
                cause = explain(evidence, found)
                return Cause(cause.sentence, (_event_fact(event), *cause.facts), cause.help)
        return Cause(f"Its pods cannot be created: {message}.", (_event_fact(event),))
    return None


def _event_fact(event: Event) -> Fact:
    about = event.involved_object
    return Fact("event", f"{about.kind}/{about.name} {event.reason}: {cut(event.message)}")


def _over_quota(evidence: Evidence, found: re.Match[str]) -> Cause:
    quota, requested, used, limited = found.groups()
    names_of = [each.partition("=")[0] for each in requested.split(",")]
    limits, uses = _format_amounts(limited), _format_amounts(used)
    asks = names(" ".join(reversed(each.split("=", 1))) for each in requested.split(","))
    left = names(f"{uses.get(each, '?')} of {limits.get(each, '?')} {each} used" for each in names_of)
    wanted, hard = requests.from_quantities(_format_amounts(requested)), requests.from_quantities(limits)
    if any(want > hard.get(key, want) for key, want in wanted.items()):
        allows = names(f"{limits[each]} {each}" for each in names_of if each in limits)
        sentence = f"Never starts: a pod needs {asks}; quota {quota} allows {allows}."
        return Cause(sentence, help=_beyond_quota(evidence))
    sentence = f"Waits for quota: a pod needs {asks}; quota {quota} has {left}."
    return Cause(sentence, help=_within_quota(evidence))


def _format_amounts(text: str) -> Quantities:
    return {key: value for key, _, value in (each.partition("=") for each in text.split(",")) if value}


def _rejected(sentence: str, *help_lines: str) -> Callable[[Evidence, re.Match[str]], Cause]:
    return lambda _, found: Cause(sentence.format(*found.groups()), help=help_lines)


# Messages of servers that refuse a pod, and their explanations; the first match wins.
_REJECTIONS: tuple[tuple[re.Pattern[str], Callable[[Evidence, re.Match[str]], Cause]], ...] = (
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
        _rejected(
            "Its pods cannot be created: a LimitRange says {0}.", "Request an amount within the limits."
        ),
    ),
    (
        re.compile(r"no PriorityClass with name (\S+) was found"),
        _rejected(
            "Its pods cannot be created: there is no PriorityClass {0}.", "Name a PriorityClass that exists."
        ),
    ),
    (
        re.compile(r"service ?account \"?([^\s\":]+)\"? (?:was )?not found"),
        _rejected(
            "Its pods cannot be created: there is no ServiceAccount {0}.",
            "Create the ServiceAccount, or name one that exists.",
        ),
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
    return Cause(
        f"Its pods cannot be created: there is no PriorityClass {names(missing)}.",
        help=("Name a PriorityClass that exists.",),
    )


def no_such_account(evidence: Evidence) -> Cause | None:
    """Detect a missing ServiceAccount."""
    missing = [name for name, found in evidence.accounts.items() if found is None]
    if not missing or not evidence.podless:
        return None
    return Cause(
        f"Its pods cannot be created: there is no ServiceAccount {names(missing)}.",
        help=("Create the ServiceAccount, or name one that exists.",),
    )


def over_quota(evidence: Evidence) -> Cause | None:
    """Detect an exceeded quota by arithmetic, if no event names it."""
    for instance in evidence.podless:
        wanted = requests.of_pod(evidence.spec(instance))
        for quota in evidence.quotas:
            if quota.spec.scopes or quota.spec.scope_selector:
                continue  # for some pods only; an event reports it if it is for these
            hard = requests.from_quantities(quota.status.hard)
            used = requests.from_quantities(quota.status.used)
            for key, limit in hard.items():
                want = wanted.get(_RESOURCE_OF.get(key) or key.removeprefix("requests."), None)
                left = limit - used.get(key, 0)
                if want is None or want <= left:
                    continue
                name, wants = quota.metadata.name, f"{instance.name} needs {amount(key, want)}"
                if want > limit:
                    sentence = f"Never starts: {wants}; quota {name} allows {bare_amount(key, limit)}."
                    return Cause(sentence, help=_beyond_quota(evidence))
                sentence = (
                    f"Waits for quota: {wants}; quota {name} has "
                    f"{bare_amount(key, left)} of {bare_amount(key, limit)} left."
                )
                return Cause(sentence, help=_within_quota(evidence))
    return None


def _within_quota(evidence: Evidence) -> tuple[str]:
    return (f"Request less, end other jobs in {evidence.job.ref.namespace}, or ask for more quota.",)


def _beyond_quota(evidence: Evidence) -> tuple[str]:
    return (f"Request less, or ask for more quota in {evidence.job.ref.namespace}.",)


_RESOURCE_OF: Mapping[str, str] = {"count/pods": requests.PODS}


def out_of_limits(evidence: Evidence) -> Cause | None:
    """Detect a violated LimitRange by arithmetic, if no event names it."""
    for instance in evidence.podless:
        containers = [requests.of_container(each) for each in evidence.spec(instance).containers]
        requested = {"Container": containers, "Pod": [requests.add(containers)]}
        for limit_range in evidence.limit_ranges:
            for limit in limit_range.spec.limits or ():
                for each in requested.get(limit.type, ()):
                    if violation := beyond(limit, each):
                        amount_text, allowed = violation
                        name = limit_range.metadata.name
                        return Cause(
                            f"Its pods cannot be created: {instance.name} needs {amount_text}; "
                            f"LimitRange {name} allows {allowed} a {limit.type.lower()}.",
                            help=("Request an amount within the limits.",),
                        )
    return None
