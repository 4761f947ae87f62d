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
    """Yield a function that makes stdout a pipe and returns its reading end: pytest sets stdout late."""
    with ExitStack() as opened:

        def make() -> int:
            reading, writing = os.pipe()
            monkeypatch.setattr("sys.stdout", opened.enter_context(open(writing, "w")))
            return reading

        yield make


async def wait_in_block(entered: asyncio.Event, go_on: asyncio.Event) -> str:
    with ended_by_closed_pipe():
        entered.set()
        async with asyncio.timeout(120):
            await go_on.wait()
    await asyncio.sleep(0)
    return "went on"


@pytest.mark.parametrize(
    ("is_closed", "error"),
    [(True, BrokenPipeError), (False, asyncio.CancelledError)],
    ids=["closed", "cancelled"],
)
async def test_a_waiting_block_ends_with_broken_pipe_only_when_the_reader_closes(
    make_pipe: Callable[[], int], is_closed: bool, error: type[BaseException]
) -> None:
    pipe = make_pipe()
    entered = asyncio.Event()
    waiting = asyncio.create_task(wait_in_block(entered, asyncio.Event()))
    await entered.wait()
    if is_closed:
        os.close(pipe)
    else:
        waiting.cancel()
    with pytest.raises(error):
        await waiting
    if not is_closed:
        os.close(pipe)
    assert waiting.cancelled() is not is_closed


async def test_a_pipe_closed_before_the_block_raises_broken_pipe(make_pipe: Callable[[], int]) -> None:
    pipe = make_pipe()
    os.close(pipe)
    with pytest.raises(BrokenPipeError):
        await wait_in_block(asyncio.Event(), asyncio.Event())


async def test_the_pipe_is_not_watched_after_the_block(make_pipe: Callable[[], int]) -> None:
    pipe = make_pipe()
    go_on = asyncio.Event()
    go_on.set()
    assert await wait_in_block(asyncio.Event(), go_on) == "went on"
    os.close(pipe)
    await asyncio.sleep(0)


async def test_the_block_runs_normally_when_stdout_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    go_on.set()
    with open(tmp_path / "out", "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert await wait_in_block(asyncio.Event(), go_on) == "went on"


async def test_input_on_a_socket_as_stdout_does_not_end_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
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
