"""What every test begins with."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings


def pytest_configure() -> None:
    """Take Ctrl-C, also in the background, and measure no property by the clock.

    In the background a shell lets the tests and their children ignore Ctrl-C. How long an example takes, and
    how fast examples are made up, says something of the machine.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any-machine")
