"""What somebody who walks through the console in a hurry would stumble over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tui.screens

SHEETS = sorted(Path(tui.screens.__file__).parent.glob("*.tcss"))
SHARED = {"view.tcss", "list_view.tcss", "text.tcss"}
"""Sheets of base classes: what they say is meant for every view that has the part."""


@pytest.mark.parametrize(
    "sheet", [each for each in SHEETS if each.name not in SHARED], ids=lambda each: each.stem
)
def test_the_sheet_of_one_view_changes_no_part_of_another_that_was_opened_after_it(sheet: Path) -> None:
    text = re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL)
    selectors = [
        one.strip() for rule in re.findall(r"([^{}]+)\{", text) for one in rule.split(",") if "#" in one
    ]
    assert [one for one in selectors if not re.match(r"[A-Z]\w+", one)] == []
