"""`info`: versions, file locations, the cluster, and what this user may do there."""

from __future__ import annotations

import argparse
import asyncio
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from k8s.client import Client
from k8s.discovery import discover
from k8s.errors import KubeError
from k8s.kinds import CREATABLE, KINDS, JobKind
from k8s.resources import CLAIMS, EVENTS, NODES, PODS, Resource
from k8s.rights import Need, review
from tui.commands.connect import cluster
from tui.commands.errors import say
from tui.commands.keys_table import as_text
from tui.commands.output import add_format, write, write_fields, write_object
from tui.commands.values import Values
from tui.keys_file import read_keys
from tui.settings import ConsoleOptions

PACKAGES = ("gpuconsole", "textual", "kubernetes", "aiohttp", "plotext", "torch", "tensorboard")
"""Whose versions are told; the last two are needed by trainers only."""
RIGHTS: tuple[tuple[str, Resource], ...] = (
    ("list", NODES),
    ("list", PODS),
    ("list", EVENTS),
    ("list", CLAIMS),
)
"""What the console needs, in whole or in part, whichever kinds of jobs there are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the command take `-o`, and print the keys instead."""
    add_format(parser, ("table", "json", "yaml"))
    parser.add_argument("--keys", action="store_true", help="the console's keys, with the ids for keys.yaml")


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print what is known of this installation and of the cluster; without a cluster, why there is none."""
    if flags.keys:
        keys = read_keys(options.keys_file)
        write(as_text(keys.keymap))
        for problem in keys.problems:
            say(problem)
        return 0
    versions = {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}
    files = {
        "config": str(options.config_folder),
        "settings": str(options.config_file),
        "themes": str(options.themes_folder),
        "templates": str(options.templates_folder),
        "keys": str(options.keys_file),
        "state": str(options.state_folder),
        "log": str(options.log_file),
        "sandbox": str(options.sandbox_folder),
    }
    reached: Values = {}
    problem = ""
    try:
        async with cluster(options) as client:
            reached = await _reached(client)
    except KubeError as error:
        problem = str(error)
    if flags.output in ("json", "yaml"):
        found = {"versions": versions, "files": files, "cluster": reached or None, "problem": problem}
        write_object(found, flags.output)
        return 0
    _print(versions, files, reached, problem)
    return 0


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


async def _reached(client: Client) -> Values:
    server = await client.get_json("/version", doing="ask for the server's version")
    access = client.access
    asked = (*RIGHTS, *((verb, kind.resource) for kind in await _kinds(client) for verb in _verbs(kind)))
    answers = await asyncio.gather(*(review(client, Need.of(*each), access.namespace) for each in asked))
    rights: dict[str, dict[str, bool]] = {}
    groups: dict[str, str] = {}
    for (verb, resource), right in zip(asked, answers, strict=True):
        is_first = groups.setdefault(resource.plural, resource.group) == resource.group
        rights.setdefault(resource.plural if is_first else resource.full_name, {})[verb] = bool(
            right.is_allowed
        )
    return {
        "context": access.context,
        "host": access.host,
        "user": access.user,
        "namespace": access.namespace,
        "server_version": str(server.get("gitVersion") or ""),
        "may": rights,
    }


async def _kinds(client: Client) -> Sequence[JobKind]:
    """Return the kinds of jobs that the cluster has; where it does not say, those that can be made here."""
    try:
        return await discover(client, KINDS)
    except KubeError:
        return CREATABLE


def _verbs(kind: JobKind) -> tuple[str, ...]:
    return ("list", "create", "delete") if kind in CREATABLE else ("list", "delete")


def _print(versions: dict[str, str | None], files: dict[str, str], reached: Values, problem: str) -> None:
    write("Versions")
    write_fields((f"  {name}", found or "not installed") for name, found in versions.items())
    write("\nFiles")
    write_fields((f"  {name}", path) for name, path in files.items())
    write("\nCluster")
    if problem:
        write_fields([("  problem", line) for line in problem.split("\n")])
        return
    write_fields((f"  {name}", text) for name, text in reached.items() if isinstance(text, str))
    write(f"\nThis user, in namespace {reached['namespace']}")
    write_fields((f"  {plural}", _rights_words(verbs)) for plural, verbs in reached["may"].items())


def _rights_words(verbs: dict[str, bool]) -> str:
    return ", ".join(f"may {verb}" if is_allowed else f"may not {verb}" for verb, is_allowed in verbs.items())
