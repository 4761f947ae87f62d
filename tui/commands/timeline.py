"""`timeline`: list the events of the user's jobs, from the journal."""

from __future__ import annotations

import argparse
import time

from msgspec.structs import replace

from k8s.kinds import kind_of
from k8s.text.errors import NotFound
from tui.commands.runs import write_problems
from tui.commands.support.connect import recorded_place, with_cluster_flags
from tui.commands.support.job_name import NAME_HELP, split_name
from tui.commands.support.output import add_format, write_items, write_stderr, write_table
from tui.commands.support.parser import seconds
from tui.runs.journal.database import Journal
from tui.runs.journal.history import Entry, default_since_s, read_timeline
from tui.settings.options import ConsoleOptions
from tui.tables.column import output_columns, values_of
from tui.tables.timeline import COLUMNS, gap_text, iso, minute, row_cells
from tui.text.format import Clock
from tui.text.kind_words import matches_kind

# The journal forgets earlier.
MAX_SINCE_S = 366 * 86_400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job, the start, and whose jobs."""
    add = parser.add_argument
    add("job", metavar="JOB", nargs="?", default="", help=NAME_HELP)
    words = "start this long ago, e.g. 12h; default 1d, or the end of the last console if that is earlier"
    add("--since", type=seconds, metavar="TIME", help=words)
    add("--all-users", action="store_true", help="include the jobs of others")
    add_format(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the events by job, the newest first, and the unobserved times."""
    context, clock, now_s = recorded_place(options)[0], Clock.ahead(0), time.time()
    journal = Journal(options.state_folder, options.history)
    kind, name = split_name(flags.job) if flags.job else ("", "")
    is_for_all = flags.all_users or bool(name)
    is_default, ago_s = flags.since is None, min(flags.since or 0, MAX_SINCE_S)
    since_s = default_since_s(journal, context, now_s) if is_default else now_s - ago_s
    namespace = "" if options.is_all_namespaces else options.namespace
    span = context, since_s, now_s
    found = read_timeline(journal, *span, namespace=namespace, is_for_all=is_for_all, name=name)
    if kind:
        entries = [each for each in found.entries if matches_kind(kind_of(each.job), kind)]
        found = replace(found, entries=entries)
    write_problems(journal.problems, is_empty=not found.entries)
    if name and not journal.rows("SELECT 1 FROM jobs WHERE context = ? AND name = ?", context, name):
        hint = with_cluster_flags(options, "To list what is known: gpuconsole timeline --all-users")
        raise NotFound(f"Nothing is known of a job {name}.", "No console or recorder has seen it.", hint)
    if flags.output in ("json", "yaml"):
        items = [values_of(each, clock, COLUMNS) for each in found.grouped() if isinstance(each, Entry)]
        gaps = [{"from": iso(a), "to": iso(b)} for a, b in found.gaps]
        ends = {"since": iso(since_s), "until": iso(now_s)}
        write_items(items, (), flags.output, gaps=gaps, **ends)
    elif found.entries:
        columns = output_columns(COLUMNS, (), without=() if is_for_all else ("user",))
        rows = [[cell.text for cell in row_cells(each, clock, columns)] for each in found.grouped()]
        write_table([column.output for column in columns], rows, is_wide=flags.output == "wide")
    else:
        whose = flags.job or ("any job" if is_for_all else "your jobs")
        gaps_text = "".join(f"\n{gap_text(gap, clock)}" for gap in found.gaps)
        write_stderr(f"No known events of {whose} since {minute(since_s, clock)}.{gaps_text}")
    return 0
