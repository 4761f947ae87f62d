"""Discovery of the kinds that a server has, of which version to mirror, and of what the user may list.

Asks group by group, which every server since 1.16 supports. Kinds of a group that does not
answer, such as an aggregated API that is down, are tried by listing them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from k8s.client.client import Client
from k8s.client.transport import unparsable
from k8s.models import Value, convert
from k8s.models.resources import RULES_REVIEWS, Resource
from k8s.text.errors import KubeError, NotFound, ServerFailed, Throttled, Unauthorized, Unreachable

_DOING = "find out which kinds the cluster has"


class HasResource(Protocol):
    """Anything with a `Resource`, such as a job kind."""

    @property
    def resource(self) -> Resource:
        """Return the path, group and version under which the server lists it."""


K = TypeVar("K", bound=HasResource)


class ServedKinds(msgspec.Struct, frozen=True):
    """The groups, versions and resources that a server announces."""

    plurals: Mapping[str, frozenset[str] | None]
    """Listable plurals by `group/version`; None if the server did not answer for that version."""
    preferred: frozenset[str] = frozenset()
    storages: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Opaque storage hash by `group/version/plural`; empty if the server sends none."""
    versions: frozenset[str] = frozenset()
    """All versions of all groups, as `group/version`, also those whose resources were not fetched."""


def choose(kinds: Sequence[K], served: ServedKinds) -> tuple[K, ...]:
    """Return the kinds to mirror, one version of each resource.

    Versions of a resource are views of the same objects unless their storage hashes differ, as in the
    sandbox. The server's preferred version wins, else the first of `kinds`. If the server announces
    none of the versions, those it did not answer for are all returned.
    """
    versions: dict[tuple[str, str, str], list[K]] = {}
    for kind in kinds:
        resource = kind.resource
        storage = served.storages.get(f"{resource.api_version}/{resource.plural}", "")
        versions.setdefault((resource.group, resource.plural, storage), []).append(kind)
    to_mirror: list[K] = []
    for same in versions.values():
        known = [
            kind
            for kind in same
            if kind.resource.plural in (served.plurals.get(kind.resource.api_version) or ())
        ]
        if known:
            to_mirror.append(min(known, key=lambda kind: kind.resource.api_version not in served.preferred))
        else:
            to_mirror += [kind for kind in same if served.plurals.get(kind.resource.api_version, ()) is None]
    return tuple(to_mirror)


async def discover(client: Client, kinds: Sequence[K]) -> tuple[K, ...]:
    """Ask the server which of `kinds` it has, and return those to mirror.

    Raises:
        KubeError: The server does not list its groups.
    """
    return choose(kinds, await fetch_served(client, {kind.resource.api_version for kind in kinds}))


async def fetch_served(
    client: Client, api_versions: AbstractSet[str], known: ServedKinds | None = None
) -> ServedKinds:
    """Fetch the list of groups, and the resources of each of `api_versions` that is in it.

    If the groups are those of `known`, an earlier answer, it is returned: one request instead of ten.

    Raises:
        KubeError: The server does not list its groups.
    """
    try:
        groups: list[_Group] = convert(await client.get_json("/apis", doing=_DOING), _Groups).groups or []
    except msgspec.ValidationError as error:
        raise unparsable(f"Could not {_DOING}.", f"The list of API groups is malformed: {error}") from error
    if not groups:
        raise unparsable(f"Could not {_DOING}.", "The server's list of API groups is empty.")
    served = {each.group_version for group in groups for each in group.versions or ()} | {"v1"}
    preferred = frozenset(
        group.preferred_version.group_version for group in groups if group.preferred_version
    )
    if known is not None and (known.versions, known.preferred) == (frozenset(served), preferred):
        return known
    versions = sorted(api_versions & served)
    hashes = await asyncio.gather(*(_fetch_storage_hashes(client, version) for version in versions))
    hashes_by_version = dict(zip(versions, hashes, strict=True))
    return ServedKinds(
        {version: None if each is None else frozenset(each) for version, each in hashes_by_version.items()},
        preferred,
        {
            f"{version}/{plural}": storage_hash
            for version, each in hashes_by_version.items()
            for plural, storage_hash in (each or {}).items()
        },
        frozenset(served),
    )


async def _fetch_storage_hashes(client: Client, api_version: str) -> dict[str, str] | None:
    try:
        resources = await _fetch_resources(client, api_version)
    except (Unreachable, Unauthorized, Throttled):
        raise
    except KubeError:  # an aggregated group answers 503 while the server behind it is down
        return None
    return {each.name: each.storage_version_hash for each in resources if "list" in (each.verbs or ())}


class RestMapper:
    """Lookup of resources by kind on one server, like client-go's RESTMapper."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources_by_version: dict[str, dict[str, Resource]] = {}

    def reset(self) -> None:
        """Forget all answers: the server may have new kinds."""
        self._resources_by_version.clear()

    async def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind; None if the server does not have it.

        Raises:
            KubeError: The server does not list the resources of `api_version`.
        """
        if api_version not in self._resources_by_version:
            group, _, version = api_version.rpartition("/")
            self._resources_by_version[api_version] = {
                each.kind: Resource(group, version, each.name, each.kind, each.namespaced)
                for each in await _fetch_resources(self._client, api_version)
                if "/" not in each.name
            }
        return self._resources_by_version[api_version].get(kind)


async def _fetch_resources(client: Client, api_version: str) -> list[_Resource]:
    path = quote(f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}")
    try:
        found: _Resources = convert(await client.get_json(path, doing=_DOING), _Resources)
    except NotFound:
        return []
    except msgspec.ValidationError as error:
        raise ServerFailed(f"Could not {_DOING}.", f"The answer to {path} is malformed: {error}") from error
    return found.resources or []


class _Version(Value, frozen=True):
    group_version: str = ""


class _Group(Value, frozen=True):
    versions: list[_Version] | None = None
    preferred_version: _Version | None = None


class _Groups(Value, frozen=True):
    groups: list[_Group] | None = None


class _Resource(Value, frozen=True):
    # Plural; of a subresource the plural, a slash and its name.
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    verbs: list[str] | None = None
    storage_version_hash: str = ""


class _Resources(Value, frozen=True):
    resources: list[_Resource] | None = None


# One SelfSubjectRulesReview saves a refused request for each kind that the user may not list.
class _ResourceRule(Value, frozen=True):
    verbs: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None


class _RulesStatus(Value, frozen=True):
    resource_rules: list[_ResourceRule] | None = None
    incomplete: bool = False


class _RulesReview(Value, frozen=True):
    status: _RulesStatus | None = None


class NamespaceRules(msgspec.Struct, frozen=True):
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
