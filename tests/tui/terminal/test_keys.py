"""Keys reach what the keys before them led to; arrow keys torn by a slow line do no harm."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from textual import _parser, constants, events, work
from textual._xterm_parser import XTermParser
from textual.app import ComposeResult
from textual.drivers import linux_driver
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from tests.load.running import LoadServer
from tests.support.terminal import Terminal
from tests.tui.terminal.test_resized import chosen, rows
from tui.screens import key_table
from tui.terminal.driver import KeyParser, PacedApp
from tui.terminal.key_queue import keys_held

ESCAPE = "\x1b"
ARROWS = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "[H": "home",
    "[F": "end",
    "OP": "f1",
    "OS": "f4",
}
NEVER_MS, AT_ONCE_MS = "600000", "1"
NODES_COLUMN = "HELD BY"
"""Only in the list of nodes, not in what the prompt offers on the way there."""
OVER_SSH_S = 0.35
"""Escape delay that `terminal.prepare` sets over SSH."""


class Clock:
    """A clock that goes on only when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_parser, "get_time", clock)
    monkeypatch.setattr(constants, "ESCAPE_DELAY", OVER_SSH_S)
    return clock


@pytest.mark.parametrize("gap_ms", [50, 150, 300])
@pytest.mark.parametrize("tail", list(ARROWS))
def test_an_arrow_sequence_split_over_ssh_is_parsed_as_the_arrow_key(
    clock: Clock, tail: str, gap_ms: int
) -> None:
    parser = XTermParser()
    found = keys_of(parser.feed(ESCAPE))
    for _ in range(gap_ms // 50):
        clock.now_s += 0.05
        found += keys_of(parser.tick())
    found += keys_of(parser.feed(tail))
    assert found == [ARROWS[tail]]


def test_a_lone_escape_over_ssh_becomes_the_escape_key_after_a_delay(clock: Clock) -> None:
    parser = XTermParser()
    assert keys_of(parser.feed(ESCAPE)) == []
    clock.now_s += OVER_SSH_S
    assert keys_of(parser.tick()) == ["escape"]


def test_arrow_sequences_in_one_packet_are_parsed_as_arrows(clock: Clock) -> None:
    assert keys_of(XTermParser().feed(ESCAPE + "[B" + ESCAPE + "[A")) == ["down", "up"]


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (f"{ESCAPE}l", ["escape", "l"]),
        (f"{ESCAPE}L", ["escape", "L"]),
        (f"{ESCAPE}1", ["escape", "1"]),
        (f"{ESCAPE}-", ["escape", "minus"]),
        (f"{ESCAPE}:nodes", ["escape", "colon", *"nodes"]),
        (f"{ESCAPE}\r", ["escape", "enter"]),
        (f"{ESCAPE}\x04", ["escape", "ctrl+d"]),
        (f"{ESCAPE}{ESCAPE}l", ["escape", "escape", "l"]),
        (f"{ESCAPE}[", ["left_square_bracket"]),
        (f"{ESCAPE}b", ["ctrl+left"]),
    ],
)
def test_escape_followed_directly_by_a_key_is_parsed_as_two_keys(
    clock: Clock, sent: str, keys: list[str]
) -> None:
    assert linux_driver.XTermParser is KeyParser  # type: ignore[attr-defined]
    parser = KeyParser()
    found = keys_of(parser.feed(sent))
    clock.now_s += OVER_SSH_S
    assert found + keys_of(parser.tick()) == keys


PASTED = "\x1b[200~{}\x1b[201~"


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ("ls\x1b[106;5uq\x1b[13u:quit", "ls\nq\r:quit"),
        ("a\x1b[27;5;106~\x1b[27;5;105~b\x1b[27;1;13~", "a\n\tb\r"),
        ("\x1b[31mred\x1b[0m and " + "long " * 20, "red and " + "long " * 20),
        ("\x1bOA\x1b[A\x1b", "OA"),
        ("höme 家\x1b[228u\x1b[9999999u\x1b[27;5;100~", "höme 家ä"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_paste_is_one_text_and_never_keys(sent: str, text: str, size: int) -> None:
    parser, whole = KeyParser(), f"x{PASTED.format(sent)}y"
    found = [each for at in range(0, len(whole), size) for each in parser.feed(whole[at : at + size])]
    pasted = "".join(each.text for each in found if isinstance(each, events.Paste))
    assert pasted == text and keys_of(found) == ["x", "y"]


@pytest.fixture(scope="module")
def server() -> Iterator[LoadServer]:
    with LoadServer(nodes=4, jobs=12, lifetime_s=240) as server:
        yield server


@contextmanager
def opened(server: LoadServer, folder: Path, delay_ms: str) -> Iterator[Terminal]:
    homes = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("DATA", "STATE", "CONFIG", "CACHE")}
    env = {
        **os.environ,
        **homes,
        "TERM": "xterm-256color",
        "SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22",
        "ESCDELAY": delay_ms,
    }
    words = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", str(server.kubeconfig)]
    with Terminal(words, columns=100, lines=40, env=env) as terminal:
        terminal.wait_for(lambda screen: chosen(screen) and len(rows(screen)) == 12)
        yield terminal


@pytest.mark.slow
def test_split_arrow_sequences_only_move_the_cursor(server: LoadServer, tmp_path: Path) -> None:
    with opened(server, tmp_path, NEVER_MS) as console:
        there = rows(console.text)
        for number in (1, 2, 3):
            console.send(ESCAPE)
            console.wait_until_taken()
            console.send("[")
            console.wait_until_taken()
            console.send("B")
            console.wait_for(lambda screen, number=number: chosen(screen) == there[number])  # type: ignore[misc]
        assert "Jobs (" in console.text


@pytest.mark.slow
def test_a_too_late_arrow_remainder_changes_nothing_on_the_cluster(
    server: LoadServer, tmp_path: Path
) -> None:
    asking = {key.keys for _, keys in key_table().sections for key in keys if key.changes_cluster}
    with opened(server, tmp_path, AT_ONCE_MS) as console:
        for tail in ARROWS:
            console.send(":nodes\r", shows=NODES_COLUMN)
            console.send(ESCAPE)
            console.wait_for(lambda screen: NODES_COLUMN not in screen and "Jobs (" in screen)
            for letter in tail:
                console.send(letter)
                console.wait_until_taken()
            if asking & set(tail):
                console.wait_for("Cancel")
                console.send("\r")
                console.wait_for(lambda screen: "Cancel" not in screen)
        # A question or a prompt would take these keys, here and above; then there were no nodes.
        console.send(":nodes\r", shows=NODES_COLUMN)
    assert server.count()["changes"] == 0


def test_no_key_is_bound_to_a_bracket() -> None:
    brackets = {"[", "]", "left_square_bracket", "right_square_bracket"}
    bound = {key.strip() for _, keys in key_table().sections for each in keys for key in each.keys.split(",")}
    assert not bound & brackets


def keys_of(messages: Iterable[Message]) -> list[str]:
    return [message.key for message in messages if isinstance(message, events.Key)]


class Question(Screen[str]):
    def compose(self) -> ComposeResult:
        yield Input(id="answer")


class TwoFields(PacedApp[None]):
    """Function keys lead from the first field to another, each in its own way."""

    BINDINGS = [(f"f{number}", f"go({number})") for number in range(1, 7)]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.fetched = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield Input(id="first")
        yield Input(id="second")

    async def action_go(self, number: int) -> None:
        second = self.query_one("#second", Input)
        ways: dict[int, Callable[[], object]] = {
            1: second.focus,
            2: lambda: self.call_after_refresh(second.refresh(layout=True).focus),
            3: lambda: self.push_screen(Question()),
            4: self.ask,
            5: self.fetch,
            6: lambda: second.call_later(self.fetched.wait),
        }
        ways[number]()

    @work
    async def ask(self) -> None:
        await self.push_screen_wait(Question())

    @work
    async def fetch(self) -> None:
        with keys_held(self):
            await self.fetched.wait()
            self.query_one("#second").focus()

    def type(self, *keys: str) -> None:
        for key in keys:
            self.post_message(events.Key(key, key if len(key) == 1 else None))

    def texts(self) -> dict[str | None, str]:
        fields = [field for screen in self.screen_stack for field in screen.query(Input)]
        return {field.id: field.value for field in fields if field.value}


async def until(is_so: Callable[[], object]) -> None:
    for _ in range(6_000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("never came true")


@pytest.mark.parametrize(
    ("key", "field"), [("f1", "second"), ("f2", "second"), ("f3", "answer"), ("f4", "answer")]
)
async def test_keys_typed_ahead_reach_the_field_that_the_first_key_focuses(key: str, field: str) -> None:
    app = TwoFields()
    async with app.run_test() as pilot:
        await pilot.pause()
        app.type("a", key, "b", "c")
        await until(lambda: app.texts() == {"first": "a", field: "bc"})


async def test_keys_typed_ahead_wait_for_a_fetch_started_by_a_key() -> None:
    app = TwoFields()
    async with app.run_test() as pilot:
        await pilot.pause()
        app.type("f5", "b", "c")
        await pilot.pause(0.1)
        assert app.texts() == {}
        app.fetched.set()
        await until(lambda: app.texts() == {"second": "bc"})


@pytest.mark.parametrize("key", ["f5", "f6"])
async def test_keys_typed_ahead_wait_only_up_to_a_time_limit(key: str) -> None:
    app = TwoFields()
    async with app.run_test() as pilot:
        await pilot.pause()
        app.type(key, "b")
        await until(lambda: app.texts() == {"first": "b"})
        app.fetched.set()
