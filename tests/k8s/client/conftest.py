"""A fixture with an exec plugin in a folder of its own."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from k8s.client import connection
from k8s.client.client import Client
from tests.k8s.client.login import Plugin


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    monkeypatch.setattr(connection, "RENEWAL_PAUSE_S", inf)  # a test may take longer than the real one
    return Plugin(tmp_path)


@pytest.fixture(autouse=True)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send plain requests where `is_plain` is parametrized so."""
    if getattr(request, "param", False):
        defaults = {**(Client.__init__.__kwdefaults__ or {}), "is_brief": True}
        monkeypatch.setattr(Client.__init__, "__kwdefaults__", defaults)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of modules that use a client with both ways to send requests."""
    if "Client" in vars(metafunc.module):
        metafunc.parametrize("transport", [False, True], ids=["aiohttp", "plain"], indirect=True)
