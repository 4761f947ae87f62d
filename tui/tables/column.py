"""Cells, rows and columns: layout in the console, text in a command's table, values in JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from k8s.text.sanitize import sanitize
from tui.settings.options import OwnColumn
from tui.text.cells import cell_len
from tui.text.format import NOTHING, CellStyle, Clock, Run, plural

# Widths of the user's own columns.
MIN_OWN_CELLS, MAX_OWN_CELLS = 8, 30
Align = Literal["left", "right"]
Values = dict[str, Any]
"""Part of a JSON object. Keys are a contract: add, do not rename."""
Item = TypeVar("Item")
View = TypeVar("View")


class Cell(NamedTuple):
    """Text of a row in one column; never markup."""

    text: str
    style: CellStyle = ""
    runs: tuple[Run, ...] = ()
    """Pieces of `text` with different styles; empty if there is only one."""
    sort: float | str | None = None
    """Sort key; None sorts by the text, `worker-2` before `worker-10`."""

    @classmethod
    def of(cls, *runs: Run, sort: float | str | None = None) -> Cell:
        """Return a cell of several runs."""
        return cls("".join(text for text, _ in runs), "", runs, sort)

    @classmethod
    def of_age(cls, since: datetime | None, clock: Clock) -> Cell:
        """Return an age, sorted by the time since when."""
        return cls(clock.age(since), "quiet", sort=-since.timestamp() if since else None)


def amount_cell(amount: int, shares: int, style: CellStyle = "") -> Cell:
    """Return a number of devices, of which some are parts of GPUs: `8`, `3 shares`, `8 + 3 shares`."""
    parts = f"{' + ' if amount > shares else ''}{plural(shares, 'share')}" if shares else ""
    return Cell(f"{(amount - shares) or '' if shares else amount}{parts}", style, sort=amount)


class Row(NamedTuple):
    """One row: a stable key, and a cell for each column."""

    key: str
    cells: tuple[Cell, ...]
    detail: str | None = None
    """Second, dim line, such as `└ waits: ...`."""


class Column(msgspec.Struct, frozen=True):
    """Layout of one column in the console."""

    key: str
    title: str
    align: Align = "left"
    # A column that elides shrinks to this width.
    min_width: int = 0
    # If space is short, the highest number is hidden first; 0 is never hidden.
    priority: int = 0
    elide: Literal["", "middle", "end", "runs"] = ""
    """Elision of long text: `middle` keeps the suffix of names, `runs` drops whole runs from the end. Empty
    never shrinks.
    """
    # Columns of `SPARED_PRIORITY` and above are hidden before this one gets narrower.
    good_width: int = 0
    # Exceeded only in a wide table.
    max_width: int = 60
    # Order of the first sort by this column.
    sorts_largest_first: bool = False
    # Ages; sorted by the negative Unix time.
    is_age: bool = False
    # Highlight changes; not for values that grow by themselves, such as ages.
    flashes: bool = False


class OutputColumn(msgspec.Struct, frozen=True):
    """Layout of one column of a table that a command prints."""

    title: str
    align: Align = "left"
    is_wide: bool = False
    """Shown with `-o wide` only."""
    narrow_title: str = ""
    """Title when the table is too wide for the terminal; empty for the same title."""
    narrow_cell: Callable[[str], str] = str
    """Shortens a cell when the table is too wide for the terminal."""
    is_optional: bool = False


class ListColumn(Column, Generic[Item, View], frozen=True, kw_only=True):
    """A column of a list, wherever the list is shown.

    Its functions take an item of the list, and the state that all items share, such as the clock.
    """

    value: Callable[[Item, View], Any] | None = None
    """Its value in JSON; None if it has none, or has `values`."""
    json: str = ""
    """Its names in JSON, separated by spaces if it has several; empty for the key."""
    values: Callable[[Item, View], Values] | None = None
    """Its part of the JSON object, if that is not one value."""
    cell: Callable[[Item, View], Cell] | None = None
    """Its cell in the console; None shows the value."""
    in_console: bool = True
    printed: Literal["", "table", "wide"] = ""
    """Commands print it never, always, or with `-o wide` only."""
    printed_title: str = ""
    """Title where a command prints it; empty for `title`."""
    text: Callable[[Item, View], str] | None = None
    """Text where a command prints it; None for that of the cell."""
    narrow_title: str = ""
    narrow_cell: Callable[[str], str] = str
    is_optional: bool = False

    @property
    def output(self) -> OutputColumn:
        """Return its layout in a command's table."""
        title = self.printed_title or self.title
        is_wide = self.printed == "wide"
        return OutputColumn(title, self.align, is_wide, self.narrow_title, self.narrow_cell, self.is_optional)

    def output_text(self, item: Item, view: View) -> str:
        """Return its text in a command's table."""
        return self.cell_of(item, view).text if self.text is None else self.text(item, view)

    def cell_of(self, item: Item, view: View) -> Cell:
        """Return its cell in the console."""
        if self.cell is not None:
            return self.cell(item, view)
        value = self.value(item, view) if self.value is not None else None
        text = ", ".join(value) if isinstance(value, list) else str("" if value is None else value)
        return Cell(sanitize(text) or NOTHING, "quiet", sort=value if isinstance(value, int) else None)

    def values_of(self, item: Item, view: View) -> Values:
        """Return its part of the JSON object."""
        if self.value is not None:
            return {self.json or self.key: self.value(item, view)}
        return self.values(item, view) if self.values is not None else {}


def console_columns(columns: Iterable[ListColumn[Item, View]]) -> tuple[ListColumn[Item, View], ...]:
    """Return the columns that the console shows."""
    return tuple(column for column in columns if column.in_console)


@cache
def configured_columns(
    columns: tuple[ListColumn[Any, Any], ...], wanted: tuple[str | OwnColumn, ...]
) -> tuple[ListColumn[Any, Any], ...]:
    """Return the columns that config.yaml chooses for a list."""
    by_key = {column.key: column for column in columns}
    return tuple(
        _own_column(each, columns) if isinstance(each, OwnColumn) else by_key[each]
        for each in wanted
        if isinstance(each, OwnColumn) or each in by_key
    )


def _own_column(own: OwnColumn, columns: tuple[ListColumn[Any, Any], ...]) -> ListColumn[Any, Any]:
    from tui.text.jsonpath import find, parse_path, text_of

    path = parse_path(own.path)

    def value(item: Any, view: Any) -> str:
        named = {"metadata": metadata_of(item)}
        fields = {} if ".metadata" in own.path else values_of(item, view, columns)
        return ",".join(map(text_of, find(path, {**fields, **named})))

    return ListColumn(
        f"own {own.title}",
        own.title,
        priority=3,
        elide="end",
        min_width=min(cell_len(own.title), MIN_OWN_CELLS),
        max_width=MAX_OWN_CELLS,
        value=value,
        json=own.title,
        printed="table",
    )


def annotations_in(columns: Mapping[str, Iterable[str | OwnColumn]]) -> set[str]:
    """Return the keys of annotations in the paths of the user's columns."""
    from tui.text.jsonpath import find, parse_path

    found = set[str]()

    class Asked(dict[str, str]):
        def __contains__(self, key: object) -> bool:
            found.add(str(key))
            return False

    for column in (each for wanted in columns.values() for each in wanted):
        if isinstance(column, OwnColumn):
            find(parse_path(column.path), {"metadata": {"annotations": Asked()}})
    return found


def metadata_of(item: Any) -> Values:
    """Return the labels, annotations and name of an item of a list, as far as they are known."""
    meta = getattr(item, "metadata", None)
    if meta is None and hasattr(item, "ref"):
        names = {"name": item.ref.name, "namespace": item.ref.namespace}
    else:
        names = {name: getattr(meta or item, name, "") for name in ("name", "namespace")}
    return {
        **names,
        **{name: dict(getattr(meta or item, name, None) or {}) for name in ("labels", "annotations")},
    }


def pick(columns: Iterable[ListColumn[Item, View]], keys: Iterable[str]) -> list[ListColumn[Item, View]]:
    """Return the columns with these keys, in their order, for a table that prints them always."""
    by_key = {column.key: column for column in columns}
    return [replace(by_key[key], printed="table") for key in keys]


def output_columns(
    columns: Sequence[ListColumn[Item, View]],
    first: Sequence[str] = ("namespace",),
    *,
    without: Collection[str] = (),
) -> list[ListColumn[Item, View]]:
    """Return the columns that commands print: those with the keys in `first`, then the others in order."""
    printed = {column.key: column for column in columns if column.printed and column.key not in without}
    return [printed[key] for key in dict.fromkeys((*first, *printed)) if key in printed]


def cells(item: Item, view: View, columns: Iterable[ListColumn[Item, View]]) -> tuple[Cell, ...]:
    """Return the cells of an item."""
    return tuple([column.cell_of(item, view) for column in columns])


def values_of(item: Item, view: View, columns: Iterable[ListColumn[Item, View]]) -> Values:
    """Return an item as in JSON."""
    return {name: value for column in columns for name, value in column.values_of(item, view).items()}
