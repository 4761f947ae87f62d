"""The terminal before and after the console: frugal over SSH, and whole again however we end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping

EXIT_CODES: Mapping[signal.Signals, int] = {
    signal.SIGINT: 130,
    signal.SIGTERM: 143,
    signal.SIGHUP: 129,
}
"""What a program ended by a signal answers: 128 and the signal's number."""

_RESTORE = (
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[<u\x1b[?25h\x1b[?1049l\x1b[0m"
)
"""Mouse, focus and paste reports off, cursor on, main screen, plain colours."""


def prepare() -> None:
    """Set what Textual reads from the environment when it is imported.

    Few frames and no animation, because every frame is bytes over SSH; and there a longer
    wait before a lone ESC counts as the escape key, because arrows may arrive in pieces.
    """
    is_remote = "SSH_CONNECTION" in os.environ
    for name, value in (
        ("TEXTUAL_FPS", "10" if is_remote else "20"),
        ("TEXTUAL_ANIMATIONS", "none"),
        ("TEXTUAL_SMOOTH_SCROLL", "0"),
        ("ESCDELAY", "300" if is_remote else "100"),
    ):
        os.environ.setdefault(name, value)


def is_usable() -> bool:
    """Tell whether there is a terminal to draw on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def wants_no_colours() -> bool:
    """Tell whether the terminal, or the person at it, has no use for colours."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "").startswith(("linux", "vt"))


def wants_ascii() -> bool:
    """Tell whether the locale cannot show more than ASCII."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return not encoding.startswith("utf")


def on_signals(leave: Callable[[int], None]) -> None:
    """Call `leave` with an exit code at the first INT, TERM or HUP; at the second end at once.

    Needs a running event loop. Textual itself restores the terminal after neither TERM nor HUP.
    """
    loop = asyncio.get_running_loop()
    seen: list[signal.Signals] = []

    def caught(number: signal.Signals) -> None:
        seen.append(number)
        if len(seen) > 1:
            restore()
            os._exit(EXIT_CODES[number])
        leave(EXIT_CODES[number])

    for number in EXIT_CODES:
        loop.add_signal_handler(number, caught, number)


def restore() -> None:
    """Put the terminal back by force; harmless when it is as it should be, or gone."""
    for fd in (sys.__stderr__, sys.__stdout__):
        if fd is None or fd.closed or not fd.isatty():
            continue
        try:
            os.write(fd.fileno(), _RESTORE.encode())
        except OSError:
            continue
        return
