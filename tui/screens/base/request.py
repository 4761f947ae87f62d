"""What a view asks the app for, and what a view shows: both by the name of an action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from k8s.kinds import JobRef


@dataclass(frozen=True, slots=True)
class Route:
    """Which view is shown, of what. `esc` and `-` go by routes, never by what led to a view."""

    action: str
    """The action that opens it."""
    argument: str = ""
    """What it shows where that is no job: a node, a claim, `pod/NAME`."""
    job: JobRef | None = None
    """The job that it shows."""
    instance: str = ""
    """The instance of the job that it begins with."""

    def request(self) -> ActionRequest:
        """Return the request that opens it again."""
        targets = (self.job,) if self.job is not None else ()
        return ActionRequest(self.action, self.argument, targets, instance=self.instance)


class ActionRequest(Message):
    """The user wants something done that concerns more than one view."""

    def __init__(
        self,
        name: str,
        argument: str = "",
        targets: Sequence[JobRef] = (),
        *,
        instance: str = "",
        selected: str = "",
        hidden: int = 0,
        is_typed: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        """The action; the word that was typed where `is_typed`."""
        self.argument = argument
        """What was typed after the command."""
        self.targets = tuple(targets)
        """The jobs that it is about."""
        self.instance = instance
        """The selected instance of the one job that it is about."""
        self.selected = selected
        """The selected object that is no job: a node, a context, `NAMESPACE/CLAIM`, `pod/NAME`."""
        self.hidden = hidden
        """How many of the targets are marked, but hidden by the filter."""
        self.is_typed = is_typed
        """It was typed as a command: keys behind it wait until it is done."""
