"""Selectors, order and output formats of lists, with kubectl's flags, and watching a list."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Generic

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.snapshot import ClusterSnapshot, Missing
from tui.commands import REMOVED_FLAGS
from tui.commands.support.output import (
    FORMATS,
    GrowingTable,
    WrongUsage,
    write,
    write_csv,
    write_items,
    write_object,
    write_stderr,
)
from tui.tables.column import Item, ListColumn, Values, View, values_of
from tui.text.format import names_there_are, plural

if TYPE_CHECKING:
    from tui.text.filter_query import Filter
    from tui.text.jsonpath import Step

LIST_FORMATS = (*FORMATS, "name", "csv")
# Columns and JSON members that grow by themselves.
_GROWING = {"age", "age_s", "duration", "duration_s", "queued", "queued_s", "silent_s"}
# Of `--sort-by`, as kubectl names them.
_KUBECTL_FIELDS = {
    "metadata.name": "name",
    "metadata.namespace": "namespace",
    "metadata.creationTimestamp": "created",
}


def add_list_flags(
    parser: argparse.ArgumentParser, columns: Iterable[ListColumn[Any, Any]], *, can_watch: bool = True
) -> None:
    """Add `-o`, the selectors, `--sort-by`, `--no-headers`, and `-w` if the list can be watched."""
    parser.add_argument(
        "-o",
        "--output",
        type=_format,
        default="table",
        metavar="FORMAT",
        help=f"output format: {', '.join(LIST_FORMATS)} (default table)",
    )
    parser.add_argument("-l", "--selector", default="", metavar="LABELS", help="only those with these labels")
    order = parser.add_argument(
        "--sort-by",
        default="",
        metavar="FIELD",
        help="order by a field of the JSON, e.g. age_s; -age_s reverses",
    )
    # For completion only: fields may be nested, and columns differ by configuration.
    fields = [name for each in columns if each.value or each.json for name in (each.json or each.key).split()]
    order.fields = fields  # type: ignore[attr-defined]
    parser.add_argument("--no-headers", action="store_true", help="print no titles")
    if can_watch:
        parser.add_argument("-w", "--watch", action="store_true", help="go on, and print what changes")


def _format(text: str) -> str:
    if text in LIST_FORMATS:
        return text
    near = difflib.get_close_matches(text, LIST_FORMATS, 1)
    meant = f"did you mean {near[0]}? " if near else ""
    if instead := REMOVED_FLAGS.get(f"-o {text.partition('=')[0]}"):
        meant = f"{instead}, or "
    raise argparse.ArgumentTypeError(
        f"invalid choice: {text!r}; {meant}choose from {', '.join(LIST_FORMATS)}"
    )


class ItemList(Generic[Item, View]):
    """One list as the flags ask for it."""

    def __init__(
        self,
        flags: argparse.Namespace,
        columns: Sequence[ListColumn[Item, View]],
        *,
        name_of: Callable[[Item], str],
        labels_of: Callable[[Item], Mapping[str, str]],
        chosen: Sequence[ListColumn[Item, View]] = (),
    ) -> None:
        """Check the flags.

        Args:
            flags: Of `add_list_flags`.
            columns: All columns of the list.
            name_of: Returns the text of `-o name`.
            labels_of: Returns the labels of an item.
            chosen: Columns that config.yaml chooses for the wide table and CSV; empty for all.

        Raises:
            WrongUsage: A selector or field is invalid.
        """
        self.form: str = flags.output
        self.chosen = chosen
        self._columns, self._name_of, self._labels_of = columns, name_of, labels_of
        self._has_titles = not flags.no_headers
        self._filter: Filter | None = None
        if flags.selector.strip():
            from tui.text.filter_query import parse_filter

            self._filter = parse_filter(f"-l {flags.selector}")
            if self._filter is not None and self._filter.problem:
                raise WrongUsage(self._filter.problem)
        self._selector, self._sort_by = flags.selector.strip(), flags.sort_by
        self._unmatched = 0
        self._sort_path = _path(flags.sort_by.lstrip("-"), "--sort-by") if flags.sort_by else None
        self._table: GrowingTable | None = None

    def uses(self, *names: str) -> bool:
        """Return True if members of the JSON with these names are printed, or decide what is."""
        return self.form in ("wide", "json", "yaml", "csv") or any(name in self._sort_by for name in names)

    @property
    def is_table(self) -> bool:
        """Return True if people read it, so that sums may follow."""
        return self.form in ("table", "wide")

    @property
    def is_document(self) -> bool:
        """Return True if an empty list prints something, too."""
        return self.form in ("json", "yaml")

    def select(self, items: Iterable[Item], view: View) -> list[Item]:
        """Return the items that the selectors accept, in the requested order.

        Raises:
            WrongUsage: No item has the field of the order.
        """
        items = list(items)
        self._unmatched = len(items) if self._selector else 0
        found = [
            item
            for item in items
            if self._filter is None or self._filter.accepts((), {}, self._labels_of(item))
        ]
        if self._sort_path is not None:
            from tui.text.jsonpath import find

            values = {id(item): self._values(item, view) for item in found or items}
            keys = {key: find(self._sort_path, each) for key, each in values.items()}
            if keys and not any(keys.values()):
                name = self._sort_by.lstrip("-")
                names = names_there_are(name, dict.fromkeys(key for each in values.values() for key in each))
                raise WrongUsage(f"Cannot sort by {name}. {names}")
            found.sort(key=lambda item: _sort_key(keys[id(item)]), reverse=self._sort_by.startswith("-"))
        return found

    def write_none(self, noun: str, where: str, none: str) -> None:
        """Print on stderr that no item matches the selectors; `none` if there is none at all."""
        there_are = f"None of {plural(self._unmatched, noun)}{where} matches -l {self._selector}."
        write_stderr(there_are if self._unmatched else none)

    def _values(self, item: Item, view: View) -> Values:
        return values_of(item, view, self._columns)

    def _csv_values(self, item: Item, view: View) -> Values:
        found: Values = {} if self.chosen else self._values(item, view)
        for column in self.chosen:
            found |= column.values_of(item, view) or {column.key: column.output_text(item, view)}
        return found

    def write(
        self,
        items: Sequence[Item],
        view: View,
        printed: Sequence[ListColumn[Item, View]],
        missing: Sequence[Missing] = (),
        more: Callable[[Item], Values] | None = None,
        **totals: object,
    ) -> None:
        """Print the items.

        Args:
            items: Selected ones.
            view: State that they share.
            printed: Columns of a table.
            missing: Resources that could not be read.
            more: Returns more members of an item's JSON.
            totals: More members of the list's JSON.
        """
        values = [
            {**self._values(item, view), **(more(item) if more is not None else {})}
            for item in (items if self.is_document else ())
        ]
        if self.form in ("json", "yaml"):
            write_items(values, missing, self.form, **totals)
        else:
            self.write_rows(items, view, printed, has_titles=self._has_titles)

    def write_rows(
        self,
        items: Sequence[Item],
        view: View,
        printed: Sequence[ListColumn[Item, View]],
        *,
        has_titles: bool = False,
    ) -> None:
        """Print items one by one: as rows, or as documents of JSON or YAML."""
        if self.form == "name":
            for item in items:
                write(self._name_of(item))
        elif self.form == "csv":
            values = [self._csv_values(item, view) for item in items]
            names = list(dict.fromkeys(name for each in values for name in each))
            rows = [[_csv_cell(each.get(name)) for name in names] for each in values]
            write_csv([names, *rows] if has_titles else rows)
        elif self.form in ("json", "yaml"):
            for item in items:
                write_object(self._values(item, view), self.form)
        else:
            columns = [column.output for column in printed]
            cells = [[column.output_text(item, view) for column in printed] for item in items]
            self._table = self._table or GrowingTable(columns, is_wide=self.form == "wide")
            self._table.write(cells, has_titles=has_titles)

    async def watch(
        self,
        mirror: ClusterMirror,
        shown: Sequence[Item],
        view: Callable[[], View],
        printed: Sequence[ListColumn[Item, View]],
        items_of: Callable[[ClusterSnapshot], Iterable[Item]],
        key_of: Callable[[Item], str],
    ) -> None:
        """Print each item of the list that changes, until cancelled; its ages do not count.

        Args:
            mirror: The cluster, read once.
            shown: The items that were printed.
            view: Returns the state that all items share, as it is now.
            printed: Columns of a table.
            items_of: Returns the items of a snapshot.
            key_of: Returns the key by which an item is found again.
        """
        from tui.terminal.closed_pipe import ended_by_closed_pipe

        last = {key_of(item): (item, self._identity(item, view(), printed)) for item in shown}
        sys.stdout.flush()
        with ended_by_closed_pipe():
            async with aclosing(_snapshots(mirror)) as snapshots:
                async for snapshot in snapshots:
                    now, changed = view(), []
                    found = {key_of(item): item for item in self.select(items_of(snapshot), now)}
                    for key, item in found.items():
                        if key in last and last[key][0] is item:
                            continue
                        identity = self._identity(item, now, printed)
                        if key not in last or self._shown(last[key][1]) != self._shown(identity):
                            changed.append(item)
                        last[key] = item, identity
                    for key in last.keys() - found.keys():
                        write_stderr(f"-- {self._name_of(last.pop(key)[0])} is gone.")
                    if changed:
                        self.write_rows(changed, now, printed)
                        sys.stdout.flush()

    def _identity(self, item: Item, view: View, printed: Sequence[ListColumn[Item, View]]) -> object:
        if self.form in ("table", "wide"):
            return ["" if each.key in _GROWING else each.output_text(item, view) for each in printed]
        values = self._csv_values(item, view) if self.form == "csv" else self._values(item, view)
        shown = ("name", "namespace", "kind") if self.form == "name" else values.keys() - _GROWING
        return {name: values.get(name) for name in shown}

    def _shown(self, identity: Any) -> object:
        # Of a table, what its columns show: rows do not differ in what is hidden or cut.
        return self._table.line(identity) if self._table is not None else identity


async def _snapshots(mirror: ClusterMirror) -> AsyncGenerator[ClusterSnapshot, None]:
    queue: asyncio.Queue[ClusterSnapshot] = asyncio.Queue()
    running = asyncio.create_task(mirror.run(queue.put_nowait))
    trouble = ""
    try:
        while True:
            getting = asyncio.ensure_future(queue.get())
            await asyncio.wait((getting, running), return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                running.result()
                return
            snapshot = getting.result()
            while not queue.empty():
                snapshot = queue.get_nowait()
            if snapshot.trouble != trouble:
                trouble = snapshot.trouble
                again = f"-- The watch is interrupted ({trouble}); trying again."
                write_stderr(again if trouble else "-- Watching again.")
            if snapshot.is_synced and not snapshot.stale:
                yield snapshot
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def _path(text: str, flag: str) -> Sequence[Step]:
    from tui.text.jsonpath import parse_path

    named = text.strip().removeprefix("{").removesuffix("}").lstrip(".")
    try:
        return parse_path(_KUBECTL_FIELDS.get(named, named))
    except ValueError as error:
        raise WrongUsage(f"{flag} {text}: {error}.") from None


def _sort_key(found: Sequence[Any]) -> tuple[int, Any]:
    value = found[0] if found else None
    if isinstance(value, int | float):
        return 0, value
    if value is None:
        return 2, ()
    from tui.text.jsonpath import text_of
    from tui.text.natural_order import natural_key

    return 1, natural_key(text_of(value))


def _csv_cell(value: Any) -> object:
    from tui.text.jsonpath import text_of

    if isinstance(value, list):
        return " ".join(map(text_of, value))
    return text_of(value) if isinstance(value, dict) else value
