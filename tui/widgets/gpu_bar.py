"""A node's GPUs as coloured cells, for tables and for text."""

from __future__ import annotations

from textual.content import Content

from tui.format import gpu_runs
from tui.widgets.columns import Cell


def gpu_content(busy: int, free: int, bad: int = 0, *, width: int = 8, ascii_only: bool = False) -> Content:
    """Draw GPUs as `▮▮▮▯▯✕` in the colours of the theme, for a `Static` or a title.

    Args:
        busy: GPUs that are held.
        free: GPUs that can be had.
        bad: GPUs that are unhealthy.
        width: Most cells to use; above that the cells are shares.
        ascii_only: Draw with `#`, `-` and `x`.
    """
    runs = gpu_runs(busy, free, bad, width=width, ascii_only=ascii_only)
    return Content.assemble(*((text, f"${look}") for text, look in runs))


def gpu_cell(busy: int, free: int, bad: int = 0, *, width: int = 8, ascii_only: bool = False) -> Cell:
    """Draw GPUs as the cell of a table; see `gpu_content`."""
    return Cell.of(*gpu_runs(busy, free, bad, width=width, ascii_only=ascii_only))
