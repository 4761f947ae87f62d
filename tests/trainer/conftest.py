"""A job for each test that wants one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.jobs import Job


@pytest.fixture
def job(tmp_path: Path, imported_torch: None) -> Iterator[Job]:
    with Job(tmp_path, forks=True) as job:
        yield job
