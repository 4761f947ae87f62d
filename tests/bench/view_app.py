"""A log that grows as fast as its view takes it: `python -m tests.bench.view_app WIDGET STREAMS LINES`.

WIDGET is `LogView`, or `RichLog` or `Log` of Textual. `x` counts a key in the line above: `key COUNT;`.
That line ends with `done RATE SEARCH_S` when all lines are shown, RATE in lines a second.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from typing import IO, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Label, Log, RichLog

from k8s.logs import EVERYTHING, LineQueue, LogLine, Target, write_stamp
from k8s.logs.lines import Splitter
from tests.support.themed_app import ThemedApp
from tui.__main__ import GARBAGE
from tui.widgets.log.lines import MAX_ITEMS
from tui.widgets.log.view import LogView

RANKS_PER_STREAM, CHUNK_BYTES = 8, 65_536
START_NS = 1_778_752_800 * 10**9


class Flood(ThemedApp[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "count", priority=True)]

    def __init__(self, name: str, streams: int, lines: int) -> None:
        super().__init__()
        self._presses, self._lines, self._outcome = 0, lines, ""
        self._queue = LineQueue(EVERYTHING, lambda _: "")
        self._targets = [
            Target("lab", f"job-worker-{each}", instance=f"worker-{each}") for each in range(streams)
        ]
        several = None if streams == 1 else lambda item: item.writer
        self._view: Widget
        if name == "LogView":
            self._view = LogView(self._queue, name_of=several)
        else:
            self._view = {"RichLog": RichLog, "Log": Log}[name](max_lines=MAX_ITEMS)

    def compose(self) -> ComposeResult:
        yield Label("key 0")
        yield self._view

    def on_mount(self) -> None:
        self._view.focus()
        self.run_worker(self._write())

    def action_count(self) -> None:
        self._presses += 1
        self._tell()

    def _tell(self) -> None:
        # Both in one line: a key that comes late must not hide the outcome.
        self.query_one(Label).update(f"key {self._presses}; {self._outcome}")

    async def _write(self) -> None:
        bodies = [_body(each, self._lines // len(self._targets)) for each in range(len(self._targets))]
        await self._painted()
        began_s = time.perf_counter()
        if isinstance(self._view, LogView):
            await asyncio.gather(*map(self._feed_stream, self._targets, bodies))
            last = f"step {self._lines // len(self._targets) - 1} "
            while not self._view.lines.items or last.encode() not in self._view.lines.items[-1].text:
                await self._painted()
        else:
            while chunk := bodies[0].readlines(CHUNK_BYTES):
                texts = [line.decode().rstrip("\n") for line in chunk]
                if isinstance(self._view, Log):
                    self._view.write_lines(texts)
                elif isinstance(self._view, RichLog):
                    for text in texts:
                        self._view.write(text)
                await asyncio.sleep(0)
        await self._painted()
        rate, search_s = self._lines / (time.perf_counter() - began_s), 0.0
        if isinstance(self._view, LogView):
            began_s = time.perf_counter()
            self._view.filter_text = "step 77"
            await self._painted()
            search_s = time.perf_counter() - began_s
        self._outcome = f"done {rate:.0f} {search_s:.4f}"
        self._tell()

    async def _feed_stream(self, target: Target, body: IO[bytes]) -> None:
        """Take lines as a follower does, and wait as it does until the view has taken them."""
        splitter, seq = Splitter(), 0
        while chunk := body.read(CHUNK_BYTES):
            items = []
            for piece in splitter.feed(chunk):
                rank, _, _ = piece.raw[5:].partition(b"]")
                items.append(LogLine(piece.stamp_ns, piece.raw, target, seq, int(rank), True, len(rank) + 8))
                seq += 1
            self._queue.put(target, items, is_history=True)
            await self._queue.until_writable(target)
            await asyncio.sleep(0)
        self._queue.put(target, [])  # its history is over: no other waits for it

    async def _painted(self) -> None:
        painted = asyncio.Event()
        self.call_after_refresh(painted.set)
        await painted.wait()


def _body(stream: int, lines: int) -> IO[bytes]:
    """Return the log of a pod, stamped and with its ranks, in a file: it is no memory of the view."""
    body = tempfile.TemporaryFile()  # noqa: SIM115, it is closed with the program
    for number in range(lines):
        rank = stream * RANKS_PER_STREAM + number % RANKS_PER_STREAM
        stamp = write_stamp(START_NS + number * 1_000_000)
        body.write(
            b"%b [rank%d]: step %d loss 0.%03d lr 0.001\n" % (stamp.encode(), rank, number, number % 997)
        )
    body.seek(0)
    return body


if __name__ == "__main__":
    gc.set_threshold(*GARBAGE)  # as the console itself runs
    Flood(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).run(mouse=False)
