"""`curves`: plot a job's scalars, or those of the event files in a folder."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.logs import LogLine, Options, read, targets_of
from k8s.snapshot import Job
from k8s.text.home import expand_home
from trainer.tfevents import EventFiles, ScalarCurve
from tui.commands.support.connect import cluster, read_jobs
from tui.commands.support.job_name import NAME_HELP, find_job, titles
from tui.commands.support.output import add_format, write, write_csv, write_stderr
from tui.commands.support.plots import PlotLine, plot
from tui.feeds.curve_feed import LOG_HINT, CurveFeed
from tui.feeds.log_points import LogPoints
from tui.options import ConsoleOptions
from tui.runs.formats import MetricFolder
from tui.text.natural_order import tag_key

_JSON_POINT = """
      {
        "step": %d,
        "wall_time": %s,
        "value": %s
      }"""
# Points of one write.
_PIECE_POINTS = 5_000


class NoCurves(KubeError):
    """No scalars were found."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job or folder argument."""
    parser.add_argument("source", metavar="JOB|FOLDER", help=f"{NAME_HELP}, or a folder with files of a run")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="TEXT", help="only tags that contain this text"
    )
    add_format(parser, ("plot", "json", "csv"))


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the curves."""
    folder = expand_home(flags.source)
    lines, source = _from_folder(folder), str(folder)
    if not lines and flags.source.startswith((".", "/", "~")):
        raise NoCurves(f"There are no event files or other metrics in {folder}.")
    if not lines:
        async with cluster(options) as client:
            job = find_job(await read_jobs(options, client), flags.source)
            lines, source = await _from_job(client, job)
    lines.sort(key=lambda line: tag_key(line.name))
    if flags.tag:
        names = ", ".join(line.name for line in lines)
        lines = [line for line in lines if any(text in line.name for text in flags.tag)]
        if not lines:
            raise NoCurves(f"No tag contains {' or '.join(flags.tag)}.", f"Tags: {names}.")
    _print(lines, source, flags.output, is_ascii=options.is_ascii)
    return 0


def _from_folder(folder: Path) -> list[PlotLine]:
    if not folder.is_dir():
        return []
    events = MetricFolder(folder)
    events.read_new()
    return _lines(events)


async def _from_job(client: Client, job: Job) -> tuple[list[PlotLine], str]:
    """Return the curves of a job's event files, or else of its log, and their source.

    Raises:
        NoCurves: Neither holds any.
    """
    feed = CurveFeed(client, job.ref, lambda: job)
    try:
        await feed.read_once()
        problem = feed.problem
    except KubeError as error:
        problem = error.details or error.what
    if lines := _lines(feed.events):
        return lines, feed.source
    problem = problem or f"There are no scalars in {feed.source}."
    said: list[LogLine] = []
    try:
        targets = targets_of(job)
        async for batch in read(client, targets, Options()):
            said += (item for item in batch if isinstance(item, LogLine))
    except KubeError as error:
        problem = f"{problem}\n{error.details or error.what}"
    found = LogPoints()
    found.add(said)
    if not found.series:
        raise NoCurves(
            f"There are no curves for {titles([job.ref])}.",
            problem,
            LOG_HINT,
        )
    lines = [PlotLine(tag, one.steps, one.wall_times, one.values) for tag, one in found.series.items()]
    return lines, f"the log of {said[0].source.name}"


def _lines(events: EventFiles) -> list[PlotLine]:
    """Return curves named by tag, with the run or file added where a tag has several."""
    for path, problem in events.problems.items():
        write_stderr(f"{path}: {problem}")
    curves = [curve for curve in events.curves() if len(curve)]
    tags = Counter(curve.tag for curve in curves)
    runs = Counter((curve.tag, curve.run) for curve in curves)

    def name(curve: ScalarCurve) -> str:
        if tags[curve.tag] == 1:
            return curve.tag
        if runs[curve.tag, curve.run] == 1:
            return f"{curve.tag} ({curve.run})"
        return f"{curve.tag} ({curve.run}/{curve.writer})"

    return [PlotLine(name(curve), curve.steps, curve.wall_times, curve.values) for curve in curves]


def _print(lines: Sequence[PlotLine], source: str, form: str, *, is_ascii: bool) -> None:
    if form == "json":
        for piece in json_pieces(lines, source):
            sys.stdout.write(piece)
    elif form == "csv":
        points = (
            (line.name, *point)
            for line in lines
            for point in zip(line.steps, line.wall_times, line.values, strict=True)
        )
        write_csv(chain([("tag", "step", "wall_time", "value")], points))
    else:
        width = shutil.get_terminal_size((100, 24)).columns
        write(f"Read from {source}\n")
        write("\n\n".join(plot(line, width, is_ascii=is_ascii) for line in lines))


def json_pieces(lines: Sequence[PlotLine], source: str) -> Iterator[str]:
    """Yield the points as `json.dumps(…, indent=2)` writes them, ten times as fast and piece by piece.

    Values and times that are not finite are null.
    """
    yield '{\n  "tags": {'
    for line_number, line in enumerate(lines):
        yield f"{',' if line_number else ''}\n    {json.dumps(line.name)}: ["
        texts = zip(
            line.steps, map(_json_number, line.wall_times), map(_json_number, line.values), strict=True
        )
        points = map(_JSON_POINT.__mod__, texts)
        comma = ""
        while piece := ",".join(islice(points, _PIECE_POINTS)):
            yield comma + piece
            comma = ","
        yield "\n    ]" if comma else "]"
    yield "\n  }" if lines else "}"
    yield f',\n  "source": {json.dumps(source)}\n}}\n'


def _json_number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "null"
