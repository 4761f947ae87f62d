"""Runs in the files of any framework: event files and what is read like them.

CSV of Lightning, Ultralytics and Stable-Baselines3; `trainer_state.json` of Hugging Face; JSON lines of
MMEngine, detectron2, LLaMA-Factory, DINO and StyleGAN; offline runs of W&B. Where the files of a folder
hold a tag twice, the points of event files count.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase, translate
from pathlib import Path, PurePosixPath

from trainer.tfevents import EventFiles, EventFolder, EventStream, NewPoints, RunText, ScalarCurve
from tui.runs.formats.records import CsvLines, JsonLines, LineStream, RecordStream, TrainerState
from tui.runs.formats.wandb import WandbFile

# Files of one folder tree that are read beside event files.
MOST_FILES = 512
_FORMATS: Mapping[str, type[RecordStream]] = {
    "run-*.wandb": WandbFile,
    "trainer_state.json": TrainerState,
    **dict.fromkeys(("metrics.csv", "results.csv", "progress.csv", "history.csv", "log.csv"), CsvLines),
    # MMEngine, mmcv, detectron2 and DINO.
    **dict.fromkeys(("scalars.json", "*.log.json", "metrics.json", "log.txt"), JsonLines),
    **dict.fromkeys(("*metric*.jsonl", "*log*.jsonl", "*stat*.jsonl", "*hist*.jsonl"), JsonLines),
    **dict.fromkeys(("*scalar*.jsonl", "*progress*.jsonl"), JsonLines),
}
# A folder may hold a hundred thousand files.
_ANY_FORMAT = re.compile("|".join(map(translate, _FORMATS)))
# Names of all files that are read, as globs.
NAMES = ("*tfevents*", *_FORMATS)
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,18})")


def format_of(path: str) -> type[RecordStream] | None:
    """Return the reader of a file that is not an event file; None if it is not read."""
    name = path.rpartition("/")[2]
    if not _ANY_FORMAT.match(name):
        return None
    return next(reader for glob, reader in _FORMATS.items() if fnmatchcase(name, glob))


def no_metrics(folder: Path) -> str:
    """Return the error for a folder of this machine without files that are read."""
    is_mlflow = (
        (folder / "mlruns").is_dir() or any(folder.glob("meta.yaml")) or any(folder.glob("*/meta.yaml"))
    )
    words = " It is a folder of MLflow, which is not read: write event files too." if is_mlflow else ""
    return f"There are no event files or other metrics in {folder}.{words}"


class MetricFiles(EventFiles):
    """Joins event files and files of other formats, fed from any source."""

    def select(self, paths: Iterable[str]) -> list[str]:
        """Return the files to read; of the states of one training, the newest."""
        paths = list(paths)
        others = [path for path in paths if format_of(path)]
        newest: dict[str, int] = {}
        for path in others:
            run, checkpoint = _state(path)
            newest[run] = max(newest.get(run, -1), checkpoint)
        chosen = [path for path in others if _state(path)[1] in (-1, newest[_state(path)[0]])]
        return super().select(paths) + sorted(chosen)[:MOST_FILES]

    def new_stream(self, path: str) -> EventStream:
        """Return the reader of a file that is seen for the first time."""
        return (format_of(path) or EventStream)()

    def feed(self, path: str, chunk: bytes) -> list[NewPoints]:
        """Take the next bytes of the file at `path`; forget the file if it was rewritten."""
        stream = self._streams.get(path)
        if isinstance(stream, LineStream) and not stream.continues(chunk):
            self.forget(path)
            return []
        return super().feed(path, chunk)

    def put(self, run: str, name: str, stream: RecordStream) -> None:
        """Add or replace points that come from no file, such as those of a TensorBoard."""
        self._streams[f"{run}/{name}"] = stream

    def texts(self) -> list[RunText]:
        """Return the texts and arguments of all runs, sorted."""
        return sorted({text._replace(run=_run_of(f"{text.run}/x")) for text in super().texts()})

    def curves(self) -> list[ScalarCurve]:
        """Return the curves of all runs, sorted by run, tag and file."""
        events = super().curves()
        others = [
            ScalarCurve(run, tag, writer, series.steps, series.wall_times, series.values, (*series.restarts,))
            for (run, writer), stream in self._others()
            for tag, series in stream.series.items()
        ]
        if events and others:
            others = [left for curve in others if len(left := _without(curve, events))]
        return sorted([*events, *others], key=lambda curve: (curve.run, curve.tag, curve.writer))

    def _others(self) -> Iterable[tuple[tuple[str, str], RecordStream]]:
        states: dict[str, tuple[int, str]] = {}
        found = []
        for path, stream in self._streams.items():
            if isinstance(stream, RecordStream):
                found.append((path, stream))
                if isinstance(stream, TrainerState) and stream.series:
                    last = max(series.steps[-1] for series in stream.series.values())
                    states[_run_of(path)] = max(states.get(_run_of(path), (-1, "")), (last, path))
        for path, stream in found:
            # The state of the last checkpoint and that at the end hold the same points.
            if not isinstance(stream, TrainerState) or states.get(_run_of(path), (0, path))[1] == path:
                yield (_run_of(path), PurePosixPath(path).name), stream


class MetricFolder(MetricFiles, EventFolder):
    """Follows the runs under a folder of this machine."""


def _state(path: str) -> tuple[str, int]:
    # The run and the number of the checkpoint; -1 for files outside of checkpoints.
    file = PurePosixPath(path)
    found = _CHECKPOINT.fullmatch(file.parent.name) if file.name == "trainer_state.json" else None
    return _run_of(path), int(found[1]) if found else -1


def _run_of(path: str) -> str:
    folder = PurePosixPath(path).parent
    is_part = folder.name == "vis_data" or _CHECKPOINT.fullmatch(folder.name)
    return str(folder.parent if is_part else folder)


def _without(curve: ScalarCurve, events: Iterable[ScalarCurve]) -> ScalarCurve:
    # The points that no event file of the same or of a neighbouring folder has.
    own = PurePosixPath(curve.run)
    steps: set[int] = set()
    for event in events:
        theirs = PurePosixPath(event.run)
        if event.tag == curve.tag and (theirs.is_relative_to(own) or own.is_relative_to(theirs)):
            steps.update(event.steps)
    if steps.isdisjoint(curve.steps):
        return curve
    left = [index for index, step in enumerate(curve.steps) if step not in steps]
    return ScalarCurve(
        curve.run,
        curve.tag,
        curve.writer,
        array("q", (curve.steps[index] for index in left)),
        array("d", (curve.wall_times[index] for index in left)),
        array("d", (curve.values[index] for index in left)),
        curve.restarts,
    )
