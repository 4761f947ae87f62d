"""Complete runs of one to four ranks: stopped and resumed, and equal to one process on all their samples."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.ddp.forked_runs import EQUAL_CASES, GPT_CASES, HAS_TORCHVISION, STOPPED_AT
from tests.trainer.jobs import Job
from trainer.ddp.checkpoints import list_checkpoints, load_checkpoint
from trainer.ddp.datasets import draw_digit_images
from trainer.ddp.models import make_model
from trainer.ddp.samples import to_inputs
from trainer.tfevents import EventFolder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of all runs, and what they said."""
    with Job(tmp_path_factory.mktemp("runs")) as job:
        job.start(["tests.trainer.ddp.forked_runs"])
        assert job.end() == [0], job.lines[0][-20:]
        yield job.folder, "\n".join(job.lines[0])


def newest(folder: Path) -> dict[str, Any]:
    """The last checkpoint of a run."""
    return load_checkpoint(list_checkpoints(folder / "checkpoints")[0])


def drawn(folder: Path) -> dict[str, list[float]]:
    """The curves of a run, by tag."""
    events = EventFolder(folder / "logs")
    events.read_new()
    return {curve.tag: list(curve.values) for curve in events.curves()}


def tensors(value: Any) -> Iterator[Any]:
    """All tensors of a state, in their order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors(each)


@pytest.mark.parametrize("name", GPT_CASES)
def test_a_gpt_that_is_stopped_within_an_epoch_ends_with_the_very_bits_of_one_that_was_not(
    runs: tuple[Path, str], name: str
) -> None:
    folder, said = runs
    assert said.count(
        f"resumed from checkpoints/step-0000000{STOPPED_AT}.pt: epoch 1, step {STOPPED_AT}"
    ) == len(GPT_CASES)
    whole, stopped = newest(folder / name), newest(folder / f"{name}-stopped")
    assert whole["step"] == stopped["step"] > STOPPED_AT
    for part in ("model", "optimizer", "random"):
        ours, theirs = list(tensors(stopped[part])), list(tensors(whole[part]))
        assert theirs
        assert all(torch.equal(our, their) for our, their in zip(ours, theirs, strict=True)), part


@pytest.mark.skipif(not HAS_TORCHVISION, reason="batch normalization is in torchvision's networks")
def test_two_ranks_validate_with_one_ranks_running_means_which_are_those_that_are_saved(
    runs: tuple[Path, str],
) -> None:
    folder = runs[0] / "normed"
    weights = torch.load(folder / "weights.pt", weights_only=True)
    saved = newest(folder)["model"]
    assert any(name.endswith("running_mean") for name in weights)
    assert all(torch.equal(each, saved[name]) for name, each in weights.items())
    network = make_model("shufflenet_v2_x0_5")
    network.load_state_dict(weights)
    network.eval()
    _, validation = draw_digit_images(64, 21, seed=1)
    pixels, labels = validation.take(torch.arange(21))
    with torch.no_grad():
        logits = network(to_inputs(pixels, 0))
    told = drawn(folder)
    loss = float(torch.nn.functional.cross_entropy(logits, labels))
    assert told["val/loss"][-1] == pytest.approx(loss, rel=1e-5)
    assert told["val/accuracy"][-1] == pytest.approx(float((logits.argmax(1) == labels).float().mean()))


def test_a_gpt_draws_tokens_a_second_and_on_a_processor_no_share_of_a_peak(runs: tuple[Path, str]) -> None:
    for name in GPT_CASES:
        told = drawn(runs[0] / name)
        assert len(told["train/tokens_per_s"]) == 2 and min(told["train/tokens_per_s"]) > 0
        assert not {"train/images_per_s", "train/mfu"} & told.keys()


@pytest.mark.parametrize("name", [name for name in EQUAL_CASES if not name.endswith("-1")])
def test_ranks_and_accumulated_batches_end_with_the_weights_and_metrics_of_one_process(
    runs: tuple[Path, str], name: str
) -> None:
    ours, alone = (runs[0] / each for each in (name, f"{name.split('-')[0]}-1"))
    weights, expected = newest(ours)["model"], newest(alone)["model"]
    assert weights.keys() == expected.keys()
    assert all(each.dtype == torch.float64 for each in expected.values())
    assert max(float((weights[each] - expected[each]).abs().max()) for each in weights) < 1e-9
    told, of_one = drawn(ours), drawn(alone)
    assert newest(ours)["step"] == newest(alone)["step"] == 20
    assert told["val/accuracy"] == of_one["val/accuracy"]
    targets = told["val/accuracy"][0] * (101 if name.startswith("images") else 5 * 16)
    assert targets == pytest.approx(round(targets), abs=1e-3), "each sample counts once"
    for tag in ("val/loss", "train/loss"):
        assert told[tag] == pytest.approx(of_one[tag], rel=2e-7), tag
