"""`data list`: list volume claims."""

from __future__ import annotations

import argparse
from datetime import datetime

from k8s.cluster.mirror import Mirror
from k8s.models import Meta, Reader
from k8s.models.claim import Claim
from k8s.models.resources import CLAIMS
from tui.commands.support.connect import cluster, namespace_in_use, server_clock
from tui.commands.support.output import OutputColumn, add_format, write_stderr, write_table
from tui.commands.support.partial import write_items, write_missing
from tui.commands.support.values import Values, seconds_since, timestamp
from tui.feeds.volume_claims import owner_of
from tui.options import ConsoleOptions
from tui.text.format import NOTHING, Clock

COLUMNS = (
    OutputColumn("NAMESPACE"),
    OutputColumn("NAME"),
    OutputColumn("ACCESS"),
    OutputColumn("SIZE", "right"),
    OutputColumn("STATUS"),
    OutputColumn("AGE", "right"),
    OutputColumn("OWNER"),
    OutputColumn("DESCRIPTION", is_wide=True),
)


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
        write_items([_values(claim, clock.now) for claim in found], missing, flags.output)
    elif not found:
        write_stderr(f"No volume claims in namespace {namespace}." if namespace else "No volume claims.")
    else:
        skipped = 1 if namespace else 0
        rows = [_row(claim, clock)[skipped:] for claim in found]
        write_table(COLUMNS[skipped:], rows, is_wide=flags.output == "wide")
    write_missing(missing)
    return 0


def _meta(claim: Claim) -> Meta:
    return claim.metadata


def _values(claim: Claim, now: datetime) -> Values:
    meta = claim.metadata
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "access_modes": list(claim.access_modes),
        "size": claim.size,
        "status": claim.state,
        "age_s": seconds_since(meta.creation_timestamp, now),
        "created": timestamp(meta.creation_timestamp),
        "owner": owner_of(claim),
        "description": meta.annotation("description"),
    }


def _row(claim: Claim, clock: Clock) -> tuple[str, ...]:
    meta = claim.metadata
    return (
        meta.namespace,
        meta.name,
        claim.short_modes or NOTHING,
        claim.size or NOTHING,
        claim.state or NOTHING,
        clock.age(meta.creation_timestamp),
        owner_of(claim) or NOTHING,
        meta.annotation("description") or NOTHING,
    )
