"""Keys whose effect only a real terminal shows: it is given to the shell, it is asked to take a copy."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.terminal import Terminal
from tests.tui.keys.proofs import Hands, proves

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: li, user: {token: "t"}}]
contexts: [{name: away, context: {cluster: away, user: li, namespace: vision}}]
current-context: away
"""
SENT: Mapping[str, str] = {"ctrl+z": "\x1a", "c": "c"}
"""What a terminal sends for a key."""
COPIED = re.compile(rb"\x1b]52;c;([A-Za-z0-9+/=]+)\x07")


def hands_at(terminal: Terminal) -> Hands:
    async def press(*keys: str) -> None:
        await asyncio.to_thread(terminal.send, "".join(SENT[key] for key in keys))

    async def until(is_so: Callable[[], object]) -> None:
        await asyncio.to_thread(terminal.wait_for, lambda _: is_so())

    return Hands(press, until)


@proves("app.suspend_process", "app.copy")
async def test_a_key_gives_the_terminal_to_the_shell_and_another_has_it_take_a_copy(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    homes = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("DATA", "STATE", "CONFIG", "CACHE")}
    env = {**os.environ, **homes, "TERM": "xterm-256color", "GPUCONSOLE_CLIPBOARD": "osc52"}
    for name in ("TMUX", "STY"):
        env.pop(name, None)
    words = [sys.executable, "-P", "-m", "tui", "--kubeconfig", str(kubeconfig)]
    with Terminal(words, columns=80, lines=24, env=env) as terminal:
        await asyncio.to_thread(terminal.wait_for, "away / vision")
        hands = hands_at(terminal)
        await hands.press("app.suspend_process", lambda: terminal.is_stopped)
        assert not terminal.is_raw
        terminal.clear()
        terminal.signal(signal.SIGCONT)
        await asyncio.to_thread(terminal.wait_for, "away / vision")
        terminal.send(":info\r")
        await asyncio.to_thread(terminal.wait_for, "What you may do")
        await hands.press("app.copy", lambda: COPIED.search(terminal.output))
        found = COPIED.search(terminal.output)
        assert found is not None
        assert "vision" in base64.b64decode(found[1]).decode()
