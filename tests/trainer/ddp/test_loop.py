"""What the loop writes beside the loss: speed, and the share of a peak that is known."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from trainer.catalogue import find
from trainer.ddp.batches import BatchLoader, TrainBatches
from trainer.ddp.checkpoint import list_checkpoints, step_of
from trainer.ddp.checkpoint_folder import CheckpointFolder, CheckpointWriter
from trainer.ddp.datasets import Dataset
from trainer.ddp.models import Gpt, GptSize
from trainer.ddp.samples import noise_tokens
from trainer.ddp.step_stats import SpeedScale, training_flops
from trainer.ddp.train_state import Precision, StepOptions, TrainState
from trainer.distributed.curves import CurveWriter
from trainer.distributed.process_group import ProcessGroup
from trainer.ranks import Ranks
from trainer.signals import StopRequest
from trainer.tfevents import EventFolder, ScalarCurve
from trainer.train_ddp import Progress, TrainingLoop, speed_scale

CPU = torch.device("cpu")
SIZE = GptSize(vocabulary=32, length=16, layers=1, heads=1, width=8)
SEQUENCES = noise_tokens(20, 16, 32, seed=1)
LEARNT = Dataset(SEQUENCES, SEQUENCES, (16,), 32, BatchLoader(CPU))
FLOPS = training_flops(Gpt(SIZE), (16,))


class NeverStopped(StopRequest):
    """A request that leaves the signals of this process alone."""

    def catch_signals(self) -> None:
        """Catch none."""


def train(
    folder: Path, scale: SpeedScale, *, batch_size: int = 4, checkpoint_every: int = 0
) -> dict[str, ScalarCurve]:
    """Train a GPT for two epochs of twenty sequences; returns its curves, by tag."""
    ranks = Ranks(0, 1, 0, 1, "alone")
    state = TrainState(Gpt(SIZE), ProcessGroup(ranks, CPU, 1), Precision("fp32", CPU), StepOptions(lr=0.01))
    curves = CurveWriter(folder / "logs")
    checkpoints = CheckpointFolder(folder / "checkpoints", 9, "gpt", "", continues_when_full=False)
    words = ["--epochs", "2", "--log-every", "2", "--checkpoint-every", str(checkpoint_every)]
    loop = TrainingLoop(
        find("ddp").parser().parse_args(words), state, TrainBatches(SEQUENCES, batch_size, ranks, 1),
        SEQUENCES, scale, CheckpointWriter(checkpoints), Progress(), NeverStopped(),
        eval_batch_size=8, recorded_args={}, curves=curves,
    )  # fmt: skip
    loop.run()
    curves.close()
    events = EventFolder(folder / "logs")
    events.read_new()
    return {curve.tag: curve for curve in events.curves()}


def test_a_gpt_on_gpus_of_a_known_peak_draws_tokens_a_second_and_its_share_of_that_peak(
    tmp_path: Path,
) -> None:
    scale = speed_scale(LEARNT, FLOPS, "NVIDIA A100-SXM4-80GB", "bf16", world_size=4)
    assert (scale.unit, scale.units_per_sample, scale.peak_flops) == ("tokens", 16, 4 * 312e12)
    told = {tag: list(curve.values) for tag, curve in train(tmp_path, scale).items()}
    assert len(told["train/mfu"]) == len(told["train/tokens_per_s"]) == 6
    for share, tokens_per_s in zip(told["train/mfu"], told["train/tokens_per_s"], strict=True):
        assert share == pytest.approx(tokens_per_s / 16 * FLOPS / (4 * 312e12), rel=1e-4)
        assert 0 < share < 1
    for step_ms, tokens_per_s in zip(told["time/step_ms"], told["train/tokens_per_s"], strict=True):
        assert tokens_per_s == pytest.approx(4 * 16 / (step_ms / 1000), rel=1e-4)


@pytest.mark.parametrize(("gpu", "precision"), [("", "fp32"), ("A GPU of tomorrow", "bf16")])
def test_where_no_peak_is_known_no_share_of_it_is_drawn(tmp_path: Path, gpu: str, precision: str) -> None:
    told = train(tmp_path, speed_scale(LEARNT, FLOPS, gpu, precision, world_size=1))
    assert "train/mfu" not in told
    assert min(told["train/tokens_per_s"].values) > 0


def test_the_learning_rate_rises_and_falls_over_the_whole_training(tmp_path: Path) -> None:
    rates = train(tmp_path, SpeedScale())["train/lr"]
    assert list(rates.steps) == [2, 4, 5, 6, 8, 10]
    falling = [0.005 * (1 + math.cos(math.pi * (step / 10 - 0.1) / 0.9)) for step in rates.steps]
    assert list(rates.values) == pytest.approx(falling, abs=1e-6)


def test_the_step_that_takes_the_last_of_an_epoch_takes_the_first_of_the_next_too(tmp_path: Path) -> None:
    assert list(train(tmp_path, SpeedScale(), batch_size=6)["train/loss"].steps) == [2, 4, 6, 7]


def test_checkpoints_are_written_so_often_and_at_the_end_of_each_epoch(tmp_path: Path) -> None:
    train(tmp_path, SpeedScale(), checkpoint_every=2)
    assert [step_of(path) for path in list_checkpoints(tmp_path / "checkpoints")] == [10, 8, 6, 5, 4, 2]
    train(tmp_path / "other", SpeedScale())
    assert [step_of(path) for path in list_checkpoints(tmp_path / "other" / "checkpoints")] == [10, 5]
