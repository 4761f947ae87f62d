"""Writing to a terminal, whether it reads or not: nothing is lost, blocked or piled up."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest

from tests.support.driver_app import Driven, rows_at
from tui.terminal.writer import LARGEST_CHARACTERS, TerminalWriter

WAIT_S = 120.0
FULL = "x" * LARGEST_CHARACTERS
"""More text than an unread pipe takes."""


class Pipe:
    """A terminal that reads only when it is told to."""

    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()
        self.emptied: Queue[bool] = Queue()
        self.hung_up = threading.Event()
        self.writer = TerminalWriter(
            self.writes, "utf-8", lambda _, is_missing: self.emptied.put(is_missing), self.hung_up.set
        )

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += os.read(self.reads, size - len(found))
        return found

    def read_until_emptied(self) -> tuple[int, bool]:
        """Read all there is; return how much it was, and whether anything is missing."""
        size = 0
        while self.emptied.empty() or select.select([self.reads], [], [], 0)[0]:
            if select.select([self.reads], [], [], 0.05)[0]:
                size += len(os.read(self.reads, 65536))
        return size, self.emptied.get()


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.001)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    if not pipe.hung_up.is_set():
        os.close(pipe.reads)
    pipe.writer.close(WAIT_S)
    os.close(pipe.writes)


def test_writes_arrive_in_order_and_the_writer_reports_when_it_is_empty(pipe: Pipe) -> None:
    for word in ("one ", "zwei ", "三"):
        pipe.writer.write(word)
    assert pipe.read(len("one zwei 三".encode())).decode() == "one zwei 三"
    assert pipe.emptied.get(timeout=WAIT_S) is False


def test_writes_to_a_stalled_terminal_never_block_and_the_buffer_is_bounded(pipe: Pipe) -> None:
    pipe.writer.write("first")
    for _ in range(1000):
        pipe.writer.write(FULL)
    assert not pipe.writer.is_empty
    size, _ = pipe.read_until_emptied()
    assert size <= 2 * LARGEST_CHARACTERS


def test_a_terminal_that_reads_slowly_is_not_stuck(pipe: Pipe) -> None:
    pipe.writer.write(FULL)
    wait_until(lambda: not select.select([], [pipe.writes], [], 0)[1])
    stuck_at_s = pipe.writer.stuck_at_s
    pipe.read(65536)
    wait_until(lambda: pipe.writer.stuck_at_s > stuck_at_s)
    assert not pipe.writer.is_empty
    pipe.writer.write("behind")
    assert pipe.read_until_emptied() == (len(FULL) - 65536 + len("behind"), False)


def test_dropped_output_is_reported_when_the_terminal_reads_again(pipe: Pipe) -> None:
    for _ in range(100):
        pipe.writer.write(FULL)
    assert pipe.read_until_emptied()[1] is True
    assert pipe.writer.is_empty
    pipe.writer.write("and on")
    assert pipe.read_until_emptied()[1] is False


def test_dropping_pending_output_makes_room_for_an_urgent_write(pipe: Pipe) -> None:
    pipe.writer.write(FULL)
    pipe.writer.write(FULL)
    pipe.writer.drop()
    pipe.writer.write("restored")
    closing = threading.Thread(target=pipe.writer.close, args=(WAIT_S,))
    closing.start()
    found = b""
    while not found.endswith(b"restored"):
        found += os.read(pipe.reads, 65536)
    closing.join()
    assert len(found) <= 2 * len(FULL) + len("restored")


def test_closing_gives_up_on_a_terminal_that_never_reads_again(pipe: Pipe) -> None:
    pipe.writer.write(FULL)
    assert pipe.writer.close(0.01) is False
    pipe.writer.write("nobody will read this")
    assert b"nobody" not in pipe.read(65536)


def test_a_closed_terminal_is_reported_and_later_writes_are_discarded(pipe: Pipe) -> None:
    os.close(pipe.reads)
    pipe.writer.write("hello?")
    assert pipe.hung_up.wait(WAIT_S)
    pipe.writer.write("hello again?")
    assert pipe.writer.close(WAIT_S)


def test_unencodable_characters_are_replaced() -> None:
    reads, writes = os.pipe()
    writer = TerminalWriter(writes, "ascii", lambda _took_s, _is_missing: None, lambda: None)
    writer.write("50 €")
    assert writer.close(WAIT_S)
    assert os.read(reads, 100) == b"50 ?"
    os.close(reads)
    os.close(writes)


COLUMNS, LINES = 200, 50
FRAMES_OF_A_MINUTE = 600
"""As many as are painted in a minute at ten a second; here they come faster."""
FAST_S = 0.005


@pytest.mark.slow
def test_keys_and_work_continue_in_bounded_memory_while_the_terminal_is_stalled() -> None:
    with Driven(period_s=FAST_S, columns=COLUMNS, lines=LINES) as terminal:
        terminal.wait_for("keys 0")
        with terminal.stalled():
            first = terminal.wait_to_be_told(lambda report: report["is_stuck"])
            before_kib = resident_kib(terminal.pid)
            enough = first["frames"] + FRAMES_OF_A_MINUTE
            terminal.wait_to_be_told(lambda report: report["frames"] > enough)
            grown_kib = resident_kib(terminal.pid) - before_kib
            terminal.send("xxx")
            terminal.wait_to_be_told(lambda report: report["keys"] == 3)
            terminal.send("s")
            halted = terminal.wait_to_be_told(lambda report: report["is_halted"])
        read_bytes = len(terminal.output)
        terminal.wait_for("keys 3")
        wanted = [line.rstrip() for line in rows_at(halted["ticks"], LINES).split("\n")]
        terminal.wait_for(lambda _: terminal.lines[1:] == wanted)
    assert len(terminal.output) - read_bytes <= 3 * LARGEST_CHARACTERS
    assert grown_kib < 16 * 1024


@pytest.mark.slow
def test_painting_resumes_when_a_stalled_terminal_reads_again() -> None:
    with Driven(period_s=FAST_S) as terminal:
        terminal.wait_for("keys 0")
        for count in (1, 2, 3):
            with terminal.stalled():
                told = terminal.wait_to_be_told(lambda report: report["is_stuck"])
                terminal.send("x")
                terminal.wait_to_be_told(lambda report, count=count: report["keys"] == count)  # type: ignore[misc]
            terminal.wait_for(f"keys {count}")
            terminal.wait_for(
                lambda screen, told=told: int(screen.split("\n")[1].split()[0]) > told["ticks"]  # type: ignore[misc]
            )


def test_a_signal_ends_the_console_while_the_terminal_is_stalled() -> None:
    with Driven(period_s=FAST_S) as terminal:
        terminal.wait_for("keys 0")
        with terminal.stalled():
            terminal.wait_to_be_told(lambda report: report["is_stuck"])
            terminal.signal(signal.SIGTERM)
            assert terminal.wait_for_end() == 143
            assert not terminal.is_raw


def test_a_terminal_hangup_ends_the_console() -> None:
    with Driven(period_s=FAST_S) as terminal:
        terminal.wait_for("keys 0")
        terminal.hang_up()
        assert terminal.wait_for_end() == 129


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
