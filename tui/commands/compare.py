"""`compare`: several runs side by side: the settings that differ, their values, their rates."""

from __future__ import annotations

import argparse
import asyncio
import math
import shutil
import sys
import time
from pathlib import Path

from k8s.client.client import Client
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import KubeError, NotFound
from k8s.text.home import expand_home
from k8s.text.sanitize import sanitize
from tui.commands.runs import write_problems
from tui.commands.support.connect import cluster, read_cluster
from tui.commands.support.job_name import NAME_HELP, Ambiguous, find_job
from tui.commands.support.output import WrongUsage, add_format, write, write_csv, write_object, write_stderr
from tui.runs.compare import BadComparison, CompareRow, Comparison, fit
from tui.runs.formats import MetricFolder, no_metrics
from tui.runs.record import RunRecord, with_past, with_values
from tui.runs.run_records import NodesAndPods, read_run
from tui.runs.store import RunStore
from tui.settings.options import ConsoleOptions
from tui.text.cells import cell_len, pad

FORMATS = ("table", "json", "csv", "md")
# Concurrent reads of jobs.
MOST_AT_ONCE = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and what to show of them."""
    add = parser.add_argument
    add(
        "runs",
        metavar="JOB|RUN|FOLDER",
        nargs="+",
        help=f"{NAME_HELP}, of a job or a past run; or a folder with files of a run",
    )
    add(
        "--tag", action="append", default=[], metavar="TEXT", help="tags that contain this text, not the loss"
    )
    add("--to-loss", type=_loss, metavar="X", help="also show the time until the loss was X or lower")
    add("--sort-by", default="", metavar="KEY", help="order by a value, setting or name; -KEY reverses")
    add(
        "--group-by",
        default="",
        metavar="ARG",
        help="show means of the runs with the same argument ARG, or the same label: label=KEY",
    )
    add_format(parser, FORMATS)


def _loss(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the comparison."""
    names = list(dict.fromkeys(flags.runs))
    if len(names) < 2:
        raise WrongUsage("Name two or more jobs, past runs or folders to compare.")
    records = await _find(options, names)
    for record in records:
        if record.problem:
            write_stderr(f"{record.name}: {record.problem}")
    try:
        comparison = Comparison(
            records,
            now_s=time.time(),
            tags=flags.tag,
            to_loss=flags.to_loss,
            group_by=flags.group_by,
            sort_by=flags.sort_by,
        )
    except BadComparison as error:
        raise WrongUsage(str(error)) from None
    _print(comparison, flags.output, is_ascii=options.is_ascii)
    return 0


async def _find(options: ConsoleOptions, names: list[str]) -> list[RunRecord]:
    """Return the runs in the order of their names; folders, then jobs, then past runs.

    Raises:
        KubeError: One of them does not exist, or the cluster is needed and cannot be read.
    """
    store = RunStore(options.state_folder, options.history)
    past = {each.uid: each for each in store.records()}
    past |= {each.name: each for each in store.records() if each.name}
    found: dict[str, RunRecord] = {}
    for name in names:
        if name.startswith((".", "/", "~")) or (expand_home(name).is_dir() and name not in past):
            found[name] = await asyncio.to_thread(_of_folder, name, expand_home(name))
    left = [name for name in names if name not in found]
    write_problems(store.problems)
    if left:
        try:
            async with cluster(options) as client:
                found |= await _of_jobs(options, client, left, past, store)
        except (NotFound, Ambiguous, WrongUsage):
            raise
        except KubeError as error:
            if any(name not in past for name in left):
                raise
            write_stderr(f"Only past runs are compared: {error.what}")
            found |= {name: past[name] for name in left}
    return [found[name] for name in names]


async def _of_jobs(
    options: ConsoleOptions, client: Client, names: list[str], past: dict[str, RunRecord], store: RunStore
) -> dict[str, RunRecord]:
    snapshot, reasons = await read_cluster(options, client)
    place, slots = NodesAndPods(snapshot.nodes, reasons.mirror.pods), asyncio.Semaphore(MOST_AT_ONCE)

    async def read(name: str) -> RunRecord:
        record = _past(snapshot, name, past)
        if record is None:
            async with slots:
                job = find_job(snapshot, name)
                has_ended = job.status.is_final
                record = await read_run(client, job, place, journal=store.journal if has_ended else None)
            record = with_past(record, past.get(record.uid))
            if has_ended and not record.problem and record.uid not in store:
                store.add(record)
        return record

    return dict(zip(names, await asyncio.gather(*map(read, names)), strict=True))


def _past(snapshot: ClusterSnapshot, name: str, past: dict[str, RunRecord]) -> RunRecord | None:
    try:
        find_job(snapshot, name)
    except NotFound as error:
        if name in past:
            return past[name]
        why = "\n".join(filter(None, (error.why, "There is no past run or folder of this name either.")))
        raise NotFound(error.what, why, "To list past runs: gpuconsole runs") from None
    return None


def _of_folder(name: str, folder: Path) -> RunRecord:
    """Return the run in a folder.

    Raises:
        KubeError: There are no files of a run.
    """
    files = MetricFolder(folder)
    if folder.is_dir():
        files.read_new()
    curves = files.curves()
    for path, problem in files.problems.items():
        write_stderr(f"{path}: {problem}")
    if not any(map(len, curves)):
        raise KubeError(no_metrics(folder))
    times = [each for curve in curves if len(curve) for each in (curve.wall_times[0], curve.wall_times[-1])]
    record = RunRecord(
        str(folder), name.rstrip("/") or name, started_s=min(times), ended_s=max(times), source=str(folder)
    )
    return with_values(record, curves, files.texts())


def _print(comparison: Comparison, form: str, *, is_ascii: bool) -> None:
    fields = comparison.fields()
    if form == "json":
        write_object(comparison.values(), form)
    elif form == "csv":
        rows_of_csv = (_csv_row(comparison, row) for row in comparison.rows)
        write_csv([[each.key for each in fields], *rows_of_csv])
    elif form == "md":
        rows = [comparison.texts(row) for row in comparison.rows]
        write(f"| {' | '.join(_escaped(each.title) for each in fields)} |")
        write(f"|{'|'.join('---:' if each.is_number else '---' for each in fields)}|")
        for row in rows:
            write(f"| {' | '.join(_escaped(row[each.key]) for each in fields)} |")
    else:
        _print_table(comparison, is_ascii=is_ascii)
    for sentence in comparison.notes:
        write_stderr(sentence)
    if not comparison.differing and not comparison.group_by and form in ("table", "md"):
        write_stderr("No setting differs.")


def _csv_row(comparison: Comparison, row: CompareRow) -> list[object]:
    figures = {key: figure.value for key, figure in row.figures.items()}
    values: dict[str, object] = {**row.settings, **figures, "name": row.name, "n": len(row.runs)}
    return [values.get(each.key) for each in comparison.fields()]


def _escaped(text: str) -> str:
    return sanitize(text).replace("|", "\\|")


def _print_table(comparison: Comparison, *, is_ascii: bool) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    fields, rows, left_out = fit(comparison, width, is_ascii=is_ascii)
    titles = [sanitize(each.title) for each in fields]
    columns = list(zip(titles, *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    for line in (titles, *rows):
        cells = (
            pad(cell, cells, "right" if field.is_number else "left")
            for cell, cells, field in zip(line, widths, fields, strict=True)
        )
        write("  ".join(cells).rstrip())
    if left_out:
        write_stderr(f"No room for: {', '.join(map(sanitize, left_out))}. -o md shows everything.")
