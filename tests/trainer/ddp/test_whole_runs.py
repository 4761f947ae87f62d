"""Complete runs of one to three ranks: stopped and resumed, and evaluated with one rank's running means."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.ddp.forked_runs import GPT_CASES, HAS_TORCHVISION, STOPPED_AT
from tests.trainer.jobs import Job
from trainer.ddp.checkpoint import list_checkpoints, load_checkpoint
from trainer.ddp.datasets import draw_digit_images
from trainer.ddp.models import make_model
from trainer.ddp.samples import to_inputs
from trainer.tfevents import EventFolder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of all runs, and what they said."""
    job = Job(tmp_path_factory.mktemp("runs"))
    job.start(["tests.trainer.ddp.forked_runs"])
    try:
        assert job.end() == [0], job.lines[0][-20:]
    finally:
        for process in job.processes:
            process.kill()
            process.communicate()
    yield job.folder, "\n".join(job.lines[0])


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
    whole, stopped = (
        load_checkpoint(list_checkpoints(folder / each / "checkpoints")[0])
        for each in (name, f"{name}-stopped")
    )
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
    saved = load_checkpoint(list_checkpoints(folder / "checkpoints")[0])["model"]
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
