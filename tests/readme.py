"""Writes the part of README that is made from the code: the keys. Run as `python -m tests.readme`."""

from __future__ import annotations

from tests import ROOT
from tui.commands.support.key_table import as_markdown

README = ROOT / "README.md"
BEGIN, END = "<!-- keys -->", "<!-- /keys -->"
"""The lines between which the keys stand."""


def keys_in(text: str) -> str:
    """Return what stands between the lines for the keys."""
    return text.split(f"{BEGIN}\n")[1].split(f"{END}\n")[0]


def with_keys(text: str) -> str:
    """Return the text with the keys as they are now."""
    before, after = text.split(f"{BEGIN}\n")[0], text.split(f"{END}\n")[1]
    return f"{before}{BEGIN}\n{as_markdown()}{END}\n{after}"


if __name__ == "__main__":
    README.write_text(with_keys(README.read_text(encoding="utf-8")), encoding="utf-8")
