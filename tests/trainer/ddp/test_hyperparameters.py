"""What a checkpoint was made with: what must be the same, and what counts anew and is said."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from trainer.catalogue import find  # noqa: E402
from trainer.ddp.data.feed import BatchFeed  # noqa: E402
from trainer.ddp.data.synthetic import noise_images, noise_tokens  # noqa: E402
from trainer.ddp.hyperparameters import Hyperparameters, check_continues, hyperparameters_of  # noqa: E402
from trainer.ddp.learner import Learner  # noqa: E402
from trainer.ddp.learning_set import LearningSet  # noqa: E402
from trainer.ddp.models import make_model  # noqa: E402
from trainer.ddp.step.optimizer import StepOptions  # noqa: E402
from trainer.ddp.step.precision import Precision  # noqa: E402
from trainer.distributed.process_group import ProcessGroup  # noqa: E402
from trainer.messages import TrainingError  # noqa: E402
from trainer.ranks import Ranks  # noqa: E402

CPU = torch.device("cpu")
GPT = ("--model", "gpt", "--dataset", "sequences")


def kept(*words: str, vocabulary: int = 256) -> Hyperparameters:
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
    learning_set = LearningSet(samples, samples, shape, vocabulary, BatchFeed(CPU))
    options = StepOptions(lr=1.0, optimizer=arguments.optimizer, momentum=arguments.momentum)
    return hyperparameters_of(arguments, learning_set, options.optimizer_name)


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
        check_continues(kept(*before), kept(*now))
    assert str(caught.value).startswith(f"The checkpoint was made with {words}. Choose what it was made with")


def test_another_vocabulary_is_named_as_it_was_decided() -> None:
    with pytest.raises(TrainingError, match=r"with --vocabulary 256 \(here 50257\)\."):
        check_continues(kept(*GPT), kept(*GPT, vocabulary=50257))


def test_what_counts_from_now_on_is_said_and_what_is_the_same_is_not() -> None:
    before = ("--momentum", "0.5", "--epochs", "2")
    now = ("--momentum", "0.9", "--epochs", "4", "--lr", "0.1", "--weight-decay", "0")
    assert check_continues(kept(*before), kept(*now)) == (
        "--momentum 0.9 (was 0.5), --lr 0.1 (was 0.003), --weight-decay 0.0 (was 0.01), --epochs 4 (was 2)"
    )
    assert check_continues(kept(*now), kept(*now)) == ""
    assert check_continues({}, kept(*now)) == "", "a checkpoint of an older trainer says nothing"
    large = "--model", "resnet18", "--image-size"
    assert check_continues(kept(*large, "64"), kept(*large, "96")) == ""


def learner(**options: Any) -> Learner:
    """A learner of digits, by SGD unless told otherwise."""
    group = ProcessGroup(Ranks(0, 1, 0, 1, "alone"), CPU, 1)
    chosen = StepOptions(**{"lr": 0.1, "optimizer": "sgd", **options})
    return Learner(make_model("lenet"), group, Precision("fp32", CPU), chosen)


def test_the_momentum_and_weight_decay_of_this_run_count_and_not_the_checkpoints() -> None:
    before, now = learner(momentum=0.5, weight_decay=0.1), learner(momentum=0.9, weight_decay=0.0)
    batch = torch.ones(4, 1, 28, 28), torch.arange(4)
    before.train_step(*batch)
    now.load_state_dict(before.state_dict())
    [weights] = now.state_dict()["optimizer"]["param_groups"]
    assert (weights["momentum"], weights["weight_decay"]) == (0.9, 0.0)
    with pytest.raises(
        TrainingError, match=r"was not made with AdamW\. Choose the --optimizer and --momentum"
    ):
        learner(optimizer="adamw").load_state_dict(before.state_dict())
