"""The digits the trainer draws for itself."""

import pytest

np = pytest.importorskip("numpy", reason="drawing digits needs numpy, which gpuconsole[trainer] brings")

from trainer.ddp.digits import draw_digits


def test_the_same_seed_draws_the_same_digits_and_another_seed_others() -> None:
    first, again, other = draw_digits(200, (1, 0)), draw_digits(200, (1, 0)), draw_digits(200, (1, 1))
    assert np.array_equal(first.images, again.images)
    assert np.array_equal(first.labels, again.labels)
    seen = {image.tobytes() for image in first.images}
    assert len(seen) == 200
    assert not seen & {image.tobytes() for image in other.images}


def test_digits_look_like_mnist_to_a_program() -> None:
    digits = draw_digits(100, (3, 0))
    assert digits.images.shape == (100, 28, 28)
    assert digits.images.dtype == np.uint8
    assert digits.labels.dtype == np.int64
    assert list(np.bincount(digits.labels)) == [10] * 10
    assert list(digits.labels[:10]) != sorted(digits.labels[:10])


def test_digits_are_white_on_black_and_not_all_alike() -> None:
    digits = draw_digits(100, (3, 0))
    assert digits.images.mean() < 80
    assert digits.images.max(axis=(1, 2)).min() > 100
    ones = digits.images[digits.labels == 1].astype(float)
    assert ones.std(axis=0).max() > 30


def test_a_single_digit_can_be_drawn() -> None:
    assert draw_digits(1, (1, 0)).images.shape == (1, 28, 28)
