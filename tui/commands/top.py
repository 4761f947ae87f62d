"""`top nodes`, `top jobs` and `top users`: show GPU allocation."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.client.client import Client
from k8s.snapshot import ClusterSnapshot, Job, NodeRow, device_sums, held_shares
from k8s.status import Status
from k8s.text.errors import Forbidden
from tui.commands.list import job_listing
from tui.commands.support.connect import cluster, read_cluster, server_clock
from tui.commands.support.job_name import add_type, jobs_of_type
from tui.commands.support.listing import ItemList, add_list_flags
from tui.commands.support.output import WrongUsage, no_jobs, write, write_missing, write_stderr
from tui.commands.support.parser import CommandParser
from tui.settings.options import ConsoleOptions
from tui.settings.served_kinds import open_mirror
from tui.tables import jobs as job_table
from tui.tables import nodes as node_table
from tui.tables.column import output_columns, pick
from tui.tables.filters import gpu_totals
from tui.tables.jobs import JobsNow
from tui.tables.nodes import NodesNow
from tui.text.format import Clock, in_namespace, plural

if TYPE_CHECKING:
    from tui.commands.support.live_output import LiveReadings  # telemetry is slow to import


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the `nodes`, `jobs` and `users` subcommands."""
    views = parser.add_subparsers(dest="view", required=True, metavar="nodes|jobs|users")
    nodes = views.add_parser("nodes", aliases=["node"], help="show the GPUs of each node and who holds them")
    add_list_flags(nodes, node_table.COLUMNS)
    _add_live(nodes)
    jobs = views.add_parser("jobs", aliases=["job"], help="show the GPUs that each job requests and holds")
    add_list_flags(jobs, pick(job_table.COLUMNS, job_table.TOP_KEYS))
    _add_live(jobs)
    add_type(jobs)
    users_help = "show what each user's jobs hold, request, and leave idle, now or since a time"
    users = views.add_parser("users", aliases=["user"], help=users_help)
    assert isinstance(users, CommandParser)
    users.command_module = "top_users"


def _add_live(parser: argparse.ArgumentParser) -> None:
    words = "measure too: what the GPUs do now, by DCGM exporter or Prometheus, with source and age"
    parser.add_argument("--live", action="store_true", help=words)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the GPUs of nodes, jobs or users."""
    if flags.view.startswith("user"):
        from tui.commands import top_users  # slow to import

        if flags.since is not None:
            top_users.print_ledger(options, flags)
            return 0
        async with cluster(options) as client:
            await top_users.print_users(options, client, flags)
        return 0
    if flags.live and flags.watch:
        raise WrongUsage("--live cannot be combined with --watch.")
    async with cluster(options, is_brief=not flags.watch) as client:
        if flags.view.startswith("node"):
            await _top_nodes(options, client, flags)
        else:
            await _top_jobs(options, client, flags)
    return 0


async def _top_nodes(options: ConsoleOptions, client: Client, flags: argparse.Namespace) -> None:
    listing = ItemList(
        flags,
        node_table.COLUMNS,
        name_of=lambda node: f"node/{node.name}",
        labels_of=lambda node: node.labels,
    )
    mirror = open_mirror(options, client)
    mirror.has_jobs = flags.live or flags.watch or listing.uses("holders")
    snapshot = await mirror.read_once()
    live = await _measure(options, client, snapshot, snapshot.nodes) if flags.live else None
    now = NodesNow(server_clock(client), is_listed="nodes" not in snapshot.problems)
    nodes = listing.select(snapshot.nodes, now)
    _print_nodes(snapshot, now, listing, nodes, live)
    if flags.watch:
        printed = output_columns(node_table.COLUMNS, node_table.PRINTED_FIRST)
        await listing.watch(
            mirror, nodes, lambda: now, printed, lambda newest: newest.nodes, lambda node: node.name
        )


async def _top_jobs(options: ConsoleOptions, client: Client, flags: argparse.Namespace) -> None:
    listing = job_listing(flags)
    snapshot, reasons = await read_cluster(options, client)
    snapshot = jobs_of_type(snapshot, flags.job_type)
    if listing.is_document:
        snapshot = jobs_of_type(await reasons.explain_once(snapshot.jobs), flags.job_type)
    jobs = sorted(snapshot.jobs, key=lambda job: -job.gpus_requested)
    jobs = listing.select(jobs, JobsNow(server_clock(client)))
    snapshot = replace(snapshot, jobs=tuple(jobs))
    live = await _measure_jobs(options, client, snapshot) if flags.live else None
    _print_jobs(snapshot, server_clock(client), listing, flags.job_type, live)
    if flags.watch:
        await listing.watch(
            reasons.mirror,
            jobs,
            lambda: JobsNow(server_clock(client)),
            pick(job_table.COLUMNS, job_table.TOP_KEYS),
            lambda newest: jobs_of_type(newest, flags.job_type).jobs,
            lambda job: job.uid,
        )


async def _measure_jobs(options: ConsoleOptions, client: Client, snapshot: ClusterSnapshot) -> LiveReadings:
    jobs = [job for job in snapshot.jobs if job.gpus_allocated]
    names = {name for job in jobs for name in job.nodes}
    nodes = [row for row in snapshot.nodes if row.name in names]
    return await _measure(options, client, snapshot, nodes, jobs)


async def _measure(
    options: ConsoleOptions,
    client: Client,
    snapshot: ClusterSnapshot,
    nodes: Sequence[NodeRow],
    jobs: Sequence[Job] = (),
) -> LiveReadings:
    from tui.commands.support.live_output import LiveReadings

    return await LiveReadings.read(options, client, snapshot, nodes, jobs)


def _print_jobs(
    snapshot: ClusterSnapshot,
    clock: Clock,
    listing: ItemList[Job, JobsNow],
    job_type: str,
    live: LiveReadings | None,
) -> None:
    write_missing(snapshot.missing_jobs)
    now, jobs, form = JobsNow(clock), snapshot.jobs, listing.form
    allocated, waiting = gpu_totals(jobs)
    requested = allocated + waiting
    if not jobs and not listing.is_document:
        listing.write_none("job", in_namespace(snapshot.namespace), no_jobs(snapshot, job_type))
        return
    if live is not None and not listing.is_document:
        live.write_jobs(jobs, is_wide=form == "wide")
        return
    listing.write(
        jobs,
        now,
        pick(job_table.COLUMNS, job_table.TOP_KEYS),
        snapshot.missing_jobs,
        more=None if live is None else lambda job: {"live": live.job_values(job)},
        gpus_requested=requested,
        gpus_allocated=allocated,
    )
    if not listing.is_table:
        return
    write("")
    if left_out := _left_out(jobs):
        write(f"Not in the total: {left_out}.")
    still = sum(job.gpus_allocated for job in jobs if job.status.is_final)
    words = f" ({plural(still, 'GPU')} held by pods of finished jobs)" if still else " of unfinished jobs"
    shares = held_shares(snapshot.nodes, jobs)
    of_shares = f", {shares} of them shares of GPUs" if shares else ""
    write(f"Allocated/Requested GPUs{words}: {_share(allocated, requested)}{of_shares}")


def _left_out(jobs: Sequence[Job]) -> str:
    gpus: dict[str, int] = {}
    for job in jobs:
        whose = (
            "finished jobs" if job.status.is_final else _WAITS_FOR_NOTHING.get(job.status, "finished pods")
        )
        left = max(0, job.gpus_requested - job.gpus_allocated - job.gpus_waiting)
        gpus[whose] = gpus.get(whose, 0) + left
    return " and ".join(f"{plural(number, 'GPU')} of {whose}" for whose, number in gpus.items() if number)


_WAITS_FOR_NOTHING = {Status.SUSPENDED: "suspended jobs", Status.TERMINATING: "jobs being deleted"}


def _print_nodes(
    snapshot: ClusterSnapshot,
    now: NodesNow,
    listing: ItemList[NodeRow, NodesNow],
    nodes: Sequence[NodeRow],
    live: LiveReadings | None,
) -> None:
    is_partial = not now.is_listed
    if is_partial and not snapshot.nodes:
        raise Forbidden("Could not list nodes.", "You may not list them, nor any pod on them.")
    missing = snapshot.missing_gpus
    write_missing(missing)
    total, allocated = snapshot.gpus_total, snapshot.gpus_allocated
    parts = [share for node in snapshot.nodes for share in node.parts]
    if live is not None and not listing.is_document:
        live.write_nodes(nodes, is_wide=listing.form == "wide")
        return
    if not nodes and not listing.is_document:
        listing.write_none("node", "", "There are no nodes.")
        return
    listing.write(
        nodes,
        now,
        output_columns(node_table.COLUMNS, node_table.PRINTED_FIRST),
        missing,
        more=None if live is None else lambda node: {"live": live.node_values(node)},
        gpus_total=total,
        gpus_allocated=allocated,
        gpus_free=snapshot.gpus_free,
        largest_free=snapshot.largest_free,
        shares_total=sum(share.total for share in parts),
        shares_allocated=sum(share.allocated for share in parts),
        is_partial=is_partial,
    )
    if not listing.is_table:
        return
    if is_partial:
        write(f"\nAllocated/Total GPUs on the nodes of pods that this user sees: {allocated}/?")
        return
    sums = device_sums(snapshot.nodes)
    amounts = " and ".join(
        f"{_share(held, of)}{f' {what}' if what != 'GPUs' else ''}" for held, of, what in sums
    )
    simulated = sum(node.gpus_total for node in snapshot.nodes if node.is_simulated)
    words = f", {simulated} of them simulated" if simulated else ""
    shared = [node.shared for node in snapshot.nodes if node.shared is not None]
    held, whole = sum(each.allocated_gib for each in shared), sum(each.total_gib for each in shared)
    words += f", {held}/{whole}G of shared GPUs' memory" if shared else ""
    words += f"; {_format_free(snapshot)}" if total else ""
    names = {name: node.name for node in snapshot.nodes for name in node.uncounted}
    for name, where in names.items():
        write_stderr(f"{name} of {where} is not counted; accelerators in config.yaml can name it.")
    write(f"\nAllocated/Total GPUs in cluster: {amounts}{words}")


def _format_free(snapshot: ClusterSnapshot) -> str:
    # Less than capacity minus requests where nodes are down, cordoned or tainted.
    free = snapshot.gpus_free
    tolerated = sum(sum(node.free_if_tolerated.values()) for node in snapshot.nodes) - free
    more = f", {tolerated} more by tolerating a taint" if tolerated else ""
    if not free:
        return f"none can be had now{more}"
    return f"{free} can be had now, at most {snapshot.largest_free} on one node{more}"


def _share(part: int, whole: int) -> str:
    percent = part * 100 // whole if whole else 0
    return f"{part}/{whole} ({percent} %)"
