"""What `info` tells, as a command and as a view: versions, files, and what a user may do on a cluster."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.jobs.permissions import Permission, ResourceAttributes
from k8s.kinds import CREATABLE, KINDS, JobKind
from k8s.models.resources import CLAIMS, EVENTS, NAMESPACES, NODES, PODS
from k8s.watch.discovery import discover
from tui.options import ConsoleOptions

PACKAGES = ("gpuconsole", "textual", "kubernetes", "aiohttp", "plotext", "torch", "tensorboard")
"""Whose versions are told; the last two are needed by trainers only."""
LISTED = (NODES, PODS, EVENTS, CLAIMS, NAMESPACES)
"""What the console lists, as far as it may, whichever kinds of jobs there are."""

AllowedVerbs = Mapping[str, Mapping[str, bool | None]]
"""Resource to verb to whether this user may do that; None where the cluster does not say."""
Review = Callable[[ResourceAttributes], Awaitable[Permission]]
"""Finds out whether something is allowed."""


def versions() -> dict[str, str | None]:
    """Return the versions of what is installed; None for what is not."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def files(options: ConsoleOptions) -> dict[str, str]:
    """Return where our files are, those that are not there yet too."""
    return {
        "config": str(options.config_folder),
        "settings": str(options.config_file),
        "themes": str(options.themes_folder),
        "templates": str(options.templates_folder),
        "keys": str(options.keys_file),
        "state": str(options.state_folder),
        "log": str(options.log_file),
        "sandbox": str(options.sandbox_folder),
    }


def address(host: str) -> str:
    """Return a server's address without the credentials that may stand in it."""
    try:
        parts = urlsplit(host)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


async def fetch_allowed_verbs(client: Client, review: Review) -> AllowedVerbs:
    """Find out what the user of `client` may do with what the console shows, and with jobs.

    Raises:
        KubeError: As `review` does.
    """
    kinds = await _kinds(client)
    asked = [("list", resource) for resource in LISTED]
    asked += [(verb, kind.resource) for kind in kinds for verb in _verbs(kind)]
    answers = await asyncio.gather(*(review(ResourceAttributes.of(*each)) for each in asked))
    allowed: dict[str, dict[str, bool | None]] = {}
    groups: dict[str, str] = {}
    for (verb, resource), permission in zip(asked, answers, strict=True):
        is_first = groups.setdefault(resource.plural, resource.group) == resource.group
        name = resource.plural if is_first else resource.full_name
        allowed.setdefault(name, {})[verb] = permission.is_allowed
    return allowed


async def _kinds(client: Client) -> Sequence[JobKind]:
    """Return the kinds of jobs that the cluster has; where it does not say, those that can be made here."""
    try:
        return await discover(client, KINDS)
    except KubeError:
        return CREATABLE


def _verbs(kind: JobKind) -> tuple[str, ...]:
    return ("list", "create", "delete") if kind in CREATABLE else ("list", "delete")


def verbs_text(verbs: Mapping[str, bool | None]) -> str:
    """Say what is allowed: `may list, may not delete`."""
    return ", ".join(f"{_may(is_allowed)} {verb}" for verb, is_allowed in verbs.items())


def _may(is_allowed: bool | None) -> str:
    return "perhaps may" if is_allowed is None else "may" if is_allowed else "may not"


def as_text(sections: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> str:
    """Return headings with their names and values below; what has no value is left out."""
    blocks = []
    for heading, fields in sections:
        filled = [(name, words) for name, words in fields if words]
        width = max((len(name) for name, _ in filled), default=0)
        lines = [f"  {name:<{width}}  {line}" for name, line in filled]
        blocks.append("\n".join([heading, *lines]))
    return "\n\n".join(blocks)
