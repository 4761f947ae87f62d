"""Stored theme and layouts: found again, private, harmless if damaged."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from k8s.text.errors import KubeError
from tui.runs.journal.choices import MAX_CONTEXTS, read_layout, read_theme, store_layout, store_theme
from tui.runs.journal.database import JOURNAL_FILE, Journal
from tui.settings.options import HistoryOptions


def test_a_layout_stored_per_context_is_restored(tmp_path: Path) -> None:
    assert read_layout(Journal(tmp_path), "lab") == ""
    assert store_layout(Journal(tmp_path), "lab", "list")
    assert store_layout(Journal(tmp_path), "farm", "full")
    assert [read_layout(Journal(tmp_path), each) for each in ("lab", "farm")] == ["list", "full"]
    assert stat.S_IMODE((tmp_path / JOURNAL_FILE).stat().st_mode) == 0o600


def test_an_unwritable_layout_choice_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = Journal(tmp_path / "file")
    assert not store_layout(journal, "lab", "list") and read_layout(journal, "lab") == "list"
    assert store_layout(Journal(), "lab", "list")


def test_the_oldest_layout_choices_are_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    store_theme(journal, "dark", "")
    for number in range(MAX_CONTEXTS):
        store_layout(journal, f"context-{number}", "list")
    store_layout(journal, "context-0", "full")
    store_layout(journal, "another", "list")
    found = [read_layout(journal, name) for name in ("context-0", "context-1", "context-2", "another")]
    assert found == ["full", "", "list", "list"]
    assert read_theme(journal, "") == "dark"


def test_without_a_stored_choice_the_configured_theme_applies(tmp_path: Path) -> None:
    assert [read_theme(Journal(tmp_path), each) for each in ("", "light")] == ["", "light"]
    assert not list(tmp_path.iterdir())


def test_the_latest_stored_theme_overrides_the_configured_theme(tmp_path: Path) -> None:
    for name in ("dark", "safe"):
        store_theme(Journal(tmp_path), name, "light")
        assert read_theme(Journal(tmp_path), "light") == name


def test_a_theme_configured_later_overrides_the_stored_choice() -> None:
    journal = Journal()
    store_theme(journal, "dark", "")
    assert read_theme(journal, "contrast") == "contrast"
    store_theme(journal, "safe", "contrast")
    assert read_theme(journal, "contrast") == "safe"
    assert read_theme(journal, "") == "safe"  # a config that names none has nothing against it


def test_choices_survive_when_the_history_is_off_and_when_it_is_deleted(tmp_path: Path) -> None:
    off = HistoryOptions(size_mib=0)
    store_theme(Journal(tmp_path, off), "dark", "")
    assert store_layout(Journal(tmp_path, off), "lab", "list")
    assert Journal(tmp_path).clear()
    assert (read_theme(Journal(tmp_path, off), ""), read_layout(Journal(tmp_path), "lab")) == (
        "dark",
        "list",
    )


@pytest.mark.parametrize("value", ["", "{", "[]", "null", '["dark"]', '[1, "light"]', "[" * 9999, b"\xff"])
def test_a_malformed_theme_is_treated_as_missing_and_replaced(value: str | bytes) -> None:
    journal = Journal()
    journal.write(("INSERT INTO choices VALUES ('theme', ?)", value))
    assert read_theme(journal, "light") == "light"
    store_theme(journal, "safe", "light")
    assert read_theme(journal, "light") == "safe"


def test_an_unreadable_journal_is_treated_as_missing(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).mkdir()
    assert read_theme(Journal(tmp_path), "light") == "light"


def test_an_unwritable_theme_choice_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(KubeError, match=r"theme could not be saved\.\n.*journal\.db: .*exists"):
        store_theme(Journal(tmp_path / "state"), "dark", "")
