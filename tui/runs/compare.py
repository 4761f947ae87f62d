"""Comparison of runs: the settings that differ beside their values, also as means of groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from k8s.text.sanitize import sanitize
from tui.runs.record import RunRecord, is_higher_better, loss_tag
from tui.text.cells import cell_len
from tui.text.format import NOTHING, duration, listed, names_there_are, number
from tui.text.natural_order import natural_key, tag_key, tell_apart

LABEL, TO_LOSS = "label=", "to_loss_s"
# Longer values of a setting are shortened to what tells them apart, and then in the middle.
LONG_CELLS = 24
MAX_BAR_CELLS, MIN_BAR_CELLS = 30, 8


class BadComparison(ValueError):
    """A tag, group or order is unknown; the message lists those there are."""


class Measure(msgspec.Struct, frozen=True):
    """A number of each run."""

    key: str
    """Name in JSON, CSV and `--sort-by`."""
    title: str
    of: Callable[[RunRecord], float | None]
    text: Callable[[float | None], str] = number


class Figure(msgspec.Struct, frozen=True):
    """A number of one row."""

    value: float
    std: float | None = None
    """Sample standard deviation; None for a single run."""


class CompareRow(msgspec.Struct, frozen=True):
    """A run, or a group of runs."""

    name: str
    runs: tuple[RunRecord, ...]
    settings: Mapping[str, str]
    figures: Mapping[str, Figure]


class CompareColumn(msgspec.Struct, frozen=True):
    """A column of the comparison."""

    key: str
    title: str
    is_number: bool = False
    is_setting: bool = False


class Comparison:
    """Runs side by side."""

    def __init__(
        self,
        records: Sequence[RunRecord],
        *,
        now_s: float,
        tags: Iterable[str] = (),
        to_loss: float | None = None,
        group_by: str = "",
        sort_by: str = "",
    ) -> None:
        """Compare records.

        Args:
            records: The runs, in the order of the rows.
            now_s: Time until which the run time of running jobs counts.
            tags: Texts that the tags to show contain; none for the loss.
            to_loss: Loss until which the time is measured; None for none.
            group_by: Name of an argument, or `label=KEY`, by whose values runs are averaged.
            sort_by: Key of a measure, a setting, `name`, `loss` or `best`; `-` before it reverses.

        Raises:
            BadComparison: No run has such a tag, argument or label, or the order is unknown.
        """
        self.records = records
        self.group_by = group_by
        self.tags = _chosen_tags(records, tuple(tags))
        found = _measures(records, self.tags, to_loss, now_s)
        self.measures = [
            each
            for each in found
            if each.key == TO_LOSS or any(each.of(record) is not None for record in records)
        ]
        self.notes = _unreached(records, to_loss)
        settings = [record.settings() for record in records]
        self.differing = _differing(records, settings)
        self.rows = self._grouped(settings) if group_by else self._single(settings)
        self.bar_key = self._sort(sort_by) or self._default_bar()

    def _single(self, settings: Sequence[Mapping[str, str]]) -> list[CompareRow]:
        return [
            CompareRow(record.name, (record,), own, _figures(self.measures, [record]))
            for record, own in zip(self.records, settings, strict=True)
        ]

    def _grouped(self, settings: Sequence[Mapping[str, str]]) -> list[CompareRow]:
        label = self.group_by.removeprefix(LABEL) if self.group_by.startswith(LABEL) else ""
        name = self.group_by.lstrip("-")
        values = [
            record.labels.get(label, "") if label else own.get(name, "")
            for record, own in zip(self.records, settings, strict=True)
        ]
        if not any(values):
            known = sorted({key for each in self.records for key in each.labels}) if label else self.differing
            what = "label" if label else "argument or other setting"
            raise BadComparison(
                f"No run has the {what} {label or name}. {names_there_are(label or name, known)}"
            )
        groups: dict[str, list[int]] = {}
        for at, value in enumerate(values):
            groups.setdefault(value or NOTHING, []).append(at)
        # A setting that varies within a group, such as the seed, says nothing about the group.
        varying = {
            key
            for places in groups.values()
            for key in self.differing
            if len({settings[at].get(key, "") for at in places}) > 1
        }
        self.differing = [key for key in self.differing if key not in varying and key != name]
        return [
            CompareRow(
                value,
                tuple(self.records[at] for at in places),
                settings[places[0]],
                _figures(self.measures, [self.records[at] for at in places]),
            )
            for value, places in groups.items()
        ]

    def _sort(self, sort_by: str) -> str:
        # Returns the measure that the rows are sorted by.
        if not sort_by:
            return ""
        key = sort_by.removeprefix("-")
        loss = loss_tag(self.tags)
        key = {"loss": loss, "last": loss, "best": f"{loss}.best"}.get(key, key) or key
        known = ["name", *(each.key for each in self.measures), *self.differing]
        if key not in known:
            raise BadComparison(f"Cannot sort by {key}. {names_there_are(key, known)}")
        is_measure = any(each.key == key for each in self.measures)

        def place(row: CompareRow) -> Any:
            figure = row.figures.get(key)
            text = row.name if key == "name" else row.settings.get(key, "")
            return figure.value if is_measure and figure is not None else natural_key(text)

        def is_known(row: CompareRow) -> bool:
            return key in row.figures if is_measure else key == "name" or key in row.settings

        known_rows = sorted(filter(is_known, self.rows), key=place, reverse=sort_by.startswith("-"))
        self.rows = [*known_rows, *(row for row in self.rows if not is_known(row))]
        return key if is_measure else ""

    def _default_bar(self) -> str:
        keys = [each.key for each in self.measures]
        return "throughput" if "throughput" in keys else keys[0] if keys else ""

    def fields(self) -> list[CompareColumn]:
        """Return the columns, without the bars."""
        first = [CompareColumn("name", self.group_by.lstrip("-").upper() if self.group_by else "NAME")]
        if self.group_by:
            first.append(CompareColumn("n", "N", is_number=True))
        settings = [CompareColumn(key, key.upper(), is_setting=True) for key in self.differing]
        return [
            *first,
            *settings,
            *(CompareColumn(each.key, each.title, is_number=True) for each in self.measures),
        ]

    def texts(self, row: CompareRow) -> dict[str, str]:
        """Return the cells of a row by column; long settings are shortened to what tells them apart."""
        found = {"name": sanitize(row.name), "n": str(len(row.runs))}
        for key in self.differing:
            own = sanitize(row.settings.get(key, ""))
            found[key] = _middle(self._apart(key).get(own, own), LONG_CELLS) or NOTHING
        for each in self.measures:
            figure = row.figures.get(each.key)
            is_nan = figure is None and any(each.key in run.tags for run in row.runs)
            found[each.key] = "nan" if is_nan else NOTHING if figure is None else each.text(figure.value)
            if figure is not None and figure.std is not None:
                found[each.key] += f" ± {each.text(figure.std)}"
        return found

    def _apart(self, key: str) -> Mapping[str, str]:
        values = list(dict.fromkeys(sanitize(row.settings[key]) for row in self.rows if key in row.settings))
        if max(map(len, values), default=0) <= LONG_CELLS or key == "placement":
            return {}
        return dict(zip(values, tell_apart(values), strict=True))

    def bar(self, row: CompareRow, cells: int, *, is_ascii: bool = False) -> str:
        """Draw the value of `bar_key` from zero; empty if it is unknown or negative."""
        most = max(
            (each.figures[self.bar_key].value for each in self.rows if self.bar_key in each.figures),
            default=0,
        )
        figure = row.figures.get(self.bar_key)
        if figure is None or most <= 0 or figure.value < 0:
            return ""
        return ("#" if is_ascii else "▇") * max(1, round(figure.value / most * cells))

    def values(self) -> dict[str, Any]:
        """Return the comparison as JSON."""
        if not self.group_by:
            return {"runs": [self._run_values(row) for row in self.rows], "differing": self.differing}
        return {
            "groups": [
                {
                    "group": row.name,
                    "n": len(row.runs),
                    "runs": [each.name for each in row.runs],
                    "settings": {key: row.settings.get(key) for key in self.differing},
                    **{key: {"mean": figure.value, "std": figure.std} for key, figure in row.figures.items()},
                }
                for row in self.rows
            ],
            "group_by": self.group_by,
            "differing": self.differing,
        }

    def _run_values(self, row: CompareRow) -> dict[str, Any]:
        (run,) = row.runs
        figures = {each.key: row.figures.get(each.key) for each in self.measures if each.key not in self.tags}
        return {
            **{
                name: getattr(run, name)
                for name in ("name", "namespace", "kind", "context", "status", "gpus")
            },
            "settings": {key: row.settings.get(key) for key in self.differing},
            "tags": {
                tag: {
                    "last": found.last,
                    "min": found.low,
                    "max": found.high,
                    "best": run.best_of(tag),
                    "step": found.step,
                    "count": found.count,
                }
                for tag in self.tags
                if (found := run.tags.get(tag)) is not None
            },
            **{
                key: None if figure is None else figure.value
                for key, figure in figures.items()
                if not key.endswith(".best")
            },
            "throughput_unit": run.throughput_unit,
            "source": run.source,
            "problem": run.problem,
        }


def _chosen_tags(records: Sequence[RunRecord], wanted: tuple[str, ...]) -> list[str]:
    known = sorted({tag for record in records for tag in record.tags}, key=tag_key)
    if not wanted:
        # Frameworks name the loss of training differently.
        return sorted({record.loss_tag for record in records} - {""}, key=tag_key)
    chosen = [tag for tag in known if any(text in tag for text in wanted)]
    if not chosen:
        raise BadComparison(f"No tag contains {' or '.join(wanted)}. {names_there_are(wanted[0], known)}")
    return chosen


def _measures(
    records: Sequence[RunRecord], tags: Sequence[str], to_loss: float | None, now_s: float
) -> list[Measure]:
    found: list[Measure] = []
    for tag in tags:
        found.append(Measure(tag, tag.upper(), partial(_last, tag)))
        word = "MAX" if is_higher_better(tag) else "MIN"
        title = "BEST" if len(tags) == 1 else f"{word} {tag.upper()}"
        found.append(Measure(f"{tag}.best", title, partial(_best, tag)))
    units = {record.throughput_unit for record in records if record.throughput is not None}
    rate = units.pop().upper() if len(units) == 1 else "RATE"
    found.append(Measure("throughput", rate, lambda record: record.throughput))
    if to_loss is not None:
        title = f"TO {number(to_loss)}"
        found.append(Measure(TO_LOSS, title, lambda record: record.time_to(to_loss), duration))
    found.append(Measure("duration_s", "TIME", lambda record: record.duration_s(now_s), duration))
    found.append(Measure("gpu_hours", "GPU-HOURS", lambda record: record.gpu_hours(now_s)))
    return found


def _unreached(records: Sequence[RunRecord], to_loss: float | None) -> list[str]:
    left = [record for record in records if to_loss is not None and record.time_to(to_loss) is None]
    if to_loss is None or not left:
        return []
    lows = [(low, record.name) for record in left if (low := record.best_of(record.loss_tag)) is not None]
    lowest = f" The lowest is {number(min(lows)[0])}, of {min(lows)[1]}." if lows else ""
    names = listed([record.name for record in left])
    return [f"A loss of {number(to_loss)} was not reached by {names}.{lowest}"]


def _last(tag: str, record: RunRecord) -> float | None:
    return record.tags[tag].last if tag in record.tags else None


def _best(tag: str, record: RunRecord) -> float | None:
    return record.best_of(tag)


def _differing(records: Sequence[RunRecord], settings: Sequence[Mapping[str, str]]) -> list[str]:
    # What a folder or an unreadable job does not tell is unknown, not different.
    unset = ["" if record.image else None for record in records]
    keys = dict.fromkeys(key for own in settings for key in own)
    values = {
        key: {own.get(key, absent) for own, absent in zip(settings, unset, strict=True)} - {None}
        for key in keys
    }
    return [
        key
        for key, found in values.items()
        if len(found) > 1 and not all(map(partial(_names_itself, key), records, settings))
    ]


def _names_itself(key: str, record: RunRecord, settings: Mapping[str, str]) -> bool:
    # A folder named after its run differs for each of them, and tells nothing.
    text = settings.get(key, "")
    name = record.name
    return bool(name) and text != name and any(part.startswith(name) for part in text.split("/"))


def _figures(measures: Sequence[Measure], records: Sequence[RunRecord]) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for each in measures:
        values = [each.of(record) for record in records]
        known = [value for value in values if value is not None and math.isfinite(value)]
        if known:
            mean = math.fsum(value / len(known) for value in known)
            deviations = [value - mean for value in known]
            std = math.hypot(*deviations) / math.sqrt(len(known) - 1) if len(known) > 1 else None
            found[each.key] = Figure(mean, std)
    return found


def fit(
    comparison: Comparison, width: int, *, is_ascii: bool = False
) -> tuple[list[CompareColumn], list[list[str]], list[str]]:
    """Lay the comparison out in `width` cells.

    Returns:
        The columns, with one of bars at the end if there is room; the rows; and the settings left out.
    """
    fields, left_out = comparison.fields(), list[str]()
    texts = [comparison.texts(row) for row in comparison.rows]

    def cells_of(field: CompareColumn) -> int:
        return max(cell_len(sanitize(field.title)), *(cell_len(each[field.key]) for each in texts))

    def total() -> int:
        return sum(map(cells_of, fields)) + 2 * (len(fields) - 1)

    # The widest setting goes first.
    while total() > width and (settings := [each for each in fields if each.is_setting]):
        widest = max(settings, key=cells_of)
        fields.remove(widest)
        left_out.append(widest.key)
    for key in ("duration_s", "gpu_hours"):
        if total() > width:
            fields = [each for each in fields if each.key != key]
    if (over := total() - width) > 0:
        room = max(12, max(len(each["name"]) for each in texts) - over)
        for each in texts:
            each["name"] = _middle(each["name"], room)
    room = min(MAX_BAR_CELLS, width - total() - 2)
    if comparison.bar_key and len(comparison.rows) > 1 and room >= MIN_BAR_CELLS:
        title = next(each.title for each in comparison.measures if each.key == comparison.bar_key)
        fields.append(CompareColumn("bar", _middle(title, room)))
        for each, row in zip(texts, comparison.rows, strict=True):
            each["bar"] = comparison.bar(row, room, is_ascii=is_ascii)
    return fields, [[each[field.key] for field in fields] for each in texts], left_out


def _middle(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room // 2]}…{text[len(text) - (room - room // 2 - 1) :]}"
