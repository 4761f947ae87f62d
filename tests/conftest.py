"""Settings of every test run: signals, examples of properties, event loops."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.tiers"]

HAS_EAGER_TASKS = hasattr(asyncio, "eager_task_factory")
FUZZ_EXAMPLES = 2_000
"""Made up by `make fuzz` for each property whose test does not say how many; by a check, a hundred."""


def pytest_configure() -> None:
    """Take Ctrl-C, also in the background, start children that take SIGHUP, hide GPUs, make up examples.

    Tests start more ranks than a workstation has GPUs.

    In the background a shell lets the tests and their children ignore Ctrl-C. How long an example takes, and
    how fast examples are made up, says something of the machine. A check makes up the same ones each time, so
    that it fails for what was changed; others are sought by `make fuzz`.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup; children inherit no handler
        signal.signal(signal.SIGHUP, lambda *_: None)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("check", patient, derandomize=True)
    settings.register_profile("fuzz", patient, max_examples=FUZZ_EXAMPLES)
    settings.load_profile("check")


@pytest.fixture
def every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the code see all GPUs of a stand-in of the driver."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")


@pytest.fixture(scope="session")
def imported_torch() -> None:
    """Let the process from which ranks are forked import torch, which is no test's own cost."""
    from tests.trainer.forked_rank import FORKING

    process = FORKING.Process(target=int)
    process.start()
    process.join()


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Start tasks eagerly where Python can: Textual does so in a terminal, but not in its own tests."""
    is_server = "/k8s/sandbox/" in item.nodeid
    return {"loop": asyncio.new_event_loop if is_server or not HAS_EAGER_TASKS else _eager_loop}


def _eager_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009
    return loop


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests on the real cluster in parallel processes: there is one cluster."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        for item in items:
            if item.get_closest_marker("cluster"):
                item.add_marker(pytest.mark.skip(reason="needs the cluster for itself: make test-cluster"))


def pytest_collection_finish() -> None:
    """Exempt what is imported by now from garbage collection: scanning it took a quarter of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
