"""Batches of the ranks, every sample once per epoch; and the networks: what goes in, what comes out."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from trainer.ddp.batches import ElasticSampler, TensorSamples, TrainBatches, validation_batches
from trainer.ddp.datasets import draw_digit_images
from trainer.messages import TrainingError
from trainer.ranks import Ranks


def samplers(samples: int, batch_size: int, world_size: int, seed: int = 1) -> list[ElasticSampler]:
    return [
        ElasticSampler(samples, batch_size, Ranks(rank, world_size, 0, 1, "a test"), seed)
        for rank in range(world_size)
    ]


def epoch_of(
    samples: int, batch_size: int, world_size: int, epoch: int = 0, taken: int = 0
) -> list[list[int]]:
    """List what all ranks together take at each step of an epoch."""
    by_rank = [each.epoch_batches(epoch, taken) for each in samplers(samples, batch_size, world_size)]
    return [torch.cat(step).tolist() for step in zip(*by_rank, strict=True)]


@pytest.mark.parametrize(
    ("samples", "batch_size", "world_size"), [(48, 4, 2), (50, 4, 3), (7, 7, 1), (9, 2, 4)]
)
def test_each_sample_is_taken_once_an_epoch_and_each_epoch_has_its_own_order(
    samples: int, batch_size: int, world_size: int
) -> None:
    steps = epoch_of(samples, batch_size, world_size)
    assert {len(step) for step in steps} == {batch_size * world_size}
    taken = [sample for step in steps for sample in step]
    of_the_next = len(taken) - samples
    assert 0 <= of_the_next < batch_size * world_size
    assert set(taken) == set(range(samples))
    assert [taken.count(sample) for sample in range(samples)].count(2) == of_the_next
    assert epoch_of(samples, samples, 1, 0) != epoch_of(samples, samples, 1, 1)


@given(
    samples=st.integers(12, 60),
    parts=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=6
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_changing_number_of_ranks_takes_each_sample_equally_often(
    samples: int, parts: list[tuple[int, int, int]], seed: int
) -> None:
    """Each part is a run: its ranks, the samples a step of each, and the steps until it is stopped."""
    times = [0] * samples
    epoch, taken = 0, 0
    for world_size, batch_size, steps in parts:
        ranks = samplers(samples, batch_size, world_size, seed)
        batches = [each.epoch_batches(epoch, taken) for each in ranks]
        for _ in range(steps):
            if taken >= samples:
                epoch, taken = epoch + 1, taken - samples
                batches = [each.epoch_batches(epoch, taken) for each in ranks]
            for indices in batches:
                for sample in next(indices).tolist():
                    times[sample] += 1
            taken += world_size * batch_size
            whole, more = divmod(taken, samples)
            assert sorted(times) == sorted([epoch + whole] * (samples - more) + [epoch + whole + 1] * more)


@pytest.mark.parametrize("samples", [48, 50])
def test_any_number_of_ranks_takes_the_next_samples_in_the_order_of_one_rank(samples: int) -> None:
    alone = [step[0] for step in epoch_of(samples, 1, 1)]
    for world_size in (1, 2, 3):
        steps = epoch_of(samples, 4, world_size, 0, 20)
        in_order = [sorted(step) for step in steps[:-1]]
        size = 4 * world_size
        assert (
            in_order
            == [sorted(alone[at : at + size]) for at in range(20, samples - size + 1, size)][: len(in_order)]
        )
        assert set(alone[20:]) <= {sample for step in steps for sample in step}


def test_the_sample_order_equals_that_of_torchs_distributed_sampler() -> None:
    from torch.utils.data import DistributedSampler

    dataset = torch.utils.data.TensorDataset(torch.zeros(48))
    for rank in (0, 1):
        theirs: DistributedSampler[object] = DistributedSampler(
            dataset, 2, rank, shuffle=True, seed=5, drop_last=True
        )
        theirs.set_epoch(3)
        ours = ElasticSampler(48, 4, Ranks(rank, 2, 0, 1, "a test"), 5)
        assert torch.cat(list(ours.epoch_batches(3))).tolist() == list(theirs)


@pytest.mark.parametrize(
    ("epochs", "epoch", "taken", "steps"),
    [(1, 0, 0, 5), (2, 0, 0, 9), (2, 1, 10, 4), (2, 1, 49, 1), (2, 2, 10, 0), (2, 5, 0, 0)],
)
def test_steps_are_counted_until_the_last_sample_of_the_last_epoch(
    epochs: int, epoch: int, taken: int, steps: int
) -> None:
    [sampler, *_] = samplers(50, 4, 3)
    assert sampler.steps_left(epochs, epoch, taken) == steps


def numbered(count: int) -> TensorSamples:
    """Make images whose labels are their numbers."""
    return TensorSamples(torch.zeros(count, 1, 28, 28, dtype=torch.uint8), torch.arange(count))


def ranks_of(world_size: int) -> list[Ranks]:
    return [Ranks(rank, world_size, 0, 1, "a test") for rank in range(world_size)]


@pytest.mark.parametrize(("count", "world_size"), [(10, 1), (11, 2), (7, 3), (2, 3)])
def test_over_all_ranks_each_validation_image_counts_exactly_once(count: int, world_size: int) -> None:
    evaluated = [
        int(label)
        for ranks in ranks_of(world_size)
        for _, labels in validation_batches(numbered(count), 3, ranks)
        for label in labels
    ]
    assert sorted(evaluated) == list(range(count))


def test_all_ranks_validate_the_same_number_of_batches() -> None:
    sizes = [
        [len(labels) for _, labels in validation_batches(numbered(9), 2, ranks)] for ranks in ranks_of(4)
    ]
    assert sizes == [[2, 1], [2, 0], [2, 0], [2, 0]]


def test_a_batch_is_floats_from_0_to_1() -> None:
    train, validation = draw_digit_images(64, 10, seed=1)
    images, labels = next(TrainBatches(train, 32, ranks_of(1)[0], seed=1).epoch_batches(0))
    assert (images.shape, images.dtype) == ((32, 1, 28, 28), torch.float32)
    assert images.min() >= 0
    assert 0.9 < images.max() <= 1
    assert labels.shape == (32,)
    assert len(validation) == 10


def test_too_few_images_for_a_step_raise_a_training_error() -> None:
    with pytest.raises(TrainingError, match="There are 7 training images, but one step takes 8"):
        TrainBatches(numbered(7), 4, ranks_of(2)[0], seed=1)


from trainer.catalogue import MODELS
from trainer.ddp.models import OWN_IMAGE_MODELS, Gpt, GptSize, Stack, check_input, make_model
from trainer.distributed.runtime import import_torchvision
from trainer.messages import InvalidArguments

needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None,
    reason="needs torchvision, which gpuconsole[trainer] brings",
)


@pytest.mark.parametrize("name", OWN_IMAGE_MODELS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_our_networks_take_grey_and_coloured_images_and_give_logits(
    name: str, shape: tuple[int, int, int]
) -> None:
    torch.manual_seed(1)
    logits = make_model(name, shape, classes=7).eval()(torch.randn(3, *shape))
    assert logits.shape == (3, 7)
    assert not torch.allclose(logits.sum(1), torch.ones(3), atol=1e-3)


def test_the_tutorials_network_has_its_layers_but_no_softmax() -> None:
    network = make_model("t9k-cnn")
    assert [tuple(weight.shape) for weight in network.parameters() if weight.dim() > 1] == [
        (32, 1, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3), (64, 576), (10, 64),
    ]  # fmt: skip
    assert not any(isinstance(each, torch.nn.Softmax) for each in network.modules())


def test_images_that_are_too_small_for_a_network_are_refused() -> None:
    with pytest.raises(
        InvalidArguments, match=r"--model t9k-cnn does not accept images of 8x8. .*--image-size"
    ):
        make_model("t9k-cnn", (3, 8, 8))


@needs_torchvision
def test_the_catalogue_lists_every_classification_network_of_torchvision() -> None:
    models = import_torchvision("models", "--model cnn")
    assert set(models.list_models(module=models)) <= {*MODELS}
    with pytest.raises(InvalidArguments, match="--model resnet_9: this torchvision has no such network"):
        make_model("resnet_9")


@needs_torchvision
def test_images_are_resized_to_image_size_and_unsupported_sizes_are_rejected() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = make_model("alexnet", (3, 32, 32), 5)
        resized = make_model("alexnet", (3, 32, 32), 5, image_size=64)
    with pytest.raises(InvalidArguments, match="--model alexnet does not accept images of 32x32"):
        check_input(network, "alexnet", (3, 32, 32), torch.device("cpu"))
    check_input(resized, "alexnet", (3, 32, 32), torch.device("cpu"))
    assert resized.training


def test_a_gpt_predicts_only_from_earlier_tokens() -> None:
    torch.manual_seed(1)
    gpt = Gpt(GptSize(vocabulary=50, length=12, layers=2, heads=2, width=8))
    tokens = torch.randint(50, (1, 12))
    changed = tokens.clone()
    changed[0, 7] = (tokens[0, 7] + 1) % 50
    ours, theirs = gpt(tokens), gpt(changed)
    assert ours.shape == (1, 12, 50)
    assert torch.allclose(ours[:, :7], theirs[:, :7], atol=1e-6)
    assert not torch.allclose(ours[:, 7:], theirs[:, 7:], atol=1e-6)
    assert gpt(tokens[:, :5]).shape == (1, 5, 50)


@pytest.mark.parametrize("name", ["cnn", "gpt"])
def test_our_own_networks_are_one_graph_for_torch_compile(name: str) -> None:
    """It leaves torch's own modules as they are, so nothing of a bare Sequential would be compiled."""
    from torch._dynamo.utils import counters

    assert {type(make_model(each)) for each in OWN_IMAGE_MODELS} == {Stack}
    torch._dynamo.reset()
    counters.clear()
    network = Gpt(GptSize(8, 4, 1, 1, 4)).blocks[0] if name == "gpt" else make_model(name)
    inputs = torch.zeros(2, 4, 4) if name == "gpt" else torch.zeros(2, 1, 28, 28)
    plain = network.eval()(inputs)
    network.compile(backend="eager")
    assert torch.equal(network(inputs), plain)
    assert (counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())) == (1, 0)


def test_a_gpt_ties_its_embeddings_and_scales_residual_layers() -> None:
    torch.manual_seed(1)
    gpt = Gpt(GptSize(64, 8, 8, 2, 64))
    assert gpt.head.weight is gpt.tokens.weight
    block: Any = gpt.blocks[0]
    assert float(block.mlp_in.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    for adding in (block.attention_out, block.mlp_out):
        assert float(adding.weight.detach().std()) == pytest.approx(0.02 / 16**0.5, rel=0.05)
        assert not adding.bias.any()


@needs_torchvision
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "googlenet"])
def test_a_network_of_torchvision_turns_a_batch_of_grey_images_into_logits(name: str) -> None:
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        assert make_model(name)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
