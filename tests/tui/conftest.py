"""How long the pilot of a test waits: until all is dealt with."""

from __future__ import annotations

import pytest
import textual.app
import textual.pilot
from textual.pilot import Pilot

from tests.support import idle


@pytest.fixture(autouse=True)
def waits_until_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pilot wait for messages, not for a process that uses no CPU: on a loaded machine it gets none."""
    monkeypatch.setattr(textual.app, "wait_for_idle", idle.until_handled)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", idle.pause)
    wait_for_screen = Pilot._wait_for_screen

    async def wait_until_drawn(pilot: Pilot[object], timeout: float = 30.0) -> bool:
        is_handled = await wait_for_screen(pilot, timeout)
        await idle.until_drawn()
        return is_handled

    monkeypatch.setattr(Pilot, "_wait_for_screen", wait_until_drawn)
