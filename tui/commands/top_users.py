"""`top users`: show the GPUs each user's jobs hold, request and leave idle."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter

from k8s.client.client import Client
from k8s.snapshot import ClusterSnapshot
from tui.commands.logs import seconds
from tui.commands.support.connect import read_feed
from tui.commands.support.output import (
    add_format,
    write,
    write_list,
    write_progress,
    write_stderr,
)
from tui.commands.support.partial import write_items, write_missing
from tui.feeds.cluster_feed import ClusterFeed
from tui.feeds.telemetry_feed import TelemetryFeed, open_telemetry
from tui.jobs.idle_report import (
    UserUsage,
    format_observed,
    held_nodes,
    message_to_owner,
    usage_by_user,
)
from tui.options import ConsoleOptions
from tui.tables.column import output_columns, values_of
from tui.tables.users import COLUMNS, lines_of
from tui.text.format import age, plural, timestamp
from tui.text.gpu_words import missing_text

PROGRESS_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the observation time."""
    parser.add_argument(
        "--observe",
        type=seconds,
        default=0,
        metavar="TIME",
        help="read the GPUs again and again for so long, e.g. 30m, to tell idle GPU-hours (default: once)",
    )
    add_format(parser)


async def print_users(options: ConsoleOptions, client: Client, flags: argparse.Namespace) -> None:
    """Print the idle report."""
    snapshot, feed = await read_feed(options, client)
    write_missing(snapshot.missing_jobs)
    report = _Report(
        feed,
        snapshot,
        open_telemetry(client, lambda: feed.all_jobs, lambda: snapshot.nodes, options.prometheus),
    )
    await report.observe(flags.observe)
    if flags.output in ("json", "yaml"):
        report.write_values(flags.output)
    else:
        report.write_text(is_wide=flags.output == "wide")


class _Report:
    def __init__(self, feed: ClusterFeed, snapshot: ClusterSnapshot, telemetry: TelemetryFeed) -> None:
        self._feed, self._snapshot, self._telemetry = feed, snapshot, telemetry

    async def observe(self, for_s: float) -> None:
        """Poll the allocated GPUs for so many seconds; ctrl+c ends that early."""
        await self._telemetry.read_once(self._held())
        if not for_s:
            return
        tasks = [
            asyncio.create_task(self._feed.run(self._take)),
            asyncio.create_task(self._telemetry.follow(lambda: None)),
        ]
        clock = asyncio.get_running_loop().time
        began_s = clock()
        self._telemetry.aim(self._held())
        try:
            while (left_s := began_s + for_s - clock()) > 0 and not any(task.done() for task in tasks):
                write_progress(f"Observing GPUs for another {age(left_s)}; ctrl+c prints what is known.")
                await asyncio.wait(tasks, timeout=min(left_s, PROGRESS_S))
        except asyncio.CancelledError:
            if (this := asyncio.current_task()) is not None:
                this.uncancel()
        finally:
            write_progress("", is_last=True)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self._telemetry.read_once(self._held())

    def _take(self, snapshot: ClusterSnapshot) -> None:
        if snapshot.is_synced:
            self._snapshot = snapshot
            self._telemetry.aim(self._held())

    def _held(self) -> list[str]:
        return held_nodes(self._snapshot.jobs, self._snapshot.nodes)

    def _users(self) -> tuple[UserUsage, ...]:
        read, snapshot = self._telemetry, self._snapshot
        return usage_by_user(snapshot.jobs, read.telemetry.gpus, read.ledger, snapshot.nodes)

    def _why_not(self) -> list[str]:
        nodes = self._telemetry.telemetry.nodes
        missing = [found.missing for name in self._held() if (found := nodes.get(name)) and not found.gpus]
        counts = Counter(missing_text(each) for each in missing if each is not None)
        total = plural(len(self._held()), "node")
        return [f"Idle is not known for {number} of {total}: {words}" for words, number in counts.items()]

    def write_values(self, form: str) -> None:
        """Print the report as JSON, YAML or CSV; unknown values are null."""
        ledger, missing = self._telemetry.ledger, self._snapshot.missing_jobs
        observed = format_observed(ledger)
        items = []
        for user in self._users():
            total, *jobs = [values_of(line, None, COLUMNS) for line in lines_of(user)]
            message = message_to_owner(user.total, user.jobs, observed)
            items.append({**total, "message": message, "jobs": jobs})
        sources = sorted({str(gpu.source) for gpu in self._telemetry.telemetry.gpus})
        told = {"observed_s": round(ledger.observed_s), "observed_from": timestamp(ledger.first_at)}
        write_items(items, missing, form, **told, sources=sources, notices=self._why_not())

    def write_text(self, *, is_wide: bool) -> None:
        """Print the users, their jobs, and a text to send to the owners."""
        for line in self._why_not():
            write_stderr(line)
        users = self._users()
        if not users:
            write_stderr("No job holds a GPU or waits for one.")
            return
        lines = [line for user in users for line in lines_of(user)]
        write_list(output_columns(COLUMNS, ()), lines, None, is_wide=is_wide)
        observed = format_observed(self._telemetry.ledger)
        write(
            f"\nObserved: {observed or 'one reading, so idle GPU-hours are not known; --observe 30m tells'}."
        )
        for user in users:
            if user.total.gpus_idle or user.total.idle_hours:
                write(message_to_owner(user.total, user.jobs, observed))
