"""Generated images of handwritten digits, which need no download.

A digit is a few strokes through control points. Every image moves the points, bends and slants the digit,
chooses a pen, and adds blur and noise. The same seed draws the same images on every machine.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IMAGE_SIZE = 28
# Dots along all strokes of a digit, close enough to look like lines.
_DOTS = 56
# Images drawn at once, few enough to stay in the CPU's cache.
_BATCH = 128

# For each digit, the ways to write it: strokes between "/", each a list of points x,y from 0 to 100.
_STYLES = (
    (
        "50,0 10,20 0,50 10,80 50,100 90,80 100,50 90,20 50,0",
        "10,20 0,50 10,80 50,100 90,80 100,50 90,20 50,0 10,20 0,50",
    ),
    ("50,0 50,50 50,100", "25,25 55,0 55,50 55,100", "25,25 50,0 50,100 / 20,100 80,100"),
    ("5,25 30,0 80,5 90,35 50,70 5,100 50,100 100,97", "10,20 50,0 85,25 50,70 10,95 20,75 50,95 100,100"),
    ("10,10 50,0 85,20 45,47 90,70 60,100 5,90", "10,2 85,2 45,40 90,65 60,100 5,90"),
    ("65,0 35,35 0,65 50,66 100,65 / 70,35 70,70 68,100", "15,0 5,30 10,55 50,57 85,50 / 85,5 83,50 80,100"),
    ("90,2 50,0 20,3 15,42 50,35 90,60 60,100 5,90", "20,0 15,40 60,40 90,70 50,100 5,93 / 20,0 90,2"),
    ("75,0 30,25 5,65 30,100 80,90 85,60 45,50 10,70", "45,0 15,40 10,85 50,100 85,80 60,58 15,75"),
    ("5,3 50,2 95,0 65,45 40,100", "5,10 8,0 95,2 60,50 45,100 / 30,50 80,48"),
    (
        "80,15 50,0 15,20 50,47 90,75 50,100 10,78 50,47 80,22 75,10",
        "50,0 20,22 50,45 80,22 50,0 / 50,45 10,72 50,100 90,72 50,45",
    ),
    ("85,20 50,0 15,25 45,50 85,25 83,60 75,100", "85,25 50,0 15,25 45,48 85,25 85,75 50,100 15,90"),
)


class Digits(NamedTuple):
    """Images and their labels."""

    images: NDArray[np.uint8]  # shape (N, 28, 28), white on black
    labels: NDArray[np.int64]  # shape (N,), 0 to 9, in random order


def draw_digits(count: int, seed: tuple[int, ...]) -> Digits:
    """Draw `count` digits, about as many of each; 10,000 take about a second on one core."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count) % 10)
    styles = random.integers(0, 6, count)
    images = np.empty((count, IMAGE_SIZE, IMAGE_SIZE), np.uint8)
    for digit in range(10):
        for number, style in enumerate(_STYLES[digit]):
            indices = np.flatnonzero((labels == digit) & (styles % len(_STYLES[digit]) == number))
            for start in range(0, len(indices), _BATCH):
                batch = indices[start : start + _BATCH]
                images[batch] = _draw(style, len(batch), random)
    return Digits(images, labels.astype(np.int64))


def _draw(style: str, count: int, random: np.random.Generator) -> NDArray[np.uint8]:
    strokes = [
        np.array([point.split(",") for point in text.split()], float) / 100 for text in style.split("/")
    ]
    lengths = [np.hypot(*np.diff(stroke, axis=0).T).sum() for stroke in strokes]
    dots_BD2 = np.concatenate(
        [
            _sample_stroke(stroke, count, max(8, round(_DOTS * length / sum(lengths))), random)
            for stroke, length in zip(strokes, lengths, strict=True)
        ],
        axis=1,
    )
    return _degrade(_rasterize(_transform(dots_BD2, random), random), random)


def _sample_stroke(
    stroke: NDArray[np.float64], count: int, dots: int, random: np.random.Generator
) -> NDArray[np.float32]:
    """Return dots (count, dots, 2) on a Catmull-Rom spline through the stroke's points, slightly moved."""
    points_BP2 = stroke + random.normal(0, 0.05, (count, *stroke.shape))
    ends = 2 * points_BP2[:, [0, -1]] - points_BP2[:, [1, -2]]
    padded = np.concatenate([ends[:, :1], points_BP2, ends[:, 1:]], axis=1)
    position = np.linspace(0, len(stroke) - 1, dots)
    piece = np.minimum(position.astype(int), len(stroke) - 2)
    t = (position - piece)[:, None]
    a, b, c, d = (padded[:, piece + k] for k in range(4))
    curve = 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - 3 * c + d - a) * t**3)
    dots_BD2: NDArray[np.float32] = curve.astype(np.float32)
    return dots_BD2


def _transform(dots_BD2: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    count = len(dots_BD2)

    def each(spread: float, middle: float = 0.0) -> NDArray[np.float32]:
        return random.normal(middle, spread, (count, 1)).astype(np.float32)

    x, y = dots_BD2[..., 0] - 0.5, dots_BD2[..., 1] - 0.5
    x = x * (0.75 + each(0.1)) + each(0.05) * np.sin(6 * y + each(2.0))
    y = y + each(0.04) * np.sin(6 * x + each(2.0))
    x = x - y * each(0.22, 0.1)
    angle, size = each(0.14), np.clip(each(1.8, 18.0), 12, 22)
    x, y = np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y
    middle = (IMAGE_SIZE - 1) / 2
    return np.stack([x * size + middle + each(1.2), y * size + middle + each(1.2)], axis=-1)


def _rasterize(dots_BD2: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    count = len(dots_BD2)
    pixels = np.arange(IMAGE_SIZE, dtype=np.float32)
    dx_DBX = (pixels - dots_BD2[..., 0].T[..., None]) ** 2
    dy_DBY = (pixels - dots_BD2[..., 1].T[..., None]) ** 2
    nearest = np.full((count, IMAGE_SIZE, IMAGE_SIZE), np.inf, np.float32)
    distance = np.empty_like(nearest)
    for dx_BX, dy_BY in zip(dx_DBX, dy_DBY, strict=True):
        np.add(dx_BX[:, None, :], dy_BY[:, :, None], out=distance)
        np.minimum(nearest, distance, out=nearest)
    radius = random.uniform(0.6, 2.0, (count, 1, 1)).astype(np.float32)
    softness = random.uniform(0.5, 1.3, (count, 1, 1)).astype(np.float32)
    ink: NDArray[np.float32] = np.clip((radius - np.sqrt(nearest)) / softness + 0.5, 0, 1)
    return ink


def _degrade(ink: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.uint8]:
    count = len(ink)
    pixels = np.arange(IMAGE_SIZE, dtype=np.float32)
    x, y = random.uniform(6, 22, (2, count, 1)).astype(np.float32)
    reach = random.uniform(0, 2.4, (count, 1, 1)).astype(np.float32)
    patch = (pixels - x)[:, None, :] ** 2 + (pixels - y)[:, :, None] ** 2 < reach**2
    strength = random.uniform(0.55, 1, (count, 1, 1)).astype(np.float32)
    noise = random.standard_normal(ink.shape, np.float32)
    noise *= random.uniform(0.02, 0.2, (count, 1, 1)).astype(np.float32)
    spoiled = np.where(patch, 0, ink * strength) + noise
    return (np.clip(spoiled, 0, 1) * 255).astype(np.uint8)
