"""Each key of every table does what the table of keys says, on the list of jobs."""

from __future__ import annotations

from pathlib import Path

from tests.support.objects import node
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import (
    at,
    changes,
    drawn_otherwise,
    look_of,
    ordered,
    seen,
    titled,
    typed,
    unseen,
    world,
)

MANY = [node(f"n-{number:02}", 0) for number in range(60)]


@proves(
    "table.down",
    "table.up",
    "table.first",
    "table.last",
    "table.page_down",
    "table.page_up",
)
async def test_keys_move_the_cursor_of_a_table(tmp_path: Path) -> None:
    async with world(tmp_path, nodes=MANY, pods=[], size=(80, 24)) as play:
        hands = Hands.on(play)
        await play.press(*typed("nodes"))
        await play.until(at(play, "n-00"))
        await hands.press("table.down", at(play, "n-01"), undo=["k"])
        await play.press("j")
        await hands.press("table.up", at(play, "n-00"), undo=["j"])
        await hands.press("table.last", at(play, "n-59"), undo=["g"])
        await play.press("G")
        await hands.press("table.first", at(play, "n-00"), undo=["G"])
        await play.press("g")
        one_on = at(play, "n-18")
        await hands.press("table.page_down", one_on, undo=["g"])
        await play.press("ctrl+f", "ctrl+f")
        await hands.press("table.page_up", one_on, undo=["ctrl+f"])
        assert changes(play) == []


@proves("table.open", "table.mark", "table.mark_range", "table.clear_marks")
async def test_keys_choose_and_mark_rows_of_a_table(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        await play.press("N", "g")
        await hands.press("table.open", titled(play, "Jobs › bert   "), undo=["escape"])
        await hands.press("table.mark", seen(play, "1 marked"), undo=["space"])

        async def begin_again() -> None:
            await play.press("U", "g", "space", "j", "j")

        await begin_again()
        await hands.press("table.mark_range", seen(play, "3 marked"), undo=begin_again)
        await hands.press("table.clear_marks", unseen(play, "marked"), undo=["space"])
        assert changes(play) == []


@proves("table.next_column", "table.previous_column", "table.sort", "table.wide", "table.right", "table.left")
async def test_keys_sort_a_table_by_any_column_and_show_them_all(tmp_path: Path) -> None:
    async with world(tmp_path, size=(80, 24)) as play:
        hands = Hands.on(play)
        await play.press("N", "g")
        await play.until(ordered(play, "bert", "paused", "waits"))
        plain = look_of(play, "KIND")
        await hands.press("table.next_column", drawn_otherwise(play, "KIND", plain), undo=["comma"])
        await play.press("full_stop", "full_stop")
        assert look_of(play, "KIND") == plain
        await hands.press("table.previous_column", drawn_otherwise(play, "KIND", plain), undo=["full_stop"])
        await hands.press("table.sort", seen(play, "STATUS↑"))
        await play.until(ordered(play, "waits", "bert", "paused"))
        await hands.press("table.wide", lambda: play.table.is_wide, undo=["ctrl+w"])
        await play.press("ctrl+w")
        await hands.press("table.right", seen(play, "<1 +4>"), undo=["left"])
        await play.press("right")
        await hands.press("table.left", unseen(play, "<1"), undo=["right"])
        assert changes(play) == []
