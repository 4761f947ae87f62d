"""`curves`: plot the scalars of jobs, or of the files in folders; several runs share a chart."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.snapshot import ClusterSnapshot, Job
from k8s.text.errors import KubeError, NotFound, Unreachable, without_frames
from k8s.text.home import expand_home
from k8s.text.sanitize import sanitize, sanitize_lines
from trainer.tfevents import EventFiles, RunText, ScalarCurve
from tui.commands.support.connect import check_may_change, cluster, read_jobs, with_cluster_flags
from tui.commands.support.job_name import NAME_HELP, find_job, titles
from tui.commands.support.output import (
    WrongUsage,
    add_format,
    add_yes,
    check_can_confirm,
    is_confirmed,
    write,
    write_csv,
    write_object,
    write_stderr,
)
from tui.runs.formats import MetricFolder, no_metrics
from tui.runs.overlay import MOST_RUNS, Overlay, labels_of
from tui.runs.picture import X_AXES, Piece, PlotCurve, PlotOptions, draw
from tui.runs.series import few_points
from tui.runs.ticks import integer_ticks, number_ticks
from tui.settings.options import ConsoleOptions
from tui.terminal.tty_state import colours
from tui.text.format import newest_point, number, plural
from tui.text.natural_order import tag_key

if TYPE_CHECKING:
    from tui.runs.curve_feed import CurveFeed
    from tui.runs.store import RunStore

# Points of one write.
_PIECE_POINTS = 5_000


class _Read(NamedTuple):
    """The curves of one source, the text that names it, and what the run wrote as text."""

    curves: list[ScalarCurve]
    source: str
    texts: list[RunText]


class NoCurves(KubeError):
    """No scalars were found."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the jobs and folders, tags, axis and format."""
    parser.add_argument(
        "sources",
        metavar="JOB|FOLDER",
        nargs="+",
        help=f"{NAME_HELP}, or a folder with files of a run; up to {MOST_RUNS} share a chart",
    )
    parser.add_argument(
        "--tag", action="append", default=[], metavar="TEXT", help="only tags that contain this text"
    )
    parser.add_argument("--x", dest="x_axis", choices=X_AXES, help="x axis of the chart (default step)")
    parser.add_argument(
        "--text", action="store_true", help="print the texts and the arguments that the runs wrote"
    )
    parser.add_argument(
        "--folder",
        default="",
        metavar="PATH",
        help="folder in the pods of the job (default: the declared one)",
    )
    parser.add_argument(
        "--reader-pod",
        action="store_true",
        help="if no other source has curves, create a pod that reads the job's volumes, and delete it",
    )
    parser.add_argument(
        "--image", default="", help="image of that pod, with sh and find (default: that of the job)"
    )
    add_yes(parser)
    add_format(parser, ("plot", "json", "csv"))


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the curves; 1 if a source has none."""
    words = list(dict.fromkeys(flags.sources))
    if len(words) > MOST_RUNS:
        raise WrongUsage(f"{len(words)} sources; one chart shows up to {MOST_RUNS}.")
    if flags.folder and not flags.folder.startswith("/"):
        raise WrongUsage(f"--folder {flags.folder}: give the path in the pod, from / on.")
    if flags.reader_pod:
        check_may_change(options, "create a pod")
        check_can_confirm(flags, "create the pod")
    async with AsyncExitStack() as stack:
        found, problems = await _read_all(options, words, flags, stack)
    for source, problem in problems if found else problems[1:]:
        write_stderr(with_cluster_flags(options, f"Not shown: {source}. {problem}"))
    if not found:
        raise problems[0][1]
    if flags.text:
        _print_texts(found, flags.output)
    elif len(words) == 1 and (flags.x_axis is None or flags.output != "plot"):
        (only,) = found.values()
        lines = _chosen(_lines(only.curves), flags.tag)
        _print(lines, only, flags.output, is_ascii=options.is_ascii)
    else:
        _print_runs(found, options, flags)
    return 1 if problems else 0


async def _read_all(
    options: ConsoleOptions, words: Sequence[str], flags: argparse.Namespace, stack: AsyncExitStack
) -> tuple[dict[str, _Read], list[tuple[str, KubeError | WrongUsage]]]:
    found: dict[str, _Read] = {}
    problems: list[tuple[str, KubeError | WrongUsage]] = []
    client: Client | None = None
    cluster_says: ClusterSnapshot | KubeError | None = None
    for source in words:
        folder = expand_home(source)
        try:
            if (in_folder := _from_folder(folder)) and (in_folder.texts if flags.text else in_folder.curves):
                found[source] = in_folder
                continue
            if source.startswith((".", "/", "~")):
                raise NoCurves(no_metrics(folder))
            if cluster_says is None:
                try:
                    client = await stack.enter_async_context(cluster(options))
                    cluster_says = await read_jobs(options, client)
                except KubeError as error:
                    cluster_says = without_frames(error)
            read = await _from_run(options, client, cluster_says, source, flags)
            if isinstance(read, KubeError):
                problems.append((source, read))
            else:
                found[source] = read
        except (KubeError, WrongUsage) as error:
            problems.append((source, without_frames(error)))
    return found, problems


def _chosen(lines: list[PlotLine], texts: Sequence[str]) -> list[PlotLine]:
    """Return the lines whose name contains one of the texts, or all without texts, sorted by tag.

    Raises:
        NoCurves: No line matches.
    """
    lines.sort(key=lambda line: tag_key(line.name))
    if not texts:
        return lines
    names = ", ".join(dict.fromkeys(line.name for line in lines))
    if not (chosen := [line for line in lines if any(text in line.name for text in texts)]):
        raise NoCurves(f"No tag contains {' or '.join(texts)}.", f"Tags: {names}.")
    return chosen


def _print_runs(found: Mapping[str, _Read], options: ConsoleOptions, flags: argparse.Namespace) -> None:
    is_plot = flags.output == "plot"
    names = list(found)
    if is_plot:
        short = [Path(name).name or name for name in names]
        names = labels_of(short if len(set(short)) == len(short) else names)
    overlay = Overlay(names)
    for place, each in enumerate(found.values()):
        overlay.update(place, each.curves)
    lines = [
        PlotLine(curve.tag, curve.steps, curve.wall_times, curve.values, label)
        for _, label, curve in overlay.named()
    ]
    lines = _chosen(lines, flags.tag)
    sources = {name: each.source for name, each in found.items()}
    if not is_plot:
        _print_points(lines, sources, flags.output)
        return
    width = shutil.get_terminal_size((100, 24)).columns
    view = PlotOptions(x_axis=flags.x_axis or "step", ascii_only=options.is_ascii)
    has_colours = sys.stdout.isatty() and not options.is_mono and colours() != "none"
    for name, each in found.items():
        source = _source_text(each)
        write(f"{name}: read from {source}" if name != each.source else f"Read from {source}")
    by_tag = overlay.by_tag()
    for tag, group in groupby(lines, key=lambda line: line.name):
        chart = plot_overlay(tag, by_tag[tag], list(group), width, view, has_colours=has_colours)
        # Every text in it is sanitised; colours have to pass.
        sys.stdout.write(f"\n{chart}\n")


def _print_texts(found: Mapping[str, _Read], form: str) -> None:
    texts = [(name, text) for name, each in found.items() for text in each.texts]
    if form == "json":
        by_run: dict[str, dict[str, dict[str, str]]] = {name: {} for name in found}
        for name, text in texts:
            by_run[name].setdefault(text.run, {})[text.name] = text.text
        write_object(by_run, "json")
    elif form == "csv":
        write_csv(chain([("source", "run", "name", "text")], ((name, *text) for name, text in texts)))
    else:
        for (name, run), group in groupby(texts, key=lambda each: (each[0], each[1].run)):
            write(f"{sanitize(name)}   {sanitize(run)}")
            for _, text in group:
                lines = sanitize_lines(text.text).replace("\n", "\n      ")
                write(f"    {sanitize(text.name)}: {lines}")


def _source_text(run: _Read) -> str:
    newest_s = max((curve.wall_times[-1] for curve in run.curves if len(curve)), default=0.0)
    return f"{run.source}{newest_point(newest_s, time.time(), old_s=0.0)}"


def _from_folder(folder: Path) -> _Read | None:
    if not folder.is_dir():
        return None
    events = MetricFolder(folder)
    events.read_new()
    return _Read(_curves(events), str(folder), events.texts())


async def _from_run(
    options: ConsoleOptions,
    client: Client | None,
    snapshot: ClusterSnapshot | KubeError,
    source: str,
    flags: argparse.Namespace,
) -> _Read | KubeError:
    """Return the curves of a job, or of a run in the journal; the cluster's error if there is neither."""
    if client is None or isinstance(snapshot, KubeError):
        error = snapshot
    else:
        try:
            job = find_job(snapshot, source)
        except NotFound as missing:
            error = without_frames(missing)
        else:
            return await _from_job(client, job, flags, options)
    assert isinstance(error, KubeError)
    if client is not None and isinstance(error, NotFound | Unreachable):
        from tui.commands.support.past_run import find_past  # slow to import
        from tui.runs.journal.kept_facts import SOURCE

        if (past := await find_past(options, client, source, "", error, "curves")) is not None:
            return _Read(list(past.curves), SOURCE, [])
    return error


async def _from_job(client: Client, job: Job, flags: argparse.Namespace, options: ConsoleOptions) -> _Read:
    """Return the curves of a job from the first source that has some, and keep those of one that has ended.

    Raises:
        NoCurves: There are none.
    """
    # Slow to import, and a folder needs none of it.
    from k8s.logs import LogLine, Options, find_ranks, targets_of
    from k8s.logs.read import read
    from tui.runs.curve_feed import LOG_HINT, CurveFeed
    from tui.runs.journal.kept_facts import KeptCurves
    from tui.runs.log_points import LogPoints
    from tui.runs.store import RunStore

    store = RunStore(options.state_folder, options.history)
    kept = KeptCurves(store.journal, job.uid)
    feed = CurveFeed(client, job.ref, lambda: job, folder=flags.folder, searches=True, kept=kept)
    problem = await _problem_of(feed)
    curves = _curves(feed.events)
    if flags.reader_pod and not curves:
        problem = await _read_volume(client, feed, flags)
        curves = _curves(feed.events)
    if curves or (flags.text and feed.events.texts()):
        return await _kept(client, job, store, _Read(curves, feed.source, feed.events.texts()))
    problem = problem or f"There are no scalars in {feed.source}."
    said: list[LogLine] = []
    try:
        targets = targets_of(await find_ranks(client, job))
        async for batch in read(client, targets, Options()):
            said += (item for item in batch if isinstance(item, LogLine))
    except KubeError as error:
        problem = f"{problem}\n{error.details or error.what}"
    found = LogPoints()
    found.add(said)
    if not found.series and (curves := feed.curves()):
        return _Read(curves, feed.source, [])
    if not found.series:
        raise NoCurves(
            f"There are no curves for {titles([job.ref])}.",
            problem,
            f"{LOG_HINT}\n--reader-pod reads the volume of a finished job, --folder another folder there.",
        )
    place = said[0].source.name
    curves = [
        ScalarCurve(".", tag, place, one.steps, one.wall_times, one.values, tuple(one.restarts))
        for tag, one in found.series.items()
    ]
    return await _kept(client, job, store, _Read(curves, f"the log of {place}", []), is_log=True)


async def _kept(client: Client, job: Job, store: RunStore, run: _Read, *, is_log: bool = False) -> _Read:
    # Keeps the curves of a job that has ended, and its record, by which they are found.
    if job.status.is_final:
        from tui.runs.journal.kept_facts import keep_curves
        from tui.runs.record import with_values
        from tui.runs.run_records import describe_run

        keep_curves(store.journal, job.uid, run.curves, is_log=is_log)
        if job.uid not in store:
            record = with_values(await describe_run(client, job), run.curves, run.texts)
            store.add(replace(record, source=run.source))
    return run


async def _problem_of(feed: CurveFeed) -> str:
    # Reads once, and returns the reason if that failed.
    try:
        await feed.read_once()
    except KubeError as error:
        return error.details or error.what
    return feed.problem


async def _read_volume(client: Client, feed: CurveFeed, flags: argparse.Namespace) -> str:
    """Read the volumes of a job through a pod; return the reason if that failed.

    Raises:
        NoCurves: The user does not want the pod.
        KubeError: The pod cannot be created, or does not start.
    """
    from k8s.jobs.reader_pod import running_reader
    from k8s.text.yaml_writer import to_yaml

    manifest = await feed.reader_manifest(flags.image)
    if not flags.yes:
        write_stderr(to_yaml(manifest))
    if not is_confirmed(flags, "Create this pod to read the volumes, and delete it afterwards?"):
        raise NoCurves("No pod was created.")
    async with running_reader(client, manifest) as feed.reader:
        write_stderr(f"-- reading through pod {feed.reader}, which is deleted afterwards")
        return await _problem_of(feed)


def _curves(events: EventFiles) -> list[ScalarCurve]:
    for path, problem in events.problems.items():
        write_stderr(f"{path}: {problem}")
    return [curve for curve in events.curves() if len(curve)]


def _lines(curves: Sequence[ScalarCurve]) -> list[PlotLine]:
    tags = Counter(curve.tag for curve in curves)
    runs = Counter((curve.tag, curve.run) for curve in curves)

    def name(curve: ScalarCurve) -> str:
        if tags[curve.tag] == 1:
            return curve.tag
        if runs[curve.tag, curve.run] == 1:
            return f"{curve.tag} ({curve.run})"
        return f"{curve.tag} ({curve.run}/{curve.writer})"

    return [PlotLine(name(curve), curve.steps, curve.wall_times, curve.values) for curve in curves]


def _print(lines: Sequence[PlotLine], run: _Read, form: str, *, is_ascii: bool) -> None:
    if form != "plot":
        _print_points(lines, run.source, form)
    else:
        width = shutil.get_terminal_size((100, 24)).columns
        write(f"Read from {_source_text(run)}\n")
        write("\n\n".join(plot(line, width, is_ascii=is_ascii) for line in lines))


def _print_points(lines: Sequence[PlotLine], source: str | Mapping[str, str], form: str) -> None:
    if form == "json":
        for piece in json_pieces(lines, source):
            sys.stdout.write(piece)
        return
    first = 1 if isinstance(source, str) else 0  # of one source, points name no run
    points = (
        (line.run, line.name, *point)[first:]
        for line in lines
        for point in zip(line.steps, line.wall_times, line.values, strict=True)
    )
    write_csv(chain([("run", "tag", "step", "wall_time", "value")[first:]], points))


def json_pieces(lines: Sequence[PlotLine], source: str | Mapping[str, str]) -> Iterator[str]:
    """Yield the points as `json.dumps(…, indent=2)` writes them, ten times as fast and piece by piece.

    Values and times that are not finite are null. Curves of one name follow each other. With the source
    of each run, each point has its run.
    """
    has_runs = not isinstance(source, str)
    yield '{\n  "tags": {'
    for place, (name, group) in enumerate(groupby(lines, key=lambda line: line.name)):
        yield f"{',' if place else ''}\n    {json.dumps(name)}: ["
        comma = ""
        for line in group:
            run = f'"run": {json.dumps(line.run)},\n        ' if has_runs else ""
            for at in range(0, len(line.steps), _PIECE_POINTS):
                points = slice(at, at + _PIECE_POINTS)
                steps, times = _json_numbers(line.steps[points]), _json_numbers(line.wall_times[points])
                values = _json_numbers(line.values[points])
                yield comma + ",".join([
                    f'\n      {{\n        {run}"step": {step},\n        "wall_time": {when},\n'
                    f'        "value": {value}\n      }}'
                    for step, when, value in zip(steps, times, values, strict=True)
                ])  # fmt: skip
                comma = ","
        yield "\n    ]" if comma else "]"
    yield "\n  }" if lines else "}"
    more = "source" if isinstance(source, str) else "sources"
    text = json.dumps(source, indent=2).replace("\n", "\n  ")
    yield f',\n  "{more}": {text}\n}}\n'


def _json_numbers(numbers: array[int] | array[float]) -> Sequence[str]:
    text = msgspec.json.encode(numbers.tolist()).decode()
    # Very small and large numbers have an exponent in Python, written in its own way.
    if numbers.typecode == "d" and ("e" in text or "0.0000" in text):
        return [repr(each) if math.isfinite(each) else "null" for each in numbers]
    return text[1:-1].split(",")


HEIGHT = 16
WIDEST = 160
_LARGEST, _SMALLEST = 1e300, 1e-300
# SGR codes of paints.
_COLOURS = {
    "series-1": 36,
    "series-2": 33,
    "series-3": 32,
    "series-4": 35,
    "series-5": 34,
    "series-6": 31,
    "alarm": 31,
    "title": 1,
}
_ASCII = str.maketrans("┌┐└┘─│┤├┬┴┼", "++++-|+++++")


@dataclass(frozen=True, slots=True, eq=False)
class PlotLine:
    """One curve; the three arrays have one length, steps increase."""

    name: str
    """The tag, with the run or file where several curves share it."""
    steps: array[int]
    wall_times: array[float]
    values: array[float]
    run: str = ""


def plot(line: PlotLine, width: int, *, is_ascii: bool = False) -> str:
    """Return a plot of one curve without colours, and a summary line."""
    parts = [sanitize(line.name), _drawn(line, width, is_ascii), _summary(line)]
    return "\n".join(part for part in parts if part)


def plot_overlay(
    tag: str,
    curves: Sequence[PlotCurve],
    lines: Sequence[PlotLine],
    width: int,
    options: PlotOptions,
    *,
    has_colours: bool,
) -> str:
    """Return one chart of the curves of several runs, and a summary line for each."""
    clean = [replace(curve, label=sanitize(curve.label)) for curve in curves]
    width = max(30, min(width, WIDEST))
    picture = draw(sanitize(tag), clean, width, HEIGHT + 2 + len(curves) // 2, options)
    rows = ("".join(_coloured(piece) if has_colours else piece[0] for piece in row) for row in picture.rows)
    summaries = (f"{sanitize(line.run)}: {_summary(line)}" for line in lines)
    return "\n".join([*(row.rstrip() for row in rows), *summaries])


def _coloured(piece: Piece) -> str:
    text, paint = piece
    code = _COLOURS.get(paint)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text


class _Axis:
    """Maps values to 0..1: plotext's compiled part crashes on extreme numbers."""

    def __init__(self, low: float, high: float) -> None:
        if low == high:  # what has no extent, no axis can show
            low, high = low - abs(low) / 10 - 1e-9, high + abs(high) / 10 + 1e-9
        self.low = max(low, -_LARGEST)
        self.high = min(high, _LARGEST)

    def at(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        share = (value / 2 - self.low / 2) / max(self.high / 2 - self.low / 2, _SMALLEST)
        return min(1.0, max(0.0, share))


def _drawn(line: PlotLine, width: int, is_ascii: bool) -> str:
    import plotext  # slow to import, and only for a plot

    width = max(30, min(width, WIDEST))
    xs, ys = _thinned(line, 2 * width)
    if len(ys) < 2 or xs[0] == xs[-1]:
        return ""
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, HEIGHT)
    horizontal, vertical = _Axis(xs[0], xs[-1]), _Axis(min(ys), max(ys))
    marker = "*" if is_ascii else "braille"
    signal = figure.signal([horizontal.at(x) for x in xs], [vertical.at(y) for y in ys], marker=marker)
    figure.draw(signal.lines())
    for name, axis, ticks in (
        ("x", horizontal, integer_ticks(horizontal.low, horizontal.high, width // 12)),
        ("y", vertical, number_ticks(vertical.low, vertical.high, HEIGHT // 3)),
    ):
        ruler = figure.ruler(name)
        ruler.lim(0.0, 1.0)
        ruler.ticks([axis.at(tick.value) for tick in ticks], [tick.text.removesuffix(".0") for tick in ticks])
    text: str = plotext.uncolorize(figure.build().string())
    text = "\n".join(row.rstrip() for row in text.rstrip("\n").split("\n"))
    return text.translate(_ASCII) if is_ascii else text


def _thinned(line: PlotLine, columns: int) -> tuple[list[float], list[float]]:
    if len(line.steps) < 2:
        return [], []
    chosen = few_points(line.steps, line.values, columns)
    finite = [at for at in chosen if math.isfinite(line.values[at])]
    return [float(line.steps[at]) for at in finite], [line.values[at] for at in finite]


def _summary(line: PlotLine) -> str:
    finite = [
        (value, step) for value, step in zip(line.values, line.steps, strict=True) if math.isfinite(value)
    ]
    words = [f"last {number(line.values[-1])} at step {line.steps[-1]}"] if line.values else []
    if finite:
        (low, low_step), (high, high_step) = min(finite), max(finite)
        words += [f"lowest {number(low)} at {low_step}", f"highest {number(high)} at {high_step}"]
    if broken := len(line.values) - len(finite):
        words.append(f"{broken} not finite")
    return f"{', '.join(words)}; {plural(len(line.values), 'point')}"
