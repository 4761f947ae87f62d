"""What proves a key: a test pressed each of its names, and saw something come true that was not so before.

@proves("jobs.logs")
async def test_…(tmp_path):
    …
    await hands.press("jobs.logs", lambda: "› logs" in play.text, undo=["escape"])

A test that says so and did not do it fails; so does the build while a key of the table has no such test.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from types import ModuleType

import pytest

from tests.support.playground import Playground
from tui.keys import Key
from tui.screens import key_table

KEYS: dict[str, Key] = {key.id: key for _, keys in key_table().sections for key in keys}
"""The whole table by ids."""
_MAY_NOT_RUN = {"skip", "skipif", "xfail", "cluster"}
"""Marks of tests that prove nothing: they may be left out, or may fail."""
_pressed: ContextVar[set[tuple[str, str]]] = ContextVar("pressed")
_CLAIM = "proven_ids"

Test = Callable[..., Awaitable[None]]


def names_of(id: str) -> list[str]:
    """Return every name of a key, as Textual names them."""
    return [name.strip() for name in KEYS[id].keys.split(",")]


def proves(*ids: str) -> Callable[[Test], Test]:
    """Let a test fail that does not press all of these keys through its hands."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        async def run(*args: object, **kwargs: object) -> None:
            pressed: set[tuple[str, str]] = set()
            token = _pressed.set(pressed)
            try:
                await test(*args, **kwargs)
            except pytest.skip.Exception as skipped:
                raise AssertionError(f"A test that proves keys may not be skipped: {skipped}") from None
            finally:
                _pressed.reset(token)
            missing = [f"{id} as {name}" for id in ids for name in names_of(id) if (id, name) not in pressed]
            assert not missing, f"said to be proven, but not pressed: {', '.join(missing)}"

        setattr(run, _CLAIM, ids)
        return run

    return decorate


def proven_by(module: ModuleType) -> dict[str, str]:
    """Return the ids that the tests of a module prove, with the name of one test for each."""
    return {
        id: name
        for name, test in vars(module).items()
        if name.startswith("test_") and not _may_not_run(module, test)
        for id in getattr(test, _CLAIM, ())
    }


def _may_not_run(module: ModuleType, test: object) -> bool:
    marks = [mark for owner in (module, test) for mark in _listed(getattr(owner, "pytestmark", ()))]
    return any(getattr(mark, "name", "") in _MAY_NOT_RUN for mark in marks)


def _listed(marks: object) -> Iterable[object]:
    return marks if isinstance(marks, list | tuple) else [marks]


class Hands:
    """Press keys by their ids, as the table says, and look at what they do."""

    def __init__(
        self,
        press: Callable[..., Awaitable[None]],
        until: Callable[[Callable[[], object]], Awaitable[object]],
    ) -> None:
        """Take how keys are pressed, and how it is waited until something is so."""
        self._press = press
        self._until = until

    @classmethod
    def on(cls, play: Playground) -> Hands:
        """Return the hands of whoever sits at this console."""
        return cls(play.press, play.until)

    async def press(
        self,
        id: str,
        shows: Callable[[], object],
        *,
        undo: Sequence[str] | Callable[[], Awaitable[None]] = (),
    ) -> None:
        """Press every name of a key, one after the other, and see each time that it does what it should.

        Args:
            id: The key.
            shows: Tells whether it has done that: not yet before, and at some time after.
            undo: Keys that bring back what was before, or what presses them; needed where the key has
                several names.
        """
        for name in names_of(id):
            await self._see(lambda: not shows(), f"{id}: what {name} is to do is so before it is pressed")
            await self._press(name)
            await self._see(shows, f"{id}: {name} did not do what it should")
            _pressed.get().add((id, name))
            if undo:
                await (undo() if callable(undo) else self._press(*undo))
                await self._see(lambda: not shows(), f"{id}: what {name} did is not undone")

    async def _see(self, is_so: Callable[[], object], complaint: str) -> None:
        try:
            await self._until(is_so)
        except AssertionError as error:
            raise AssertionError(f"{complaint}; {error}") from None
