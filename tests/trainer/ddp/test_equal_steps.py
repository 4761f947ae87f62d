"""Many ranks end with the weights of one process that trains on all their samples."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.ddp.equal_steps import CASES
from tests.trainer.jobs import Job

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Weights and metrics of each case after twenty steps in float64."""
    folder: Path = tmp_path_factory.mktemp("steps")
    job = Job(folder)
    job.start(["tests.trainer.ddp.equal_steps"])
    try:
        assert job.end() == [0], job.lines[0][-20:]
    finally:
        for process in job.processes:
            process.kill()
            process.communicate()
    yield {case: torch.load(folder / f"{case}.pt", weights_only=True) for case in CASES}


@pytest.mark.parametrize("case", ["images-2", "images-4", "images-accumulated", "tokens-2"])
def test_ranks_and_accumulated_batches_end_with_the_weights_of_one_process(
    trained: dict[str, Any], case: str
) -> None:
    ours, alone = trained[case]["model"], trained[f"{case.split('-')[0]}-1"]["model"]
    assert all(each.dtype == torch.float64 for each in alone.values())
    assert ours.keys() == alone.keys()
    assert max(float((ours[name] - alone[name]).abs().max()) for name in ours) < 1e-9


@pytest.mark.parametrize("case", CASES)
def test_losses_and_correct_answers_over_all_ranks_are_those_of_one_process(
    trained: dict[str, Any], case: str
) -> None:
    alone = trained["images-1" if case.startswith("images") else "tokens-1"]["metrics"]
    loss, correct, targets, train_loss = trained[case]["metrics"].tolist()
    assert targets == (101 if case.startswith("images") else 5 * 16)
    assert correct == alone[1]
    assert loss == pytest.approx(float(alone[0]), rel=1e-9)
    assert train_loss == pytest.approx(float(alone[3]), rel=1e-6)
