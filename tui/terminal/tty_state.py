"""The terminal before and after the console: what it can show, and that it is whole again however we end."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Literal

Colours = Literal["none", "16", "256", "true"]
"""How many colours a terminal shows."""

EXIT_CODES: Mapping[signal.Signals, int] = {
    signal.SIGINT: 130,
    signal.SIGTERM: 143,
    signal.SIGHUP: 129,
}
"""What a program ended by a signal answers: 128 and the signal's number."""
GRACE_S = 10.0
"""How long the console may take to end after a signal; then it is ended."""

_RESTORE = (
    "\x1b[?2026l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[<u"
    "\x1b[?7h\x1b[?25h\x1b[0m"
)
"""Mouse, focus and paste reports off, wrapping and cursor on, plain colours."""
_MAIN_SCREEN, _MAIN_SCREEN_AS_IT_IS = "\x1b[?1049l", "\x1b[?1047l"
"""The main screen; the first also puts the cursor back to where it was before the console."""
_WRITABLE_S = 0.5
"""How long a terminal that does not read is waited for at the end."""
_before: dict[int, list[Any]] = {}
"""How the terminal was set before the console: the attributes of a file descriptor."""

_COLOUR_SYSTEMS: Mapping[Colours, str] = {"256": "256", "true": "truecolor"}
"""The value of `TEXTUAL_COLOR_SYSTEM` for each; for the others it is `standard`, sixteen colours."""
_COLOURS_BY_SUFFIX: Mapping[str, Colours] = {"256color": "256", "direct": "true", "truecolor": "true"}
_ASCII_LOCALES = ("C", "POSIX")
_NO_TERMINALS = ("", "dumb", "unknown")
"""Names of what cannot move its cursor."""
_TRUE_COLOUR_TERMINALS = ("alacritty", "contour", "foot", "ghostty", "kitty", "wezterm", "xterm-kitty")
"""Terminals whose names do not say how many colours they have."""


def prepare() -> None:
    """Note how the terminal is, and set what Textual reads from the environment when it is imported.

    No animation, because every frame is bytes over SSH; and there a longer wait before a lone ESC
    counts as the escape key: arrows may arrive in pieces, 300 ms apart.
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


def is_usable() -> bool:
    """Tell whether there is a terminal to draw on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in _NO_TERMINALS


def is_remote() -> bool:
    """Tell whether the terminal is at the other end of an SSH connection."""
    return "SSH_CONNECTION" in os.environ


def colours() -> Colours:
    """Tell how many colours the terminal shows, as far as its name says; none where none are wanted."""
    name = os.environ.get("TERM", "")
    if os.environ.get("NO_COLOR") or name in _NO_TERMINALS:
        return "none"
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "true"
    if name.startswith(_TRUE_COLOUR_TERMINALS):
        return "true"
    return _COLOURS_BY_SUFFIX.get(name.rpartition("-")[2], "16")


def wants_ascii() -> bool:
    """Tell whether the locale cannot show more than ASCII.

    Python takes the locale C for UTF-8, and sets LC_CTYPE to say so; what counts is the user's word.
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


def on_signals(leave: Callable[[int], None]) -> None:
    """Call `leave` with an exit code at the first INT, TERM or HUP; at a further INT or TERM end at once.

    A terminal that goes away sends HUP more than once; what must be kept is kept all the same.
    `leave` is called between any two steps of the main thread, so it must only have something done.
    Textual itself restores the terminal after neither TERM nor HUP.
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

    for number in EXIT_CODES:
        signal.signal(number, caught)


def restore(*, keeps_cursor: bool = False) -> None:
    """Put the terminal back by force; harmless when it is as it should be, or gone, or not reading.

    Args:
        keeps_cursor: The console has left already, so what it printed after that is not written over.
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
    """End the process at once; nothing else of it runs any more."""
    restore()
    os._exit(code)
