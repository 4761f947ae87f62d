"""The user's permissions in a namespace, from one SelfSubjectRulesReview.

It saves one refused request for each kind that the user may not list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from k8s.client.client import Client
from k8s.cluster.mirror import Mirror
from k8s.models import Value, convert
from k8s.models.resources import RULES_REVIEWS
from k8s.text.errors import Forbidden, KubeError, NotFound


class _ResourceRule(Value, frozen=True):
    verbs: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None


class _RulesStatus(Value, frozen=True):
    resource_rules: list[_ResourceRule] | None = None
    incomplete: bool = False


class _RulesReview(Value, frozen=True):
    status: _RulesStatus | None = None


@dataclass(frozen=True, slots=True)
class NamespaceRules:
    """The rules of the authorizer for one user in one namespace, cluster roles included."""

    rules: tuple[_ResourceRule, ...] = ()
    is_complete: bool = False
    """True if everything not in `rules` is forbidden."""

    def refuse(self, verb: str, group: str, plural: str) -> bool:
        """Return True if the user certainly may not do `verb` on a resource."""
        return self.is_complete and not any(
            _has(rule.verbs, verb) and _has(rule.api_groups, group) and _has(rule.resources, plural)
            for rule in self.rules
        )


def _has(names: Iterable[str] | None, name: str) -> bool:
    return bool({"*", name} & set(names or ()))


async def fetch_rules(client: Client, namespace: str) -> NamespaceRules:
    """Fetch the user's rules in a namespace; on any error return rules that refuse nothing."""
    review: dict[str, Any] = {
        "apiVersion": RULES_REVIEWS.api_version,
        "kind": RULES_REVIEWS.kind,
        "spec": {"namespace": namespace or "default"},
    }
    try:
        found: _RulesReview = convert(await client.create(RULES_REVIEWS, review), _RulesReview)
    except (KubeError, msgspec.ValidationError):
        return NamespaceRules()
    status = found.status
    if status is None or status.resource_rules is None:
        return NamespaceRules()
    return NamespaceRules(tuple(status.resource_rules), not status.incomplete)


async def no_rules() -> NamespaceRules:
    """Return rules that refuse nothing."""
    return NamespaceRules()


async def list_once(mirror: Mirror[Any], rules: NamespaceRules | None = None) -> None:
    """List a collection, unless `rules` forbid it; a refusal is recorded in the mirror and not raised."""
    resource = mirror.resource
    if rules is not None and rules.refuse("list", resource.group, resource.plural):
        mirror.refuse_list()
        return
    try:
        await mirror.list_once()
    except (Forbidden, NotFound):
        return
