"""The last losses in the state folder: complete, private, bounded, and shared by several consoles."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tui.files import last_losses
from tui.files.last_losses import LOSSES_FILE, LastLosses


def test_a_loss_is_known_after_a_restart_and_the_file_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    first = LastLosses(folder)
    assert first.find("a") is None and "a" not in first
    for uid, loss in (("a", 0.25), ("b", None), ("c", math.nan)):
        first.store(uid, loss)
    again = LastLosses(folder)
    assert again.find("a") == 0.25 and "b" in again and again.find("b") is None
    assert math.isnan(again.find("c") or 0.0)
    assert (folder / LOSSES_FILE).stat().st_mode & 0o777 == 0o600


def test_two_consoles_keep_each_others_losses(tmp_path: Path) -> None:
    one, other = LastLosses(tmp_path), LastLosses(tmp_path)
    assert one.find("x") is None and other.find("x") is None
    one.store("a", 1.0)
    other.store("b", 2.0)
    one.store("c", 3.0)
    assert [LastLosses(tmp_path).find(uid) for uid in "abc"] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": "x", "b": [1], "c": 2}', "\0", "[" * 100_000])
def test_a_damaged_file_counts_as_far_as_it_can_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / LOSSES_FILE).write_text(text)
    losses = LastLosses(tmp_path)
    assert losses.find("a") is None
    losses.store("d", 4.0)
    assert LastLosses(tmp_path).find("d") == 4.0


def test_only_the_newest_losses_are_kept_and_without_a_folder_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_losses, "MAX_JOBS", 3)
    losses = LastLosses(tmp_path)
    for number in range(5):
        losses.store(str(number), float(number))
    assert [str(number) in LastLosses(tmp_path) for number in range(5)] == [False, False, True, True, True]
    memory = LastLosses()
    memory.store("a", 1.0)
    assert memory.find("a") == 1.0
    blocked = LastLosses(tmp_path / LOSSES_FILE)  # a file where the folder should be
    blocked.store("a", 1.0)
    assert blocked.find("a") == 1.0
