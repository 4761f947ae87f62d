"""`data list`: the volume claims, on which jobs keep what must outlive them."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any

from k8s.models import meta_of
from k8s.resources import CLAIMS
from k8s.spec import USER_ANNOTATION
from tui.commands.connect import cluster, scope, server_clock
from tui.commands.errors import say
from tui.commands.output import Column, add_format, write_object, write_table
from tui.commands.values import Values, seconds_since, timestamp
from tui.format import NOTHING, Clock, age
from tui.settings import ConsoleOptions

COLUMNS = (
    Column("NAMESPACE"),
    Column("NAME"),
    Column("ACCESS"),
    Column("SIZE", "right"),
    Column("STATUS"),
    Column("AGE", "right"),
    Column("OWNER"),
    Column("DESCRIPTION", is_wide=True),
)
_SHORT = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the command take `list`."""
    views = parser.add_subparsers(dest="view", required=True, metavar="list")
    add_format(views.add_parser("list", aliases=["ls"], help="volume claims"))


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the volume claims."""
    async with cluster(options) as client:
        namespace = scope(options, client)
        listed = await client.list(CLAIMS, namespace)
        clock = server_clock(client)
    claims = [_values(obj, clock.now) for obj in listed]
    claims.sort(key=lambda claim: (claim["namespace"], claim["name"]))
    if flags.output in ("json", "yaml"):
        write_object({"items": claims}, flags.output)
    elif not claims:
        say(f"No volume claims in namespace {namespace}." if namespace else "No volume claims.")
    else:
        skipped = 1 if namespace else 0
        rows = [_row(claim, clock)[skipped:] for claim in claims]
        write_table(COLUMNS[skipped:], rows, is_wide=flags.output == "wide")
    return 0


def _values(obj: dict[str, Any], now: datetime) -> Values:
    meta, spec, status = meta_of(obj), obj.get("spec") or {}, obj.get("status") or {}
    asked = (spec.get("resources") or {}).get("requests") or {}
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "access_modes": list(status.get("accessModes") or spec.get("accessModes") or ()),
        "size": str((status.get("capacity") or asked).get("storage") or ""),
        "status": "Terminating" if meta.deletion_timestamp else str(status.get("phase") or ""),
        "age_s": seconds_since(meta.creation_timestamp, now),
        "created": timestamp(meta.creation_timestamp),
        # Arena's annotations; the second is ours.
        "owner": meta.annotation("owner") or meta.annotation(USER_ANNOTATION),
        "description": meta.annotation("description"),
    }


def _row(claim: Values, clock: Clock) -> tuple[str, ...]:
    return (
        claim["namespace"],
        claim["name"],
        ",".join(_SHORT.get(mode, mode) for mode in claim["access_modes"]) or NOTHING,
        claim["size"] or NOTHING,
        claim["status"] or NOTHING,
        clock.mark + age(claim["age_s"]),
        claim["owner"] or NOTHING,
        claim["description"] or NOTHING,
    )
