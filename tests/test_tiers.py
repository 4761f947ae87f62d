"""The plugin that keeps the quick tier quick, run on a small suite of its own."""

from __future__ import annotations

import pytest

from tests import tiers

pytest_plugins = ["pytester"]

SUITE = """
    import subprocess, sys, time
    import pytest

    BURN = "import time\\nwhile time.process_time() < 0.25: pass"

    SERVER = "import time\\nwhile time.process_time() < 0.25: pass\\nprint('ready', flush=True)\\ninput()"

    def burn():
        end = time.process_time() + 0.25
        while time.process_time() < end:
            pass

    @pytest.fixture(scope="module")
    def shared():
        burn()
        yield
        burn()

    def test_dear(): burn()
    def test_dear_child(): subprocess.run([sys.executable, "-c", BURN])
    @pytest.fixture(scope="module")
    def servers():
        started = []
        yield started
        for each in started:
            each.communicate()

    def test_dear_running_child(servers):
        servers.append(subprocess.Popen([sys.executable, "-c", SERVER], stdin=-1, stdout=-1))
        assert servers[0].stdout.readline()
    def test_first_of_a_shared_fixture(shared): pass
    @pytest.mark.slow
    def test_marked_slow(): burn()
    @pytest.mark.slow
    def test_cheap_but_marked_slow(): pass
    @pytest.mark.end_to_end
    def test_whole_run(): burn()
    @pytest.mark.cluster
    def test_on_a_cluster(): burn()
    @pytest.mark.slow
    @pytest.mark.cluster
    def test_cheap_on_a_cluster(): pass
    def test_cheap(): pass
    def test_broken(): assert False
    def test_last_of_a_shared_fixture(shared): pass
"""
INI = """
    [pytest]
    asyncio_default_fixture_loop_scope = function
    markers =
        slow
        cluster
        end_to_end
"""


def test_dear_tests_fail_and_costs_are_printed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "QUICK_LIMIT_S", 0.15)
    monkeypatch.setattr(tiers, "SLOW_FLOOR_S", 0.15)
    monkeypatch.setattr(tiers, "slowness", lambda: 1.0)
    pytester.makeini(INI)
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_inprocess("-p", "tests.tiers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=11, failed=1, errors=3)
    lines = result.outlines
    # Only unmarked tests fail for their cost, and a shared fixture is not theirs.
    limit = "CPU seconds; a test of the quick tier may use 0.15."
    # Where $CI is set, the summary at the end repeats the whole message.
    faults = [line for line in lines if limit in line and not line.startswith("ERROR ")]
    assert [line.split("::")[1].split()[0] for line in faults] == [
        "test_dear",
        "test_dear_child",
        "test_dear_running_child",
    ]
    # The dearest come first.
    start = next(number for number, line in enumerate(lines) if "CPU time:" in line)
    assert "in 12 tests" in lines[start]
    costs = [float(line.split()[0]) for line in lines[start + 1 : start + 1 + tiers.DEAREST]]
    assert costs == sorted(costs, reverse=True)
    assert costs[5] > 0.15 > costs[6]
    # A mark that is not needed is reported.
    cheap = [line for line in lines if "marked slow, but cheap" in line]
    assert [line.split("::")[1].split(":")[0] for line in cheap] == ["test_cheap_but_marked_slow"]


def test_the_limit_grows_with_the_slowness_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "slowness", lambda: 2.0)
    assert tiers.fault_of(2 * tiers.QUICK_LIMIT_S, set()) is None
    assert "may use 6." in (tiers.fault_of(2 * tiers.QUICK_LIMIT_S + 0.1, set()) or "")


def test_a_slow_machine_is_measured_and_a_fast_one_counts_as_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiers, "REFERENCE_S", 1e-6)
    assert tiers.slowness() > 100
    monkeypatch.setattr(tiers, "REFERENCE_S", 100.0)
    assert tiers.slowness() == 1
