"""Which job kinds a server has, and in which version each is mirrored.

Asked group by group as every server since 1.16 answers, never kind by kind. A group
that cannot be asked hides no other: its kinds are tried by listing them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec

from k8s.client.client import Client
from k8s.client.transport import not_understood
from k8s.errors import KubeError, NotFound, ServerFailed, Throttled, Unauthorized, Unreachable
from k8s.models import Value, convert
from k8s.models.resources import Resource

_DOING = "find out which kinds the cluster has"


class HasResource(Protocol):
    """Something that is found under a resource: a job kind, as a rule."""

    @property
    def resource(self) -> Resource:
        """Return the path, group and version under which a server lists it."""


K = TypeVar("K", bound=HasResource)


@dataclass(frozen=True, slots=True)
class ServedKinds:
    """What a server says it has, as far as our kinds go."""

    plurals: Mapping[str, frozenset[str] | None]
    """Group and version, as in manifests, to what can be listed there; None where it would not say."""
    preferred: frozenset[str] = frozenset()
    """The version that it prefers of each group, as in manifests."""
    storages: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Version and plural to where the objects are stored, opaque; nothing where the server does not tell."""


def choose(kinds: Sequence[K], served: ServedKinds) -> tuple[K, ...]:
    """Return the kinds to mirror.

    A resource in several versions is the same objects several times, unless the server says that they
    are stored apart (as in the sandbox, which converts nothing). So one version is chosen: the one that
    the server prefers, else the first of ours. Where the server says
    of none that it is there, those that it would not speak of are all tried.
    """
    versions: dict[tuple[str, str, str], list[K]] = {}
    for kind in kinds:
        resource = kind.resource
        storage = served.storages.get((resource.api_version, resource.plural), "")
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
    """Ask which of `kinds` there are, and return those to mirror.

    Raises:
        KubeError: The server does not say which groups it has.
    """
    return choose(kinds, await fetch_served(client, {kind.resource.api_version for kind in kinds}))


async def fetch_served(client: Client, api_versions: set[str]) -> ServedKinds:
    """Ask for the groups, then for each of `api_versions` that is among them what it holds.

    Raises:
        KubeError: The server does not say which groups it has.
    """
    try:
        groups: list[_Group] = convert(await client.get_json("/apis", doing=_DOING), _Groups).groups or []
    except msgspec.ValidationError as error:
        raise not_understood(f"Could not {_DOING}.", f"The list of groups makes no sense: {error}") from error
    if not groups:
        raise not_understood(f"Could not {_DOING}.", "The server says that it has none at all.")
    offered = {each.group_version for group in groups for each in group.versions or ()} | {"v1"}
    asked = sorted(api_versions & offered)
    plurals = await asyncio.gather(*(_fetch_plurals(client, api_version) for api_version in asked))
    preferred = {group.preferred_version.group_version for group in groups if group.preferred_version}
    found = dict(zip(asked, plurals, strict=True))
    storages = {
        (version, plural): storage
        for version, stored in found.items()
        for plural, storage in (stored or {}).items()
    }
    return ServedKinds(
        {version: None if stored is None else frozenset(stored) for version, stored in found.items()},
        frozenset(preferred),
        storages,
    )


async def _fetch_plurals(client: Client, api_version: str) -> dict[str, str] | None:
    """Return what can be listed in one version of a group, and its storage; None when it would not say.

    An aggregated group answers 503 while the server behind it is away.
    """
    try:
        found = await _fetch_resources(client, api_version)
    except (Unreachable, Unauthorized, Throttled):
        raise
    except KubeError:
        return None
    return {each.name: each.storage_version_hash for each in found if "list" in (each.verbs or ())}


class RestMapper:
    """Where the kinds that manifests name are found on one server, as client-go's RESTMapper."""

    def __init__(self, client: Client) -> None:
        """Prepare to ask `client`."""
        self._client = client
        self._resources_by_version: dict[str, dict[str, Resource]] = {}

    def reset(self) -> None:
        """Ask again from now on: there may be other kinds."""
        self._resources_by_version.clear()

    async def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """Return where a kind is found; None when it is not served.

        Raises:
            KubeError: The server does not say.
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
    """Return what one version of a group holds, with what can be done to it; nothing where it is not there.

    Raises:
        KubeError: The server does not say.
    """
    path = quote(f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}")
    try:
        found: _Resources = convert(await client.get_json(path, doing=_DOING), _Resources)
    except NotFound:
        return []
    except msgspec.ValidationError as error:
        raise ServerFailed(f"Could not {_DOING}.", f"{path} makes no sense: {error}") from error
    return found.resources or []


class _Version(Value, frozen=True):
    group_version: str = ""


class _Group(Value, frozen=True):
    versions: list[_Version] | None = None
    preferred_version: _Version | None = None


class _Groups(Value, frozen=True):
    groups: list[_Group] | None = None


class _Resource(Value, frozen=True):
    name: str = ""
    """Plural, and for a subresource a slash and its name."""
    kind: str = ""
    namespaced: bool = False
    verbs: list[str] | None = None
    storage_version_hash: str = ""


class _Resources(Value, frozen=True):
    resources: list[_Resource] | None = None
