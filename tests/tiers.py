"""Tiers of the tests, and the CPU time that keeps them apart.

Quick tests are neither `slow` nor `cluster`; `make test` runs them. A quick test that uses more than
`QUICK_LIMIT_S` fails, unless it is one of the few end-to-end tests that stay in the quick tier on purpose.
The same test costs up to three times the CPU time on a slow or loaded machine, so the limit is stretched by
what a fixed piece of work costs there at that moment.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

QUICK_LIMIT_S = 3.0
"""CPU seconds that an unmarked test may use, in its own process and in children, at the reference speed."""
REFERENCE_S = 0.1
"""CPU seconds of `_fixed_work` where the limit was set: Python 3.11 on an idle AMD EPYC of 2.6 GHz."""
ROUNDS = 2_250
SLOW_FLOOR_S = 0.5
"""A test marked `slow` that uses less is reported, unless it needs the cluster: it may be a quick test."""
DEAREST = 10
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CPU_S = "cpu_s"
"""Name of the property of a report, which pytest-xdist sends to the controller."""


class Meter:
    """CPU time of the running test, without that of fixtures which other tests share."""

    def __init__(self) -> None:
        self._start_s = self._paused_s = 0.0
        self._pauses: list[float] = []

    def restart(self) -> None:
        self._start_s, self._paused_s = cpu_s(), 0.0

    def pause(self) -> None:
        """Stop counting; pauses nest, because one shared fixture may request another."""
        self._pauses.append(cpu_s())

    def resume(self) -> None:
        since_s = self._pauses.pop()
        if not self._pauses:
            self._paused_s += cpu_s() - since_s

    @property
    def test_s(self) -> float:
        return cpu_s() - self._start_s - self._paused_s


METER = pytest.StashKey[Meter]()


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children, with what these have waited for.

    Running children count too: a server from which tests fork, or the sandbox of a worker. Source: proc(5).
    """
    times = os.times()
    ticks = 0
    for pid in _running_children():
        with suppress(OSError):  # it has ended, and counts among those that were waited for
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return times.user + times.system + times.children_user + times.children_system + ticks / TICKS_PER_S


def _running_children() -> list[str]:
    while True:
        try:
            listed = [each.read_text() for each in Path("/proc/self/task").glob("*/children")]
        except OSError:
            continue  # a thread has ended; another one has its children now
        return " ".join(listed).split()


def slowness() -> float:
    """Return the cost of a fixed piece of work, here and now, as a multiple of `REFERENCE_S`; at least 1."""
    start_s = time.process_time()
    _fixed_work()
    return max(1.0, (time.process_time() - start_s) / REFERENCE_S)


def _fixed_work() -> None:
    """Allocate, format, hash and parse, as most tests do."""
    for number in range(ROUNDS):
        row = {f"key-{each}": [str(each), {"value": each * number}] for each in range(40)}
        assert len(json.loads(json.dumps(row))) == 40


def fault_of(used_s: float, marks: set[str]) -> str | None:
    """Explain why a test of this cost does not belong into the quick tier; None if it may stay."""
    if used_s <= QUICK_LIMIT_S or marks & {"slow", "cluster", "end_to_end"}:
        return None
    limit_s = QUICK_LIMIT_S * slowness()
    if used_s <= limit_s:
        return None
    return (
        f"used {used_s:.1f} CPU seconds; a test of the quick tier may use {limit_s:.3g}.\n"
        "Make it cheaper, or mark it `slow`: then `make check` runs it and `make test` does not."
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[METER] = Meter()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    item.config.stash[METER].restart()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Leave shared fixtures out of the account of the test that happens to come first or last."""
    if fixturedef.scope == "function":
        return (yield)
    meter = request.config.stash[METER]
    # Finalizers run in reverse: the fixture's own teardown, added by the setup, lies between these two.
    fixturedef.addfinalizer(meter.resume)
    meter.pause()
    try:
        return (yield)
    finally:
        meter.resume()
        fixturedef.addfinalizer(meter.pause)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the cost to the last report of a test, and let that fail where the tier does not allow it."""
    report = yield
    if call.when == "teardown":
        used_s = item.config.stash[METER].test_s
        report.user_properties.append((CPU_S, used_s))
        fault = fault_of(used_s, {mark.name for mark in item.iter_markers()})
        if fault and report.passed:
            report.outcome, report.longrepr = "failed", f"{item.nodeid} {fault}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the dearest tests, and those marked `slow` that are not."""
    costs: dict[str, float] = {}
    cheap: list[tuple[float, str]] = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            used_s = dict(getattr(report, "user_properties", ())).get(CPU_S)
            if used_s is None or report.when != "teardown":
                continue
            costs[report.nodeid] = used_s
            is_slow = "slow" in report.keywords and "cluster" not in report.keywords
            if is_slow and used_s < SLOW_FLOOR_S:
                cheap.append((used_s, report.nodeid))
    if not costs:
        return
    terminalreporter.section(f"CPU time: {sum(costs.values()):.0f} s in {len(costs)} tests")
    for nodeid in sorted(costs, key=costs.__getitem__, reverse=True)[:DEAREST]:
        terminalreporter.line(f"{costs[nodeid]:7.2f} s  {nodeid}")
    for used_s, nodeid in sorted(cheap, key=lambda pair: pair[1]):
        terminalreporter.line(f"{used_s:7.2f} s  {nodeid}: marked slow, but cheap enough for the quick tier")
