"""What every test begins with."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

FUZZ_EXAMPLES = 2_000
"""Made up by `make fuzz` for each property whose test does not say how many; by a check, a hundred."""


def pytest_configure() -> None:
    """Take Ctrl-C, also in the background, and make up examples for properties.

    In the background a shell lets the tests and their children ignore Ctrl-C. How long an example takes, and
    how fast examples are made up, says something of the machine. A check makes up the same ones each time, so
    that it fails for what was changed; others are sought by `make fuzz`.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("check", patient, derandomize=True)
    settings.register_profile("fuzz", patient, max_examples=FUZZ_EXAMPLES)
    settings.load_profile("check")
