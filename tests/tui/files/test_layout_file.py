"""The layouts that were chosen for home, by context: kept, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui.files.layout_file import FILE, MOST_KEPT, KeptLayouts


def test_what_is_kept_for_a_context_is_found_the_next_time(tmp_path: Path) -> None:
    assert KeptLayouts(tmp_path).find("lab") == ""
    assert KeptLayouts(tmp_path).keep("lab", "list")
    assert KeptLayouts(tmp_path).keep("farm", "all panes")
    assert (KeptLayouts(tmp_path).find("lab"), KeptLayouts(tmp_path).find("farm")) == ("list", "all panes")
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"lab": 7}', "[" * 100_000])
def test_a_file_that_makes_no_sense_is_as_none_and_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    kept = KeptLayouts(tmp_path)
    assert kept.find("lab") == ""
    assert kept.keep("lab", "list") and KeptLayouts(tmp_path).find("lab") == "list"


def test_where_nothing_can_be_written_a_choice_holds_while_the_console_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = KeptLayouts(tmp_path / "file")
    assert not kept.keep("lab", "list") and kept.find("lab") == "list"
    assert KeptLayouts().keep("lab", "list")


def test_the_oldest_choices_go(tmp_path: Path) -> None:
    kept = KeptLayouts(tmp_path)
    for number in range(MOST_KEPT + 1):
        kept.keep(f"context-{number}", "list")
    assert (kept.find("context-0"), kept.find("context-1")) == ("", "list")
