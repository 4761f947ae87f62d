"""Contents of `gpuconsole info` and the info view: versions, files, permissions."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from k8s.client.client import Client
from k8s.cluster.discovery import discover
from k8s.errors import KubeError
from k8s.jobs.permissions import Permission, ResourceAttributes
from k8s.kinds import CREATABLE, KINDS, JobKind
from k8s.models.resources import CLAIMS, EVENTS, NAMESPACES, NODES, PODS
from tui.options import ConsoleOptions
from tui.runs.store import RUNS_FILE, RunStore
from tui.text.format import memory, plural

# Packages to report; the last two are needed by trainers only.
PACKAGES = ("gpuconsole", "textual", "kubernetes", "aiohttp", "plotext", "torch", "tensorboard")
# Collections that the console lists in any cluster.
LISTED = (NODES, PODS, EVENTS, CLAIMS, NAMESPACES)

AllowedVerbs = Mapping[str, Mapping[str, bool | None]]
"""Resource to verb to permission; None if the cluster does not say."""
Review = Callable[[ResourceAttributes], Awaitable[Permission]]


def versions() -> dict[str, str | None]:
    """Return the installed versions; None for packages that are not installed."""
    machine = f"{platform.system()} {platform.machine()}"
    python = platform.python_version()
    return {"machine": machine, "python": python, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def files(options: ConsoleOptions) -> dict[str, str]:
    """Return the paths of gpuconsole's files, whether or not they exist."""
    return {
        "config": str(options.config_folder),
        "settings": str(options.config_file),
        "themes": str(options.themes_folder),
        "templates": str(options.templates_folder),
        "keys": str(options.keys_file),
        "causes": str(options.causes_file),
        "plugins": str(options.plugins_file),
        "state": str(options.state_folder),
        "runs": str(options.state_folder / RUNS_FILE),
        "log": str(options.log_file),
        "sandbox": str(options.sandbox_folder),
    }


def runs_text(options: ConsoleOptions) -> str:
    """Describe the records of past runs: `12 runs, 40K`."""
    store = RunStore(options.state_folder)
    return f"{plural(len(store.records()), 'run')}, {memory(store.size_bytes)}"


def address(host: str) -> str:
    """Return a server's address without credentials."""
    try:
        parts = urlsplit(host)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


async def fetch_allowed_verbs(client: Client, review: Review) -> AllowedVerbs:
    """Check the user's permissions on everything the console shows, and on jobs.

    Raises:
        KubeError: `review` raised it.
    """
    kinds = await _kinds(client)
    questions = [("list", resource) for resource in LISTED]
    questions += [(verb, kind.resource) for kind in kinds for verb in _verbs(kind)]
    answers = await asyncio.gather(*(review(ResourceAttributes.of(*each)) for each in questions))
    allowed: dict[str, dict[str, bool | None]] = {}
    groups: dict[str, str] = {}
    for (verb, resource), permission in zip(questions, answers, strict=True):
        is_first = groups.setdefault(resource.plural, resource.group) == resource.group
        name = resource.plural if is_first else resource.full_name
        allowed.setdefault(name, {})[verb] = permission.is_allowed
    return allowed


async def _kinds(client: Client) -> Sequence[JobKind]:
    # If discovery fails, the creatable kinds.
    try:
        return await discover(client, KINDS)
    except KubeError:
        return CREATABLE


def _verbs(kind: JobKind) -> tuple[str, ...]:
    return ("list", "create", "delete") if kind in CREATABLE else ("list", "delete")


def verbs_text(verbs: Mapping[str, bool | None]) -> str:
    """Describe permissions: `may list, may not delete`."""
    return ", ".join(f"{_may(is_allowed)} {verb}" for verb, is_allowed in verbs.items())


def _may(is_allowed: bool | None) -> str:
    return "perhaps may" if is_allowed is None else "may" if is_allowed else "may not"


def as_text(sections: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> str:
    """Format headings with indented names and values; empty values are left out."""
    blocks = []
    for heading, fields in sections:
        filled = [(name, value) for name, value in fields if value]
        width = max((len(name) for name, _ in filled), default=0)
        lines = [f"  {name:<{width}}  {line}" for name, line in filled]
        blocks.append("\n".join([heading, *lines]))
    return "\n\n".join(blocks)
