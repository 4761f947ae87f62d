"""Rows of things that have not changed are not made again."""

from __future__ import annotations

from dataclasses import dataclass

from tui.widgets.table.row_cache import RowCache
from tui.widgets.table.table import Cell, Row


@dataclass(frozen=True)
class Thing:
    name: str
    age_s: float = 0.0


class Maker:
    """Makes rows, and remembers of what."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, thing: Thing) -> Row:
        self.made.append(thing.name)
        return Row(thing.name, (Cell(thing.name),))


def test_only_what_has_changed_gets_a_new_row() -> None:
    kept, make = RowCache[Thing](), Maker()
    things = [Thing("a"), Thing("b"), Thing("c")]
    first = kept.rows(things, make, drawn_for=1)
    things[1] = Thing("b")
    second = kept.rows(things, make, drawn_for=1)
    assert make.made == ["a", "b", "c", "b"]
    assert second[0] is first[0]
    assert second[1] is not first[1]


def test_rows_come_in_the_order_asked_for_and_those_of_things_that_are_gone_are_forgotten() -> None:
    kept, make = RowCache[Thing](), Maker()
    a, b, c = Thing("a"), Thing("b"), Thing("c")
    kept.rows([a, b, c], make, drawn_for=1)
    assert [row.key for row in kept.rows([c, a], make, drawn_for=1)] == ["c", "a"]
    kept.rows([b], make, drawn_for=1)
    assert make.made == ["a", "b", "c", "b"]


def test_all_rows_are_made_anew_when_what_they_depend_on_changes() -> None:
    kept, make = RowCache[Thing](), Maker()
    things = [Thing("a"), Thing("b")]
    kept.rows(things, make, drawn_for=(True, False))
    kept.rows(things, make, drawn_for=(True, True))
    assert make.made == ["a", "b", "a", "b"]


def test_a_young_age_is_written_each_second_and_an_old_one_when_it_shows() -> None:
    kept, make = RowCache[Thing](), Maker()
    things = [Thing("young", 10.0), Thing("old", 3600.0)]
    for now_s in (0.0, 0.5, 1.0, 20.0, 36.0):
        kept.rows(things, make, drawn_for=1, now_s=now_s, age_s=lambda thing: thing.age_s)
    assert make.made.count("young") == 4
    assert make.made.count("old") == 2
