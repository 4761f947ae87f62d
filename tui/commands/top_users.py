"""`top users`: show the GPUs each user's jobs hold, request and leave idle, now or over time."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from k8s.client.client import Client
from tui.commands.runs import write_problems
from tui.commands.support.connect import read_cluster, recorded_place, with_cluster_flags
from tui.commands.support.output import (
    FORMATS,
    WrongUsage,
    add_format,
    write,
    write_csv,
    write_items,
    write_list,
    write_missing,
    write_stderr,
)
from tui.commands.support.parser import seconds
from tui.runs.journal.ledger import GpuTime, read_ledger
from tui.runs.store import RunStore
from tui.session.telemetry_feed import open_telemetry
from tui.settings.options import ConsoleOptions
from tui.tables.column import ListColumn, Values, output_columns, values_of
from tui.tables.users import (
    COLUMNS,
    LEDGER_COLUMNS,
    UserLine,
    UserUsage,
    held_nodes,
    hours_by_kind,
    ledger_by_user,
    lines_of,
    message_to_owner,
    share_text,
    usage_by_user,
)
from tui.text.format import age, in_namespace, local_time, plural, timestamp
from tui.text.gpu_words import missing_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `-o` and `--since`."""
    add_format(parser, (*FORMATS, "csv"))
    parser.add_argument(
        "--since",
        type=seconds,
        metavar="TIME",
        help="GPU-hours of this time until now, e.g. 7d, as far as consoles and `record` observed them",
    )


async def print_users(options: ConsoleOptions, client: Client, flags: argparse.Namespace) -> None:
    """Print the users, their jobs, and a text to send to the owners of idle GPUs; unknown values are null."""
    snapshot, reasons = await read_cluster(options, client)
    write_missing(snapshot.missing_jobs)
    mirror = reasons.mirror
    reader = open_telemetry(client, lambda: mirror.all_jobs, lambda: snapshot.nodes, options.prometheus)
    held = held_nodes(snapshot.jobs, snapshot.nodes)
    telemetry = await reader.read_once(held)
    users = usage_by_user(snapshot.jobs, telemetry.gpus, snapshot.nodes)
    read = (telemetry.nodes.get(name) for name in held)
    missing = Counter(missing_text(each.missing) for each in read if each and each.missing and not each.gpus)
    notices = [
        f"Idle is not known for {number} of {plural(len(held), 'node')}: {words}"
        for words, number in missing.items()
    ]
    if flags.output in ("json", "yaml"):
        items = [_values(user, COLUMNS, message=message_to_owner(user.total, user.jobs)) for user in users]
        sources = sorted({str(gpu.source) for gpu in telemetry.gpus})
        write_items(items, snapshot.missing_jobs, flags.output, sources=sources, notices=notices)
        return
    for line in notices:
        write_stderr(line)
    if not users:
        write_stderr("No job holds a GPU or waits for one.")
        return
    if _write_lines(users, COLUMNS, flags.output):
        return
    for number, user in enumerate(user for user in users if user.total.gpus_idle):
        write(f"{'' if number else chr(10)}{message_to_owner(user.total, user.jobs)}")


def print_ledger(options: ConsoleOptions, flags: argparse.Namespace) -> None:
    """Print the recorded GPU-hours by user, job and kind; nothing is read from a cluster.

    Raises:
        KubeError: The journal cannot be read.
        WrongUsage: The time is 0.
    """
    if not flags.since:
        raise WrongUsage("--since must be longer than 0s, e.g. 7d.")
    context, namespace = recorded_place(options)
    journal = RunStore(options.state_folder, options.history).journal
    to_s = time.time()
    from_s = max(0.0, to_s - flags.since)
    found = read_ledger(journal, context, namespace, from_s, to_s)
    write_problems(journal.problems, is_empty=found is None)
    users = ledger_by_user(found or ())
    jobs = [job for user in users for job in user.jobs]
    since = datetime.fromtimestamp(from_s, UTC)
    if found is None:
        none = f"Nothing was recorded of {context}{in_namespace(namespace)} since {local_time(since)}."
        hint = with_cluster_flags(options, "To record: gpuconsole record, or leave the console open.")
        write_stderr(f"{none}\n{hint}")
    elif not users:
        where = f"{in_namespace(namespace)} while it was observed since {local_time(since)}"
        write_stderr(f"No job held a GPU or waited for one{where}.")
    if flags.output in ("json", "yaml"):
        items = [_values(user, LEDGER_COLUMNS, kinds=hours_by_kind(user.jobs)) for user in users]
        window = {"since": timestamp(since), "until": timestamp(datetime.fromtimestamp(to_s, UTC))}
        write_items(items, (), flags.output, **window, kinds=hours_by_kind(jobs))
    elif users and not _write_lines(users, LEDGER_COLUMNS, flags.output):
        total = GpuTime.total(each.time for each in jobs)
        kinds = ", ".join(f"{kind} {hours:,.2f}" for kind, hours in hours_by_kind(jobs).items())
        write(
            f"\n{plural(len(users), 'user')}, {plural(len(jobs), 'job')}:"
            f" {total.held_gpu_s / 3600:,.2f} GPU-hours ({kinds}), {age(total.waited_s)} waited;"
            f" {share_text(total.observed_share)} of the time since {local_time(since)} was observed."
        )


def _write_lines(
    users: Sequence[UserUsage], columns: Sequence[ListColumn[UserLine, None]], form: str
) -> bool:
    """Print users and their jobs, or as CSV the jobs; return True if nothing may follow."""
    lines = [line for user in users for line in lines_of(user)]
    if form == "csv":
        rows = [values_of(line, None, columns) for line in lines if not line.is_total]
        write_csv([[*rows[0]], *([*row.values()] for row in rows)])
        return True
    write_list(output_columns(columns, ()), lines, None, is_wide=form == "wide")
    return False


def _values(user: UserUsage, columns: Iterable[ListColumn[UserLine, None]], **more: object) -> Values:
    total, *jobs = [values_of(line, None, columns) for line in lines_of(user)]
    return {**total, **more, "jobs": jobs}
