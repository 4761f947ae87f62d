"""Interactive command in a pod, or a local program, on the real terminal, restored however it ends.

The event loop is never blocked, so the console's watches go on. Output of the pod reaches the
terminal unfiltered, because it is the user's own shell.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Protocol, Self

from k8s.client.client import Client
from k8s.jobs import exec
from k8s.text.errors import Unreachable
from k8s.text.sanitize import sanitize

# Exit codes of ours: the user left a shell that may still run; the terminal is gone.
LEFT, TERMINAL_GONE = 255, 129
HOW_TO_LEAVE = "exit or ctrl+d ends it; if it hangs, press ctrl+] twice."
# Limit of typed input that the pod has not read yet; beyond it the terminal waits.
_READ_BYTES, _READS_AHEAD = 4096, 256
# Timeout at the end for a terminal that does not read.
_RESET_S = 1.0
# ctrl+] twice, as sent by plain terminals, kitty's protocol and xterm's modifyOtherKeys.
_LEAVE = re.compile(rb"(?:\x1d|\x1b\[93;5(?::\d)?u|\x1b\[27;5;93~){2}")
# A sequence may arrive in pieces, so this many bytes are searched again.
_LONGEST_BYTES = 24
# Switches to the alternate screen of full-screen programs, or back.
_ALTERNATE = re.compile(rb"\x1b\[\?(?:[0-9;]*;)?(1049|1047|47)(?:;[0-9;]*)?([hl])")
# Ends unfinished output of a broken program: a partial sequence, a held frame.
_ABANDON = b"\x18\x1b\\\x1b[?2026l"
# Undoes terminal modes without moving the cursor or erasing anything.
_RESET = (
    b"\x1b7\x1b[r\x1b8"  # the whole screen scrolls, the cursor stays where it is
    b"\x1b[?1000l\x1b[?1001l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
    b"\x1b[?2004l\x1b[?2031l\x1b[?2048l\x1b[<u\x1b[>4m"  # no reports of paste, theme, size; plain keys
    b"\x1b[?1l\x1b>\x1b[?7h\x1b[4l\x1b[20l\x1b[?5l"  # cursor keys, keypad, wrapping, inserting, colours
    b"\x1b(B\x0f\x1b[?25h\x1b[0 q\x1b[0m"  # letters, the cursor, its shape, plain text
)


class Suspendable(Protocol):
    """The part of Textual's `App` that `handed_over` needs."""

    def batch_update(self) -> AbstractContextManager[None]:
        """Suppress painting."""
        ...

    def suspend(self) -> AbstractContextManager[None]:
        """Release the terminal temporarily."""
        ...

    def refresh(self, *, layout: bool = False) -> object:
        """Repaint everything."""
        ...


@contextmanager
def handed_over(app: Suspendable) -> Iterator[None]:
    """Take the terminal from the console and give it back, even after an exception.

    The console goes on without painting. The content of the plain screen is scrolled up, not erased.
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
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # its traceback leads to this frame


def _scroll_away() -> None:
    # Into the scrollback buffer.
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
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Required if it has several.
        command: Arguments; by default the best available shell.
        hand_over: Context that acquires the terminal; entered once the command runs.

    Raises:
        Unreachable: The server is gone; the terminal is restored.
        KubeError: The server refused; the terminal was not touched.
    """
    doing = f"open a shell in {pod}" if tuple(command) == exec.SHELL else f"run {command[0]} in {pod}"
    running = exec.start(client, pod, namespace, command, container=container, has_terminal=True, doing=doing)
    where = f"{pod} / {container}" if container else pod
    async with running as remote:
        with hand_over(), RawTerminal() as terminal:
            await terminal.write(f"-- {sanitize(where)}: {HOW_TO_LEAVE}\r\n".encode())
            return await _carry(remote, terminal)


async def run_program(
    argv: Sequence[str], env: Mapping[str, str], hand_over: Callable[[], AbstractContextManager[None]]
) -> int:
    """Run a local program on the real terminal and return its exit status; -15 if SIGTERM ended it.

    After a failure its output stays until enter is pressed.

    Raises:
        OSError: The program cannot be started.
    """
    with hand_over(), signals_left_to_program():
        terminal = _open_terminal()
        before = termios.tcgetattr(terminal)
        try:
            process = await asyncio.create_subprocess_exec(*argv, env=env)
            try:
                status = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
            termios.tcsetattr(terminal, termios.TCSANOW, before)
            _write_soon(terminal, _ABANDON + _RESET)
            if status not in (0, -signal.SIGINT):
                words = f"\r\n-- {sanitize(argv[0])}: {exit_text(status)}. Enter goes back to the console."
                _write_soon(terminal, words.encode())
                loop = asyncio.get_running_loop()
                await _until_ready(terminal, loop.add_reader, loop.remove_reader)
            return status
        finally:
            with suppress(OSError, termios.error):
                termios.tcflush(terminal, termios.TCIFLUSH)
                termios.tcsetattr(terminal, termios.TCSANOW, before)
            os.close(terminal)


def exit_text(status: int) -> str:
    """Describe the exit status of a program."""
    if status >= 0:
        return f"exit {status}"
    return f"ended by {signal.Signals(-status).name}"


@contextmanager
def signals_left_to_program() -> Iterator[None]:
    r"""Leave ctrl+c and ctrl+\ to the program; ctrl+z stops both, and `fg` continues the program."""
    # Not SIG_IGN, which the program would inherit. The driver's own handlers would bring the console back.
    handlers: dict[int, Any] = {
        signal.SIGINT: lambda *_: None,
        signal.SIGQUIT: lambda *_: None,
        signal.SIGTSTP: signal.SIG_DFL,
        signal.SIGCONT: lambda *_: None,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


class RawTerminal:
    """The terminal of this process, byte by byte; leaving the context restores it."""

    def __init__(self) -> None:
        """Open the terminal again, so that non-blocking mode affects only this descriptor."""
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
        """The size in columns and lines."""
        return os.get_terminal_size(self._fd)

    async def read(self) -> bytes:
        """Wait for input; empty if the terminal is gone."""
        while True:
            try:
                return os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _until_ready(self._fd, loop.add_reader, loop.remove_reader)
            except OSError:
                return b""

    async def write(self, content: bytes) -> None:
        """Write everything, as fast as the terminal reads.

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
    # Until the command ends, the user leaves or the terminal is gone.
    typed: asyncio.Queue[bytes] = asyncio.Queue(_READS_AHEAD)
    printing = asyncio.create_task(_print(remote, terminal))
    reading = asyncio.create_task(_read(terminal, typed))
    resizing = asyncio.create_task(_send_sizes(remote, terminal))
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
    # Reads ahead of the pod, so that the escape keys work even if nothing else does.
    recent = b""
    while content := await terminal.read():
        recent += content
        if _LEAVE.search(recent):
            return LEFT
        recent = recent[-_LONGEST_BYTES:]
        await typed.put(content)
    return TERMINAL_GONE


async def _send(remote: exec.ExecSession, terminal: RawTerminal, typed: asyncio.Queue[bytes]) -> None:
    # The size first, because typed-ahead input may depend on it.
    with suppress(Unreachable):  # whoever prints is told the same, and says it
        with suppress(OSError):
            await remote.resize(*terminal.size)
        while True:
            await remote.write(await typed.get())


async def _send_sizes(remote: exec.ExecSession, terminal: RawTerminal) -> None:
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
    # Raises OSError if there is no terminal.
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
