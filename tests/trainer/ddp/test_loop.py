"""What the loop writes beside the loss: speed, and the share of a peak that is known."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.ddp.states import alone
from trainer.catalogue import find
from trainer.ddp.checkpoints import list_checkpoints, step_of
from trainer.ddp.models import Gpt, GptSize
from trainer.ddp.step_stats import SpeedScale, training_flops
from trainer.signals import StopRequest
from trainer.tfevents import EventFolder, ScalarCurve
from trainer.train_ddp import Training

GPT = [
    *("--model", "gpt", "--layers", "1", "--heads", "1", "--width", "8"),
    *("--dataset", "sequences", "--sequence-length", "16", "--vocabulary", "32"),
    *("--train-images", "20", "--val-images", "20", "--epochs", "2", "--log-every", "2", "--lr", "0.01"),
]
FLOPS = training_flops(Gpt(GptSize(vocabulary=32, length=16, layers=1, heads=1, width=8)), (16,))


class NeverStopped(StopRequest):
    """A request that leaves the signals of this process alone."""

    def catch_signals(self) -> None:
        """Catch none."""


def train(
    folder: Path, *words: str, scale: SpeedScale | None = None, batch_size: int = 4
) -> dict[str, ScalarCurve]:
    """Train a GPT for two epochs of twenty sequences; returns its curves, by tag."""
    folders = ["--log-dir", str(folder / "logs"), "--checkpoint-dir", str(folder / "checkpoints")]
    words = (*GPT, *folders, "--batch-size", str(batch_size), "--keep", "9", *words)
    training = Training(find("ddp").parser().parse_args(words), alone(), NeverStopped())
    training.scale = scale or training.scale
    training.run()
    training.close()
    events = EventFolder(folder / "logs")
    events.read_new()
    return {curve.tag: curve for curve in events.curves()}


def test_a_gpt_on_gpus_of_a_known_peak_draws_tokens_a_second_and_its_share_of_that_peak(
    tmp_path: Path,
) -> None:
    scale = SpeedScale("tokens", 16, FLOPS, 4 * 312e12)
    told = {tag: list(curve.values) for tag, curve in train(tmp_path, scale=scale).items()}
    assert len(told["train/mfu"]) == len(told["train/tokens_per_s"]) == 6
    for share, tokens_per_s in zip(told["train/mfu"], told["train/tokens_per_s"], strict=True):
        assert share == pytest.approx(tokens_per_s / 16 * FLOPS / (4 * 312e12), rel=1e-4)
        assert 0 < share < 1
    for step_ms, tokens_per_s in zip(told["time/step_ms"], told["train/tokens_per_s"], strict=True):
        assert tokens_per_s == pytest.approx(4 * 16 / (step_ms / 1000), rel=1e-4)


def test_the_learning_rate_rises_and_falls_over_the_whole_training_and_checkpoints_follow_their_interval(
    tmp_path: Path,
) -> None:
    drawn = train(tmp_path, "--checkpoint-every", "2")
    assert "train/mfu" not in drawn, "a processor has no peak that is known"
    assert min(drawn["train/tokens_per_s"].values) > 0
    rates = drawn["train/lr"]
    assert list(rates.steps) == [2, 4, 5, 6, 8, 10]
    falling = [0.005 * (1 + math.cos(math.pi * (step / 10 - 0.1) / 0.9)) for step in rates.steps]
    assert list(rates.values) == pytest.approx(falling, abs=1e-6)
    assert [step_of(path) for path in list_checkpoints(tmp_path / "checkpoints")] == [10, 8, 6, 5, 4, 2]


def test_the_step_that_takes_the_last_of_an_epoch_takes_the_first_of_the_next_too(tmp_path: Path) -> None:
    assert list(train(tmp_path, batch_size=6)["train/loss"].steps) == [2, 4, 6, 7]
    assert [step_of(path) for path in list_checkpoints(tmp_path / "checkpoints")] == [7, 4]
