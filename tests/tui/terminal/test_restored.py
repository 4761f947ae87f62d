"""The terminal is restored however the console ends, and nothing typed is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.driver_app import Driven
from tests.support.terminal import Terminal
from tui.draft.draft import FILE, FOLDER

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: li, user: {token: "secret-token"}}]
contexts: [{name: away, context: {cluster: away, user: li, namespace: vision}}]
current-context: away
"""
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h")
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
