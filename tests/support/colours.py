"""Contrast of two colours, as WCAG 2 defines it."""

from __future__ import annotations

import themes

# The themes with colours of their own
COLOURED = [name for name, palette in themes.load().items() if not palette.get("ansi")]


def linear(colour: str) -> list[float]:
    """Return red, green and blue of `#rrggbb` as linear light."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
