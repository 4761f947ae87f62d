"""The real terminal handed to a command in a pod, and given back whole however that ends.

Nothing here blocks the event loop: the console's watches go on meanwhile. What the pod
writes reaches the terminal as it is, for it is the user's own shell.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Protocol, Self

from k8s.client.client import Client
from k8s.errors import Unreachable
from k8s.jobs import exec
from k8s.text.sanitize import sanitize

LEFT, TERMINAL_GONE = 255, 129
"""Exit codes of ours: the user left a shell that may run on; there is no terminal any more."""
HOW_TO_LEAVE = "exit or ctrl+d ends it; if it hangs, press ctrl+] twice."
"""What the line above a shell says."""
_READ_BYTES, _READS_AHEAD = 4096, 256
"""How much may be typed or pasted that the pod has not taken yet; beyond it the terminal waits."""
_RESET_S = 1.0
"""How long a terminal that takes nothing is waited for when all is over."""
_LEAVE = re.compile(rb"(?:\x1d|\x1b\[93;5(?::\d)?u|\x1b\[27;5;93~){2}")
"""ctrl+] twice, as plain terminals, kitty's protocol and xterm's modifyOtherKeys send it."""
_LONGEST_BYTES = 24
"""How long what is looked for in a stream may be, for it may come in pieces."""
_ALTERNATE = re.compile(rb"\x1b\[\?(?:[0-9;]*;)?(1049|1047|47)(?:;[0-9;]*)?([hl])")
"""Goes to the other screen that full-screen programs use, or comes back from it."""
_ABANDON = b"\x18\x1b\\\x1b[?2026l"
"""Ends what a broken program began: half a sequence, a picture held back."""
_RESET = (
    b"\x1b7\x1b[r\x1b8"  # the whole screen scrolls, the cursor stays where it is
    b"\x1b[?1000l\x1b[?1001l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
    b"\x1b[?2004l\x1b[?2031l\x1b[?2048l\x1b[<u\x1b[>4m"  # no reports of paste, theme, size; plain keys
    b"\x1b[?1l\x1b>\x1b[?7h\x1b[4l\x1b[20l\x1b[?5l"  # cursor keys, keypad, wrapping, inserting, colours
    b"\x1b(B\x0f\x1b[?25h\x1b[0 q\x1b[0m"  # letters, the cursor, its shape, plain text
)
"""Undoes what a program may have done to a terminal, without moving the cursor or erasing anything."""


class Suspendable(Protocol):
    """What is needed of the console: Textual's `App` has it."""

    def batch_update(self) -> AbstractContextManager[None]:
        """Paint nothing meanwhile."""
        ...

    def suspend(self) -> AbstractContextManager[None]:
        """Leave the terminal, and come back."""
        ...

    def refresh(self, *, layout: bool = False) -> object:
        """Paint everything again."""
        ...


@contextmanager
def handed_over(app: Suspendable) -> Iterator[None]:
    """Take the terminal from the console and give it back, also when what is done meanwhile fails.

    The console goes on without painting. What was on the plain screen is scrolled up, not erased.
    """
    failure: BaseException | None = None
    with app.batch_update():
        with app.suspend():
            try:
                _scroll_away()
                yield
            except BaseException as error:
                # Textual's `suspend` does not come back by itself when something is raised in it.
                failure = error
        app.refresh(layout=True)
    if failure is not None:
        raise failure


def _scroll_away() -> None:
    """Move what is on the screen out of it, into what can be scrolled back to."""
    assert sys.__stdout__ is not None
    with suppress(OSError):
        lines = os.get_terminal_size(sys.__stdout__.fileno()).lines
        os.write(sys.__stdout__.fileno(), f"\x1b[{lines};1H{chr(10) * lines}\x1b[H".encode())


async def run_shell(
    client: Client,
    namespace: str,
    pod: str,
    container: str = "",
    command: Sequence[str] = exec.SHELL,
    *,
    hand_over: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Run a command in a pod on the real terminal and return its exit code, or one of ours.

    Args:
        client: The cluster.
        namespace: The pod's namespace.
        pod: Its name.
        container: Needed when it has several.
        command: Its words; by default the best shell that is there.
        hand_over: Entered once the command runs: gets the terminal from whoever has it, gives it back.

    Raises:
        Unreachable: The server is gone; the terminal is as it was.
        KubeError: The server refuses; then the terminal was not touched.
    """
    doing = f"open a shell in {pod}" if tuple(command) == exec.SHELL else f"run {command[0]} in {pod}"
    running = exec.start(client, pod, namespace, command, container=container, has_terminal=True, doing=doing)
    where = f"{pod} / {container}" if container else pod
    async with running as remote:
        with hand_over(), RawTerminal() as terminal:
            await terminal.write(f"-- {sanitize(where)}: {HOW_TO_LEAVE}\r\n".encode())
            return await _carry(remote, terminal)


class RawTerminal:
    """The terminal of this process, byte by byte; `__exit__` puts it back as it was."""

    def __init__(self) -> None:
        """Open it anew: so reads and writes of ours never wait, and everybody else's do as before."""
        self._fd = _open_terminal()
        self._before = termios.tcgetattr(self._fd)
        self._written = b""
        self._to_main_screen = b""

    def __enter__(self) -> Self:
        tty.setraw(self._fd, termios.TCSANOW)
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        new_line = b"\r\n" if error is not None else b""
        # Never wait for ever here: the terminal may have stalled, and may be gone.
        with suppress(OSError):
            _write_soon(self._fd, _ABANDON + self._to_main_screen + _RESET + new_line)
        with suppress(termios.error):
            termios.tcflush(self._fd, termios.TCIFLUSH)
            termios.tcsetattr(self._fd, termios.TCSANOW, self._before)
        os.close(self._fd)

    @property
    def size(self) -> tuple[int, int]:
        """Return its columns and lines."""
        return os.get_terminal_size(self._fd)

    async def read(self) -> bytes:
        """Wait for what is typed; nothing when the terminal is gone."""
        while True:
            try:
                return os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _until_ready(self._fd, loop.add_reader, loop.remove_reader)
            except OSError:
                return b""

    async def write(self, content: bytes) -> None:
        """Write all of it, as fast as the terminal takes it.

        Raises:
            OSError: The terminal is gone.
        """
        recent = self._written + content
        for found in _ALTERNATE.finditer(recent):
            self._to_main_screen = b"\x1b[?%sl" % found[1] if found[2] == b"h" else b""
        self._written = recent[-_LONGEST_BYTES:]
        while content:
            try:
                content = content[os.write(self._fd, content) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _until_ready(self._fd, loop.add_writer, loop.remove_writer)


async def _carry(remote: exec.ExecSession, terminal: RawTerminal) -> int:
    """Carry bytes both ways until the command ends, the user leaves or there is no terminal."""
    typed: asyncio.Queue[bytes] = asyncio.Queue(_READS_AHEAD)
    printing = asyncio.create_task(_print(remote, terminal))
    reading = asyncio.create_task(_read(terminal, typed))
    resizing = asyncio.create_task(_tell_new_sizes(remote, terminal))
    sending = asyncio.create_task(_send(remote, terminal, typed))
    tasks = [printing, reading, resizing, sending]
    try:
        await asyncio.wait((printing, reading), return_when=asyncio.FIRST_COMPLETED)
        return (printing if printing.done() else reading).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _print(remote: exec.ExecSession, terminal: RawTerminal) -> int:
    async for _, content in remote.output():
        try:
            await terminal.write(content)
        except OSError:
            return TERMINAL_GONE
    return remote.exit_code or 0


async def _read(terminal: RawTerminal, typed: asyncio.Queue[bytes]) -> int:
    """Read ahead of what the pod takes, so that leaving works while nothing else does."""
    recent = b""
    while content := await terminal.read():
        recent += content
        if _LEAVE.search(recent):
            return LEFT
        recent = recent[-_LONGEST_BYTES:]
        await typed.put(content)
    return TERMINAL_GONE


async def _send(remote: exec.ExecSession, terminal: RawTerminal, typed: asyncio.Queue[bytes]) -> None:
    """Send the terminal's size, which what is typed ahead may depend on, then what is typed."""
    with suppress(Unreachable):  # whoever prints is told the same, and says it
        with suppress(OSError):
            await remote.resize(*terminal.size)
        while True:
            await remote.write(await typed.get())


async def _tell_new_sizes(remote: exec.ExecSession, terminal: RawTerminal) -> None:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        with suppress(Unreachable, OSError):
            while True:
                await changed.wait()
                changed.clear()
                await remote.resize(*terminal.size)
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def _open_terminal() -> int:
    """Return a file of our own for this process's terminal.

    Raises:
        OSError: There is none.
    """
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY
    try:
        return os.open(os.ttyname(0), flags)
    except OSError:
        # After `su` the device belongs to somebody else, in a container it may have no name.
        return os.open("/dev/tty", flags)


async def _until_ready(
    fd: int, add: Callable[[int, Callable[[], None]], None], remove: Callable[[int], bool]
) -> None:
    ready = asyncio.Event()
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)


def _write_soon(fd: int, content: bytes) -> None:
    while content:
        _, writable, _ = select.select([], [fd], [], _RESET_S)
        if not writable:
            return
        content = content[os.write(fd, content) :]
