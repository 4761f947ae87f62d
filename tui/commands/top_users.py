"""`top users`: show the GPUs each user's jobs hold, request and leave idle."""

from __future__ import annotations

import argparse
from collections import Counter

from k8s.client.client import Client
from tui.commands.support.connect import read_cluster
from tui.commands.support.output import (
    add_format,
    write,
    write_items,
    write_list,
    write_missing,
    write_stderr,
)
from tui.session.telemetry_feed import open_telemetry
from tui.settings.options import ConsoleOptions
from tui.tables.column import output_columns, values_of
from tui.tables.users import COLUMNS, held_nodes, lines_of, message_to_owner, usage_by_user
from tui.text.format import plural
from tui.text.gpu_words import missing_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `-o`."""
    add_format(parser)


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
        items = []
        for user in users:
            total, *jobs = [values_of(line, None, COLUMNS) for line in lines_of(user)]
            items.append({**total, "message": message_to_owner(user.total, user.jobs), "jobs": jobs})
        sources = sorted({str(gpu.source) for gpu in telemetry.gpus})
        write_items(items, snapshot.missing_jobs, flags.output, sources=sources, notices=notices)
        return
    for line in notices:
        write_stderr(line)
    if not users:
        write_stderr("No job holds a GPU or waits for one.")
        return
    lines = [line for user in users for line in lines_of(user)]
    write_list(output_columns(COLUMNS, ()), lines, None, is_wide=flags.output == "wide")
    for number, user in enumerate(user for user in users if user.total.gpus_idle):
        write(f"{'' if number else chr(10)}{message_to_owner(user.total, user.jobs)}")
