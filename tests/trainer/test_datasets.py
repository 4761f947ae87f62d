"""Who learns from which image, and where the images come from."""

import gzip
import importlib.util
import struct
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from trainer.ddp.data.samples import Images  # noqa: E402
from trainer.ddp.datasets import TrainBatches, draw_digit_images, load_mnist, validation_batches  # noqa: E402
from trainer.ddp.models import make_model  # noqa: E402
from trainer.ddp.step.schedule import Schedule  # noqa: E402
from trainer.messages import TrainingError  # noqa: E402
from trainer.ranks import Ranks  # noqa: E402

needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None,
    reason="needs torchvision, which gpuconsole[trainer] brings",
)


def numbered(count: int) -> Images:
    """Make images whose labels are their numbers."""
    return Images(torch.zeros(count, 1, 28, 28, dtype=torch.uint8), torch.arange(count))


def ranks_of(world_size: int) -> list[Ranks]:
    return [Ranks(rank, world_size, 0, 1, "a test") for rank in range(world_size)]


def learnt(images: Images, world_size: int, taken: int = 0) -> list[int]:
    """List the images all ranks learn from in the first epoch, after those `taken`."""
    return [
        int(label)
        for ranks in ranks_of(world_size)
        for _, labels in TrainBatches(images, 4, ranks, seed=1).epoch_batches(0, taken)
        for label in labels
    ]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_in_an_epoch_every_image_is_learnt_from_also_the_last_few(world_size: int) -> None:
    learnt_from = learnt(numbered(50), world_size)
    assert set(learnt_from) == set(range(50))
    assert len(learnt_from) == -(-50 // (4 * world_size)) * 4 * world_size


def test_an_epoch_resumed_with_other_ranks_meets_the_images_not_seen_yet() -> None:
    whole = set(learnt(numbered(48), 1))
    seen = whole - set(learnt(numbered(48), 2, taken=24))
    assert len(seen) == 24
    assert set(learnt(numbered(48), 3, taken=24)) == whole - seen


@pytest.mark.parametrize(("count", "world_size"), [(10, 1), (11, 2), (7, 3), (2, 3)])
def test_over_all_ranks_each_validation_image_counts_exactly_once(count: int, world_size: int) -> None:
    judged = [
        int(label)
        for ranks in ranks_of(world_size)
        for _, labels in validation_batches(numbered(count), 3, ranks)
        for label in labels
    ]
    assert sorted(judged) == list(range(count))


def test_all_ranks_validate_in_as_many_batches_for_each_waits_for_the_others() -> None:
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


def test_too_few_images_for_a_step_are_refused_in_words() -> None:
    with pytest.raises(TrainingError, match="There are 7 training images, but one step takes 8"):
        TrainBatches(numbered(7), 4, ranks_of(2)[0], seed=1)


def write_mnist(raw: Path) -> None:
    """Write four tiny files as MNIST's are."""
    raw.mkdir(parents=True)
    for prefix, count in (("train", 6), ("t10k", 4)):
        pixels = bytes(k % 256 for k in range(count * 784))
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + pixels)
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 2049, count) + bytes(range(count))
        )


def test_mnist_is_read_from_its_files_and_from_its_raw_folder(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    write_mnist(raw)
    for folder in (tmp_path, raw):
        train, test = load_mnist(folder, download=False)
        assert (train.pixels_N1HW.shape, test.pixels_N1HW.shape) == ((6, 1, 28, 28), (4, 1, 28, 28))
        assert train.labels_N.tolist() == [0, 1, 2, 3, 4, 5]
        assert train.pixels_N1HW.flatten()[:3].tolist() == [0, 1, 2]


def test_a_missing_mnist_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    write_mnist(raw)
    labels = raw / "train-labels-idx1-ubyte"
    labels.with_name(labels.name + ".gz").write_bytes(gzip.compress(labels.read_bytes()))
    labels.unlink()
    with pytest.raises(
        TrainingError, match=r"there is no .*train-labels-idx1-ubyte \(only its .gz .* --download"
    ):
        load_mnist(tmp_path, download=False)


def test_a_damaged_mnist_file_is_said_without_a_traceback(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    write_mnist(raw)
    (raw / "t10k-images-idx3-ubyte").write_bytes(b"not idx")
    with pytest.raises(TrainingError, match=r"Could not read .*t10k-images.*\. It is not in the IDX"):
        load_mnist(tmp_path, download=False)


@needs_torchvision
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "lenet", "t9k-cnn", "resnet18", "mobilenet_v3_small", "googlenet"])
def test_a_model_turns_a_batch_into_ten_logits(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_model(name)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_the_learning_rate_rises_at_the_start_and_ends_at_zero() -> None:
    shares = [Schedule().factor(step / 100) for step in range(101)]
    assert max(shares) == shares[10] == 1.0
    assert 0 < shares[0] < 0.1
    assert shares[100] == pytest.approx(0)
    assert shares[10:] == sorted(shares[10:], reverse=True)
