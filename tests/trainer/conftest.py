"""Jobs of processes, and runs in the process of the tests, for each test that wants one."""

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.trainer.jobs import Job
from trainer.catalogue import find


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Let torch compute without threads that wait for each other: on a busy machine these cost most."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def imported_torchvision() -> None:
    """Import torchvision, which is no test's own cost."""
    if find_spec("torchvision") is None:
        pytest.skip("needs torchvision, which gpuconsole[trainer] brings")
    from trainer.distributed.runtime import import_torchvision

    import_torchvision("models", "")


@pytest.fixture
def job(tmp_path: Path, imported_torch: None) -> Iterator[Job]:
    with Job(tmp_path, forks=True) as job:
        yield job


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Train in this process, from the command line to the exit status; returns the lines that were printed.

    `stop_after` is the number of times that the loop looks for a signal before it finds SIGTERM.
    """
    from tests.trainer.ddp.states import ScriptedStop
    from trainer.train_ddp import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run_here(*words: str, status: int = 0, stop_after: int = 0) -> list[str]:
        try:
            found: object = run(find("ddp").parser().parse_args(words), ScriptedStop(stop_after))
        except SystemExit as error:
            found = error.code
        printed = capsys.readouterr()
        lines = [*printed.out.splitlines(), *printed.err.splitlines()]
        assert found == status, lines
        return lines

    return run_here
