"""What this user may do: asked of the cluster by SelfSubjectAccessReview, and remembered for a while.

Only what the cluster has refused counts as refused. Where it cannot be asked, nothing is
known, and whoever wants to do it finds out by doing it.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from k8s.client.client import Client
from k8s.errors import Forbidden, Invalid, KubeError, NotFound
from k8s.kinds import CREATABLE, KINDS, JobRef, kind_of
from k8s.models.resources import ACCESS_REVIEWS, NODES, PODS, Resource

KEPT_S = 300.0
"""How long an answer counts. Source: k9s, which asks again as often."""
DOUBT_S = 30.0
"""How long it counts that the cluster gave no answer."""
MOST_KEPT = 256
"""Answers that are remembered."""
_REFUSAL = re.compile(
    r'User "(?P<user>.*?)" cannot (?P<verb>\w+) resource "(?P<plural>[^"/]+)/?(?P<subresource>[^"]*)"'
    r' in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)"| at the cluster scope)(?:: (?P<reason>.+))?',
    re.DOTALL,
)
"""How API servers word a 403 of their authorizer; those of quotas and webhooks read otherwise.

Source: kubernetes `apiserver/pkg/endpoints/handlers/responsewriters/errors.go`.
"""


@dataclass(frozen=True, slots=True)
class ResourceAttributes:
    """One thing that a user must be allowed to do, as RBAC names it."""

    verb: str
    group: str
    plural: str
    subresource: str = ""

    @classmethod
    def of(cls, verb: str, resource: Resource, subresource: str = "") -> ResourceAttributes:
        """Return the need for a verb on a resource."""
        return cls(verb, resource.group, resource.plural, subresource)

    def __str__(self) -> str:
        what = f"{self.plural}/{self.subresource}" if self.subresource else self.plural
        return f"{self.verb} {what}"


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether something is allowed."""

    is_allowed: bool | None = None
    """None where that is not known."""
    why: str = ""
    """Why it is not allowed, for people; it has no full stop."""


UNKNOWN = Permission()
"""Nobody has said anything."""
JOB, ANY_JOB = "job", "any job"
"""What stands in a permission for the kind of the job at hand, and for every kind that can be created."""


def needs_of(permission: str, ref: JobRef | None = None) -> tuple[ResourceAttributes, ...]:
    """Return what a permission needs, of which any one is enough.

    Nothing where nobody can tell: a kind of which we know only the name, and so not for certain
    what the API calls it.

    Args:
        permission: A verb and what it is for: `get pods/log`, `delete job`, `create any job`, `patch nodes`.
        ref: The job at hand.

    Raises:
        ValueError: It is not worded so.
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
    """Return the namespace in which something is allowed or not: none for what is in no namespace."""
    return "" if permission.partition(" ")[2] == NODES.plural else namespace


async def review(
    client: Client, need: ResourceAttributes, namespace: str, *, is_urgent: bool = True
) -> Permission:
    """Ask the cluster whether this user may do something; no namespace means in all of them.

    Raises:
        KubeError: It does not say.
    """
    asked: dict[str, Any] = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {
            "resourceAttributes": {
                "verb": need.verb,
                "group": need.group,
                "resource": need.plural,
                "subresource": need.subresource,
                "namespace": namespace,
            }
        },
    }
    answer = (await client.create(ACCESS_REVIEWS, asked, is_urgent=is_urgent)).get("status") or {}
    if answer.get("allowed") is True:
        return Permission(True)
    if "allowed" not in answer or (answer.get("evaluationError") and not answer.get("denied")):
        return UNKNOWN  # an authorizer was away, which may have allowed it
    return Permission(False, _refused(client.config.user, [need], namespace, str(answer.get("reason") or "")))


class Permissions:
    """What one user may do on one cluster. Nothing is asked before somebody wants to know."""

    def __init__(self, client: Client, *, kept_s: float = KEPT_S, most: int = MOST_KEPT) -> None:
        """Prepare to ask `client`; answers count for `kept_s`, and `most` of them are kept."""
        self._client = client
        self._kept_s, self._most = kept_s, most
        self._login = client.config.identity()
        self._answers: OrderedDict[tuple[ResourceAttributes, str], tuple[Permission, float]] = OrderedDict()
        self._asking: WeakValueDictionary[tuple[ResourceAttributes, str], asyncio.Lock] = (
            WeakValueDictionary()
        )

    def known(self, permission: str, namespace: str, ref: JobRef | None = None) -> Permission:
        """Return what is known of a permission now, at once: nothing until it was fetched."""
        needs, namespace = needs_of(permission, ref), _place_of(permission, namespace)
        return self._together(needs, [self._kept(need, namespace) or UNKNOWN for need in needs], namespace)

    async def fetch(self, permission: str, namespace: str, ref: JobRef | None = None) -> Permission:
        """Return what is known of a permission, having asked behind whatever the user waits for."""
        needs, namespace = needs_of(permission, ref), _place_of(permission, namespace)
        found = await asyncio.gather(*(self.ask(need, namespace) for need in needs))
        return self._together(needs, found, namespace)

    async def fetch_all(self, permissions: Iterable[str], namespace: str, ref: JobRef | None = None) -> None:
        """Find out about several permissions, so that all of them are known afterwards."""
        await asyncio.gather(*(self.fetch(each, namespace, ref) for each in permissions))

    def note(self, error: KubeError) -> None:
        """Remember what the cluster refused when it was tried; other errors say nothing of permissions."""
        said = _REFUSAL.search(error.why) if isinstance(error, Forbidden) else None
        if said is not None:
            need = ResourceAttributes(said["verb"], said["group"], said["plural"], said["subresource"])
            namespace = said["namespace"] or ""
            why = _refused(said["user"], [need], namespace, said["reason"] or "")
            self._keep(need, namespace, Permission(False, why), self._kept_s)

    def forget(self) -> None:
        """Ask anew from now on."""
        self._answers.clear()

    def _together(
        self, needs: Iterable[ResourceAttributes], found: Iterable[Permission], namespace: str
    ) -> Permission:
        """Return the right to do what any one of several needs is enough for."""
        permissions = list(found)
        if any(right.is_allowed for right in permissions):
            return Permission(True)
        if not permissions or any(right.is_allowed is None for right in permissions):
            return UNKNOWN
        if len(permissions) == 1:
            return permissions[0]
        return Permission(False, _refused(self._client.config.user, needs, namespace))

    async def ask(self, need: ResourceAttributes, namespace: str) -> Permission:
        """Return what is known of one need, having asked behind whatever the user waits for."""
        key = need, namespace
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:
            if (known := self._kept(need, namespace)) is not None:
                return known
            login, kept_s = self._login, self._kept_s
            try:
                found = await review(self._client, need, namespace, is_urgent=False)
            except (Forbidden, NotFound, Invalid):
                found = UNKNOWN
            except KubeError:
                found, kept_s = UNKNOWN, min(DOUBT_S, kept_s)
            if login == self._client.config.identity():  # else it is somebody else's answer
                self._keep(need, namespace, found, kept_s)
            return found

    def _kept(self, need: ResourceAttributes, namespace: str) -> Permission | None:
        """Return an answer that still counts; after a new login none does."""
        login = self._client.config.identity()
        if login != self._login:
            self._login = login
            self.forget()
        found, until_s = self._answers.get((need, namespace), (None, 0.0))
        if found is None or until_s <= asyncio.get_running_loop().time():
            return None
        self._answers.move_to_end((need, namespace))
        return found

    def _keep(self, need: ResourceAttributes, namespace: str, right: Permission, for_s: float) -> None:
        self._answers[need, namespace] = right, asyncio.get_running_loop().time() + for_s
        self._answers.move_to_end((need, namespace))
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)


def _refused(user: str, needs: Iterable[ResourceAttributes], namespace: str, reason: str = "") -> str:
    """Say who may not do what where, and why if the server says: `user "li" may not delete jobs`."""
    who = f'user "{user}"' if user else "this user"
    verbs = " or ".join(map(str, needs))
    where = f' in namespace "{namespace}"' if namespace else ""
    return f"{who} may not {verbs}{where}" + (f": {reason.strip()}" if reason else "")
