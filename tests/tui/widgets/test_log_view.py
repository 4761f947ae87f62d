"""A log on screen: following, scrolling, filtering, wrapping, and what it never lets through."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.theme import Theme

import themes
from k8s.logs import EVERYTHING, LineQueue, LogLine, Mark, Marker, Target
from tests import ROOT
from tests.support.screen_text import resize
from tests.support.themed_app import ThemedApp
from tui.widgets.log.lines import LogLines
from tui.widgets.log.paint import STAMP_CELLS, pattern_of, plain_text, wrap_cuts
from tui.widgets.log.view import LINES_PER_DRAIN, LogView

HERE = Target("lab", "job-worker-0", instance="worker-0", ranks=(0,))
AT = 1_778_752_800 * 1_000_000_000
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def line(number: int, text: str | bytes = "", rank: int | None = 0) -> LogLine:
    raw = text.encode() if isinstance(text, str) else text
    return LogLine(AT + number * 1_000_000, raw or b"line %d" % number, HERE, number, rank)


def feed_of(*items: LogLine | Marker) -> LineQueue:
    queue = LineQueue(EVERYTHING, lambda _: "", window_s=0.0)
    queue.put(HERE, items)
    return queue


class Host(ThemedApp[None]):
    CSS_PATH = [themes.STYLESHEET, ROOT / "tui/screens/job/logs.tcss"]  # noqa: RUF012

    def __init__(self, view: LogView) -> None:
        super().__init__()
        self.view = view
        self.copied = ""

    def on_log_view_copy(self, event: LogView.Copy) -> None:
        self.copied = event.text

    def compose(self) -> ComposeResult:
        yield self.view


async def settled(pilot: Pilot[None]) -> None:
    await pilot.pause()
    pilot.app.query_one(LogView).drain()
    await pilot.pause()


def rows(view: LogView) -> list[str]:
    return [view.render_line(y).text[:-1].rstrip() for y in range(view.content_size.height)]


def texts(view: LogView) -> list[str]:
    """Return the lines on the screen without their times."""
    return [row[13:] if view.shows_times else row for row in rows(view) if row]


@pytest.mark.parametrize("key", ["k", "up", "pageup", "ctrl+u", "g"])
async def test_a_log_follows_its_end_until_scrolled_up_and_then_counts_new_lines(key: str) -> None:
    queue = feed_of(*map(line, range(99)))
    async with Host(LogView(queue)).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        view = pilot.app.query_one(LogView)
        assert texts(view)[-1] == "line 98"
        queue.put(HERE, [line(99)])
        await settled(pilot)
        assert texts(view)[-1] == "line 99"
        await pilot.press(key)
        before = texts(view)
        queue.put(HERE, [line(number) for number in range(100, 105)])
        await settled(pilot)
        assert not view.follows
        assert texts(view) == before
        assert "5 new lines" in str(view.border_subtitle)
        await pilot.press("G")
        assert view.follows
        assert texts(view)[-1] == "line 104"
        assert not view.border_subtitle


async def test_the_scroll_position_stays_when_old_lines_are_dropped() -> None:
    view = LogView(max_items=1100)
    async with Host(view).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        view.append([line(number) for number in range(1000)])
        await pilot.press("pageup")
        before = texts(view)
        view.append([line(number) for number in range(1000, 1200)])
        await pilot.pause()
        assert texts(view) == before


async def test_a_log_filter_hides_other_lines_but_keeps_markers() -> None:
    items = [line(number, f"step {number} {'NCCL' if number % 10 == 0 else 'loss'}") for number in range(50)]
    gap = Marker(Mark.GAP, "gap: lines may be missing", HERE, AT + 50_000_000, 50)
    async with Host(LogView(feed_of(*items, gap))).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        view = pilot.app.query_one(LogView)
        view.filter_text = "nccl"
        await pilot.pause()
        starts = [text[:8] for text in texts(view)][:5]
        assert starts == ["step 0 N", "step 10 ", "step 20 ", "step 30 ", "step 40 "]
        assert "gap: lines may be missing" in rows(view)[5]
        assert view.match_text == "5"
        await pilot.press("n")
        assert view.match_text == "1 of 5"
        await pilot.press("N")
        assert view.match_text == "5 of 5"
        view.filter_text = "!nccl"
        await pilot.pause()
        assert not any("NCCL" in text for text in texts(view))
        view.filter_text = "loss [oops"
        await pilot.pause()
        assert view.match_text == "0"
        view.filter_text = "nccl"
        await pilot.press("x", "n")  # matches among all lines
        assert "step 0 NCCL" in texts(view)
        assert "step 1 loss" in texts(view)


async def test_clearing_can_be_undone() -> None:
    queue = feed_of(*map(line, range(5)))
    async with Host(LogView(queue)).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        view = pilot.app.query_one(LogView)
        await pilot.press("C")
        assert "Cleared" in rows(view)[0]
        queue.put(HERE, [line(5)])
        await settled(pilot)
        assert texts(view) == ["line 5"]
        await pilot.press("C")
        assert texts(view) == [f"line {number}" for number in range(6)]


async def test_long_lines_wrap_and_scroll_sideways() -> None:
    long = "".join(f"{number:03d} " for number in range(100))
    queue = feed_of(line(0, long), line(1, "中文" * 60), line(2, "end"))
    async with Host(LogView(queue)).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        view = pilot.app.query_one(LogView)
        await pilot.press("l", "l")
        assert texts(view)[0].startswith("004 005")
        queue.put(HERE, [line(3, "more")])
        await settled(pilot)
        assert texts(view)[0].startswith("004 005")
        await pilot.press("w")
        assert "".join(row[13:] for row in rows(view) if row).count("中文") == 60
        joined = "".join(row[13:].ljust(66) for row in rows(view)[:7])
        assert joined.strip() == long.strip()
        await pilot.press("t")
        assert rows(view)[0].startswith("000 001")


async def test_the_text_of_an_empty_log_is_wrapped() -> None:
    async with Host(LogView(feed_of())).run_test(size=(25, 8)) as pilot:
        view = pilot.app.query_one(LogView)
        view.show_placeholder("No pod runs yet, so there is no log.")
        assert rows(view)[:3] == [" No pod runs yet, so", " there is no log.", ""]


async def test_a_paged_log_shows_its_start_and_reads_on_only_as_one_scrolls() -> None:
    queue = LineQueue(EVERYTHING, lambda _: "", window_s=0.0)
    async with Host(LogView(queue, max_items=160)).run_test(size=(80, 24)) as pilot:
        view = pilot.app.query_one(LogView)
        view.is_paged = True
        await pilot.press("g")
        assert view.part_text == "no lines"
        queue.put(HERE, [line(number) for number in range(1_000)], is_history=True)
        await settled(pilot)
        assert (
            texts(view)[0] == "line 0" and view.border_subtitle == " lines 1 to 160, more below; G: newest "
        )
        last = int(texts(view)[-1].split()[1])
        while last < 999:
            await pilot.press("pagedown")
            await settled(pilot)
            numbers = [int(text.split()[1]) for text in texts(view) if text.startswith("line ")]
            assert numbers[0] <= last + 1 and last < numbers[-1], "no line is skipped"
            assert len(view.lines.items) <= 160
            last = numbers[-1]
        assert view.part_text in ("lines 841 to 1,000", "lines 851 to 1,000")
        await pilot.press("pagedown")
        queue.put(HERE, [line(1_000)])
        await settled(pilot)
        assert texts(view)[-1] == "line 1000", "at its end, it follows"


async def test_a_mark_is_drawn_and_the_screen_is_copied_as_clean_text() -> None:
    app = Host(LogView(feed_of(line(0, "a\x1b[31mred\x1b[0m"), line(1, "b"))))
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("M", "c")
        assert "mark 1" in rows(pilot.app.query_one(LogView))[2]
        await pilot.pause()
        assert app.copied.startswith("ared\nb\n── mark 1")


async def test_the_start_of_the_log_counts_dropped_lines_per_rank() -> None:
    queue = LineQueue(EVERYTHING, lambda _: "", window_s=0.0, dropped_lines={"rank 10": 7})
    view = LogView(queue, max_items=160)
    async with Host(view).run_test(size=(90, 24)) as pilot:
        await settled(pilot)
        view.append([line(number, rank=number % 2) for number in range(161)])
        await pilot.press("g")
        assert [row.rstrip("─┃ ") for row in rows(view)[:4]] == [
            "── rank 0: 6 earlier lines are dropped here; ^s saves all of them",
            "── rank 1: 5 earlier lines are dropped here; ^s saves all of them",
            "── rank 10: 7 earlier lines are dropped here; ^s saves all of them",
            rows(view)[3].rstrip("┃ "),
        ]
        assert "line 11" in rows(view)[3]
        view.append([line(number, rank=0) for number in range(161, 172)])
        await pilot.press("g")
        assert "rank 0: 11 earlier lines" in rows(view)[0]
        await pilot.press("C")
        assert "Cleared" in rows(view)[0]
        await pilot.press("C", "g")
        assert "rank 0: 11 earlier lines" in rows(view)[0]
        await pilot.press("C")
        view.append([line(number, rank=0) for number in range(172, 400)])
        await pilot.press("g")
        gone = int(rows(view)[0].split()[3]) + int(rows(view)[1].split()[3])
        assert gone == 400 - len(view.lines.items)


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("typed", ["", "step 1", "!step 1"])
async def test_rows_and_matches_stay_correct_when_old_lines_are_dropped(wraps: bool, typed: str) -> None:
    items = [line(number, f"step {number} " + "loss " * (number % 40)) for number in range(700)]
    view = LogView(max_items=320)
    async with Host(view).run_test(size=(60, 24)) as pilot:
        await settled(pilot)
        view.wraps, view.filter_text = wraps, typed
        await pilot.pause()
        for start in range(0, 700, 70):
            view.append(items[start : start + 70])
            await pilot.press("pageup")
            fresh = LogLines(len(view.lines.items), view.lines.gone)
            fresh.set_filter(typed, hides=True)
            fresh.add(view.lines.items)
            fresh.set_wrap(view.content_size.width - 1 if wraps else 0, STAMP_CELLS)
            held = view.lines
            assert held.match_count == fresh.match_count
            assert [plain_text(item) for item in held.shown] == [plain_text(item) for item in fresh.shown]
            assert held.row_count == fresh.row_count
            places = range(held.row_count)
            assert [held.at_row(row) for row in places] == [fresh.at_row(row) for row in places]
            assert list(map(held.row_of, range(len(held.shown)))) == list(
                map(fresh.row_of, range(len(fresh.shown)))
            )


async def test_the_scroll_position_of_a_wrapped_filtered_log_stays_when_old_lines_are_dropped() -> None:
    view = LogView(max_items=320)
    async with Host(view).run_test(size=(60, 24)) as pilot:
        await settled(pilot)
        view.wraps, view.filter_text = True, "step"
        items = [line(number, f"step {number} " + "loss " * (number % 40)) for number in range(600)]
        view.append(items[:300])
        await pilot.press("pageup")
        before = texts(view)
        for start in range(300, 600, 50):
            view.append(items[start : start + 50])
            await pilot.pause()
            if view.lines.items[0].seq <= 200:
                assert texts(view) == before


@pytest.mark.slow
async def test_any_log_bytes_are_sanitized_before_drawing() -> None:
    hostile = Marker(Mark.NOTE, "\x1b[2J\u202e[/b]", HERE)
    anything = st.lists(st.one_of(st.binary(max_size=120), st.text(max_size=60).map(str.encode)), max_size=8)
    view = LogView(name_of=lambda _: "\x9bm")
    async with Host(view).run_test(size=(40, 24)) as pilot:
        await settled(pilot)

        @given(raw=anything, wraps=st.booleans(), typed=st.sampled_from(["", "[^a]", "!b", "("]))
        def all_is_harmless(raw: list[bytes], wraps: bool, typed: str) -> None:
            view.show(feed_of(*(line(number, text or b"-") for number, text in enumerate(raw)), hostile))
            view.wraps = wraps
            view.filter_text = typed
            for y in range(24):
                strip = view.render_line(y)
                assert not UNSAFE.search(strip.text)
                assert strip.cell_length == 40

        all_is_harmless()


@given(text=st.text(alphabet="ab中文é ", max_size=60), width=st.integers(2, 20))
def test_wrapped_parts_fit_the_width_and_are_in_order(text: str, width: int) -> None:
    cuts = [0, *wrap_cuts(text, width)]
    assert all(end - start <= width for start, end in pairwise(cuts))
    assert cuts == sorted(cuts)


def test_a_progress_line_shows_its_latest_state() -> None:
    assert plain_text(line(0, b" 10%|#   |\r 50%|##  |\r100%|####|")) == "100%|####|"


def test_a_negated_filter_highlights_nothing() -> None:
    assert pattern_of("!x") is None
    assert pattern_of("a(") is not None


async def test_a_flood_of_log_lines_is_drained_in_batches_and_keys_still_work() -> None:
    queue = LineQueue(EVERYTHING, lambda _: "", window_s=0.0, max_items=10_000_000)
    items = [line(number, f"step {number} loss 1.234 lr 2.1e-05 412 img/s") for number in range(200_000)]
    view = LogView(queue)
    async with Host(view).run_test(size=(200, 60)) as pilot:
        for start in range(0, len(items), 1000):
            queue.put(HERE, items[start : start + 1000])
        view.drain()
        assert len(view.lines.items) <= LINES_PER_DRAIN
        await pilot.press("k")
        assert not view.follows
        while view.lines.items[-1] is not items[-1]:
            view.drain()
        await pilot.press("G")
        assert texts(view)[-1].startswith("step 199999")


async def test_a_row_that_only_scrolls_is_not_redrawn() -> None:
    app = Host(LogView(feed_of(*(line(number) for number in range(200)))))

    async with app.run_test(size=(80, 24)) as pilot:
        drawn_anew = 24
        for number in range(200, 250):  # its look may be set anew while it comes on screen
            await settled(pilot)
            before = [app.view.render_line(y) for y in range(app.view.size.height)]
            app.view.append([line(number)])
            await settled(pilot)
            after = [app.view.render_line(y) for y in range(app.view.size.height)]
            assert f"line {number}" in after[-1].text
            drawn_anew = sum(new is not old for old, new in zip(before[1:], after, strict=False))
            if drawn_anew <= 2:  # where the thumb is now
                break
        assert drawn_anew <= 2


async def test_log_rows_are_redrawn_when_their_appearance_changes() -> None:
    queue = feed_of(*(line(number, f"step {number} " + "x" * 100) for number in range(200)))
    app = Host(LogView(queue))
    async with app.run_test(size=(80, 24)) as pilot:

        def drawn() -> list[tuple[str, str]]:
            rows = (app.view.render_line(y) for y in range(5, 10))
            return [(row.text, str([each.style for each in row])) for row in rows]

        await settled(pilot)
        await pilot.press("k")
        seen = [drawn()]
        for change in (
            lambda: pilot.press("t"),
            lambda: pilot.press("l"),
            lambda: pilot.press("w"),
            lambda: setattr(app.view, "filter_text", "step"),
            lambda: pilot.press("N"),
            lambda: setattr(app, "theme", "textual-light"),
            lambda: resize(pilot, 70, 24),
        ):
            if (doing := change()) is not None:
                await doing
            await pilot.pause()
            app.view.render_lines(app.view.size.region)
            seen.append(drawn())
            assert seen[-1] != seen[-2], len(seen)


async def test_log_rows_are_redrawn_when_only_the_timestamp_colour_changes() -> None:
    app = Host(LogView(feed_of(line(0))))
    about: dict[str, Any] = {**themes.load()[themes.DEFAULT]}
    variables = {**about["variables"], "quiet": "#ff0000"}
    app.register_theme(Theme(**{**about, "name": "x", "variables": variables}))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.theme = "x"
        await settled(pilot)
        stamp = next(iter(app.view.render_line(0))).style
        assert stamp is not None and stamp.color is not None and stamp.color.name == "#ff0000"
