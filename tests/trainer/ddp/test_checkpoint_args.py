"""Arguments recorded in a checkpoint: which must stay the same, and which changes are reported."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from trainer.catalogue import find
from trainer.ddp.batches import BatchLoader
from trainer.ddp.checkpoint_folder import CheckpointArgs, check_resumable, checkpoint_args
from trainer.ddp.datasets import Dataset
from trainer.ddp.models import make_model
from trainer.ddp.samples import noise_images, noise_tokens
from trainer.ddp.train_state import Precision, StepOptions, TrainState
from trainer.distributed.process_group import ProcessGroup
from trainer.messages import TrainingError
from trainer.ranks import Ranks

CPU = torch.device("cpu")
GPT = ("--model", "gpt", "--dataset", "sequences")


def kept(*words: str, vocabulary: int = 256) -> CheckpointArgs:
    """What a checkpoint of a run with these arguments keeps."""
    arguments = find("ddp").parser().parse_args(words)
    samples: Any
    shape: tuple[int, ...]
    if arguments.model == "gpt":
        length = arguments.sequence_length
        samples, shape = noise_tokens(3, length, vocabulary, 1), (length,)
    else:
        size = arguments.image_size or 28
        samples, shape, vocabulary = noise_images(3, size, 10, 1), (1, size, size), 10
    dataset = Dataset(samples, samples, shape, vocabulary, BatchLoader(CPU))
    options = StepOptions(lr=1.0, optimizer=arguments.optimizer, momentum=arguments.momentum)
    return checkpoint_args(arguments, dataset, options.optimizer_name)


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


def state(**options: Any) -> TrainState:
    """The state of a network for digits, by SGD unless told otherwise."""
    group = ProcessGroup(Ranks(0, 1, 0, 1, "alone"), CPU, 1)
    chosen = StepOptions(**{"lr": 0.1, "optimizer": "sgd", **options})
    return TrainState(make_model("lenet"), group, Precision("fp32", CPU), chosen)


def test_the_momentum_and_weight_decay_of_this_run_count_and_not_the_checkpoints() -> None:
    before, now = state(momentum=0.5, weight_decay=0.1), state(momentum=0.9, weight_decay=0.0)
    batch = torch.ones(4, 1, 28, 28), torch.arange(4)
    before.train_step(*batch)
    now.load_state_dict(before.state_dict())
    [weights] = now.state_dict()["optimizer"]["param_groups"]
    assert (weights["momentum"], weights["weight_decay"]) == (0.9, 0.0)
    with pytest.raises(
        TrainingError, match=r"was not made with AdamW\. Choose the --optimizer and --momentum"
    ):
        state(optimizer="adamw").load_state_dict(before.state_dict())
