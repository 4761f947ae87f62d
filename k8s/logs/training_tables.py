"""Tables in the output of training scripts, and rows without any name in them."""

from __future__ import annotations

import re
from typing import NamedTuple

from k8s.logs.training_tokens import LOSS, NUMBER, OTHER_LOSS, Pair, RunPosition, is_shown, split_of
from k8s.text.lazy_pattern import lazy_pattern

# Names of columns that count, best first.
_COUNTING = (
    "step", "steps", "global_step", "#", "iteration", "iter", "iter.", "it", "counter", "batch", "epoch",
    "itn", "itn.", "e", "ep",
)  # fmt: skip
# YOLOv5's columns.
_YOLO_LOSSES = frozenset({"box", "obj", "cls", "giou", "dfl"})
# Before the first bar of a table.
_LOGGED = lazy_pattern(r"[^|]{0,160}\d:\d\d[^|]{0,60}(?=\|)")
_ROW_START = lazy_pattern(r"[\s|│┃║!*>]{0,200}+(?:\d|(?:train|valid|test)\w{0,6}\s{2})", re.IGNORECASE)


class TableColumns(NamedTuple):
    """The columns of a table: their names, where they start and end, and what separates them."""

    names: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    separator: str
    words: tuple[str, ...] = ()
    """The names if single spaces separate them as well."""


def _split_row(text: str, separator: str) -> list[tuple[str, int, int]]:
    if separator == "|":
        body = text.strip().strip("|│┃║").replace("│", "|").replace("┃", "|").replace("║", "|")
        return [(cell.strip(), 0, 0) for cell in body.split("|")]
    if separator == ",":
        return [(cell.strip(), 0, 0) for cell in text.split(",")]
    pattern = r"\S+(?: \S+)*" if separator == "  " else r"\S+"
    return [(match[0], match.start(), match.end()) for match in re.finditer(pattern, text)]


def _without_prefix(text: str) -> str:
    logged = _LOGGED.match(text) if "|" in text else None
    return text[logged.end() :] if logged else text


def columns_in(text: str) -> TableColumns | None:
    """Return the columns if a line is the header of a table with a loss."""
    text = _without_prefix(text)
    if len(text) > 500 or any(sign in text for sign in ":={"):
        return None
    stripped = text.strip()
    separator = (
        "|" if stripped[:1] in "|│┃║" or stripped.count("|") > 1
        else "," if "," in stripped
        else "  " if "  " in stripped
        else " "
    )  # fmt: skip
    cells = _split_row(text, separator)
    if len(cells) > 2 and cells[0][0] == "#" and cells[1][0].lower() in _COUNTING:
        cells = cells[1:]  # a comment
    names = [name.lower().removeprefix("# ").replace(" ", "_") for name, _, _ in cells]
    if (
        len(cells) < 2
        or (separator == " " and names[0] not in _COUNTING)
        or any(len(name) > 32 or not name or name[0].isdecimal() for name in names)
    ):
        return None
    words = tuple(word for word in text.lower().split() if word != "#") if separator == "  " else ()
    losses = sum(map(_is_loss_column, names))
    has_loss = losses or len(_YOLO_LOSSES.intersection(names)) > 1
    is_counted = any(each in names or each in words for each in _COUNTING)
    if not has_loss or not (is_counted or (losses > 1 and separator != " ")):
        return None
    return TableColumns(tuple(names), tuple((start, end) for _, start, end in cells), separator, words)


def _is_loss_column(name: str) -> bool:
    return bool(LOSS.search(name) or OTHER_LOSS.search(name))


_EMPTY_CELLS = frozenset({"", "-", "--", "none", "n/a", "no log", "unknown"})
_ROW_NUMBER = lazy_pattern(rf"(?:{NUMBER})[%:]?$")


def row_in(text: str, columns: TableColumns) -> tuple[RunPosition, list[Pair]] | None:
    """Return the position and the scalars of a row of a table; None if a line is no row."""
    text = _without_prefix(text)
    if not _ROW_START.match(text):
        return None
    names = columns.names
    cells = _split_row(text, columns.separator)
    if columns.separator == "  " and len(cells) != len(names):
        cells = _split_row(text, " ")
        cells = cells[1:] if cells[0][0] in ("!", "*", ">") else cells
        if len(cells) >= len(columns.words) != len(names):
            names, cells = columns.words, cells[: len(columns.words)]
    # Of a list of losses, the first.
    cells = [
        (cell.strip("[]").split(", ")[0] if cell[:1] == "[" else cell, start, end)
        for cell, start, end in cells
    ]
    by_name: dict[str, str] = {}
    if len(cells) == len(names) or (len(cells) > len(names) and "%" in text):
        by_name = dict(zip(names, (cell for cell, _, _ in cells), strict=False))
    elif 1 < len(cells) < len(names) and columns.separator == "  ":
        # Empty cells leave gaps: where a cell starts or ends tells its column.
        for cell, start, end in cells:
            distances = [min(abs(start - left), abs(end - right)) for left, right in columns.spans]
            by_name.setdefault(names[distances.index(min(distances))], cell)
    counter = next((each for each in _COUNTING if each in by_name), "")
    place = re.fullmatch(r"(\d{1,18})(?:/\d{1,18}|\.0+)?", by_name.get(counter, ""))
    if (place is None if counter else not by_name) or any(
        "loss" in name and not _ROW_NUMBER.match(cell) and cell.lower() not in _EMPTY_CELLS
        for name, cell in by_name.items()
    ):
        return None
    split = split_of(next(iter(by_name.values())))
    pairs = [
        Pair(
            f"{split}_{name}" if split not in ("", "train") else name,
            float(cell.rstrip("%:").replace(",", "")),
            bool(LOSS.search(name)),
        )
        for name, cell in by_name.items()
        if name != counter and _ROW_NUMBER.match(cell)
    ]
    if not any(pair.is_loss for pair in pairs):
        pairs = [
            Pair(f"loss/{each.name}", each.value, is_loss=True)
            if OTHER_LOSS.search(each.name) or each.name in _YOLO_LOSSES
            else each
            for each in pairs
        ]
    shown = [pair for pair in pairs if pair.is_loss or is_shown(pair.name)]
    epoch = by_name.get("epoch", "") if counter == "batch" else ""
    position = RunPosition(int(place[1]) if place else None, None, int(epoch) if epoch.isdecimal() else None)
    return (position, shown) if any(pair.is_loss for pair in shown) else None


# Flower's `(4, 2.3, {}, 30.1)`, DARTS's `train 050 2.1e+00 30.1 60.2`, and WaveGlow's `50:   2.12345`.
_BARE = lazy_pattern(
    rf"\((?P<step>\d{{1,12}}), (?P<loss>{NUMBER}), \{{"
    r"|\b(?P<split>train|valid|test)\w{0,6} (?P<index>\d{1,12}):?"
    r" (?P<value>-?\d{1,12}\.\d{1,20}(?:e[-+]\d{1,3})?|nan)"
    r"(?: -?\d{1,12}\.\d{1,20}(?:e[-+]\d{1,3})?){1,8}\s{0,8}$"
    r"|\b(?:epoch|step|iter(?:ation)?), (?P<count>\d{1,12}), (?P<first>-?\d{1,12}\.\d{2,20})"
    r"(?:, -?\d{1,12}\.\d{1,20}){1,8}\s{0,8}$"
    r"|^(?P<line>\d{1,12}):\s{2,8}(?P<number>-?\d{1,12}\.\d{5,20})$"
)
_LISTED = lazy_pattern(rf"\b(?:round|epoch|step|iter(?:ation)?) (\d{{1,12}}): ({NUMBER})\s{{0,8}}$")


def bare_point(text: str) -> tuple[int, Pair] | None:
    """Return the step and the loss of a line that names neither."""
    match = _BARE.search(text)
    if match is None:
        return None
    if match["loss"]:
        return int(match["step"]), Pair("loss", float(match["loss"].replace(",", "")), is_loss=True)
    if digits := match["line"] or match["count"]:
        return int(digits), Pair("loss", float(match["number"] or match["first"]), is_loss=True)
    split = {"train": "", "valid": "val_", "test": "test_"}[match["split"]]
    return int(match["index"]), Pair(f"{split}loss", float(match["value"]), is_loss=True)


def listed_point(text: str) -> tuple[int, Pair] | None:
    """Return the step and the loss of a line of a list: `round 3: 0.5`."""
    match = _LISTED.search(text)
    return (int(match[1]), Pair("loss", float(match[2].replace(",", "")), is_loss=True)) if match else None
