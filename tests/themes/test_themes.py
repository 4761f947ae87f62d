"""Palettes: complete, readable, and safe to extend."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from itertools import combinations
from math import dist
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import themes
from tests.support.colours import COLOURED, contrast, linear
from themes.files import COLOURS

FOLDER = Path(themes.__file__).parent

TEXTS = [
    *("quiet", "bright", "mark", "gpu-busy", "gpu-free", "gpu-bad", "chart-axis", "chart-cursor"),
    *("status-running", "status-pending", "status-changing", "status-failed", "status-done"),
    *("text", "text-muted", "text-warning", "text-error", "text-success"),
    *("footer-foreground", "footer-key-foreground", "block-cursor-foreground"),
    *("foreground", "primary", "warning", "error", "success"),
]
STATUSES = [f"status-{status}" for status in ("running", "pending", "changing", "failed", "done")]
SERIES = [f"series-{number}" for number in range(1, 7)]


def names_and_colours(palette: themes.Palette) -> dict[str, str]:
    top = {name: value for name, value in palette.items() if isinstance(value, str)}
    return {**top, **palette["variables"]}


def backgrounds(colours: dict[str, str]) -> list[str]:
    return [colours[name] for name in ("background", "surface", "panel", "cursor-row", "cursor-row-blurred")]


def test_eight_palettes_are_packaged() -> None:
    shorts = {themes.short(name) for name in themes.load()}
    assert shorts == {"dark", "light", "contrast", "contrast-light", "safe", "safe-light", "ansi", "mono"}
    assert {themes.DEFAULT, themes.LIGHT, themes.MONO, themes.ANSI} <= set(themes.load())
    assert themes.STYLESHEET.is_file()


def test_a_theme_is_found_by_its_name_or_without_the_gpuconsole_prefix() -> None:
    names = [*themes.load(), "mine", "gpuconsole-x", "x"]
    assert themes.find("gpuconsole-safe", names) == "gpuconsole-safe"
    assert themes.find("safe-light", names) == "gpuconsole-safe-light"
    assert themes.find("mine", names) == "mine"
    assert themes.find("x", names) == "x"
    assert themes.find("nothing", names) is None
    assert themes.find("", names) is None


@pytest.mark.parametrize("name", COLOURED)
def test_every_text_can_be_read_on_every_background(name: str) -> None:
    colours = names_and_colours(themes.load()[name])
    least = 7 if "contrast" in name else 4.5
    for text in TEXTS:
        for background in backgrounds(colours):
            assert contrast(colours[text], background) >= least, (text, background)


@pytest.mark.parametrize("name", COLOURED)
def test_every_curve_contrasts_with_the_background(name: str) -> None:
    colours = names_and_colours(themes.load()[name])
    least = 4.5 if "contrast" in name else 3
    for series in SERIES:
        assert contrast(colours[series], colours["background"]) >= least, series


@pytest.mark.parametrize("name", ["gpuconsole-contrast", "gpuconsole-contrast-light"])
def test_high_contrast_frames_can_be_seen(name: str) -> None:
    colours = names_and_colours(themes.load()[name])
    for rule in ("rule", "rule-focus", "border-blurred", "scrollbar"):
        assert contrast(colours[rule], colours["background"]) >= 3, rule


DEUTERANOPIA = ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969))
PROTANOPIA = ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052))
TRITANOPIA = ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304))
USUAL = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
EYES = {"usual": USUAL, "deutan": DEUTERANOPIA, "protan": PROTANOPIA, "tritan": TRITANOPIA}
"""Effect of full colour blindness on linear RGB: Machado, Oliveira and Fernandes (2009), severity 1.0."""


def times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [sum(factor * part for factor, part in zip(row, vector, strict=True)) for row in matrix]


def seen_by(eyes: str, colour: str) -> list[float]:
    """Return a colour as these eyes see it, in OKLab (Ottosson 2020), 100 times as large."""
    light = [min(1.0, max(0.0, part)) for part in times(EYES[eyes], linear(colour))]
    cones = times(
        ((0.41222, 0.53633, 0.05145), (0.21190, 0.68070, 0.10740), (0.08830, 0.28172, 0.62998)), light
    )
    lab = ((0.21045, 0.79362, -0.00407), (1.97800, -2.42859, 0.45059), (0.02590, 0.78277, -0.80868))
    return [100 * part for part in times(lab, [part ** (1 / 3) for part in cones])]


def least_distance(colours: dict[str, str], names: Sequence[str], eyes: str) -> tuple[float, str, str]:
    return min(
        (dist(seen_by(eyes, colours[one]), seen_by(eyes, colours[other])), one, other)
        for one, other in combinations(names, 2)
    )


def test_the_simulation_of_colour_blindness_merges_red_and_green() -> None:
    """Red and green of one lightness fall together for the two that confuse them, and only for those."""
    pair = {"red": "#d05050", "green": "#8a8a30"}
    far = {eyes: least_distance(pair, ["red", "green"], eyes)[0] for eyes in EYES}
    assert far["deutan"] < far["usual"] / 2 and far["protan"] < far["usual"]
    assert far["tritan"] > far["usual"] / 2
    assert least_distance({"a": "#000000", "b": "#ffffff"}, ["a", "b"], "usual")[0] == pytest.approx(
        100, abs=1
    )


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("name", ["gpuconsole-safe", "gpuconsole-safe-light"])
def test_colours_of_statuses_gpus_and_curves_differ_with_any_colour_blindness(name: str, eyes: str) -> None:
    """A difference of 2 can just be seen side by side; these are seen apart, and in thin letters."""
    colours = names_and_colours(themes.load()[name])
    assert least_distance(colours, STATUSES, eyes) >= (9,)
    assert least_distance(colours, ["gpu-busy", "gpu-free", "gpu-bad"], eyes) >= (9,)
    assert least_distance(colours, SERIES, eyes) >= (13,)


@pytest.mark.parametrize("name", COLOURED)
def test_curve_colours_of_every_palette_differ(name: str) -> None:
    colours = names_and_colours(themes.load()[name])
    for eyes in EYES:
        assert least_distance(colours, SERIES, eyes) >= (2.5,)


ON_BOTH = {
    "VGA": {"red": "#aa0000", "green": "#00aa00", "magenta": "#aa00aa", "cyan": "#00aaaa"},
    "Tango": {"red": "#cc0000", "green": "#4e9a06", "magenta": "#75507b", "cyan": "#06989a"},
    "Campbell": {"red": "#c50f1f", "green": "#13a10e", "magenta": "#881798", "cyan": "#3a96dd"},
}
"""Colours that common terminals show for those of the ANSI palette."""


@pytest.mark.parametrize("terminal", ON_BOTH)
def test_the_terminals_own_colours_are_those_seen_on_black_and_on_white(terminal: str) -> None:
    colours = names_and_colours(themes.load()[themes.ANSI])
    used = {colours[name] for name in (*TEXTS, "rule-focus", *SERIES) if name in colours} - {"ansi_default"}
    assert used == {f"ansi_{name}" for name in ON_BOTH[terminal]}
    for shown in ON_BOTH[terminal].values():
        assert min(contrast(shown, "#000000"), contrast(shown, "#ffffff")) >= 2, shown


def test_every_palette_and_every_default_knows_the_same_names() -> None:
    ours = set(tomllib.loads((FOLDER / "gpuconsole-dark.toml").read_text())["variables"])
    assert ours <= set(themes.variable_defaults()) & set(themes.variable_defaults(ansi=True))
    assert set(themes.variable_defaults()) == set(themes.variable_defaults(dark=False))
    for palette in themes.load().values():
        assert ours <= set(palette["variables"])


def test_the_stylesheets_use_only_names_that_exist() -> None:
    sheets = [themes.STYLESHEET, *(FOLDER.parent / "tui").rglob("*.tcss")]
    used = {name for sheet in sheets for name in re.findall(r"\$([a-z0-9-]+)", sheet.read_text())}
    assert len(sheets) > 5
    assert used - set(themes.variable_defaults()) <= {*COLOURS}


def test_the_palette_without_colours_has_none() -> None:
    colours = names_and_colours(themes.load()["gpuconsole-mono"])
    values = {value for name, value in colours.items() if name != "name" and not name.endswith("-style")}
    assert values == {"ansi_default"}


class Folder:
    """Themes of the user's own, and what is said of them."""

    def __init__(self, place: Path, **files: str) -> None:
        self.place, self.complaints = place, list[str]()
        for name, text in files.items():
            (place / f"{name}.toml").write_text(text)
        self.palettes = themes.load(place, self.complaints.append)

    @property
    def said(self) -> str:
        return "\n".join(self.complaints).replace(f"{self.place}/", "")


def test_a_palette_of_the_user_is_found_and_may_replace_ours(tmp_path: Path) -> None:
    own = 'primary = "#ff00ff"\ndark = false\n[variables]\nquiet = "#777777"\n'
    folder = Folder(tmp_path, mine=own, dark='name = "gpuconsole-dark"\nprimary = "#00ff00"\n')
    assert folder.said == ""
    assert folder.palettes["mine"]["variables"] == {"quiet": "#777777"}
    assert folder.palettes["mine"]["dark"] is False
    assert folder.palettes["gpuconsole-dark"]["primary"] == "#00ff00"


def test_a_palette_of_the_user_may_change_a_few_colours_of_another(tmp_path: Path) -> None:
    folder = Folder(
        tmp_path,
        a='parent = "b"\nforeground = "#eeeeee"\n',
        b='parent = "gpuconsole-light"\n[variables]\nquiet = "#123456"\n',
        own='name = "gpuconsole-safe"\nparent = "gpuconsole-safe"\nprimary = "#abcdef"\n',
    )
    assert folder.said == ""
    mine = folder.palettes["a"]
    assert (mine["foreground"], mine["background"], mine["dark"]) == ("#eeeeee", "#fbfaf7", False)
    assert mine["variables"]["quiet"] == mine["variables"]["footer-foreground"] == "#123456"
    assert mine["variables"]["text"] == "#eeeeee"
    assert folder.palettes["gpuconsole-safe"]["primary"] == "#abcdef"
    assert folder.palettes["gpuconsole-safe"]["variables"]["rule-focus"] == "#abcdef"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('primary = "#fff"\nerror = \n', "broken.toml, line 2: invalid value."),
        ("primary = [\n", "broken.toml, line 1: "),
        ("dark = true", 'broken.toml, line 1: it needs a parent = "gpuconsole-dark", or a primary'),
        ('primary="$nothing"', "broken.toml: primary refers to nothing."),
        ('parent="nowhere"', "broken.toml: its parent nowhere is not a usable theme."),
        ('parent="broken"', "broken.toml: its parent broken is not a usable theme."),
        ('primary="#fff"\nname = "a b"', "line 2: the name of a theme is letters"),
    ],
)
def test_a_broken_palette_is_named_with_line_and_reason_and_the_others_are_used(
    tmp_path: Path, content: str, complaint: str
) -> None:
    folder = Folder(tmp_path, broken=content, whole='primary = "#ffffff"')
    assert complaint in folder.said and len(folder.complaints) == 1
    assert "broken" not in folder.palettes and "whole" in folder.palettes


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("\nerror=3", "mine.toml, line 3: error is a colour such as"),
        ('[variables]\nquiet = "[/b]"', "line 3: quiet is a colour"),
        ('[variables]\nquiet-style = "blink"', "line 3: quiet-style is a style"),
        ('[variables]\nquiet = "$nothing"', "quiet refers to $nothing"),
        ('[variables]\nquiet = "$hint"\nhint = "$quiet"', "refers to"),
        ("variables = 1", "line 2: variables is a table"),
        ('dark = "yes"', "line 2: dark is true or false."),
    ],
)
def test_a_theme_is_used_without_its_invalid_values(tmp_path: Path, content: str, complaint: str) -> None:
    folder = Folder(tmp_path, mine=f'primary="#abcdef"\n{content}')
    assert complaint in folder.said
    assert (
        folder.palettes["mine"]["primary"] == "#abcdef"
        and "quiet" not in folder.palettes["mine"]["variables"]
    )


def test_unknown_theme_names_are_reported_and_ignored(tmp_path: Path) -> None:
    text = 'parent = "gpuconsole-mono"\nprimry = "#fff"\n[variables]\nquite = "#777777"\n'
    folder = Folder(tmp_path, mine=text)
    assert folder.said == (
        "mine.toml, line 2: primry is unknown in a theme.\nmine.toml, line 4: quite is unknown in a theme."
    )
    assert "quite" not in folder.palettes["mine"]["variables"]


def test_a_file_that_is_no_text_or_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    folder = Folder(tmp_path)
    assert len(folder.complaints) == 3 and "binary.toml, line 1: not UTF-8 text." in folder.said
    assert set(folder.palettes) == set(themes.load())


@settings(max_examples=100)
@given(st.text(alphabet=st.sampled_from('abcprimyent="#0f[]{}.\n, $\\é\x00'), max_size=60))
def test_any_text_gives_a_palette_or_an_error_message(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = Folder(tmp_path_factory.mktemp("any"), any=text)
    assert ("any" in folder.palettes) or folder.complaints


def test_a_folder_that_is_not_there_is_no_problem(tmp_path: Path) -> None:
    assert set(themes.load(tmp_path / "none")) == set(themes.load())
