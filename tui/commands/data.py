"""`data list`: list volume claims."""

from __future__ import annotations

import argparse

from k8s.cluster.mirror import Mirror
from k8s.models import Meta, Reader
from k8s.models.namespace import Claim
from k8s.models.resources import CLAIMS
from tui.commands.support.connect import check_namespace, cluster, server_clock
from tui.commands.support.listing import ItemList, add_list_flags
from tui.commands.support.output import write_missing
from tui.settings.options import ConsoleOptions
from tui.tables.column import output_columns
from tui.tables.volumes import COLUMNS
from tui.text.format import in_namespace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the `list` subcommand."""
    views = parser.add_subparsers(dest="view", required=True, metavar="list")
    listing = views.add_parser("list", aliases=["ls"], help="list volume claims")
    add_list_flags(listing, COLUMNS, can_watch=False)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the volume claims."""
    listing = ItemList(
        flags,
        COLUMNS,
        name_of=lambda claim: f"persistentvolumeclaim/{claim.metadata.name}",
        labels_of=lambda claim: claim.metadata.labels or {},
    )
    async with cluster(options, is_brief=True) as client:
        namespace = "" if options.is_all_namespaces else client.config.namespace
        scopes = (namespace,) if namespace else ("", client.config.namespace)
        mirror: Mirror[Claim] = Mirror(client, CLAIMS, scopes, Reader(Claim), _meta, lambda: None)
        await mirror.list_once()
        clock = server_clock(client)
        if not mirror.objects:
            await check_namespace(client, namespace)
    found = sorted(mirror.objects.values(), key=lambda claim: (claim.metadata.namespace, claim.metadata.name))
    missing = (mirror.missing,) if mirror.missing is not None else ()
    found = listing.select(found, clock)
    if found or listing.is_document:
        columns = output_columns(COLUMNS, without=("namespace",) if namespace else ())
        listing.write(found, clock, columns, missing)
    else:
        where = in_namespace(namespace)
        listing.write_none("volume claim", where, f"No volume claims{where}.")
    write_missing(missing)
    return 0


def _meta(claim: Claim) -> Meta:
    return claim.metadata
