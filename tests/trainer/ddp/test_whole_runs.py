"""Complete runs of several ranks: resumed within an epoch, and equal to one process on all their samples."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.jobs import Job
from trainer.ddp.batches import to_inputs
from trainer.ddp.checkpoints import list_checkpoints, load_checkpoint
from trainer.ddp.datasets import draw_digit_images
from trainer.ddp.models import make_model

pytestmark = pytest.mark.usefixtures("imported_torch")

GPT = [
    *("--model", "gpt", "--dataset", "sequences", "--train-images", "36", "--val-images", "5"),
    *("--sequence-length", "16", "--vocabulary", "32", "--layers", "2", "--heads", "2", "--width", "16"),
    *("--batch-size", "1", "--log-every", "100"),
]
EQUAL = ["--precision", "fp64", "--epochs", "1", "--log-every", "100", "--test-batch-size", "2"]
IMAGES = [*EQUAL, "--model", "lenet", "--train-images", "160", "--val-images", "33", "--batch-size"]
TOKENS = [*GPT, *EQUAL, "--train-images", "80", "--batch-size"]
NORMED = [
    *("--model", "shufflenet_v2_x0_5", "--train-images", "32", "--val-images", "21", "--epochs", "1"),
    *("--batch-size", "8", "--test-batch-size", "4", "--save-path", "weights.pt"),
]


class Run(NamedTuple):
    state: dict[str, Any]  # the last checkpoint
    curves: dict[str, list[float]]
    folder: Path


def train(folder: Path, ranks: int, words: list[str]) -> Run:
    folder.mkdir(exist_ok=True)
    with Job(folder, forks=True) as job:
        job.start_ranks(ranks, ["trainer.train_ddp", *words])
        assert set(job.end()) == {0}, job.lines
        curves = {tag: list(curve.values) for tag, curve in job.curves().items()}
    return Run(load_checkpoint(list_checkpoints(folder / "checkpoints")[0]), curves, folder)


def tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors(each)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--accumulate", "2"], ["--static-graph"]], ids=["accumulate", "static"])
def test_a_gpt_resumed_within_an_epoch_is_bit_equal(tmp_path: Path, words: list[str]) -> None:
    """With three ranks, the order of a sum would depend on whether DDP has rebuilt its buckets."""
    words = [*GPT, "--epochs", "2", "--clip-norm", "0.5", *words]
    whole = train(tmp_path / "whole", 3, [*words, "--checkpoint-every", "4", "--keep", "9"])
    saved = list_checkpoints(whole.folder / "checkpoints")[-1]
    assert saved.name == "step-00000004.pt"
    (tmp_path / "rest" / "checkpoints").mkdir(parents=True)
    shutil.copy(saved, tmp_path / "rest" / "checkpoints")
    rest = train(tmp_path / "rest", 3, [*words, "--resume", "must"])
    assert whole.state["step"] == rest.state["step"] > 8
    for part in ("model", "optimizer", "random"):
        ours, theirs = list(tensors(rest.state[part])), list(tensors(whole.state[part]))
        assert theirs
        assert all(torch.equal(our, their) for our, their in zip(ours, theirs, strict=True)), part
    assert rest.curves["train/loss"] == whole.curves["train/loss"]
    assert len(whole.curves["train/tokens_per_s"]) == 2 and min(whole.curves["train/tokens_per_s"]) > 0
    assert not {"train/images_per_s", "train/mfu"} & whole.curves.keys(), "a CPU has no known peak"


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="batch normalization is in torchvision's networks"
)
def test_ranks_validate_with_the_running_means_that_are_saved(tmp_path: Path) -> None:
    run = train(tmp_path, 2, NORMED)
    weights = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert any(name.endswith("running_mean") for name in weights)
    assert all(torch.equal(each, run.state["model"][name]) for name, each in weights.items())
    network = make_model("shufflenet_v2_x0_5")
    network.load_state_dict(weights)
    network.eval()
    _, validation = draw_digit_images(32, 21, seed=1)
    pixels, labels = validation.take(torch.arange(21))
    with torch.no_grad():
        logits = network(to_inputs(pixels, 0))
    loss = float(torch.nn.functional.cross_entropy(logits, labels))
    assert run.curves["val/loss"] == pytest.approx([loss], rel=1e-5)
    assert run.curves["val/accuracy"] == pytest.approx([float((logits.argmax(1) == labels).float().mean())])


@pytest.mark.parametrize(
    ("words", "samples", "of_one", "cases"),
    [
        pytest.param(
            IMAGES,
            33,
            "16",
            {"two ranks": (2, ["8"]), "accumulated": (4, ["2", "--accumulate", "2"])},
            marks=pytest.mark.slow,
        ),
        (TOKENS, 5 * 16, "8", {"two ranks": (2, ["4"])}),
    ],
    ids=["images", "tokens"],
)
def test_ranks_and_accumulated_batches_end_with_the_weights_and_metrics_of_one_process(
    tmp_path: Path, words: list[str], samples: int, of_one: str, cases: dict[str, tuple[int, list[str]]]
) -> None:
    """Ten steps in float64 of the same samples."""
    alone = train(tmp_path / "alone", 1, [*words, of_one])
    expected = alone.state["model"]
    assert all(each.dtype == torch.float64 for each in expected.values())
    for name, (ranks, more) in cases.items():
        run = train(tmp_path / name, ranks, [*words, *more])
        assert run.state["step"] == alone.state["step"] == 10
        assert run.state["model"].keys() == expected.keys()
        apart = max(float((run.state["model"][each] - expected[each]).abs().max()) for each in expected)
        assert apart < 1e-9, name
        assert run.curves["val/accuracy"] == alone.curves["val/accuracy"]
        counted = run.curves["val/accuracy"][0] * samples
        assert counted == pytest.approx(round(counted), abs=1e-3), "each sample counts once"
        for tag in ("val/loss", "train/loss"):
            assert run.curves[tag] == pytest.approx(alone.curves[tag], rel=2e-7), tag
