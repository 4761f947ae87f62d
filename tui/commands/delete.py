"""`delete`: stop jobs and remove them with everything they own."""

from __future__ import annotations

import argparse
import asyncio

from tui.commands.support.confirm import PromptUi, wait_until_gone
from tui.commands.support.connect import check_may_change, cluster, read_cluster
from tui.commands.support.job_name import add_jobs, find_jobs
from tui.commands.support.output import add_yes, check_can_confirm, write, write_stderr
from tui.runs.run_records import NodesAndPods
from tui.runs.store import RunStore
from tui.session.last_facts import record_runs
from tui.settings.options import ConsoleOptions
from tui.text.change_plans import PROPAGATIONS, delete_plan
from tui.verbs.changes import LONGEST_S, delete, leftover_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the jobs, and the options for their pods."""
    add_jobs(parser)
    add_yes(parser)
    parser.add_argument(
        "--propagation",
        choices=tuple(PROPAGATIONS),
        default=next(iter(PROPAGATIONS)),
        help="; ".join(f"{name}: {words}" for name, words in PROPAGATIONS.items()),
    )
    parser.add_argument("--wait", action="store_true", help="wait until the jobs and their pods are gone")
    parser.add_argument(
        "--timeout",
        type=float,
        default=LONGEST_S,
        metavar="SECONDS",
        help=f"how long to wait (default {LONGEST_S:.0f})",
    )


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Delete jobs; a failure does not stop the others."""
    check_may_change(options, "delete jobs")
    check_can_confirm(flags, "delete")
    async with cluster(options) as client:
        snapshot, reasons = await read_cluster(options, client)
        jobs, are_found = find_jobs(options, snapshot, flags.jobs, flags.job_type)
        plan = delete_plan(snapshot, (job.ref for job in jobs), propagation=flags.propagation)
        runs = RunStore(options.state_folder, options.history)
        place = NodesAndPods(snapshot.nodes, reasons.mirror.pods)
        ui = PromptUi(flags)
        deleted = await delete(client, plan, ui, lambda jobs: record_runs(client, jobs, runs, place))
        if deleted is None:
            return 1
        is_done = are_found and not ui.has_failed
        if not flags.wait or not deleted.jobs:
            return 0 if is_done else 1
        began_s = asyncio.get_running_loop().time()
        left = await wait_until_gone(client, snapshot.namespace, deleted, flags.timeout)
        waited_s = asyncio.get_running_loop().time() - began_s
    are_gone = all(each.is_gone for each in left)
    for sentence in leftover_lines(left, waited_s):
        (write if are_gone else write_stderr)(sentence)
    return 0 if is_done and are_gone else 1
