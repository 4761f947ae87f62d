"""`data list`: list volume claims."""

from __future__ import annotations

import argparse

from k8s.cluster.mirror import Mirror
from k8s.models import Meta, Reader
from k8s.models.claim import Claim
from k8s.models.resources import CLAIMS
from tui.commands.support.connect import cluster, namespace_in_use, server_clock
from tui.commands.support.output import add_format, write_list, write_stderr
from tui.commands.support.partial import write_items, write_missing
from tui.options import ConsoleOptions
from tui.tables.column import output_columns, values_of
from tui.tables.volumes import COLUMNS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the `list` subcommand."""
    views = parser.add_subparsers(dest="view", required=True, metavar="list")
    add_format(views.add_parser("list", aliases=["ls"], help="list volume claims"))


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the volume claims."""
    async with cluster(options) as client:
        namespace = namespace_in_use(options, client)
        scopes = (namespace,) if namespace else ("", client.config.namespace)
        mirror: Mirror[Claim] = Mirror(client, CLAIMS, scopes, Reader(Claim), _meta, lambda: None)
        await mirror.list_once()
        clock = server_clock(client)
    found = sorted(mirror.objects.values(), key=lambda claim: (claim.metadata.namespace, claim.metadata.name))
    missing = (mirror.missing,) if mirror.missing is not None else ()
    if flags.output in ("json", "yaml"):
        write_items([values_of(claim, clock, COLUMNS) for claim in found], missing, flags.output)
    elif not found:
        write_stderr(f"No volume claims in namespace {namespace}." if namespace else "No volume claims.")
    else:
        columns = output_columns(COLUMNS, without=("namespace",) if namespace else ())
        write_list(columns, found, clock, is_wide=flags.output == "wide")
    write_missing(missing)
    return 0


def _meta(claim: Claim) -> Meta:
    return claim.metadata
