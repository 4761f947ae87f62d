"""Palettes: complete, readable, and safe to extend."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

import themes

COLOURED = [name for name, palette in themes.load().items() if not palette.get("ansi")]
TEXTS = [
    *("quiet", "bright", "mark", "gpu-busy", "gpu-free", "gpu-bad", "chart-axis", "chart-cursor"),
    *("status-running", "status-pending", "status-changing", "status-failed", "status-done"),
    *("text", "text-muted", "text-warning", "text-error", "text-success"),
    *("footer-foreground", "footer-key-foreground", "block-cursor-foreground"),
    *("foreground", "primary", "warning", "error", "success"),
]
SERIES = [f"series-{number}" for number in range(1, 7)]


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def names_and_colours(palette: themes.Palette) -> dict[str, str]:
    top = {name: value for name, value in palette.items() if isinstance(value, str)}
    return {**top, **palette["variables"]}


def backgrounds(colours: dict[str, str]) -> list[str]:
    return [colours[name] for name in ("background", "surface", "panel", "cursor-row", "cursor-row-blurred")]


def test_three_palettes_are_packaged() -> None:
    assert set(themes.load()) == {"gpuconsole-dark", "gpuconsole-light", "gpuconsole-mono"}
    assert {themes.DEFAULT, themes.MONO} <= set(themes.load())
    assert themes.STYLESHEET.is_file()


@pytest.mark.parametrize("name", COLOURED)
def test_every_text_can_be_read_on_every_background(name: str) -> None:
    colours = names_and_colours(themes.load()[name])
    for text in TEXTS:
        for background in backgrounds(colours):
            assert contrast(colours[text], background) >= 4.5, (text, background)


@pytest.mark.parametrize("name", COLOURED)
def test_every_curve_stands_out_from_the_background(name: str) -> None:
    colours = names_and_colours(themes.load()[name])
    for series in SERIES:
        assert contrast(colours[series], colours["background"]) >= 3, series


@pytest.mark.parametrize("name", COLOURED)
def test_curves_stay_apart_for_colour_blind_eyes(name: str) -> None:
    """Simulated after Machado, Oliveira and Fernandes (2009), full deuteranopia and protanopia."""
    deuteranopia = ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969))
    protanopia = ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052))
    colours = names_and_colours(themes.load()[name])
    for matrix in (deuteranopia, protanopia):
        seen = []
        for series in SERIES:
            channels = [int(colours[series][at : at + 2], 16) for at in (1, 3, 5)]
            seen.append(
                [sum(factor * part for factor, part in zip(row, channels, strict=True)) for row in matrix]
            )
        for (first, one), (second, other) in combinations(zip(SERIES, seen, strict=True), 2):
            distance = sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
            assert distance > 30, (first, second, matrix)


def test_every_palette_and_every_default_knows_the_same_names() -> None:
    dark = set(themes.variable_defaults())
    assert dark == set(themes.variable_defaults(dark=False)) == set(themes.variable_defaults(ansi=True))
    for palette in themes.load().values():
        assert dark <= set(palette["variables"])


def test_the_stylesheet_uses_only_names_that_exist() -> None:
    used = set(re.findall(r"\$([a-z0-9-]+)", themes.STYLESHEET.read_text()))
    assert used - set(themes.variable_defaults()) <= {"background", "foreground", "surface", "panel"}


def test_the_palette_without_colours_has_none() -> None:
    colours = names_and_colours(themes.load()["gpuconsole-mono"])
    values = {value for name, value in colours.items() if name != "name" and not name.endswith("-style")}
    assert values == {"ansi_default"}


def test_a_palette_of_the_user_is_found_and_may_replace_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('primary = "#ff00ff"\ndark = false\n[variables]\nquiet = "#777777"\n')
    (tmp_path / "dark.toml").write_text('name = "gpuconsole-dark"\nprimary = "#00ff00"\n')
    palettes = themes.load(tmp_path)
    assert palettes["mine"]["variables"] == {"quiet": "#777777"}
    assert palettes["mine"]["dark"] is False
    assert palettes["gpuconsole-dark"]["primary"] == "#00ff00"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("primary = ", "Could not read"),
        ("dark = true", "no primary colour"),
        ('primary="#fff"\nerror=3', "must be text"),
    ],
)
def test_a_broken_palette_is_named_with_the_reason(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "broken.toml").write_text(content)
    with pytest.raises(themes.BrokenPalette, match=rf"{complaint}") as caught:
        themes.load(tmp_path)
    assert "broken.toml" in str(caught.value)


def test_a_folder_that_is_not_there_is_no_problem(tmp_path: Path) -> None:
    assert set(themes.load(tmp_path / "none")) == set(themes.load())
