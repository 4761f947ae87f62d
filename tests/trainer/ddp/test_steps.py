"""A training step and the loop: precision, schedule, accumulation, DDP's options, memory, speed."""

import math
import resource
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ddp.states import alone
from tests.trainer.forked_rank import FORKING
from trainer.catalogue import find
from trainer.ddp.checkpoints import list_checkpoints, step_of
from trainer.ddp.models import Gpt, GptSize
from trainer.ddp.step_stats import SpeedScale, StepTimer, training_flops
from trainer.tfevents import EventFolder, ScalarCurve
from trainer.train_ddp import Training

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

import torch.distributed as dist

from tests.trainer.ddp.states import CPU, ScriptedStop, chosen, lenet_batch, state_of
from trainer.ddp.models import make_model
from trainer.ddp.train_state import Precision, TrainState, lr_factor, mean_loss, reorders_sums, wrap_ddp
from trainer.distributed.process_group import ProcessGroup
from trainer.distributed.runtime import retain_freed_memory
from trainer.messages import InvalidArguments, Stopped, TrainingError
from trainer.ranks import Ranks
from trainer.train_ddp import eval_batch_size


def weights_of(state: TrainState) -> Any:
    return torch.cat([each.detach().flatten().clone() for each in state.network.parameters()])


@pytest.mark.slow
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
def test_weights_stay_in_32_or_64_bit_for_any_precision(precision: str) -> None:
    state = state_of("--precision", precision)
    loss = state.train_step(*lenet_batch())
    assert loss.isfinite()
    wide = torch.float64 if precision == "fp64" else torch.float32
    assert {each.dtype for each in state.network.parameters()} == {wide}
    assert state.evaluate(*lenet_batch()).dtype == torch.float64


def test_an_unsupported_precision_is_rejected_and_auto_is_fp32_on_a_cpu() -> None:
    assert Precision("auto", CPU).name == "fp32"
    with pytest.raises(InvalidArguments, match="--precision tf32: cpu has no TF32"):
        Precision("tf32", CPU)


def moved(*words: str) -> Any:
    state = state_of("--optimizer", "sgd", *words)
    before = weights_of(state)
    state.train_step(*lenet_batch())
    return weights_of(state) - before


def test_gradients_are_clipped_to_the_norm_after_fp16_unscaling() -> None:
    free, cut, far = (moved("--weight-decay", "0", "--clip-norm", norm) for norm in ("0", "0.1", "1e9"))
    assert float(cut.norm()) == pytest.approx(0.1 * 0.1, rel=1e-3)
    assert torch.equal(free, far)
    assert free.norm() > 2 * cut.norm()
    in_fp16 = moved("--weight-decay", "0", "--clip-norm", "0.1", "--precision", "fp16")
    assert float(in_fp16.norm()) == pytest.approx(0.01, rel=0.01)


def test_channels_last_applies_to_weights_and_inputs() -> None:
    for is_last in (False, True):
        state = state_of("--channels-last", "on" if is_last else "off")
        seen: list[Any] = []
        second: Any = list(state.network.children())[3]
        second.register_forward_hook(lambda _, inputs, __, seen=seen: seen.append(inputs[0]))
        inputs, targets = lenet_batch()
        state.train_step(inputs.expand(-1, 1, 28, 28), targets)
        state.evaluate(inputs, targets)
        tensors = (second.weight, *seen)
        found = [each.is_contiguous(memory_format=torch.channels_last) for each in tensors]
        assert found == [is_last] * 3


def test_resuming_on_another_number_of_ranks_draws_fresh_random_numbers() -> None:
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


STEPS = "--schedule step --warmup 0 --gamma 0.5 --epochs 10"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {0.0: 0.05, 0.05: 0.525, 0.1: 1.0, 0.55: 0.5, 1.0: 0.0}),
        ("--schedule constant", {0.0: 0.05, 0.1: 1.0, 1.0: 1.0}),
        ("--schedule constant --warmup 0", {0.0: 1.0}),
        ("--warmup 0", {0.0: 1.0, 0.5: 0.5, 1.0: 0.0}),
        ("--warmup 1", {0.5: 0.525, 1.0: 0.0}),
        (STEPS, {0.0: 1.0, 0.09: 1.0, 0.1: 0.5, 0.25: 0.25, 0.3: 0.125}),
        (f"{STEPS} --step-epochs 3", {0.29: 1.0, 0.3: 0.5, 0.6: 0.25}),
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
def test_channels_last_is_on_by_default_for_16_bit_images_on_a_gpu(
    words: str, device: str, layout: str
) -> None:
    assert chosen(*words.split(), device=torch.device(device)).channels_last == layout


def test_the_evaluation_batch_size_is_limited_by_the_sample_size() -> None:
    assert eval_batch_size(0, 32, (1, 28, 28)) == 256
    assert eval_batch_size(0, 32, (3, 224, 224)) == 32
    assert eval_batch_size(0, 8, (256,)) == 8
    assert eval_batch_size(7, 32, (1, 28, 28)) == 7


def test_compile_auto_is_off_without_a_compiler_and_compile_on_is_an_error(
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
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("torch_group")
def test_ddp_options_are_passed_on_and_default_to_gradients_as_bucket_views() -> None:
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


def test_a_single_process_does_not_wrap_its_network_in_ddp() -> None:
    network, group = make_model("lenet"), alone()
    assert wrap_ddp(network, group, chosen()) is network
    assert not reorders_sums(network, group)


def page_faults(answer: Connection) -> None:
    """Count how often the kernel brings a page of memory in ten steps, after five others."""
    torch.set_num_threads(1)
    retain_freed_memory()
    state = state_of("--model", "t9k-cnn", network=make_model("t9k-cnn"))
    batch = torch.randn(16, 1, 28, 28), torch.arange(16) % 10
    faults = []
    for steps in (5, 10):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(steps):
            state.train_step(*batch)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    answer.send(faults[1])


@pytest.mark.usefixtures("imported_torch")
@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults as Linux does")
def test_a_step_reuses_the_memory_of_the_one_before() -> None:
    ours, theirs = FORKING.Pipe(duplex=False)
    process = FORKING.Process(target=page_faults, args=(theirs,))
    process.start()
    faults = ours.recv()
    process.join()
    assert faults / 10 < 500


GPT = [
    *("--model", "gpt", "--layers", "1", "--heads", "1", "--width", "8"),
    *("--dataset", "sequences", "--sequence-length", "16", "--vocabulary", "32"),
    *("--train-images", "20", "--val-images", "20", "--epochs", "2", "--log-every", "2", "--lr", "0.01"),
]
FLOPS = training_flops(Gpt(GptSize(vocabulary=32, length=16, layers=1, heads=1, width=8)), (16,))


def train(
    folder: Path, *words: str, scale: SpeedScale | None = None, batch_size: int = 4, stop_after: int = 0
) -> dict[str, ScalarCurve]:
    """Train a GPT for two epochs of twenty sequences; returns its curves, by tag."""
    folders = ["--log-dir", str(folder / "logs"), "--checkpoint-dir", str(folder / "checkpoints")]
    words = (*GPT, *folders, "--batch-size", str(batch_size), "--keep", "9", *words)
    training = Training(find("ddp").parser().parse_args(words), alone(), ScriptedStop(stop_after))
    training.scale = scale or training.scale
    try:
        training.run()
    except Stopped:
        assert stop_after
    finally:
        training.close()
    events = EventFolder(folder / "logs")
    events.read_new()
    return {curve.tag: curve for curve in events.curves()}


def test_a_gpt_on_known_gpus_draws_tokens_per_second_and_mfu(tmp_path: Path) -> None:
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


def test_the_last_step_of_an_epoch_is_filled_from_the_next(tmp_path: Path) -> None:
    assert list(train(tmp_path, batch_size=6)["train/loss"].steps) == [2, 4, 6, 7]
    assert [step_of(path) for path in list_checkpoints(tmp_path / "checkpoints")] == [7, 4]


def test_the_first_loss_after_a_resume_averages_as_many_steps_as_without_the_stop(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", "--log-every", "4")["train/loss"]
    stopped = train(tmp_path / "stopped", "--log-every", "4", stop_after=3)
    assert not stopped, "the stop comes before the first line"
    resumed = train(tmp_path / "stopped", "--log-every", "4", "--resume", "must")["train/loss"]
    assert list(resumed.steps) == list(whole.steps) == [4, 5, 8, 10]
    assert list(resumed.values) == list(whole.values)


def test_losses_of_another_number_of_ranks_are_resumed_as_their_mean() -> None:
    timer = StepTimer(torch.nn.Linear(1, 1), alone(), None, 10)
    timer.resume([[5.0, 3], [7.0, 3]])
    assert timer.losses_by_rank() == [[6.0, 3]]
