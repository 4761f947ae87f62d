"""Where images and tokens come from: whole files are read as they are, others are refused in words."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from trainer.ddp.data import samples  # noqa: E402
from trainer.ddp.data.feed import BatchFeed  # noqa: E402
from trainer.ddp.data.image_folder import open_image_folder  # noqa: E402
from trainer.ddp.data.mapped_files import open_cifar, open_mnist  # noqa: E402
from trainer.ddp.data.samples import Images, crop_and_mirror, to_inputs  # noqa: E402
from trainer.ddp.data.synthetic import noise_images, noise_tokens  # noqa: E402
from trainer.ddp.data.tokens import open_tokens, vocabulary_size  # noqa: E402
from trainer.messages import InvalidArguments, MissingData  # noqa: E402

CPU = torch.device("cpu")
RECORD = 3073
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def write_cifar10(folder: Path, each: int = 4) -> bytes:
    """Write six small files; returns the first image's bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate([*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]):
        records = b"".join(
            bytes([(number * each + k) % 10]) + bytes([number * each + k]) * (RECORD - 1) for k in range(each)
        )
        (folder / name).write_bytes(records)
    return bytes(RECORD - 1)


def write_mnist(raw: Path, count: int = 6) -> None:
    raw.mkdir(parents=True, exist_ok=True)
    for prefix in ("train", "t10k"):
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 2051, count, 28, 28) + bytes(784 * count)
        )
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 2049, count) + bytes(range(count))
        )


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-bin"])
def test_cifar_is_mapped_from_its_files_and_an_index_finds_its_image(tmp_path: Path, inside: str) -> None:
    write_cifar10(tmp_path / inside)
    train, test = open_cifar("cifar10", tmp_path)
    assert (len(train), len(test)) == (20, 4)
    pixels, labels = train.take(torch.tensor([0, 7, 19, 4]))
    assert pixels.shape == (4, 3, 32, 32)
    assert pixels[:, 0, 0, 0].tolist() == [0, 7, 19, 4]
    assert labels.tolist() == [0, 7, 9, 4]
    whole = train.to(torch.device("meta"))
    assert isinstance(whole, Images) and len(whole) == 20


def test_many_images_stay_in_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path)
    write_mnist(tmp_path)
    monkeypatch.setattr(samples, "KEPT_ON_GPU_BYTES", 100)
    for images in (open_cifar("cifar10", tmp_path)[0], open_mnist(tmp_path)[0]):
        assert images.to(torch.device("meta")) is images


def test_cifar100_has_two_labels_an_image_of_which_the_fine_one_counts(tmp_path: Path) -> None:
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(bytes([3, 77]) + bytes(range(256)) * 12)
    train, _ = open_cifar("cifar100", tmp_path)
    pixels, labels = train.take(torch.tensor([0]))
    assert labels.tolist() == [77]
    assert pixels.flatten()[:3].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"", r"data_batch_3.bin. It is empty"),
        (bytes(RECORD - 1), r"data_batch_3.bin. Its 3072 bytes are no whole number of images, 3073 each"),
        (bytes([10]) + bytes(RECORD - 1), r"data_batch_3.bin. It has a label 10, and there are 10 classes"),
        (None, r"cifar10 is not complete: there is no .*data_batch_3.bin"),
    ],
)
def test_a_damaged_or_missing_cifar_file_is_named(tmp_path: Path, damage: bytes | None, words: str) -> None:
    write_cifar10(tmp_path)
    file = tmp_path / "data_batch_3.bin"
    file.unlink() if damage is None else file.write_bytes(damage)
    with pytest.raises(MissingData, match=words):
        open_cifar("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (IMAGES, struct.pack(">IIII", 2051, 6, 28, 28) + bytes(99), "holds 4720 bytes and has 115"),
        (IMAGES, struct.pack(">IIII", 2049, 6, 28, 28), "It is not in the IDX format"),
        (IMAGES, b"\0", "It is not in the IDX format"),
        ("t10k-labels-idx1-ubyte", struct.pack(">II", 2049, 5) + bytes(5), "5 labels for 6 images"),
        (LABELS, struct.pack(">II", 2049, 6) + bytes([9, 9, 9, 9, 9, 10]), "has a label 10"),
        (LABELS, struct.pack(">II", 2049, 0), "holds 8 bytes and has 8"),
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
    assert isinstance(train.numbers, np.memmap)
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
    with pytest.raises(
        MissingData, match=r"There is no .*val\.bin\. Of tokens or text there is train\.txt\."
    ):
        open_tokens(tmp_path, 4, 1, 256)
    (tmp_path / "val.bin").write_bytes(b"hello")
    train, validation = open_tokens(tmp_path, 4, 1, 256)
    assert (len(train), len(validation)) == (2, 1)
    assert bytes(validation.take(torch.tensor([0]))[1][0].tolist()) == b"ello"


@pytest.mark.parametrize("name", ["shakespeare.txt", "tokens.bin"])
def test_a_folder_with_a_single_file_of_text_or_tokens_is_that_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        MissingData, match=r"there is nothing\. Put train\.bin and val\.bin there, or name one"
    ):
        open_tokens(tmp_path, 4, 1, 256)
    (tmp_path / name).write_bytes(bytes(range(100)))
    (tmp_path / "README.md").write_text("not learnt from")
    train, validation = open_tokens(tmp_path, 4, 1, 256)
    assert (train.path, len(train), len(validation)) == (tmp_path / name, 22, 2)
    (tmp_path / "other.txt").touch()
    with pytest.raises(MissingData, match=rf"Of tokens or text there is .*{name}.* or name one file with"):
        open_tokens(tmp_path, 4, 1, 256)


@pytest.mark.parametrize(
    ("content", "width", "words"),
    [
        (b"abc", 2, "Its 3 bytes are no whole number of uint16"),
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


def test_how_many_tokens_there_are_is_known_of_bytes_only() -> None:
    assert (vocabulary_size(0, 1), vocabulary_size(500, 2)) == (256, 500)
    with pytest.raises(InvalidArguments, match=r"--vocabulary.*50257"):
        vocabulary_size(0, 2)


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
    feed = BatchFeed(CPU, size=14)
    batches = list(feed.train_batches(train, [torch.tensor([k]) for k in range(4)] * 3))
    assert [int(labels) for _, labels in batches] == [0, 0, 1, 1] * 3
    assert {tuple(inputs.shape) for inputs, _ in batches} == {(1, 3, 14, 14)}


def test_an_image_that_cannot_be_decoded_is_named_when_its_turn_comes(tmp_path: Path) -> None:
    draw_folder(tmp_path)
    torn = tmp_path / "train" / "dog" / "0.jpg"
    torn.write_bytes(torn.read_bytes()[:200])
    train, _, _ = open_image_folder(tmp_path, 14, workers=1)
    batches = BatchFeed(CPU, 14).train_batches(train, [torch.tensor([k]) for k in range(4)])
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


def test_noise_is_the_same_for_the_same_seed_and_few_of_it_lie_in_memory() -> None:
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
    [(inputs, targets)] = BatchFeed(CPU, augments=True).train_batches(tokens, [torch.arange(3)])
    assert all(map(torch.equal, (inputs, targets), tokens.take(torch.arange(3))))


def test_batches_from_slow_samples_are_read_ahead_and_keep_their_order() -> None:
    taken: list[int] = []

    class Slow:
        device, is_slow = CPU, True

        def __len__(self) -> int:
            return 9

        def take(self, indices_B: Any) -> tuple[Any, Any]:
            taken.append(int(indices_B))
            return indices_B[:, None], indices_B

        def to(self, device: Any) -> "Slow":
            return self

    batches = BatchFeed(CPU).train_batches(Slow(), [torch.tensor([k]) for k in range(9)])
    assert int(next(batches)[1]) == 0
    assert [int(labels) for _, labels in batches] == list(range(1, 9))
    assert taken == list(range(9))
