"""A key reaches what the keys before it have led to, whichever way they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from textual import events, work
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from tui.terminal.driver import PacedApp
from tui.terminal.key_queue import keys_held


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
