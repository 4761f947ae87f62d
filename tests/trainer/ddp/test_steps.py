"""A training step: precision, schedule, clipping, accumulation, DDP's options, and torch.compile."""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

import torch.distributed as dist

from tests.trainer.ddp.states import CPU, alone, chosen, lenet_batch, state_of
from trainer.ddp.models import Gpt, GptSize, make_model
from trainer.ddp.train_state import Precision, TrainState, lr_factor, mean_loss, reorders_sums, wrap_ddp
from trainer.distributed.process_group import ProcessGroup
from trainer.messages import InvalidArguments, TrainingError
from trainer.ranks import Ranks
from trainer.train_ddp import eval_batch_size


def weights_of(state: TrainState) -> Any:
    return torch.cat([each.detach().flatten().clone() for each in state.network.parameters()])


def test_fp16_skips_a_step_whose_gradients_are_infinite_and_halves_its_scale() -> None:
    state = state_of("--precision", "fp16", "--clip-norm", "1")
    before, scale = weights_of(state), state.precision.scaler.get_scale()
    state.train_step(*lenet_batch(1e4))
    assert torch.equal(weights_of(state), before)
    assert state.precision.scaler.get_scale() == scale / 2
    for _ in range(12):
        state.train_step(*lenet_batch())
    after = weights_of(state)
    assert after.isfinite().all() and not torch.equal(after, before)
    again = state_of("--precision", "fp16")
    again.load_state_dict(state.state_dict())
    assert again.precision.scaler.get_scale() == state.precision.scaler.get_scale() != scale


@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16", "fp16"])
def test_weights_and_optimizer_are_kept_wide_whatever_is_computed_with(precision: str) -> None:
    state = state_of("--precision", precision)
    loss = state.train_step(*lenet_batch())
    assert loss.isfinite()
    wide = torch.float64 if precision == "fp64" else torch.float32
    assert {each.dtype for each in state.network.parameters()} == {wide}
    assert state.evaluate(*lenet_batch()).dtype == torch.float64


def test_what_a_processor_does_not_have_is_refused_and_auto_is_fp32_there() -> None:
    assert Precision("auto", CPU).name == "fp32"
    with pytest.raises(InvalidArguments, match="--precision tf32: cpu has no TF32"):
        Precision("tf32", CPU)


def moved(*words: str) -> Any:
    """Return the change of all weights in one step of SGD."""
    state = state_of("--optimizer", "sgd", *words)
    before = weights_of(state)
    state.train_step(*lenet_batch())
    return weights_of(state) - before


def test_a_long_gradient_is_cut_to_the_norm_asked_for_and_not_what_fp16_scales_it_to() -> None:
    free, cut, far = (moved("--weight-decay", "0", "--clip-norm", norm) for norm in ("0", "0.1", "1e9"))
    assert float(cut.norm()) == pytest.approx(0.1 * 0.1, rel=1e-3)
    assert torch.equal(free, far)
    assert free.norm() > 2 * cut.norm()
    in_fp16 = moved("--weight-decay", "0", "--clip-norm", "0.1", "--precision", "fp16")
    assert float(in_fp16.norm()) == pytest.approx(0.01, rel=0.01)


def test_with_channels_last_weights_and_inputs_have_the_channels_of_a_pixel_side_by_side() -> None:
    for is_last in (False, True):
        state = state_of("--channels-last", "on" if is_last else "off")
        seen: list[Any] = []
        second: Any = list(state.network.children())[3]
        second.register_forward_hook(lambda _, inputs, __, seen=seen: seen.append(inputs[0]))
        inputs, targets = lenet_batch()
        state.train_step(inputs.expand(-1, 1, 28, 28), targets)
        state.evaluate(inputs, targets)
        of_weights = second.weight.is_contiguous(memory_format=torch.channels_last)
        assert [of_weights, *(each.is_contiguous(memory_format=torch.channels_last) for each in seen)] == (
            [is_last] * 3
        )


def test_on_another_number_of_ranks_random_numbers_are_those_of_no_step_before() -> None:
    state, drawn = state_of(), []
    for step in (1, 2):
        state.train_step(*lenet_batch())
        saved = state.state_dict()
        assert saved["schedule"]["step"] == step
        saved["random"] = saved["random"] * 2
        torch.manual_seed(7)
        state_of().load_state_dict(saved)
        drawn.append(float(torch.rand(())))
    torch.manual_seed(7)
    assert len({*drawn, float(torch.rand(()))}) == 3


def test_batches_that_are_accumulated_make_the_step_of_one_large_batch() -> None:
    words = "--precision", "fp64", "--optimizer", "sgd", "--accumulate"
    whole, parts = (state_of(*words, number) for number in ("1", "4"))
    losses = whole.train_step(*lenet_batch()), parts.train_step(*lenet_batch())
    assert torch.allclose(*losses)
    assert torch.allclose(weights_of(whole), weights_of(parts), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {0.0: 0.05, 0.05: 0.525, 0.1: 1.0, 0.55: 0.5, 1.0: 0.0}),
        ("--schedule constant", {0.0: 0.05, 0.1: 1.0, 1.0: 1.0}),
        ("--schedule constant --warmup 0", {0.0: 1.0}),
        ("--warmup 0", {0.0: 1.0, 0.5: 0.5, 1.0: 0.0}),
        ("--warmup 1", {0.5: 0.525, 1.0: 0.0}),
        (
            "--schedule step --warmup 0 --gamma 0.5 --epochs 10",
            {0.0: 1.0, 0.09: 1.0, 0.1: 0.5, 0.25: 0.25, 0.3: 0.125},
        ),
        (
            "--schedule step --warmup 0 --gamma 0.5 --epochs 10 --step-epochs 3",
            {0.29: 1.0, 0.3: 0.5, 0.6: 0.25},
        ),
    ],
)
def test_the_learning_rate_follows_its_schedule(words: str, expected: dict[float, float]) -> None:
    arguments = chosen(*words.split())
    assert {done: lr_factor(arguments, done) for done in expected} == pytest.approx(expected)


def test_the_optimizer_is_sgd_with_a_momentum_and_adamw_without() -> None:
    for words, name in (("", "AdamW"), ("--momentum 0.5", "SGD"), ("--optimizer sgd", "SGD")):
        assert type(state_of(*words.split()).optimizer).__name__ == name


def test_a_checkpoint_of_another_network_is_refused() -> None:
    state = state_of().state_dict()
    state["model"]["0.weight"] = torch.zeros(1)
    with pytest.raises(TrainingError, match="The checkpoint does not fit the network"):
        state_of().load_state_dict(state)


@pytest.mark.parametrize(
    ("words", "device", "layout"),
    [
        ("--model resnet50 --precision bf16", "cuda", "on"),
        ("--model resnet50 --precision fp32", "cuda", "off"),
        ("--model resnet50 --precision bf16", "cpu", "off"),
        ("--model gpt --dataset sequences --precision bf16", "cuda", "off"),
        ("--channels-last on", "cpu", "on"),
    ],
)
def test_channels_are_last_by_themselves_in_16_bit_precision_on_a_gpu(
    words: str, device: str, layout: str
) -> None:
    assert chosen(*words.split(), device=torch.device(device)).channels_last == layout


def test_what_is_evaluated_at_once_fits_as_a_step_does() -> None:
    assert eval_batch_size(0, 32, (1, 28, 28)) == 256
    assert eval_batch_size(0, 32, (3, 224, 224)) == 32
    assert eval_batch_size(0, 8, (256,)) == 8
    assert eval_batch_size(7, 32, (1, 28, 28)) == 7


def test_compiling_is_off_by_itself_where_it_cannot_work_and_an_error_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert state_of("--compile", "off").not_compiled == "as chosen"
    assert state_of("--compile", "auto").not_compiled == "it would take longer than it saves"
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert state_of("--compile", "auto").not_compiled == "there is no C++ compiler in this image"
    with pytest.raises(InvalidArguments, match=r"--compile on: there is no C\+\+ compiler in this image"):
        state_of("--compile", "on")


def test_a_loss_of_tokens_is_the_mean_over_all_of_them() -> None:
    gpt = Gpt(GptSize(11, 6, 1, 1, 4))
    tokens = torch.randint(11, (2, 6))
    each = torch.nn.functional.cross_entropy(gpt(tokens).transpose(1, 2), tokens, reduction="none")
    assert torch.allclose(mean_loss(gpt(tokens), tokens), each.mean())


@pytest.fixture
def torch_group() -> Iterator[None]:
    """A process group of this process alone."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("torch_group")
def test_what_is_chosen_of_ddp_reaches_it_and_by_itself_it_keeps_gradients_in_its_buckets() -> None:
    for words, expected in (
        ("", (25, True, False)),
        ("--bucket-mb 3 --static-graph --copy-buckets", (3, False, True)),
    ):
        group = ProcessGroup(Ranks(0, 2, 0, 1, "torchrun"), CPU, 1)
        ddp: Any = wrap_ddp(make_model("lenet"), group, chosen(*words.split()))
        found = ddp.bucket_bytes_cap / 2**20, ddp.gradient_as_bucket_view, ddp.static_graph
        assert found == expected
        assert not reorders_sums(ddp, group), "of two ranks the order of a sum does not matter"
        assert reorders_sums(ddp, ProcessGroup(Ranks(0, 3, 0, 1, "torchrun"), CPU, 1))


def test_a_process_alone_has_its_network_bare() -> None:
    network, group = make_model("lenet"), alone()
    assert wrap_ddp(network, group, chosen()) is network
    assert not reorders_sums(network, group)
