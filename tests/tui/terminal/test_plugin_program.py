"""A plugin's program has the terminal, its failure can be read, and the console comes back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.terminal import Terminal
from tests.tui.keys.test_keys_in_a_terminal import KUBECONFIG

PROGRAM = """
import signal, sys, termios
print('echo is', 'on' if termios.tcgetattr(0)[3] & termios.ECHO else 'off', 'for', sys.argv[1], flush=True)
try:
    print('read', input(), flush=True)
except KeyboardInterrupt:
    sys.stdout.write('\\x1b[?1000h\\x1b[31mInterrupted')
    sys.exit(7)
"""
PLUGIN = {
    "shortCut": "Ctrl-L",
    "scopes": ["contexts"],
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
