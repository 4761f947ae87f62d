"""Contents of `gpuconsole info` and the info view: versions, files, permissions."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import urlsplit

from k8s.client.client import Client, fetch_version
from k8s.cluster.discovery import discover, fetch_rules
from k8s.jobs.permissions import Permission, ResourceAttributes, review
from k8s.kinds import CREATABLE, KINDS, JobKind
from k8s.models.resources import CLAIMS, EVENTS, NAMESPACES, NODES, PODS
from k8s.text.errors import Forbidden, KubeError, NotFound
from k8s.text.home import file_problem
from tui.runs.journal.database import JOURNAL_FILE, Journal
from tui.runs.journal.history import observed_since_s
from tui.runs.journal.recorder_lock import RecorderLock
from tui.runs.store import RunStore
from tui.settings.options import ConsoleOptions
from tui.terminal import clipboard, tty_state
from tui.text.format import memory, plural, timestamp

# Packages to report; the last two are needed by trainers only.
PACKAGES = ("gpuconsole", "textual", "kubernetes", "aiohttp", "plotext", "torch", "tensorboard")
# Collections that the console lists in any cluster.
LISTED = (NODES, PODS, EVENTS, CLAIMS, NAMESPACES)

Values = dict[str, Any]
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
        "journal": str(options.state_folder / JOURNAL_FILE),
        "log": str(options.log_file),
        "sandbox": str(options.sandbox_folder),
    }


def terminal() -> dict[str, str]:
    """Return facts about the terminal."""
    return {
        "name": os.environ.get("TERM", ""),
        "colours": tty_state.colours(),
        "over SSH": "yes" if tty_state.is_remote() else "no",
        "copies go to": clipboard.way(),
    }


def runs_text(options: ConsoleOptions) -> str:
    """Describe the records of past runs: `12 runs, 40K`."""
    store = RunStore(options.state_folder, options.history)
    words = plural(len(store.records()), "run"), memory(store.journal.size_bytes)
    return ", ".join((*words, *store.problems[:1]))


def address(host: str) -> str:
    """Return a server's address without credentials."""
    try:
        parts = urlsplit(host)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


async def read_info(
    options: ConsoleOptions,
    client: Client | None,
    problem: str = "",
    *,
    namespace: str = "",
    review: Review | None = None,
) -> Values:
    """Return versions, files, terminal, and the cluster with the user's permissions.

    Args:
        options: Name the files.
        client: The cluster; None without one.
        problem: Reason that there is none.
        namespace: Namespace of the permissions; empty for that of the context.
        review: Answers whether the user may do something; None asks the cluster.
    """
    cluster: Values | None = None
    if client is not None:
        config = client.config
        namespace = namespace or config.namespace
        cluster = {
            "context": config.context,
            "host": address(config.host),
            "user": config.user,
            **({"acts_as": config.acts_as} if config.acts_as else {}),
            "namespace": namespace,
            **_recording(options, config.context, namespace, client.server_clock_offset_s),
        }
        try:
            cluster["server_version"] = await _server_version(client)
            review = review or await _reviewer(client, namespace)
            cluster["may"] = await _fetch_allowed_verbs(client, review)
        except KubeError as error:
            problem = str(error)
    local = {"versions": versions(), "files": files(options), "terminal": terminal()}
    return {**local, "cluster": cluster, "problem": problem}


def _recording(options: ConsoleOptions, context: str, namespace: str, offset_s: float) -> Values:
    # The recorder that runs; and since when it, or a console, has seen everything.
    found, problem = None, ""
    try:
        found = RecorderLock(options.state_folder, context).holder()
    except OSError as error:
        problem = f"unknown: {error.filename}: {file_problem(error)}"
    since_s = observed_since_s(Journal(options.state_folder), context, namespace, time.time() + offset_s)
    recorder = found and {
        "pid": found.pid,
        "host": found.host,
        "since": _iso(found.started_s),
        "namespace": found.namespace,
        "all_users": found.is_for_all_users,
    }
    since = None if since_s is None else _iso(since_s)
    return {"recorder": recorder, "recorder_problem": problem, "observed_since": since}


def _iso(moment_s: float) -> str | None:
    return timestamp(datetime.fromtimestamp(moment_s, UTC))


async def _reviewer(client: Client, namespace: str) -> Review:
    rules = await fetch_rules(client, namespace)

    async def ask(need: ResourceAttributes) -> Permission:
        if rules.refuse(need.verb, need.group, need.plural):
            return Permission(False)
        return await review(client, need, namespace)

    return ask


async def _server_version(client: Client) -> str:
    try:
        return str((await fetch_version(client)).get("gitVersion") or "")
    except (NotFound, Forbidden):
        return ""  # it need not be readable


async def _fetch_allowed_verbs(client: Client, review: Review) -> AllowedVerbs:
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


def info_text(found: Values, past_runs: str, more: Iterable[tuple[str, str]] = ()) -> str:
    """Return the facts of `read_info` as text.

    Args:
        found: The facts.
        past_runs: Describes the stored records.
        more: Names and values about the cluster.
    """
    cluster = {**(found["cluster"] or {})}
    problem = cluster.pop("recorder_problem", "")
    named = [(name, text) for name, text in cluster.items() if isinstance(text, str)]
    if cluster:
        runs = cluster["recorder"]
        words = runs and f"process {runs['pid']} on {runs['host']}, since {runs['since']}"
        named.append(("recorder", words or problem or "does not run"))
    problems = [("problem", line) for line in found["problem"].split("\n")]
    may = [(name, verbs_text(verbs)) for name, verbs in cluster.get("may", {}).items()]
    return as_text(
        (
            ("Versions", [(name, text or "not installed") for name, text in found["versions"].items()]),
            ("Files", (*found["files"].items(), ("past runs", past_runs))),
            ("Terminal", found["terminal"].items()),
            ("Cluster", [*named, *more, *problems]),
            *([(f"This user, in namespace {cluster['namespace']}", may)] if may else ()),
        )
    )


def as_text(sections: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> str:
    """Format headings with indented names and values; empty values are left out."""
    blocks = []
    for heading, fields in sections:
        filled = [(name, value) for name, value in fields if value]
        width = max((len(name) for name, _ in filled), default=0)
        lines = [f"  {name:<{width}}  {line}" for name, line in filled]
        blocks.append("\n".join([heading, *lines]))
    return "\n\n".join(blocks)
