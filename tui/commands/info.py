"""`info`: show versions, file locations, the cluster and the user's permissions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from k8s.client.client import Client
from k8s.client.server_version import fetch_version
from k8s.cluster.rules_review import fetch_rules
from k8s.errors import KubeError
from k8s.jobs.permissions import Permission, ResourceAttributes, review
from k8s.text.redact import Redactor
from tui.commands.support.connect import cluster
from tui.commands.support.output import add_format, write, write_fields, write_object, write_stderr
from tui.feeds.info import address, fetch_allowed_verbs, files, runs_text, verbs_text, versions
from tui.files.keys_file import read_keys
from tui.keys import remapped
from tui.options import ConsoleOptions
from tui.screens import key_table, user_plugins
from tui.tables.column import Values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `-o` and `--keys`."""
    add_format(parser, ("table", "json", "yaml"))
    words = "the same as -o json: for a report, with secrets redacted"
    parser.add_argument("--json", action="store_const", const="json", dest="output", help=words)
    parser.add_argument(
        "--keys", action="store_true", help="list the key bindings and their ids for keys.yaml"
    )


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print facts about this installation and the cluster, or the reason there is no cluster."""
    if flags.keys:
        keys = read_keys(options.keys_file, key_table())
        write(_key_table(keys.keymap))
        for problem in keys.problems:
            write_stderr(problem)
        return 0
    installed, paths = versions(), files(options)
    plugins = user_plugins(options, read_keys(options.keys_file, key_table()).keymap)
    for problem in plugins.problems if plugins is not None else ():
        write_stderr(problem)
    reached: Values = {}
    problem = ""
    try:
        async with cluster(options) as client:
            reached = await _reached(client)
    except KubeError as error:
        problem = str(error)
    if flags.output in ("json", "yaml"):
        found = {"versions": installed, "files": paths, "cluster": reached or None, "problem": problem}
        write_object(Redactor().object(found), flags.output)
        return 0
    _print(installed, paths, runs_text(options), reached, problem)
    return 0


async def _reached(client: Client) -> Values:
    server = await fetch_version(client)
    config = client.config
    rules = await fetch_rules(client, config.namespace)

    async def ask(need: ResourceAttributes) -> Permission:
        if rules.refuse(need.verb, need.group, need.plural):
            return Permission(False)
        return await review(client, need, config.namespace)

    allowed = await fetch_allowed_verbs(client, ask)
    return {
        "context": config.context,
        "host": address(config.host),
        "user": config.user,
        **({"acts_as": config.acts_as} if config.acts_as else {}),
        "namespace": config.namespace,
        "server_version": str(server.get("gitVersion") or ""),
        "may": {name: {verb: bool(may) for verb, may in verbs.items()} for name, verbs in allowed.items()},
    }


def _print(
    installed: dict[str, str | None], paths: dict[str, str], past: str, reached: Values, problem: str
) -> None:
    write("Versions")
    write_fields((f"  {name}", found or "not installed") for name, found in installed.items())
    write("\nFiles")
    write_fields((f"  {name}", path) for name, path in (*paths.items(), ("past runs", past)))
    write("\nCluster")
    if problem:
        write_fields([("  problem", line) for line in problem.split("\n")])
        return
    write_fields((f"  {name}", text) for name, text in reached.items() if isinstance(text, str))
    write(f"\nThis user, in namespace {reached['namespace']}")
    write_fields((f"  {plural}", verbs_text(verbs)) for plural, verbs in reached["may"].items())


def _key_table(keymap: Mapping[str, str]) -> str:
    lines = []
    for place, table in key_table().sections:
        lines.append(place)
        lines += [
            f"  {key.id:<24}  {key.all_shown:<12}  {key.help}".rstrip() for key in remapped(table, keymap)
        ]
        lines.append("")
    return "\n".join(lines)
