"""A small app on the console's driver, for tests in a terminal: its screen changes always, keys are counted.

It tells what goes on inside by lines of JSON on a pipe, which works also while the terminal does not.
Run as `python -m tests.support.driver_app PIPE PERIOD_S`; with `Driven` from a test.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Static

from tests import ROOT
from tests.support.terminal import Terminal
from tui.terminal import tty_state
from tui.terminal.driver import ConsoleDriver, FrameRate, PacedApp

Report = Mapping[str, Any]


class DrivenApp(PacedApp[int]):
    """Rows that all change with each tick, and a count of keys."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "#rows { height: 1fr; }"
    BINDINGS = [  # noqa: RUF012
        Binding("x", "count"),
        Binding("s", "halt"),
        Binding("c", "crash"),
        Binding("ctrl+z", "suspend_process"),
    ]

    def __init__(self, pipe: int) -> None:
        super().__init__()
        self._pipe = pipe
        self.ticks = self.keys = self.frames = 0
        self.is_halted = False

    def compose(self) -> ComposeResult:
        yield Static(id="keys", markup=False)
        yield Static(id="rows", markup=False)

    def on_mount(self) -> None:
        self.set_interval(0.002, self.tick)
        self.action_count(0)

    def tick(self) -> None:
        if not self.is_halted:
            self.ticks += 1
            self.query_one("#rows", Static).update(rows_at(self.ticks, self.size.height), layout=False)
        if self.ticks % 10 == 0:
            self.tell()

    def action_count(self, more: int = 1) -> None:
        self.keys += more
        self.query_one("#keys", Static).update(f"keys {self.keys}", layout=False)
        self.tell()

    def action_halt(self) -> None:
        self.is_halted = True
        self.tell()

    def action_crash(self) -> None:
        token = "a-token-of-somebody"
        raise RuntimeError(f"this is a bug{token[:0]}")

    def post_display_hook(self) -> None:
        self.frames += 1

    def on_unmount(self) -> None:
        """Take as long to end as the test wants: until there is a file."""
        if wanted := os.environ.get("DRIVEN_WAITS_FOR"):
            self.tell(is_ending=True)
            while not Path(wanted).exists():
                time.sleep(0.01)
            self.tell(is_ended=True)

    def tell(self, **more: Any) -> None:
        writer = self.driver.writer if self.driver is not None else None
        report = {
            "ticks": self.ticks,
            "keys": self.keys,
            "frames": self.frames,
            "is_halted": self.is_halted,
            "is_stuck": writer is not None and writer.is_stuck,
            **more,
        }
        os.write(self._pipe, json.dumps(report).encode() + b"\n")


def rows_at(ticks: int, height: int) -> str:
    return "\n".join(f"{ticks} " * 4 for _ in range(height - 1))


class Driven(Terminal):
    def __init__(self, *, period_s: float = 0.1, columns: int = 80, lines: int = 24, **env: str) -> None:
        self._pipe, told = os.pipe()
        os.set_inheritable(told, True)
        words = [sys.executable, "-m", "tests.support.driver_app", str(told), str(period_s)]
        super().__init__(words, columns=columns, lines=lines, env={**os.environ, **env}, folder=ROOT)
        os.close(told)
        self._left = b""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        os.close(self._pipe)

    def wait_to_be_told(self, is_wanted: Callable[[Report], object], timeout_s: float = 60) -> Report:
        """Return the first report that is as wanted; the terminal is not read meanwhile."""
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._left:
                line, _, self._left = self._left.partition(b"\n")
                report: Report = json.loads(line)
                if is_wanted(report):
                    return report
            ready, _, _ = select.select([self._pipe], [], [], max(0, deadline - time.monotonic()))
            more = os.read(self._pipe, 65536) if ready else b""
            if not more:
                raise AssertionError("it ended" if ready else f"not told within {timeout_s} s")
            self._left += more


def main() -> None:
    pipe, period_s = int(sys.argv[1]), float(sys.argv[2])
    tty_state.prepare()

    class Driver(ConsoleDriver):
        def make_frame_rate(self) -> FrameRate:
            return FrameRate(is_remote=False, period_s=period_s)

    app = DrivenApp(pipe)
    app.driver_class = Driver
    try:
        app.run(mouse=False)
    finally:
        tty_state.restore()
    sys.exit(app.return_code or 0)


if __name__ == "__main__":
    main()
