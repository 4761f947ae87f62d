"""Terminal capabilities, and restoration of the terminal however the console ends."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, Literal

Colours = Literal["none", "16", "256", "true"]

# As shells report signals: 128 plus the number.
EXIT_CODES: Mapping[signal.Signals, int] = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
# Timeout for a graceful exit after a signal.
GRACE_S = 10.0

# Mouse, focus and paste reports off, wrapping and cursor on, plain colours.
_RESTORE = (
    "\x1b[?2026l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[<u"
    "\x1b[?7h\x1b[?25h\x1b[0m"
)
# Both leave the alternate screen; the first also restores the cursor position.
_MAIN_SCREEN, _MAIN_SCREEN_AS_IT_IS = "\x1b[?1049l", "\x1b[?1047l"
# Timeout at the end for a terminal that does not read.
_WRITABLE_S = 0.5
# Terminal attributes before the console, by file descriptor.
_before: dict[int, list[Any]] = {}

# Values of `TEXTUAL_COLOR_SYSTEM`; all others are `standard`, sixteen colours.
_COLOUR_SYSTEMS: Mapping[Colours, str] = {"256": "256", "true": "truecolor"}
_COLOURS_BY_SUFFIX: Mapping[str, Colours] = {"256color": "256", "direct": "true", "truecolor": "true"}
_ASCII_LOCALES = ("C", "POSIX")
_NO_TERMINALS = ("", "dumb", "unknown")
# Terminals whose names do not state their colours.
_TRUE_COLOUR_TERMINALS = ("alacritty", "contour", "foot", "ghostty", "kitty", "wezterm", "xterm-kitty")


def prepare() -> None:
    """Save the state of the terminal, and set environment variables that Textual reads on import.

    Animations are off, because every frame is bytes over SSH; and ESC waits longer there, because
    arrow keys may arrive in pieces, 300 ms apart.
    """
    _remember()
    for name, value in (
        ("TEXTUAL_FPS", "4" if is_remote() else "10"),
        ("TEXTUAL_ANIMATIONS", "none"),
        ("TEXTUAL_SMOOTH_SCROLL", "0"),
        ("TEXTUAL_COLOR_SYSTEM", _COLOUR_SYSTEMS.get(colours(), "standard")),
        ("ESCDELAY", "350" if is_remote() else "100"),
    ):
        os.environ.setdefault(name, value)
    for name in ("COLUMNS", "LINES"):  # a size that a shell exports would stay for ever
        os.environ.pop(name, None)


def terminal_problem() -> str:
    """Return the reason that there is no terminal to draw on; empty if there is one."""
    for name, stream in (("output", sys.stdout), ("input", sys.stdin)):
        if not stream.isatty():
            return f"standard {name} is a file, a pipe or closed"
    term = os.environ.get("TERM", "")
    return f"TERM is {term or 'not set'}" if term in _NO_TERMINALS else ""


def is_remote() -> bool:
    """Return True if the terminal is at the other end of an SSH connection."""
    return "SSH_CONNECTION" in os.environ


def colours() -> Colours:
    """Return the colours that the terminal supports according to its name; `none` if disabled."""
    name = os.environ.get("TERM", "")
    if os.environ.get("NO_COLOR") or name in _NO_TERMINALS:
        return "none"
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "true"
    if name.startswith(_TRUE_COLOUR_TERMINALS):
        return "true"
    return _COLOURS_BY_SUFFIX.get(name.rpartition("-")[2], "16")


def wants_ascii() -> bool:
    """Return True if the locale supports only ASCII.

    Python treats the locale C as UTF-8 and sets LC_CTYPE accordingly; the user's own setting counts.
    Source: PEP 538, PEP 540.
    """
    language, letters = os.environ.get("LANG", ""), os.environ.get("LC_CTYPE", "")
    if language in _ASCII_LOCALES and letters.startswith("C."):
        letters = ""
    if locale := os.environ.get("LC_ALL") or letters or language:
        encoding = "" if locale in _ASCII_LOCALES else locale.partition("@")[0].rpartition(".")[2]
    else:
        encoding = sys.stdout.encoding or ""
    return not encoding.lower().startswith("utf")


def on_signals(leave: Callable[[int], None], numbers: Iterable[signal.Signals] = tuple(EXIT_CODES)) -> None:
    """Call `leave` with an exit code at the first INT, TERM or HUP; exit at once at another INT or TERM.

    A vanishing terminal sends HUP more than once, so further ones are ignored. `leave` runs between any
    two steps of the main thread, so it must only schedule work. Textual itself restores the terminal
    after neither TERM nor HUP.
    """
    seen: list[int] = []

    def caught(number: int, _frame: FrameType | None) -> None:
        code = EXIT_CODES[signal.Signals(number)]
        if seen:
            if number != signal.SIGHUP:
                end(code)
            return
        seen.append(number)
        watchdog = threading.Timer(GRACE_S, end, [code])
        watchdog.daemon = True
        watchdog.start()
        leave(code)

    for number in numbers:
        signal.signal(number, caught)


def caught_signal() -> asyncio.Future[int]:
    """Catch INT, TERM and HUP from now on; the result is the exit code: 0 for INT, which ends a wait.

    What is ignored stays so: HUP after `nohup`, INT in the background of a script.
    """
    loop = asyncio.get_running_loop()
    caught: asyncio.Future[int] = loop.create_future()

    def leave(code: int) -> None:
        loop.call_soon_threadsafe(caught.set_result, 0 if code == EXIT_CODES[signal.SIGINT] else code)

    on_signals(leave, [each for each in EXIT_CODES if signal.getsignal(each) is not signal.SIG_IGN])
    return caught


def restore(*, keeps_cursor: bool = False) -> None:
    """Restore the terminal by force; harmless if it is in order, gone, or not reading.

    Args:
        keeps_cursor: The console has already left, so its later output must not be overwritten.
    """
    sequence = _RESTORE + (_MAIN_SCREEN_AS_IT_IS if keeps_cursor else _MAIN_SCREEN)
    for fd, attributes in _before.items():
        try:
            termios.tcsetattr(fd, termios.TCSANOW, attributes)
            if select.select([], [fd], [], _WRITABLE_S)[1]:
                os.write(fd, sequence.encode())
        except (OSError, termios.error):
            continue


def _remember() -> None:
    file = sys.__stdout__
    if file is not None and file.isatty():
        _before[file.fileno()] = termios.tcgetattr(file.fileno())


def end(code: int) -> None:
    """End the process at once, without further cleanup."""
    restore()
    os._exit(code)
