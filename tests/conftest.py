"""What every test begins with."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take Ctrl-C, also in the background: there a shell lets the tests and their children ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
