"""`version`: show the versions of gpuconsole and of the server."""

from __future__ import annotations

import argparse
from importlib.metadata import version

from k8s.client.client import fetch_version
from k8s.text.errors import KubeError
from tui.commands.support.connect import cluster
from tui.commands.support.output import add_format, write, write_object, write_stderr
from tui.settings.options import ConsoleOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `-o` and `--client`."""
    add_format(parser, ("table", "json", "yaml"))
    parser.add_argument("--client", action="store_true", help="do not ask the server")


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the versions; return 1 if the server did not answer."""
    own, server, problem = version("gpuconsole"), "", ""
    if not flags.client:
        try:
            async with cluster(options) as client:
                found = await fetch_version(client)
                server = str(found.get("gitVersion") or f"{found.get('major')}.{found.get('minor')}")
        except KubeError as error:
            problem = str(error)
    if flags.output in ("json", "yaml"):
        write_object({"gpuconsole": own, "server": server or None}, flags.output)
    else:
        write(f"gpuconsole {own}")
        if server:
            write(f"server {server}")
    if problem:
        write_stderr(problem)
    return int(bool(problem))
