"""Event files and long curves: reading, printing as JSON, drawing."""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, best_of, console_env, seconds, spent
from trainer.tfevents import EventFolder, EventWriter
from tui.runs.picture import PlotCurve, PlotOptions, draw
from tui.runs.series import Series

SCALARS, JSON_SCALARS, SMOKE_SCALARS = 1_000_000, 300_000, 3_000
TAGS = ("train/loss", "train/lr", "train/images_per_s")
# Line of tensorboard-data-server after it has read all files
LOADED = re.compile(r"Finished load cycle \(([\d.]+)(s|ms|µs)\)")
_ACCUMULATED_JSON = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
json.dump({tag: list(map(vars, events.Scalars(tag))) for tag in events.Tags()["scalars"]}, sys.stdout)
"""


def events(is_smoke: bool) -> Iterator[Figure]:
    """Compare with TensorBoard's reader, and with its server in Rust."""
    scalars = SMOKE_SCALARS if is_smoke else SCALARS
    with tempfile.TemporaryDirectory() as name, EventWriter(Path(name)) as writer:
        folder = Path(name)
        _write(writer, scalars)
        reader = EventFolder(folder)
        ours_s = seconds(reader.read_new)
        if (read := sum(len(curve) for curve in reader.curves())) != scalars:
            raise AssertionError(f"read {read} of {scalars} scalars")
        yield Figure(
            f"read {scalars:,} scalars", ours_s, "EventAccumulator", _accumulator_s(folder), ">= 60x"
        )
        yield Figure("  beside", ours_s, "tensorboard-data-server", _data_server_s(folder), ">= 3x")
        writer.write_scalar(TAGS[0], scalars, 1.0)
        writer.flush()
        again_s = seconds(reader.read_new)
        yield Figure("  again after one more", again_s, "reading all of it", ours_s, "O(append)")


def json_command(is_smoke: bool) -> Iterator[Figure]:
    """Compare `curves -o json` with a program that prints what TensorBoard's reader returns."""
    scalars, rounds = (SMOKE_SCALARS, 1) if is_smoke else (JSON_SCALARS, 3)
    with tempfile.TemporaryDirectory() as folder, console_env() as env:
        with EventWriter(Path(folder)) as writer:
            _write(writer, scalars)
        ours = [sys.executable, "-P", "-m", "tui", "curves", folder, "-o", "json"]
        theirs = [sys.executable, "-c", _ACCUMULATED_JSON, folder]
        ours_s = min(spent(ours, env).wall_s for _ in range(rounds))
        their_s = None
        if importlib.util.find_spec("tensorboard"):
            their_s = min(spent(theirs, env).wall_s for _ in range(rounds))
    yield Figure(f"{scalars:,} scalars to JSON, whole command", ours_s, "EventAccumulator", their_s, ">= 10x")


def draw_curve(is_smoke: bool) -> Iterator[Figure]:
    """Compare with plotext on the raw points."""
    points = SMOKE_SCALARS if is_smoke else SCALARS
    values = [math.exp(-step / 200_000) + 0.1 * math.sin(step) for step in range(points)]
    series = Series()
    series.extend(range(points), [float(step) for step in range(points)], values)
    curves = [PlotCurve("run", series)]

    def draw_ours() -> None:
        series.version += 1
        draw("train/loss", curves, 200, 50, PlotOptions())

    ours_s, their_s = best_of(3, draw_ours), _plotext_s(values)
    yield Figure(f"draw {points:,} points at 200x50", ours_s, "plotext", their_s, "<= 20 ms")


def _write(writer: EventWriter, scalars: int) -> None:
    for step in range(scalars // len(TAGS) + 1):
        for tag in TAGS[: scalars - step * len(TAGS)]:
            writer.write_scalar(tag, step, math.exp(-step / 50_000) + 0.1 * math.sin(step), 1.7e9 + step)
    writer.flush()


def _accumulator_s(folder: Path) -> float | None:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return seconds(accumulator.Reload)


def _data_server_s(folder: Path) -> float | None:
    """Return the seconds of the server's first load cycle, as it logs them."""
    if importlib.util.find_spec("tensorboard_data_server") is None:
        return None
    program = importlib.import_module("tensorboard_data_server").server_binary()
    if program is None:  # there is none for this platform
        return None
    words = [program, "--logdir", str(folder), "--reload", "once", "--port", "0", "-v"]
    words += ["--samples-per-plugin", "scalars=all"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if found := LOADED.search(line):
                    return float(found[1]) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[found[2]]
        finally:
            server.kill()
    raise AssertionError("tensorboard-data-server ended before it had read the files")


def _plotext_s(values: list[float]) -> float | None:
    if importlib.util.find_spec("plotext") is None:
        return None
    import plotext

    steps = list(range(len(values)))

    def plot() -> None:
        figure = plotext.figure
        figure.clear()
        figure.plot_size(200, 50)
        figure.draw(figure.signal(steps, values, marker="braille"))
        figure.build()

    return seconds(plot)
