"""The panes of the view of one job: which there are, which has the focus, which is alone on the screen."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widget import Widget

from tui.screens.job.curve_preview import CurvePreview
from tui.screens.job.rows import CONDITION_COLUMNS, EVENT_COLUMNS, INSTANCE_COLUMNS
from tui.widgets.table.table import Table


@dataclass(slots=True)
class _Layout:
    """How the panes were left."""

    focused: str = "instances"
    is_full: bool = False


_LAYOUTS: WeakKeyDictionary[App[object], _Layout] = WeakKeyDictionary()
"""Each console's layout, for as long as it runs."""


class JobPanes(Container):
    """Instances and their curve above, conditions and events below; or one of them alone.

    Where there is no room for all, conditions and events share a place: the one with the focus has it.
    """

    def __init__(self) -> None:
        """Make empty panes."""
        super().__init__(id="panes")
        self.instances = Table(INSTANCE_COLUMNS, empty="No instances.", id="instances", classes="pane")
        """The job's instances."""
        self.curve = CurvePreview(id="curve", classes="pane")
        """Its loss."""
        self.conditions = Table(
            CONDITION_COLUMNS,
            empty="The operator has said nothing yet.",
            id="conditions",
            classes="pane",
        )
        """What its object says."""
        self.events = Table(EVENT_COLUMNS, empty="No events.", id="events", classes="pane")
        """What happened to it."""

    def compose(self) -> ComposeResult:
        """Lay out two rows."""
        with Horizontal(id="above"):
            yield self.instances
            yield self.curve
        with Horizontal(id="below"):
            yield self.conditions
            yield self.events

    @property
    def _all(self) -> tuple[Widget, ...]:
        return (self.instances, self.curve, self.conditions, self.events)

    @property
    def _layout(self) -> _Layout:
        return _LAYOUTS.setdefault(self.app, _Layout())

    @property
    def focused(self) -> Widget:
        """The pane with the focus, or else the one that had it last."""
        return next((pane for pane in self._all if "-alone" in pane.classes), self.instances)

    @property
    def is_full(self) -> bool:
        """Whether one pane is alone on the screen."""
        return self.has_class("-full")

    def restore(self) -> None:
        """Show the panes as they were left when a job was looked at last."""
        layout = self._layout
        self.set_class(layout.is_full, "-full")
        self.go_to(next((pane for pane in self._all if pane.id == layout.focused), self.instances))

    def go_to(self, pane: Widget) -> None:
        """Give a pane the focus, and a place if it has none."""
        self._note(pane if pane is not self.curve or self.curve.has_points else self.instances)
        self.call_after_refresh(self.focused.focus)

    def step(self, panes: int) -> None:
        """Go to the next pane, or the one before."""
        there = [pane for pane in self._all if pane is not self.curve or self.curve.is_shown]
        place = there.index(self.focused) if self.focused in there else 0
        self.go_to(there[(place + panes) % len(there)])

    def toggle_full(self) -> None:
        """Show the pane with the focus alone, or all of them again."""
        self.set_class(not self.is_full, "-full")
        self._layout.is_full = self.is_full

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Remember which pane is meant."""
        if event.widget in self._all:
            self._note(event.widget)

    def _note(self, pane: Widget) -> None:
        for each in self._all:
            each.set_class(each is pane, "-alone")
        self.set_class(pane in (self.instances, self.curve), "-upper")
        if pane in (self.conditions, self.events):
            self.set_class(pane is self.conditions, "-conditions")
        self._layout.focused = pane.id or ""

    def say(self, pane: Widget, title: str, subtitle: str = "") -> None:
        """Write on a pane's frame; the texts are plain."""
        for name, text in (("border_title", title), ("border_subtitle", subtitle)):
            content = Content(text)
            if getattr(pane, name) != (content.markup if text else None):
                setattr(pane, name, content if text else None)
