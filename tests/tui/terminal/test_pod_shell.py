"""The console gives its terminal to a shell, and has it back whole however that ends."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from k8s.jobs import exec
from tests.scripted.server import Reply, ScriptedCluster, Speaker, Talk, refusal
from tests.support.shell_app import InTerminal
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import write_kubeconfig
from tui.terminal.pod_shell import _carry

EXEC = "/api/v1/namespaces/default/pods/a/exec"
LINE = "-- a: exit or ctrl+d ends it; if it hangs, press ctrl+] twice."
SPOILT = b"\x1b[?1049h\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?25l\x1b[31;7m\x1b[2;5r\x1b(0spoilt\x1b]0;half"
"""A program that dies on the other screen: mouse, paste, no cursor, red, half the screen, line drawing."""


class Shell:
    """Plays a shell: says back what is typed; a few letters do more."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.typed = b""

    async def speak(self, speaker: Speaker) -> None:
        await speaker.say(exec.STDOUT, b"welcome\r\nready> ")
        async for channel, content in speaker.heard():
            if channel == exec.RESIZE:
                size = json.loads(content)
                self.sizes.append((size["Width"], size["Height"]))
                await speaker.say(exec.STDOUT, b"%d x %d\r\n" % self.sizes[-1])
                continue
            self.typed += content
            if content == b"q":
                cause = {"reason": "ExitCode", "message": "5"}
                await speaker.end(status="Failure", details={"causes": [cause]})
            elif content == b"d":
                return speaker.drop()
            await speaker.say(exec.STDOUT, SPOILT if content == b"b" else b"[" + content + b"]")


async def played(tmp_path: Path, play: Callable[[Terminal], object], *replies: Reply) -> bytes:
    """Let `play` use the app in a terminal, in a thread; return all output of the app."""
    async with ScriptedCluster() as cluster:
        cluster.say(EXEC, *replies)
        kubeconfig = write_kubeconfig(tmp_path, cluster.host)

        def use() -> bytes:
            with InTerminal(kubeconfig, "default", "a") as terminal:
                terminal.wait_for("keys 0")
                play(terminal)
                return bytes(terminal.output)

        return await asyncio.to_thread(use)


def is_whole(terminal: Terminal) -> None:
    """Wait until the console is on the screen, all of it, and takes keys."""
    terminal.wait_for("the last line")
    assert terminal.is_raw
    terminal.send("x")
    screen = terminal.wait_for(lambda screen: "keys 1" in screen and "went on" in screen)
    for word in ("welcome", "spoilt", "ready>", LINE):
        assert word not in screen


async def test_a_shell_gets_the_terminal_and_the_console_resumes_afterwards(tmp_path: Path) -> None:
    shell = Shell()
    words = "xsé\x03\x1a\x1b[A"

    def play(terminal: Terminal) -> None:
        terminal.send("s")
        screen = terminal.wait_for("ready>")
        assert screen.startswith(LINE)
        assert "keys 0" not in screen
        terminal.wait_for("80 x 24")
        terminal.send(words)
        terminal.wait_for(lambda _: shell.typed == words.encode())
        terminal.resize(100, 30)
        terminal.wait_for("100 x 30")
        terminal.send("q", shows="ended with 5")
        is_whole(terminal)

    await played(tmp_path, play, Talk(shell.speak))
    assert shell.sizes[0] == (80, 24)
    assert shell.sizes[-1] == (100, 30)


class TypedAhead:
    """Plays both ends of a shell, at whose terminal something was typed before it was there."""

    size = (80, 24)
    exit_code = 0

    def __init__(self) -> None:
        self.sent: list[object] = []
        self._typed = [b"stty size\r"]
        self._is_taken = asyncio.Event()

    async def read(self) -> bytes:
        if not self._typed:
            await asyncio.Event().wait()
        return self._typed.pop()

    async def resize(self, columns: int, lines: int) -> None:
        self.sent.append((columns, lines))

    async def write(self, content: bytes) -> None:
        self.sent.append(content)
        self._is_taken.set()

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        await self._is_taken.wait()
        return
        yield


async def test_a_shell_gets_its_size_before_input_typed_ahead() -> None:
    shell: Any = TypedAhead()
    assert await _carry(shell, shell) == 0
    assert shell.sent == [(80, 24), b"stty size\r"]


async def test_a_shell_can_be_opened_repeatedly(tmp_path: Path) -> None:
    def play(terminal: Terminal) -> None:
        for shell in (1, 2, 3):
            before = len(terminal.output)
            terminal.send("s")
            # The screen may still show what the shell before it said.
            terminal.wait_for(lambda _, before=before: b"80 x 24" in terminal.output[before:])  # type: ignore[misc]
            terminal.send("q", shows=f"shell {shell} ended with 5")
        is_whole(terminal)

    await played(tmp_path, play, Talk(Shell().speak))


async def test_terminal_modes_left_by_a_program_in_a_shell_are_reset(tmp_path: Path) -> None:
    def play(terminal: Terminal) -> None:
        terminal.send("s", shows="ready>")
        terminal.send("b")
        terminal.wait_for(lambda _: SPOILT in terminal.output)
        terminal.send("q", shows="ended with 5")
        is_whole(terminal)

    output = await played(tmp_path, play, Talk(Shell().speak))
    after = output.partition(SPOILT)[2]
    for sequence in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?1006l", b"\x1b[?2004l", b"\x1b[?25h", b"\x1b[r"):
        assert sequence in after.partition(b"\x1b[?1049h")[0]


async def test_a_dropped_shell_connection_is_reported(tmp_path: Path) -> None:
    def play(terminal: Terminal) -> None:
        terminal.send("s", shows="ready>")
        terminal.send("d", shows="Could not open a shell in a to its end.")
        is_whole(terminal)

    await played(tmp_path, play, Talk(Shell().speak))


async def test_a_hanging_shell_can_be_closed_by_pressing_ctrl_right_bracket_twice(tmp_path: Path) -> None:
    async def hang(speaker: Speaker) -> None:
        await speaker.say(exec.STDOUT, b"ready>")
        async for channel, content in speaker.heard():
            if (channel, content) == (exec.STDIN, b"\x1d"):
                await speaker.say(exec.STDOUT, b"one")

    def play(terminal: Terminal) -> None:
        terminal.send("s", shows="ready>")
        terminal.send("\x1d", shows="one")
        terminal.send("\x1d", shows="ended with 255")
        is_whole(terminal)

    await played(tmp_path, play, Talk(hang))


async def test_a_forbidden_shell_is_reported_without_leaving_the_console(tmp_path: Path) -> None:
    def play(terminal: Terminal) -> None:
        terminal.send("s", shows="cannot get pods/exec")
        terminal.send("x", shows="keys 1")

    output = await played(tmp_path, play, refusal(403, 'user "li" cannot get pods/exec', "Forbidden"))
    assert output.count(b"\x1b[?1049h") == 1
    assert LINE.encode() not in output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_a_signal_in_a_shell_ends_the_console_and_restores_the_terminal(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    def play(terminal: Terminal) -> None:
        terminal.send("s", shows="ready>")
        terminal.send("b")
        terminal.wait_for(lambda _: SPOILT in terminal.output)
        terminal.signal(number)
        assert terminal.wait_for_end() == code
        assert not terminal.is_raw
        after = bytes(terminal.output).partition(SPOILT)[2]
        for sequence in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[?25h"):
            assert sequence in after

    await played(tmp_path, play, Talk(Shell().speak))


async def test_a_terminal_hangup_in_a_shell_ends_the_console(tmp_path: Path) -> None:
    def play(terminal: Terminal) -> None:
        terminal.send("s", shows="ready>")
        terminal.hang_up()
        assert terminal.wait_for_end() == 129

    await played(tmp_path, play, Talk(Shell().speak))
