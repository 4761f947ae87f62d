"""Manifests written by people: parsed, with errors that name the place, and checked as a whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import yaml

from k8s.client.client import Client
from k8s.jobs.create import create_manifest
from k8s.kinds import CREATABLE, KINDS, Manifest
from k8s.models.resources import CLAIMS, CONFIG_MAPS, DEPLOYMENTS, SECRETS, SERVICES, Resource
from k8s.reasons.cause import Cause
from k8s.reasons.cluster_checks import check_objects
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from k8s.text.home import expand_home, read_named_file
from k8s.text.redact import MARK, MASK
from tui.draft.manifest_yaml import LARGEST_BYTES, Loader, items_of
from tui.draft.preflight import FetchNodes, check_manifest

KNOWN: tuple[Resource, ...] = (
    *(kind.resource for kind in KINDS),
    CLAIMS,
    CONFIG_MAPS,
    SECRETS,
    SERVICES,
    DEPLOYMENTS,
)


class ManifestObject(NamedTuple):
    """One object to create."""

    resource: Resource
    manifest: Manifest


class BadManifest(KubeError):
    """A file holds no manifest of a known kind."""


def read_manifests(path: str) -> list[ManifestObject]:
    """Parse all objects of a file; `-` is standard input.

    Raises:
        BadManifest: The file cannot be read, or an object is invalid or of an unknown kind.
    """
    where = "standard input" if path == "-" else path
    text = _read(path, where)
    found: list[ManifestObject] = []
    for number, obj in enumerate(_load(text, where), 1):
        each = _checked(obj, f"{where}, object {number}")
        _check_is_new(each, found, f"{where}, object {number}")
        found.append(each)
    if not found:
        raise BadManifest(f"There is no manifest in {where}.")
    return found


def _check_is_new(each: ManifestObject, before: Sequence[ManifestObject], where: str) -> None:
    """Reject a second object of the same kind and name: the server would reject it half-way."""
    meta = each.manifest["metadata"]
    for resource, manifest in before:
        other = manifest["metadata"]
        same = all(meta.get(key) == other.get(key) for key in ("name", "namespace"))
        if resource == each.resource and meta.get("name") and same:
            raise BadManifest(f"{where}, is a second {resource.kind} {meta['name']}.")


def _read(path: str, where: str) -> str:
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        elif path.startswith("/dev/fd/"):  # the shell's <(command): a pipe that somebody writes
            with open(path, "rb") as pipe:
                raw = pipe.read(LARGEST_BYTES + 1)
        else:
            raw = read_named_file(expand_home(path), LARGEST_BYTES)
    except OSError as error:
        raise BadManifest(f"Could not read {where}.", f"{error.strerror or error}.") from error
    if len(raw) > LARGEST_BYTES:
        raise BadManifest(
            f"Could not read {where}.", "It is larger than 3 MiB, the most that a cluster takes."
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadManifest(f"Could not read {where}.", f"It is not UTF-8 at byte {error.start}.") from error


def _load(text: str, where: str) -> Iterator[Any]:
    try:
        for obj in yaml.load_all(text, Loader):
            if obj is not None:
                # Written and read once more, what aliases share is each a thing of its own.
                yield from items_of(json.loads(json.dumps(obj, allow_nan=False)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        words = ", ".join(part for part in (error.context, error.problem) if part)
        raise BadManifest(f"{where} is not YAML{place}.", f"{words}.") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise BadManifest(f"{where} is not YAML.", f"{str(error) or 'It never ends'}.") from error
    except (TypeError, ValueError) as error:
        raise BadManifest(f"{where} holds a value that a manifest cannot.", f"{error}.") from error


def _checked(obj: object, where: str) -> ManifestObject:
    if not isinstance(obj, dict):
        raise BadManifest(f"{where}, is not a manifest.", "It must be an object (a mapping).")
    api_version, kind, meta = obj.get("apiVersion"), obj.get("kind"), obj.get("metadata")
    for name, value in (("apiVersion", api_version), ("kind", kind)):
        if not isinstance(value, str) or not value:
            raise BadManifest(f"{where}, has no {name}.", hint="Add it, e.g. kind: Job.")
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        raise BadManifest(f"{where}, has no metadata.name.", hint="Add a name.")
    text = json.dumps(obj, ensure_ascii=False)
    if mark := MARK.search(text):
        words = f"{where}, a {kind}, holds {mark[0]} where a value was hidden."
        raise BadManifest(words, hint="Write the value in its place, or print it again with --show-secrets.")
    if kind == SECRETS.kind and MASK in text:
        raise BadManifest(
            f"{where}, a Secret, holds {MASK} where a value was hidden.", hint="Write the value in its place."
        )
    same = [each for each in KNOWN if each.kind == kind]
    group, _, version = str(api_version).rpartition("/")
    for resource in (each for each in same if each.group == group):
        # Whether there is another version than those known here, the server says.
        exact = next((each for each in same if each.api_version == api_version), None)
        return ManifestObject(exact or replace(resource, version=version), obj)
    names = ", ".join(f"{each.kind} {each.api_version}" for each in same or KNOWN)
    raise BadManifest(f"{where}, is a {kind} {api_version}, which is not supported.", f"Supported: {names}.")


def versions_known(resource: Resource) -> list[str]:
    """Return the known versions of a resource."""
    return [each.api_version for each in KNOWN if (each.kind, each.group) == (resource.kind, resource.group)]


class CheckedObject(NamedTuple):
    """Findings about one job of a file, or about all its other objects."""

    title: str
    """Such as `PyTorchJob bert`; empty for all other objects together."""
    causes: Sequence[Cause]


async def check_manifests(
    client: Client,
    wanted: Sequence[ManifestObject],
    namespace: str,
    fetch_nodes: FetchNodes,
) -> list[CheckedObject]:
    """Return the problems that creating these objects would meet.

    Args:
        client: The cluster.
        wanted: The objects of the file.
        namespace: Namespace of objects that name none.
        fetch_nodes: Reads the nodes, at most once.
    """
    found, others, snapshot = [], [], None

    async def nodes() -> ClusterSnapshot | None:
        nonlocal snapshot
        snapshot = snapshot or await fetch_nodes()
        return snapshot

    for each in wanted:
        resource, manifest = each
        causes = await check_manifest(client, resource, manifest, namespace, nodes, wanted)
        if causes is None:
            others.append(each)
        else:
            kind = next(kind for kind in CREATABLE if kind.resource == resource)
            found.append(CheckedObject(f"{kind.title} {manifest['metadata']['name']}", causes))
    if others:
        found.append(CheckedObject("", await check_objects(client, others, namespace)))
    return found


async def check_by_server(client: Client, wanted: Sequence[ManifestObject], namespace: str) -> None:
    """Let the server validate all objects before the first is created, so that none is created in part.

    Raises:
        KubeError: The server rejected an object.
    """
    for resource, manifest in wanted:
        home = namespace_of(manifest, namespace)
        try:
            await create_manifest(client, resource, manifest, home, dry_run=True)
        except (Conflict, Forbidden, Invalid, NotFound) as error:
            if not error.is_foreign:
                error.hint = f"{error.hint} Nothing was created.".strip()
                raise


def namespace_of(manifest: Manifest, namespace: str) -> str:
    """Return the namespace that a manifest names, or else the given one."""
    return str(manifest["metadata"].get("namespace") or namespace)
