"""The theme that was chosen last holds: in the console, or in config.yaml."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from k8s.errors import KubeError
from tui.files.theme_file import FILE, keep_theme, read_theme


def test_without_a_choice_the_theme_of_the_config_holds(tmp_path: Path) -> None:
    assert read_theme(tmp_path, "") == ""
    assert read_theme(tmp_path, "light") == "light"


def test_a_choice_in_the_console_holds_over_the_config_and_the_second_over_the_first(tmp_path: Path) -> None:
    keep_theme(tmp_path / "state", "dark", "light")
    assert read_theme(tmp_path / "state", "light") == "dark"
    keep_theme(tmp_path / "state", "safe", "light")
    assert read_theme(tmp_path / "state", "light") == "safe"
    assert [path.name for path in (tmp_path / "state").iterdir()] == [FILE]
    assert stat.S_IMODE((tmp_path / "state" / FILE).stat().st_mode) == 0o600


def test_a_theme_written_into_the_config_later_holds_over_the_choice(tmp_path: Path) -> None:
    keep_theme(tmp_path, "dark", "")
    assert read_theme(tmp_path, "contrast") == "contrast"
    keep_theme(tmp_path, "safe", "contrast")
    assert read_theme(tmp_path, "contrast") == "safe"
    assert read_theme(tmp_path, "") == "safe"  # a config that names none has nothing against it


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"theme": "dark"}', '{"theme": 1, "config_theme": "light"}', "[" * 9999],
)
def test_a_file_that_makes_no_sense_is_as_none_and_the_next_choice_replaces_it(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / FILE).write_text(content)
    assert read_theme(tmp_path, "light") == "light"
    keep_theme(tmp_path, "safe", "light")
    assert read_theme(tmp_path, "light") == "safe"


def test_a_file_that_cannot_be_read_is_as_none(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    assert read_theme(tmp_path, "light") == "light"


def test_a_choice_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(KubeError, match=r"theme could not be saved\.\n.*theme\.json: File exists\."):
        keep_theme(tmp_path / "state", "dark", "")
