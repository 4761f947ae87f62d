"""The reader of stdout goes away, or does something else."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tui.terminal.closed_pipe import ended_by_closed_pipe


@pytest.fixture
def make_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Return what makes stdout a pipe, closed by the test: pytest sets stdout after fixtures."""
    with ExitStack() as opened:

        def make() -> int:
            reading, writing = os.pipe()
            monkeypatch.setattr("sys.stdout", opened.enter_context(open(writing, "w")))
            return reading

        yield make


async def wait_in_block(entered: asyncio.Event, go_on: asyncio.Event) -> str:
    with ended_by_closed_pipe():
        entered.set()
        async with asyncio.timeout(10):
            await go_on.wait()
    await asyncio.sleep(0)
    return "went on"


async def test_a_block_that_waits_ends_when_the_reader_goes_away(make_pipe: Callable[[], int]) -> None:
    pipe = make_pipe()
    entered = asyncio.Event()
    waiting = asyncio.create_task(wait_in_block(entered, asyncio.Event()))
    await entered.wait()
    os.close(pipe)
    with pytest.raises(BrokenPipeError):
        await waiting
    assert not waiting.cancelled()


async def test_a_reader_that_was_never_there_ends_it_too(make_pipe: Callable[[], int]) -> None:
    pipe = make_pipe()
    os.close(pipe)
    with pytest.raises(BrokenPipeError):
        await wait_in_block(asyncio.Event(), asyncio.Event())


async def test_another_cancellation_stays_one(make_pipe: Callable[[], int]) -> None:
    pipe = make_pipe()
    entered = asyncio.Event()
    waiting = asyncio.create_task(wait_in_block(entered, asyncio.Event()))
    await entered.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    os.close(pipe)


async def test_after_the_block_nobody_looks_any_more(make_pipe: Callable[[], int]) -> None:
    pipe = make_pipe()
    go_on = asyncio.Event()
    go_on.set()
    assert await wait_in_block(asyncio.Event(), go_on) == "went on"
    os.close(pipe)
    await asyncio.sleep(0)


async def test_a_file_has_no_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = asyncio.Event()
    go_on.set()
    with open(tmp_path / "out", "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert await wait_in_block(asyncio.Event(), go_on) == "went on"


async def test_input_of_a_socket_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    entered, go_on = asyncio.Event(), asyncio.Event()
    with ours, theirs, ours.makefile("w") as out:
        monkeypatch.setattr("sys.stdout", out)
        waiting = asyncio.create_task(wait_in_block(entered, go_on))
        await entered.wait()
        theirs.send(b"words")
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        assert await waiting == "went on"
