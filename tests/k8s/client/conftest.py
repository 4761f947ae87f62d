"""A fixture with an exec plugin in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.k8s.client.login import Plugin


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)
