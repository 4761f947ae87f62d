"""Words and bytes that would do harm in a terminal, and how to see that nothing of them was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App
from textual.color import Color
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from k8s.text.sanitize import UNSAFE

BLACK = Color(0, 0, 0)


SEQUENCES = (
    "\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]52;c;YQ==\x1b\\\x1bPq#0\x1b\\\x1b_apc\x1b^pm\x1bX\x1bc"
    "\x9b5n\x9d8;;http://x\x9clink\x90dcs\x98\x9e\x9f\x7f\x00\x85\x07\x08\r\n\t\x0b end\x1b"
)


MARKUP = "[/b][red]x[/red][@click=app.quit]q[/][link=http://x]l[/link]\\[a] $primary {x} %s [[ ]] [/] [bold"


LETTERS = (
    "pods\u202egpj\u2066\u200b\u200d\ufeff\xad e\u0301\u0301 训练 👩\u200d👩\u200d👧 ⚠\ufe0f"
    " \U000e0041\u2028\ufdfd\u115f"
)


HOSTILE = {
    "sequences": SEQUENCES,
    "markup": MARKUP,
    "letters": LETTERS,
    "long": ((SEQUENCES + MARKUP + LETTERS) * 100)[:10_000],
}


NASTY = st.lists(
    st.one_of(st.sampled_from((*SEQUENCES, *MARKUP, *LETTERS, "\ud800", "训" * 50)), st.characters()),
    max_size=30,
).map("".join)


def assert_harmless(strips: Sequence[Strip], width: int) -> None:
    for strip in strips:
        for text, style, control in strip:
            assert not control and not UNSAFE.search(text), repr(text)
            assert not (style and style.link)
        assert sum(cell_len(text) for text, _, _ in strip) <= width, strip.text
        strip.text.encode("utf-8")


def assert_screen_harmless(app: App[Any]) -> None:
    assert_harmless(app.screen._compositor.render_strips(), app.screen.size.width)


def assert_all_harmless(app: App[Any]) -> None:
    """Look at what is composed, and at every widget alone: what hides now may be seen next."""
    screen = app.screen
    assert_screen_harmless(app)
    for widget in screen.walk_children(Widget):
        if widget.display and widget.size:
            width, height = widget.outer_size
            assert_harmless(widget.render_lines(Region(0, 0, width, height)), width)
