"""Textual's own widgets for logs, with the lines of the load server's log, as many a second."""

from __future__ import annotations

import sys
import time

from textual.app import App, ComposeResult
from textual.widgets import Log, RichLog

from tests.load.logs import LINES_A_SECOND, line

TURN_S = 0.05


class Followed(App[None]):
    """One log that fills the screen, under Textual's own driver and pace."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._written, self._began_s = 0, time.monotonic()

    def compose(self) -> ComposeResult:
        """Lay out the log."""
        yield Log() if self._name == "Log" else RichLog()

    def on_mount(self) -> None:
        """Begin to write."""
        self.set_interval(TURN_S, self.write)

    def write(self) -> None:
        """Write the lines that are due."""
        due = int((time.monotonic() - self._began_s) * LINES_A_SECOND)
        for number in range(self._written, due):
            text = line(number).decode().rstrip("\n")
            if self._name == "Log":
                self.query_one(Log).write_line(text)
            else:
                self.query_one(RichLog).write(text)
        self._written = due


if __name__ == "__main__":
    Followed(sys.argv[1]).run(mouse=False)
