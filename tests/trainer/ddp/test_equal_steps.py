"""What many ranks learn is what one process learns from all their samples at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.ddp.equal_steps import CASES  # noqa: E402
from tests.trainer.jobs import Job  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What rank 0 of each case was left with after twenty steps in float64."""
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


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


@pytest.mark.parametrize("case", ["images-2", "images-4", "images-accumulated"])
def test_ranks_and_accumulated_batches_end_with_the_weights_of_one_process(
    learnt: dict[str, Any], case: str
) -> None:
    weights = learnt["images-1"]["model"]
    assert all(each.dtype == torch.float64 for each in weights.values())
    assert difference(learnt[case]["model"], weights) < 1e-9


@pytest.mark.parametrize("case", ["tokens-fsdp", "tokens-ddp"])
def test_a_gpt_in_parts_or_in_copies_ends_with_the_weights_of_one_process(
    learnt: dict[str, Any], case: str
) -> None:
    alone, parts = learnt["tokens-1"], learnt[case]
    assert difference(parts["model"], alone["model"]) < 1e-9
    averages = zip(parts["averages"]["weights"], alone["averages"]["weights"], strict=True)
    assert all(torch.allclose(ours, theirs, rtol=0, atol=1e-9) for ours, theirs in averages)
    assert not torch.allclose(parts["averages"]["weights"][0], alone["model"]["tokens.weight"], atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_losses_and_right_answers_over_all_ranks_are_those_of_one_process(
    learnt: dict[str, Any], case: str
) -> None:
    alone = learnt["images-1" if case.startswith("images") else "tokens-1"]["metrics"]
    loss, right, targets, train_loss = learnt[case]["metrics"].tolist()
    assert targets == (101 if case.startswith("images") else 5 * 16)
    assert right == alone[1]
    assert loss == pytest.approx(float(alone[0]), rel=1e-9)
    assert train_loss == pytest.approx(float(alone[3]), rel=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_state_that_is_read_back_is_whole_and_the_same_on_any_number_of_ranks(
    learnt: dict[str, Any], case: str
) -> None:
    saved = learnt[case]
    assert saved["same"]
    before, after = saved["moments"]
    assert before.shape == next(iter(saved["model"].values())).shape
    assert torch.equal(before, after)
