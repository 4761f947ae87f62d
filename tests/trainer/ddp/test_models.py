"""The networks: what goes in, what comes out, and that none ends in a softmax."""

import importlib.util
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

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
