"""Data: complete files of images and tokens are read, others refused with the reason, and digits drawn."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.ddp.datasets import draw_digits

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from trainer.ddp import batches
from trainer.ddp.batches import BatchLoader, Samples, crop_and_mirror, noise_images, noise_tokens, to_inputs
from trainer.ddp.datasets import open_image_folder, open_mnist, open_tokens
from trainer.messages import MissingData

CPU = torch.device("cpu")
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def write_mnist(raw: Path, count: int = 6) -> None:
    raw.mkdir(parents=True, exist_ok=True)
    for prefix in ("train", "t10k"):
        images = struct.pack(">IIII", 2051, count, 28, 28) + bytes(k % 256 for k in range(784 * count))
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(images)
        labels = struct.pack(">II", 2049, count) + bytes(range(count))
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(labels)


def test_many_images_stay_in_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path)
    images, _ = open_mnist(tmp_path)
    assert images.to(torch.device("meta")).device.type == "meta"
    monkeypatch.setattr(batches, "_MOST_BYTES_ON_GPU", 100)
    assert images.to(torch.device("meta")) is images


def test_mnist_is_read_from_its_files_and_from_its_raw_folder(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    write_mnist(raw)
    for folder in (tmp_path, raw):
        train, test = open_mnist(folder)
        assert train.inputs.shape == test.inputs.shape == (6, 1, 28, 28)
        assert train.targets.tolist() == [0, 1, 2, 3, 4, 5]
        assert train.inputs.flatten()[:3].tolist() == [0, 1, 2]


def test_a_missing_mnist_file_is_named_with_a_hint(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    write_mnist(raw)
    (raw / LABELS).rename(raw / f"{LABELS}.gz")
    words = r"there is no .*train-labels-idx1-ubyte \(only its .gz.* --download"
    with pytest.raises(MissingData, match=words):
        open_mnist(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (IMAGES, struct.pack(">IIII", 2051, 6, 28, 28) + bytes(99), "announces 4720 bytes and it has 115"),
        (IMAGES, struct.pack(">IIII", 2049, 6, 28, 28), "It is not in the IDX format"),
        (IMAGES, b"\0", "It is not in the IDX format"),
        ("t10k-labels-idx1-ubyte", struct.pack(">II", 2049, 5) + bytes(5), "5 labels for 6 images"),
        (LABELS, struct.pack(">II", 2049, 6) + bytes([9, 9, 9, 9, 9, 10]), "has a label 10"),
        (LABELS, struct.pack(">II", 2049, 0), "announces 8 bytes and it has 8"),
    ],
)  # fmt: skip
def test_an_mnist_file_that_is_torn_or_of_another_shape_is_refused(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    write_mnist(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MissingData, match=words):
        open_mnist(tmp_path)


def test_tokens_are_windows_of_one_mapped_file_with_the_token_after_each(tmp_path: Path) -> None:
    np.arange(1000, dtype="<u2").tofile(tmp_path / "all.bin")
    train, validation = open_tokens(tmp_path / "all.bin", length=10, token_bytes=2, vocabulary=2000)
    assert isinstance(train.tokens, np.memmap)
    inputs, targets = train.take(torch.tensor([3, 0]))
    assert inputs.tolist() == [list(range(30, 40)), list(range(10))]
    assert targets.tolist() == [list(range(31, 41)), list(range(1, 11))]
    learnt, _ = train.take(torch.arange(len(train)))
    judged, _ = validation.take(torch.arange(len(validation)))
    assert learnt.max() < 900 <= judged.min()
    with pytest.raises(MissingData, match=r"has a token 990\. The vocabulary is 985"):
        open_tokens(tmp_path / "all.bin", 10, 2, 985)[1].take(torch.tensor([8]))


def test_a_folder_of_tokens_has_a_file_for_each_part(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(b"hello world")
    words = r"There is no .*val\.bin\. Files of tokens or text there: train\.txt\."
    with pytest.raises(MissingData, match=words):
        open_tokens(tmp_path, 4, 1, 256)
    (tmp_path / "val.bin").write_bytes(b"hello")
    train, validation = open_tokens(tmp_path, 4, 1, 256)
    assert (len(train), len(validation)) == (2, 1)
    assert bytes(validation.take(torch.tensor([0]))[1][0].tolist()) == b"ello"


@pytest.mark.parametrize("name", ["shakespeare.txt", "tokens.bin"])
def test_a_folder_with_a_single_file_of_text_or_tokens_is_that_file(tmp_path: Path, name: str) -> None:
    words = r"text there: none\. Put train\.bin and val\.bin there, or name one"
    with pytest.raises(MissingData, match=words):
        open_tokens(tmp_path, 4, 1, 256)
    (tmp_path / name).write_bytes(bytes(range(100)))
    (tmp_path / "README.md").write_text("not learnt from")
    train, validation = open_tokens(tmp_path, 4, 1, 256)
    assert (train.path, len(train), len(validation)) == (tmp_path / name, 22, 2)
    (tmp_path / "other.txt").touch()
    with pytest.raises(MissingData, match=rf"text there: .*{name}.* or name one file with"):
        open_tokens(tmp_path, 4, 1, 256)


@pytest.mark.parametrize(
    ("content", "width", "words"),
    [
        (b"abc", 2, "Its size, 3 bytes, is not a multiple of 2"),
        (b"", 1, "It is empty"),
        (b"abcd", 1, "is too short. A part of it has"),
    ],
)
def test_a_token_file_that_is_torn_or_short_is_refused(
    tmp_path: Path, content: bytes, width: int, words: str
) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(content)
    with pytest.raises(MissingData, match=words):
        open_tokens(path, 8, width, 70_000)
    with pytest.raises(MissingData, match="There is no"):
        open_tokens(tmp_path / "none", 8, width, 70_000)


def draw_folder(folder: Path, sizes: tuple[tuple[int, int], ...] = ((40, 30), (16, 64))) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    for part in ("train", "val"):
        for shade, name in enumerate(("cat", "dog")):
            (folder / part / name).mkdir(parents=True)
            for number, size in enumerate(sizes):
                image = pillow.new("RGB", size, (100 * shade, 50, 200))
                image.save(folder / part / name / f"{number}.{'png' if number else 'jpg'}")
            (folder / part / name / "notes.txt").touch()


def test_a_folder_of_images_is_read_image_by_image(tmp_path: Path) -> None:
    draw_folder(tmp_path)
    train, validation, classes = open_image_folder(tmp_path, 14, workers=2)
    assert (len(train), len(validation), classes) == (4, 4, 2)
    pixels, labels = train.take(torch.tensor([3, 0]))
    assert (pixels.shape, pixels.dtype, labels.tolist()) == ((2, 3, 16, 16), torch.uint8, [1, 0])
    assert (pixels.float().mean((2, 3)) - torch.tensor([[100, 50, 200], [0, 50, 200.0]])).abs().max() < 6
    feed = BatchLoader(CPU, size=14)
    batches = list(feed.batches(train, [torch.tensor([k]) for k in range(4)] * 3))
    assert [int(labels) for _, labels in batches] == [0, 0, 1, 1] * 3
    assert {tuple(inputs.shape) for inputs, _ in batches} == {(1, 3, 14, 14)}


def test_an_image_that_cannot_be_decoded_is_named_when_its_turn_comes(tmp_path: Path) -> None:
    draw_folder(tmp_path)
    torn = tmp_path / "train" / "dog" / "0.jpg"
    torn.write_bytes(torn.read_bytes()[:200])
    train, _, _ = open_image_folder(tmp_path, 14, workers=1)
    batches = BatchLoader(CPU, 14).batches(train, [torch.tensor([k]) for k in range(4)])
    next(batches), next(batches)
    with pytest.raises(MissingData, match=r"Could not read the image .*dog/0.jpg"):
        next(batches)


def test_a_folder_without_images_or_with_other_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"Could not list .*train. No such file .* train/<class>/"):
        open_image_folder(tmp_path, 14, 1)
    (tmp_path / "train").mkdir()
    with pytest.raises(MissingData, match="has no folders"):
        open_image_folder(tmp_path, 14, 1)
    (tmp_path / "train" / "cat").mkdir()
    (tmp_path / "val" / "cow").mkdir(parents=True)
    with pytest.raises(MissingData, match=r"cow is a class that .*train does not have"):
        open_image_folder(tmp_path, 14, 1)
    (tmp_path / "val" / "cow").rename(tmp_path / "val" / "cat")
    with pytest.raises(MissingData, match=r"no image below .*train"):
        open_image_folder(tmp_path, 14, 1)


def test_noise_is_reproducible_by_seed_and_holds_few_samples_in_memory() -> None:
    ours, theirs, others = (noise_images(10**9, 8, 5, seed) for seed in (1, 1, 2))
    assert len(ours) == 10**9 and len(ours.inputs) == 256
    assert torch.equal(ours.take(torch.tensor([10**9 - 1]))[0], theirs.take(torch.tensor([10**9 - 1]))[0])
    assert not torch.equal(ours.inputs, others.inputs)
    tokens, after = noise_tokens(3, 8, 50, 1).take(torch.tensor([0]))
    assert torch.equal(tokens[:, 1:], after[:, :-1])


def test_colour_images_are_scaled_as_imagenets_and_cut_to_their_middle() -> None:
    stored = torch.zeros(1, 3, 6, 6, dtype=torch.uint8)
    stored[:, :, 2:4, 2:4] = 255
    inputs = to_inputs(stored, 2)
    assert inputs.shape == (1, 3, 2, 2)
    assert inputs[0, :, 0, 0].tolist() == pytest.approx(
        [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    )


def test_augmented_images_are_windows_of_theirs_some_of_them_mirrored() -> None:
    rows = torch.arange(12, dtype=torch.uint8)
    stored = (rows[:, None] * 16 + rows).expand(64, 3, 12, 12).contiguous()
    torch.manual_seed(1)
    cut = crop_and_mirror(stored, 8)
    assert (cut.shape, cut.dtype) == ((64, 3, 8, 8), torch.uint8)
    steps = (cut[:, :, :, 1:].int() - cut[:, :, :, :-1].int()).flatten(1)
    mirrored = (steps == -1).all(1)
    assert ((steps == 1).all(1) | mirrored).all()
    assert 16 < int(mirrored.sum()) < 48
    assert len({int(each[0, 0, 0]) for each in cut}) > 8
    assert crop_and_mirror(stored, 12).shape == (64, 3, 12, 12)
    torch.manual_seed(1)
    assert torch.equal(cut, crop_and_mirror(stored, 8))


def test_tokens_are_not_cropped_nor_mirrored() -> None:
    tokens = noise_tokens(3, 8, 50, 1)
    [(inputs, targets)] = BatchLoader(CPU, augments=True).batches(tokens, [torch.arange(3)], is_training=True)
    assert all(map(torch.equal, (inputs, targets), tokens.take(torch.arange(3))))


def test_batches_from_slow_samples_are_read_ahead_and_keep_their_order() -> None:
    taken: list[int] = []

    class Slow(Samples):
        needs_decoding = True

        def __len__(self) -> int:
            return 9

        def take(self, indices_B: Any) -> tuple[Any, Any]:
            taken.append(int(indices_B))
            return indices_B[:, None], indices_B

    batches = BatchLoader(CPU).batches(Slow(), [torch.tensor([k]) for k in range(9)])
    assert int(next(batches)[1]) == 0
    assert [int(labels) for _, labels in batches] == list(range(1, 9))
    assert taken == list(range(9))


def test_the_same_seed_draws_the_same_digits_and_another_seed_others() -> None:
    first, again, other = (draw_digits(200, seed) for seed in ((1, 0), (1, 0), (1, 1)))
    assert torch.equal(first.inputs, again.inputs) and torch.equal(first.targets, again.targets)
    seen = {image.numpy().tobytes() for image in first.inputs}
    assert len(seen) == 200
    assert not seen & {image.numpy().tobytes() for image in other.inputs}


def test_digits_are_white_on_black_shuffled_and_not_all_alike() -> None:
    assert draw_digits(1, (1, 0)).inputs.shape == (1, 1, 28, 28)
    digits = draw_digits(100, (3, 0))
    assert (digits.inputs.shape, digits.inputs.dtype) == ((100, 1, 28, 28), torch.uint8)
    assert digits.targets.dtype == torch.int64
    assert digits.targets.bincount().tolist() == [10] * 10
    assert digits.targets[:10].tolist() != sorted(digits.targets[:10].tolist())
    images = digits.inputs.float()
    assert images.mean() < 80
    assert images.amax((1, 2, 3)).min() > 100
    assert images[digits.targets == 1].std(0).max() > 30
