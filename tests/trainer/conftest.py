"""A job for each test that wants one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.jobs import Job


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path, forks=True)
    yield job
    job.kill()
