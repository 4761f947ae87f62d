"""The terminal is lent to a shell or plugin, and restored however the console ends; keys of a real one."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.driver_app import Driven, rows_at
from tests.support.terminal import Terminal
from tui.draft.draft import FILE, FOLDER

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
import select, signal, socket, sys, termios
# A ctrl+c just before `input` blocks would be seen only after the next line.
woken, wakes = socket.socketpair()
wakes.setblocking(False)
signal.set_wakeup_fd(wakes.fileno())
echo = 'on' if termios.tcgetattr(0)[3] & termios.ECHO else 'off'
try:
    print('echo is', echo, 'for', sys.argv[1], flush=True)
    select.select([0, woken], [], [])
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
users: [{name: li, user: {token: "secret-token"}}]
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


"""The main screen, and the cursor."""


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Terminal]:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    env = {
        **os.environ,
        "TERM": "xterm-256color",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config-home"),
    }
    words = [sys.executable, "-P", "-m", "tui", "--kubeconfig", str(kubeconfig)]
    with Terminal(words, columns=80, lines=24, env=env) as terminal:
        terminal.wait_for("away / vision")
        yield terminal


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_ends_the_console_and_restores_the_terminal(
    console: Terminal, number: signal.Signals, code: int
) -> None:
    console.signal(number)
    assert console.wait_for_end() == code
    for sequence in RESTORED:
        assert sequence in console.output


def test_ctrl_c_leaves_and_restores_the_terminal(console: Terminal) -> None:
    console.send("\x03")
    assert console.wait_for_end() == 0
    for sequence in RESTORED:
        assert sequence in console.output
    # Each puts the cursor back to where it was at the start, over what was printed since.
    assert console.output.count(RESTORED[0]) == 1


@pytest.mark.slow
def test_an_unreachable_cluster_is_reported_without_secrets_and_q_prompts_before_quitting(
    console: Terminal,
) -> None:
    console.wait_for("Connection refused")
    assert b"secret-token" not in console.output
    console.send("q", shows="Quit gpuconsole?")
    console.send("\r")
    console.wait_for(lambda screen: "Quit gpuconsole?" not in screen)
    console.send(":quit\r")
    assert console.wait_for_end() == 0


@pytest.mark.slow
def test_the_values_of_the_form_are_saved_when_the_connection_is_lost(
    console: Terminal, tmp_path: Path
) -> None:
    console.wait_for("Connection refused")
    console.send("n", shows="no volume claim")
    console.send("half-typed")
    found = re.search(r"Name +(\S+)", console.wait_for("alf-typed"))
    assert found
    console.hang_up()
    assert console.wait_for_end() == 129
    (draft,) = (tmp_path / "state" / "gpuconsole" / FOLDER).glob(f"*/{FILE}")
    assert json.loads(draft.read_text())["texts"]["name"] == found[1]


def test_a_crash_reports_the_bug_without_secrets_and_restores_the_terminal() -> None:
    with Driven() as terminal:
        terminal.wait_for("keys 0")
        terminal.send("c")
        assert terminal.wait_for_end() == 1
        assert not terminal.is_raw
        assert b"this is a bug" in terminal.output
        assert b"a-token-of-somebody" not in terminal.output.replace(b'token = "a-token-of-somebody"', b"")
        for sequence in RESTORED:
            assert sequence in terminal.output


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["term", "int"]
)
def test_a_second_signal_ends_a_slow_shutdown_immediately(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with Driven(DRIVEN_WAITS_FOR=str(tmp_path / "never")) as terminal:
        terminal.wait_for("keys 0")
        terminal.signal(signal.SIGTERM)
        terminal.wait_to_be_told(lambda report: "is_ending" in report)
        terminal.signal(number)
        assert terminal.wait_for_end() == code
        assert not terminal.is_raw
        for sequence in RESTORED:
            assert sequence in terminal.output


def test_a_second_hangup_does_not_interrupt_saving(tmp_path: Path) -> None:
    may_end = tmp_path / "go on"
    with Driven(DRIVEN_WAITS_FOR=str(may_end)) as terminal:
        terminal.wait_for("keys 0")
        terminal.signal(signal.SIGHUP)
        terminal.wait_to_be_told(lambda report: "is_ending" in report)
        terminal.signal(signal.SIGHUP)
        may_end.touch()
        terminal.wait_to_be_told(lambda report: "is_ended" in report)
        assert terminal.wait_for_end() == 129
