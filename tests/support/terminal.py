"""A real program in a pseudo-terminal, and the screen that a person would see."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

_LOCAL_FLAGS = 3  # index of the local flags in the attributes of termios
# Sequences that pyte would print instead of ignoring: keyboard protocol, mode queries, DCS
_PRIVATE = re.compile(r"\x1b\[[<=>][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p|\x1bP[^\x1b]*\x1b\\")
_ASKS_FOR_FRAMES = b"\x1b[?2026$p"
_TAKES_FRAMES = b"\x1b[?2026;2$y"
_FRAME_BEGINS, _FRAME_ENDS = b"\x1b[?2026h", b"\x1b[?2026l"


class Terminal:
    """Runs a program in a pty of a given size; its screen is kept up to date by `wait_for`."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        columns: int = 120,
        lines: int = 40,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        shows_whole_frames: bool = False,
    ) -> None:
        """Run `words`; `shows_whole_frames`: none is seen half painted, as some terminals do it."""
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.output = bytearray()  # every byte that the program has written
        self.exit_code: int | None = None
        self.is_stopped = False  # True while the program is suspended
        self._shows_whole_frames = shows_whole_frames
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder or ".")
            os.execvpe(words[0], list(words), dict(env if env is not None else os.environ))
        self._set_size(columns, lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if error is not None:
            print("\n".join(self.lines))
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def is_raw(self) -> bool:
        """True while keys go to the program one by one without an echo, unlike in a shell."""
        return not self.attributes[_LOCAL_FLAGS] & (termios.ICANON | termios.ECHO)

    @property
    def attributes(self) -> list[Any]:
        return termios.tcgetattr(self._fd)

    def resize(self, columns: int, lines: int) -> None:
        self._screen.resize(lines, columns)
        self._set_size(columns, lines)

    def send(self, keys: str, shows: str | Callable[[str], object] = "") -> None:
        """Type, and wait until the screen shows a text, if given; enter is `\\r`, escape `\\x1b`."""
        os.write(self._fd, keys.encode())
        if shows:
            self.wait_for(shows)

    def clear(self) -> None:
        """Forget what is on the screen, so that only what is painted from now on is seen."""
        self._screen.reset()

    def wait_until_taken(self, timeout_s: float = 120) -> None:
        with self._slave() as slave:
            self._read_until(lambda: _unread_bytes(slave) == 0, "what was typed was not read", timeout_s)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Let the terminal take nothing, as one does after ctrl+s or when its connection hangs."""
        with self._slave() as slave:
            termios.tcflow(slave, termios.TCOOFF)
            try:
                yield
            finally:
                termios.tcflow(slave, termios.TCOON)

    def hang_up(self) -> None:
        os.dup2(os.open(os.devnull, os.O_RDWR), self._fd)

    def signal(self, number: signal.Signals) -> None:
        if number == signal.SIGCONT:
            self.is_stopped = False
        os.kill(self.pid, number)

    def wait_for(self, wanted: str | Callable[[str], object], timeout_s: float = 120) -> str:
        """Read until the screen shows a text, or satisfies a test; return the screen."""
        deadline = time.monotonic() + timeout_s
        satisfied = wanted if callable(wanted) else lambda screen: wanted in screen
        while self._is_in_a_frame or not satisfied(self.text):
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"waited {timeout_s} s for {wanted!r} on:\n{self.text}")
            if not self._read(min(left, 0.2)) and self.exit_code is not None:
                raise AssertionError(f"ended with {self.exit_code} before {wanted!r} on:\n{self.text}")
        return self.text

    def wait_for_end(self, timeout_s: float = 120) -> int:
        """Read until the program ends; return its exit code, negative for a signal."""
        self._read_until(lambda: self.exit_code is not None, "did not end", timeout_s)
        assert self.exit_code is not None
        return self.exit_code

    def wait_for_stop(self, timeout_s: float = 120) -> None:
        self._read_until(lambda: self.is_stopped, "was not suspended", timeout_s)

    def _read_until(self, is_so: Callable[[], bool], complaint: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                raise AssertionError(f"{complaint} in {timeout_s} s:\n{self.text}")
            self._read(0.1)
        while self._read(0.05):
            pass

    @contextmanager
    def _slave(self) -> Iterator[int]:
        slave = os.open(f"/proc/{self.pid}/fd/1", os.O_RDWR | os.O_NOCTTY)
        try:
            yield slave
        finally:
            os.close(slave)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def _is_in_a_frame(self) -> bool:
        begun = self.output.rfind(_FRAME_BEGINS) if self._shows_whole_frames else -1
        return begun > self.output.rfind(_FRAME_ENDS, max(begun, 0))

    def read_some(self, timeout_s: float = 0.2) -> bool:
        """Read what is written within a time; tell whether there was anything."""
        return self._read(timeout_s)

    def _read(self, timeout_s: float) -> bool:
        if chunk := self._next_piece(timeout_s):
            self.output += chunk
            if self._shows_whole_frames and _ASKS_FOR_FRAMES in chunk:
                os.write(self._fd, _TAKES_FRAMES)
            self._stream.feed(_PRIVATE.sub("", self._decoder.decode(chunk)))
            return True
        if self.exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid:
                self.is_stopped = os.WIFSTOPPED(status)
                if not self.is_stopped:
                    self.exit_code = os.waitstatus_to_exitcode(status)
        return False

    def _next_piece(self, timeout_s: float) -> bytes:
        """Wait for what was written next; nothing when nothing came, or nothing will."""
        ready, _, _ = select.select([self._fd], [], [], timeout_s)
        try:
            return os.read(self._fd, 65536) if ready else b""
        except OSError:
            return b""


def _unread_bytes(fd: int) -> int:
    size: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
    return size


def fake_kubectl(folder: Path) -> str:
    """Make a `kubectl` that prints its arguments, writes them to `line` and exits with 3; return PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$*" > {folder}/line\necho "$*"\nexit 3\n')
    program.chmod(0o755)
    return str(folder)
