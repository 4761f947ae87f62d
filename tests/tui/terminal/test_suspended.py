"""Shell (ctrl+z) and plugins get the terminal, and the console paints all of it again; keys of a real one."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.driver_app import Driven, rows_at
from tests.support.terminal import Terminal

CTRL_Z = "\x1a"
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h")
TAKEN = b"\x1b[?1049h"


def test_ctrl_z_restores_the_terminal_and_fg_repaints_the_screen_repeatedly() -> None:
    with Driven() as terminal:
        terminal.wait_for("keys 0")
        assert terminal.is_raw
        terminal.send(CTRL_Z)
        terminal.wait_for_stop()
        assert not terminal.is_raw
        for sequence in RESTORED:
            assert sequence in terminal.output
        terminal.output.clear()
        come_back(terminal)
        terminal.wait_for("keys 0")
        assert terminal.is_raw
        assert TAKEN in terminal.output
        for count in (1, 2):
            terminal.send("x", shows=f"keys {count}")
            terminal.send(CTRL_Z)
            terminal.wait_for_stop()
            come_back(terminal)
        terminal.send("x", shows="keys 3")
        terminal.signal(signal.SIGSTOP)  # from outside: the terminal stays as it is
        terminal.wait_for_stop()
        come_back(terminal)
        terminal.wait_for("keys 3")
        assert terminal.is_raw
        terminal.send("xxx", shows="keys 6")
        wait_for_rows(terminal)


def test_a_suspended_console_ends_on_resume_after_a_sigterm() -> None:
    with Driven() as terminal:
        terminal.wait_for("keys 0")
        terminal.send(CTRL_Z)
        terminal.wait_for_stop()
        terminal.signal(signal.SIGTERM)
        terminal.signal(signal.SIGCONT)
        assert terminal.wait_for_end() == 143
        assert not terminal.is_raw
        assert terminal.output.rstrip().rfind(TAKEN) < terminal.output.rfind(RESTORED[0])


def test_nothing_is_written_after_the_terminal_was_restored_even_when_stalled() -> None:
    with Driven(period_s=0.005) as terminal:
        terminal.wait_for("keys 0")
        terminal.send(CTRL_Z)
        terminal.wait_for_stop()
        after = bytes(terminal.output).rpartition(RESTORED[0])[2]
        assert after.replace(b"\x1b[?25h", b"").replace(b"\x1b[?1004l", b"") == b""
        come_back(terminal)
        terminal.wait_for("keys 0")
        with terminal.stalled():
            terminal.wait_to_be_told(lambda report: report["is_stuck"])
            terminal.send(CTRL_Z)
            terminal.wait_for_stop()
            assert not terminal.is_raw
        come_back(terminal)
        terminal.send("x", shows="keys 1")
        wait_for_rows(terminal)


def come_back(terminal: Terminal) -> None:
    """Do what fg does, seen by a screen that shows nothing of before."""
    terminal.clear()
    terminal.signal(signal.SIGCONT)


def wait_for_rows(terminal: Driven) -> None:
    """Stop the changes and wait until the last rows are painted."""
    terminal.send("s")
    halted = terminal.wait_to_be_told(lambda report: report["is_halted"])
    wanted = [line.rstrip() for line in rows_at(halted["ticks"], 24).split("\n")]
    terminal.wait_for(lambda _: terminal.lines[1:] == wanted)


PROGRAM = """
import signal, sys, termios
echo = 'on' if termios.tcgetattr(0)[3] & termios.ECHO else 'off'
try:
    print('echo is', echo, 'for', sys.argv[1], flush=True)
    print('read', input(), flush=True)
except KeyboardInterrupt:
    sys.stdout.write('\\x1b[?1000h\\x1b[31mInterrupted')
    sys.exit(7)
"""
PLUGIN = {
    "shortCut": "Ctrl-L",
    "scopes": ["namespaces"],
    "command": sys.executable,
    "args": ["-c", PROGRAM, "$NAME on $CLUSTER"],
}


def play(terminal: Terminal) -> None:
    """Use the console as a person would."""
    terminal.wait_for("away / vision")
    terminal.send(":ctx\r", shows="Contexts (1)")
    terminal.send("\x0c", shows="echo is on for away on away")
    assert not terminal.is_raw
    terminal.signal(signal.SIGCONT)  # as after `fg`: the program goes on, not the console
    terminal.send("some text\n", shows="mine is done.")
    assert terminal.is_raw
    assert b"read some text" in terminal.output
    terminal.send("\x0c")
    terminal.wait_for(lambda _: terminal.output.count(b"echo is on") == 2)
    terminal.send("\x03", shows="exit 7. Enter goes back to the console.")
    terminal.send("\r", shows="mine failed: exit 7.")
    assert terminal.is_raw
    terminal.send("q", shows="Jobs")


@pytest.mark.slow
async def test_a_plugin_program_gets_the_terminal_and_the_console_resumes_afterwards(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    homes = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("DATA", "STATE", "CONFIG", "CACHE")}
    plugins = tmp_path / "CONFIG" / "gpuconsole" / "plugins.yaml"
    plugins.parent.mkdir(parents=True)
    plugins.write_text(json.dumps({"plugins": {"mine": PLUGIN}}))
    plugins.chmod(0o600)
    env = {**os.environ, **homes, "TERM": "xterm-256color"}
    words = [sys.executable, "-P", "-m", "tui", "--kubeconfig", str(kubeconfig)]
    with Terminal(words, columns=80, lines=24, env=env) as terminal:
        await asyncio.to_thread(play, terminal)


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: li, user: {token: "t"}}]
contexts: [{name: away, context: {cluster: away, user: li, namespace: vision}}]
current-context: away
"""
COPIED = re.compile(rb"\x1b]52;c;([A-Za-z0-9+/=]+)\x07")


@pytest.mark.end_to_end
def test_one_key_suspends_the_console_and_another_copies_by_osc52(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    homes = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("DATA", "STATE", "CONFIG", "CACHE")}
    env = {**os.environ, **homes, "TERM": "xterm-256color", "GPUCONSOLE_CLIPBOARD": "osc52"}
    for name in ("TMUX", "STY"):
        env.pop(name, None)
    words = [sys.executable, "-P", "-m", "tui", "--kubeconfig", str(kubeconfig)]
    with Terminal(words, columns=80, lines=24, env=env) as terminal:
        terminal.wait_for("away / vision")
        terminal.send("\x1a")
        terminal.wait_for_stop()
        assert not terminal.is_raw
        terminal.clear()
        terminal.signal(signal.SIGCONT)
        terminal.wait_for("away / vision")
        terminal.send(":info\r")
        terminal.wait_for("gpuconsole ")
        terminal.send("c")
        terminal.wait_for(lambda _: COPIED.search(terminal.output) is not None)
        found = COPIED.search(terminal.output)
        assert found is not None
        assert "vision" in base64.b64decode(found[1]).decode()
