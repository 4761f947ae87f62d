"""Keys that need a real terminal: one suspends the console, another copies through an escape sequence."""

from __future__ import annotations

import base64
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.terminal import Terminal

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
