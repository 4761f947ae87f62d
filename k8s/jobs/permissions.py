"""Permissions of the user, checked by SelfSubjectAccessReview and cached.

Only actions that the cluster has denied count as denied. If it cannot be asked, the permission is
unknown, and trying the action tells.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from k8s.client.client import Client
from k8s.kinds import CREATABLE, KINDS, JobRef, kind_of
from k8s.models.resources import ACCESS_REVIEWS, NODES, PODS, Resource
from k8s.text.errors import Forbidden, Invalid, KubeError, NotFound

# k9s asks again as often.
ANSWER_TTL_S = 300.0
# After a review that failed.
UNKNOWN_TTL_S = 30.0
MAX_ANSWERS = 256
# Message of an authorizer's 403; those of quotas and webhooks differ.
# Source: kubernetes `apiserver/pkg/endpoints/handlers/responsewriters/errors.go`.
_REFUSAL = re.compile(
    r'User "(?P<user>.*?)" cannot (?P<verb>\w+) resource "(?P<plural>[^"/]+)/?(?P<subresource>[^"]*)"'
    r' in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)"| at the cluster scope)(?:: (?P<reason>.+))?',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ResourceAttributes:
    """Action on a resource, as RBAC names it."""

    verb: str
    group: str
    plural: str
    subresource: str = ""
    # A review of a cluster-scoped resource must not name a namespace: a role of that namespace would answer.
    is_namespaced: bool = field(default=True, compare=False)

    @classmethod
    def of(cls, verb: str, resource: Resource, subresource: str = "") -> ResourceAttributes:
        """Return the attributes for a verb on a resource."""
        return cls(verb, resource.group, resource.plural, subresource, resource.is_namespaced)

    def __str__(self) -> str:
        what = f"{self.plural}/{self.subresource}" if self.subresource else self.plural
        return f"{self.verb} {what}"


class Permission(msgspec.Struct, frozen=True):
    """Answer to whether an action is allowed."""

    is_allowed: bool | None = None
    """None if unknown."""
    why: str = ""


UNKNOWN = Permission()
# Placeholders for the kind of the current job, and for every kind that can be created.
JOB, ANY_JOB = "job", "any job"


def needs_of(permission: str, ref: JobRef | None = None) -> tuple[ResourceAttributes, ...]:
    """Return the alternatives for a permission, of which one is enough.

    A permission is a verb and a resource: `get pods/log`, `delete job`, `create any job`, `patch nodes`.
    Empty if unknown, as for a kind of which only the name is known.

    Raises:
        ValueError: The permission names no known resource.
    """
    verb, _, what = permission.partition(" ")
    resource, _, subresource = what.partition("/")
    for each in (PODS, NODES):
        if resource == each.plural:
            return (ResourceAttributes.of(verb, each, subresource),)
    if what == ANY_JOB:
        return tuple(ResourceAttributes.of(verb, kind.resource) for kind in CREATABLE)
    if what != JOB:
        raise ValueError(f"no permission: {permission!r}")
    if ref is None or (kind := kind_of(ref)) not in KINDS:
        return ()
    return (ResourceAttributes.of(verb, kind.resource),)


def _place_of(permission: str, namespace: str) -> str:
    return "" if permission.partition(" ")[2] == NODES.plural else namespace


async def review(
    client: Client, need: ResourceAttributes, namespace: str, *, is_urgent: bool = True
) -> Permission:
    """Ask the cluster whether this user may do something; no namespace means all.

    Raises:
        KubeError: The review failed.
    """
    request: dict[str, Any] = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {
            "resourceAttributes": {
                "verb": need.verb,
                "group": need.group,
                "resource": need.plural,
                "subresource": need.subresource,
                "namespace": namespace if need.is_namespaced else "",
            }
        },
    }
    answer = (await client.create(ACCESS_REVIEWS, request, is_urgent=is_urgent)).get("status") or {}
    if answer.get("allowed") is True:
        return Permission(True)
    if "allowed" not in answer or (answer.get("evaluationError") and not answer.get("denied")):
        return UNKNOWN  # an authorizer failed that might have allowed it
    return Permission(
        False, _refused(client.config.acting_user, [need], namespace, str(answer.get("reason") or ""))
    )


class Permissions:
    """Cached permissions of one user on one cluster; nothing is requested in advance."""

    def __init__(
        self, client: Client, *, ttl_s: float = ANSWER_TTL_S, max_answers: int = MAX_ANSWERS
    ) -> None:
        self._client = client
        self._ttl_s, self._max_answers = ttl_s, max_answers
        self._login = client.config.identity()
        self._answers: OrderedDict[tuple[ResourceAttributes, str], tuple[Permission, float]] = OrderedDict()
        self._asking: WeakValueDictionary[tuple[ResourceAttributes, str], asyncio.Lock] = (
            WeakValueDictionary()
        )

    def known(self, permission: str, namespace: str, ref: JobRef | None = None) -> Permission:
        """Return a permission from the cache; unknown if it is not there."""
        needs, namespace = needs_of(permission, ref), _place_of(permission, namespace)
        return self._together(needs, [self._cached(need, namespace) or UNKNOWN for need in needs], namespace)

    async def fetch(self, permission: str, namespace: str, ref: JobRef | None = None) -> Permission:
        """Return a permission, requested at low priority if it is not cached."""
        needs, namespace = needs_of(permission, ref), _place_of(permission, namespace)
        found = await asyncio.gather(*(self.ask(need, namespace) for need in needs))
        return self._together(needs, found, namespace)

    async def fetch_all(self, permissions: Iterable[str], namespace: str, ref: JobRef | None = None) -> None:
        """Fetch several permissions into the cache."""
        await asyncio.gather(*(self.fetch(each, namespace, ref) for each in permissions))

    def record_refusal(self, error: KubeError) -> None:
        """Record a denial by the authorizer; other errors are ignored."""
        refusal = _REFUSAL.search(error.why) if isinstance(error, Forbidden) else None
        if refusal is not None:
            need = ResourceAttributes(
                refusal["verb"], refusal["group"], refusal["plural"], refusal["subresource"]
            )
            namespace = refusal["namespace"] or ""
            why = _refused(refusal["user"], [need], namespace, refusal["reason"] or "")
            self._store(need, namespace, Permission(False, why), self._ttl_s)

    def forget(self) -> None:
        """Clear the cache."""
        self._answers.clear()

    def _together(
        self, needs: Iterable[ResourceAttributes], found: Iterable[Permission], namespace: str
    ) -> Permission:
        # Any one of the alternatives is enough.
        permissions = list(found)
        if any(permission.is_allowed for permission in permissions):
            return Permission(True)
        if not permissions or any(permission.is_allowed is None for permission in permissions):
            return UNKNOWN
        if len(permissions) == 1:
            return permissions[0]
        return Permission(False, _refused(self._client.config.acting_user, needs, namespace))

    async def ask(self, need: ResourceAttributes, namespace: str) -> Permission:
        """Return the permission for one action, requested at low priority if it is not cached."""
        key = need, namespace
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:
            if (known := self._cached(need, namespace)) is not None:
                return known
            login, ttl_s = self._login, self._ttl_s
            try:
                found = await review(self._client, need, namespace, is_urgent=False)
            except (Forbidden, NotFound, Invalid):
                found = UNKNOWN
            except KubeError:
                found, ttl_s = UNKNOWN, min(UNKNOWN_TTL_S, ttl_s)
            if login == self._client.config.identity():  # else the answer is for another user
                self._store(need, namespace, found, ttl_s)
            return found

    def _cached(self, need: ResourceAttributes, namespace: str) -> Permission | None:
        # None if missing or expired; a new login clears the cache.
        login = self._client.config.identity()
        if login != self._login:
            self._login = login
            self.forget()
        found, until_s = self._answers.get((need, namespace), (None, 0.0))
        if found is None or until_s <= asyncio.get_running_loop().time():
            return None
        self._answers.move_to_end((need, namespace))
        return found

    def _store(self, need: ResourceAttributes, namespace: str, permission: Permission, for_s: float) -> None:
        self._answers[need, namespace] = permission, asyncio.get_running_loop().time() + for_s
        self._answers.move_to_end((need, namespace))
        while len(self._answers) > self._max_answers:
            self._answers.popitem(last=False)


def _refused(user: str, needs: Iterable[ResourceAttributes], namespace: str, reason: str = "") -> str:
    # E.g. `user "li" may not delete jobs`, with the server's reason if there is one.
    who = f'user "{user}"' if user else "this user"
    verbs = " or ".join(map(str, needs))
    where = f' in namespace "{namespace}"' if namespace else ""
    return f"{who} may not {verbs}{where}" + (f": {reason.strip()}" if reason else "")
