"""`info`: show versions, file locations, the cluster and the user's permissions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from k8s.text.errors import KubeError
from k8s.text.redact import Redactor
from tui.commands.support.connect import cluster
from tui.commands.support.output import add_format, write, write_object, write_stderr
from tui.screens import key_table, user_plugins
from tui.session.info import info_text, read_info, runs_text
from tui.settings.keys import remapped
from tui.settings.keys_file import read_keys
from tui.settings.options import ConsoleOptions


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
    plugins = user_plugins(options, read_keys(options.keys_file, key_table()).keymap)
    for problem in plugins.problems if plugins is not None else ():
        write_stderr(problem)
    runs = runs_text(options)
    try:
        async with cluster(options) as client:
            found = await read_info(options, client)
    except KubeError as error:
        found = await read_info(options, None, str(error))
    if flags.output in ("json", "yaml"):
        write_object(Redactor().object(found), flags.output)
    else:
        write(info_text(found, runs))
    return 0


def _key_table(keymap: Mapping[str, str]) -> str:
    lines = []
    for place, table in key_table().sections:
        lines.append(place)
        lines += [
            f"  {key.id:<24}  {key.all_shown:<12}  {key.help}".rstrip() for key in remapped(table, keymap)
        ]
        lines.append("")
    return "\n".join(lines)
