"""`runs`: list past runs, which keep their settings and last values after their jobs are gone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from k8s.text.errors import KubeError
from k8s.text.home import file_problem
from tui.commands.support.listing import ItemList, add_list_flags
from tui.commands.support.output import add_yes, check_can_confirm, is_confirmed, write, write_stderr
from tui.runs.store import RunStore
from tui.settings.options import ConsoleOptions
from tui.tables.column import output_columns
from tui.tables.runs import COLUMNS, run_text
from tui.text.format import Clock, plural

# Of damaged records.
MOST_PROBLEMS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name, the flags of a list, and `--clear`."""
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help="show everything about this run")
    add_list_flags(parser, COLUMNS, can_watch=False)
    parser.add_argument(
        "--clear", action="store_true", help="delete past runs, kept logs, history and notices (asks first)"
    )
    add_yes(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the past runs, the newest first, or everything about one; or delete their records."""
    if flags.clear:  # what is on disk, also if the history is off now
        return _clear(RunStore(options.state_folder), flags, options.state_folder)
    store = RunStore(options.state_folder, options.history)
    listing = ItemList(
        flags, COLUMNS, name_of=lambda each: f"run/{each.name}", labels_of=lambda each: each.labels
    )
    records = [each for each in reversed(store.records()) if each.name]
    write_problems(store.problems, is_empty=not records)
    if flags.name:
        records = [each for each in records if flags.name in (each.name, each.uid)]
        if not records:
            raise KubeError(f"There is no past run {flags.name}.", "", "To list them: gpuconsole runs")
        if listing.is_table:
            write(run_text(records[0]))
            return 0
    clock = Clock.ahead(0)
    chosen = listing.select(records, clock)
    if chosen or listing.is_document:
        listing.write(chosen, clock, output_columns(COLUMNS))
    else:
        none = "No past runs yet. The console records jobs that end or are deleted while it is open."
        listing.write_none("past run", "", none)
    return 0


def write_problems(problems: Sequence[str], *, is_empty: bool = False) -> None:
    """Name the damaged records on stderr; raise `KubeError` if nothing else was found."""
    if problems and is_empty:
        raise KubeError("Could not read the journal.", problems[0])
    for problem in problems[:MOST_PROBLEMS]:
        write_stderr(f"Skipped: {problem}")
    if (more := len(problems) - MOST_PROBLEMS) > 0:
        write_stderr(f"Skipped {more} more records.")


def _clear(store: RunStore, flags: argparse.Namespace, folder: Path) -> int:
    count = len(store.records())
    check_can_confirm(flags, "clear")
    what = f"the records and kept logs of {plural(count, 'past run')}, the history and the notices"
    if not is_confirmed(flags, f"Delete {what} in {folder}?"):
        return 1
    try:
        store.clear()
    except OSError as error:
        raise KubeError("Could not delete the records.", f"{file_problem(error)}.") from error
    write(f"Deleted {what}.")
    return 0
