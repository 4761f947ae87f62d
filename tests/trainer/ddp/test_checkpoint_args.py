"""Arguments recorded in a checkpoint: which must stay the same, and which changes are reported."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.ddp.states import CPU, chosen, lenet_batch, state_of
from trainer.ddp.batches import BatchLoader
from trainer.ddp.checkpoints import CheckpointArgs, check_resumable, checkpoint_args
from trainer.ddp.datasets import Dataset
from trainer.ddp.samples import noise_images, noise_tokens
from trainer.messages import TrainingError

GPT = ("--model", "gpt", "--dataset", "sequences")


def kept(*words: str, vocabulary: int = 256) -> CheckpointArgs:
    """What a checkpoint of a run with these arguments keeps."""
    arguments = chosen(*words)
    samples: Any
    shape: tuple[int, ...]
    if arguments.model == "gpt":
        length = arguments.sequence_length
        samples, shape = noise_tokens(3, length, vocabulary, 1), (length,)
    else:
        size = arguments.image_size or 28
        samples, shape, vocabulary = noise_images(3, size, 10, 1), (1, size, size), 10
    return checkpoint_args(arguments, Dataset(samples, samples, shape, vocabulary, BatchLoader(CPU)))


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ((*GPT, "--heads", "2"), GPT, "--heads 2 (here 4)"),
        ((*GPT, "--layers", "2", "--width", "64"), GPT, "--layers 2 (here 4), --width 64 (here 128)"),
        ((*GPT, "--sequence-length", "64"), GPT, "--sequence-length 64 (here 256)"),
        ((), ("--momentum", "0.5"), "--optimizer adamw (here sgd), --momentum 0 (here 0.5)"),
        (
            ("--optimizer", "sgd", "--momentum", "0.9"),
            ("--optimizer", "adamw", "--lr", "1"),
            "--optimizer sgd (here adamw), --momentum 0.9 (here 0)",
        ),
        (("--image-size", "32"), (), "--image-size 32 (here 28)"),
    ],
)
def test_all_that_a_run_cannot_go_on_with_is_named_with_both_values(
    before: tuple[str, ...], now: tuple[str, ...], words: str
) -> None:
    with pytest.raises(TrainingError) as caught:
        check_resumable(kept(*before), kept(*now))
    assert str(caught.value).startswith(f"The checkpoint was made with {words}. Choose what it was made with")


def test_another_vocabulary_is_named_as_it_was_decided() -> None:
    with pytest.raises(TrainingError, match=r"with --vocabulary 256 \(here 50257\)\."):
        check_resumable(kept(*GPT), kept(*GPT, vocabulary=50257))


def test_what_counts_from_now_on_is_said_and_what_is_the_same_is_not() -> None:
    before = ("--momentum", "0.5", "--epochs", "2")
    now = ("--momentum", "0.9", "--epochs", "4", "--lr", "0.1", "--weight-decay", "0")
    assert check_resumable(kept(*before), kept(*now)) == (
        "--momentum 0.9 (was 0.5), --lr 0.1 (was 0.003), --weight-decay 0.0 (was 0.01), --epochs 4 (was 2)"
    )
    assert check_resumable(kept(*now), kept(*now)) == ""
    assert check_resumable({}, kept(*now)) == "", "a checkpoint of an older trainer says nothing"
    large = "--model", "resnet18", "--image-size"
    assert check_resumable(kept(*large, "64"), kept(*large, "96")) == "--image-size 96 (was 64)"


def test_the_momentum_and_weight_decay_of_this_run_count_and_not_the_checkpoints() -> None:
    before = state_of("--momentum", "0.5", "--weight-decay", "0.1")
    now = state_of("--momentum", "0.9", "--weight-decay", "0")
    before.train_step(*lenet_batch())
    now.load_state_dict(before.state_dict())
    [weights] = now.state_dict()["optimizer"]["param_groups"]
    assert (weights["momentum"], weights["weight_decay"]) == (0.9, 0.0)
