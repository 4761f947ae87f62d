"""What a chart is asked to show: the curves, and how they are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal, TypeAlias

from tui.charts.series import Series

Piece: TypeAlias = tuple[str, str]
"""Text, and the name of its paint."""

XAxis: TypeAlias = Literal["step", "relative", "wall"]
"""What the horizontal axis counts: steps, time since the first point, or the time of day."""

PAINTS = 6
"""How many curves have a paint of their own; further ones begin again."""


@dataclass(frozen=True, slots=True, eq=False)
class PlotCurve:
    """One line of the chart."""

    label: str
    """Its name in the legend; sanitised."""
    series: Series
    """Its points."""


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """How the curves are looked at."""

    x_axis: XAxis = "step"
    is_log: bool = False
    """Whether the vertical axis counts powers of ten."""
    smoothing: float = 0.0
    """Weight of the running mean, 0 to 0.999; above 0 the raw curve stays visible, dimmed."""
    cursor: int | None = None
    """Column of cells that is read out, from the left edge of the plot."""
    ascii_only: bool = False
    zone: tzinfo | None = None
    """The time zone of the `wall` axis; None is this machine's."""
