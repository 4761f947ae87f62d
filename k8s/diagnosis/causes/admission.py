"""Why pods are not even made: the server refuses them, for quota, limits, names that do not exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from k8s.diagnosis.answer import Cause, Fact
from k8s.diagnosis.evidence import Evidence
from k8s.diagnosis.objects import LimitRangeItem
from k8s.diagnosis.words import amount, bare_amount, cut, names
from k8s.models import Event
from k8s.scheduling import requests


def cannot_create(evidence: Evidence) -> Cause | None:
    """Its pods are refused when they are to be made."""
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
    limits = dict(each.split("=", 1) for each in limited.split(",") if "=" in each)
    uses = dict(each.split("=", 1) for each in used.split(",") if "=" in each)
    asks = names(" ".join(reversed(each.split("=", 1))) for each in requested.split(","))
    left = names(f"{uses.get(each, '?')} of {limits.get(each, '?')} {each} used" for each in names_of)
    return Cause(
        f"Waits for quota: a pod wants {asks}; quota {quota} has {left}.",
        help=(f"Ask for less, end other jobs in {evidence.job.ref.namespace}, or ask for more quota.",),
    )


def _rejected(words: str, *help_lines: str) -> Callable[[Evidence, re.Match[str]], Cause]:
    """Return an explanation in which `{0}`, `{1}` are what the message names."""
    return lambda _, found: Cause(words.format(*found.groups()), help=help_lines)


_REJECTIONS: tuple[tuple[re.Pattern[str], Callable[[Evidence, re.Match[str]], Cause]], ...] = (
    (re.compile(r"exceeded quota: ([^,]+), requested: (\S+), used: (\S+), limited: (\S+)"), _over_quota),
    (
        re.compile(r"failed quota: ([^:]+): must specify (.+)"),
        _rejected(
            "Its pods cannot be created: quota {0} demands that each container says {1}.",
            "Say how much of these each container wants.",
        ),
    ),
    (
        re.compile(r"((?:maximum|minimum) \S+ usage per \w+ is .+|\S+ max limit to request ratio .+)"),
        _rejected(
            "Its pods cannot be created: a LimitRange says {0}.", "Ask for an amount within the limits."
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
        _rejected("Its pods cannot be created: the cluster's rule {0} says {1}."),
    ),
)
"""What servers say when they refuse a pod, and what that means; the first that is found counts."""


def no_such_priority(evidence: Evidence) -> Cause | None:
    """Its PriorityClass is not there."""
    missing = [name for name, found in evidence.priorities.items() if found is None]
    if not missing or not evidence.podless:
        return None
    return Cause(
        f"Its pods cannot be created: there is no PriorityClass {names(missing)}.",
        help=("Name a PriorityClass that exists.",),
    )


def no_such_account(evidence: Evidence) -> Cause | None:
    """Its ServiceAccount is not there."""
    missing = [name for name, found in evidence.accounts.items() if found is None]
    if not missing or not evidence.podless:
        return None
    return Cause(
        f"Its pods cannot be created: there is no ServiceAccount {names(missing)}.",
        help=("Create the ServiceAccount, or name one that exists.",),
    )


def over_quota(evidence: Evidence) -> Cause | None:
    """The namespace's quota has too little left, by arithmetic, where no event says so."""
    for instance in evidence.podless:
        wanted = requests.of_pod(evidence.spec(instance))
        for quota in evidence.quotas:
            if quota.spec.scopes or quota.spec.scope_selector:
                continue  # for some pods only; an event tells when it is for these
            hard = requests.from_quantities(quota.status.hard)
            used = requests.from_quantities(quota.status.used)
            for key, limit in hard.items():
                want = wanted.get(_RESOURCE_OF.get(key) or key.removeprefix("requests."), None)
                left = limit - used.get(key, 0)
                if want is None or want <= left:
                    continue
                name = quota.metadata.name
                sentence = (
                    f"Waits for quota: {instance.name} wants {amount(key, want)}; quota {name} has "
                    f"{bare_amount(key, left)} of {bare_amount(key, limit)} left."
                )
                advice = (
                    f"Ask for less, end other jobs in {evidence.job.ref.namespace}, or ask for more quota."
                )
                return Cause(sentence, help=(advice,))
    return None


_RESOURCE_OF: Mapping[str, str] = {"count/pods": requests.PODS}


def out_of_limits(evidence: Evidence) -> Cause | None:
    """A LimitRange allows no such pods, by arithmetic, where no event says so."""
    for instance in evidence.podless:
        containers = [requests.of_container(each) for each in evidence.spec(instance).containers]
        asked = {"Container": containers, "Pod": [requests.add(containers)]}
        for limit_range in evidence.limit_ranges:
            for limit in limit_range.spec.limits or ():
                for each in asked.get(limit.type, ()):
                    if words := beyond(limit, each):
                        wants, allowed = words
                        name = limit_range.metadata.name
                        return Cause(
                            f"Its pods cannot be created: {instance.name} wants {wants}; "
                            f"LimitRange {name} allows {allowed} a {limit.type.lower()}.",
                            help=("Ask for an amount within the limits.",),
                        )
    return None


def beyond(limit: LimitRangeItem, asked: requests.ResourceList) -> tuple[str, str] | None:
    """Return what is asked and what is allowed in its place; None when it is within the limits."""
    for word, bounds, sign in (("at most", limit.max, 1), ("at least", limit.min, -1)):
        for key, bound in requests.from_quantities(bounds).items():
            if key in asked and (asked[key] - bound) * sign > 0:
                return amount(key, asked[key]), f"{word} {bare_amount(key, bound)}"
    return None
