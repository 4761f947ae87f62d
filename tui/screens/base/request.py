"""Requests of views to the app, and the routes of views; both name an action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from textual.message import Message

if TYPE_CHECKING:
    from k8s.kinds import JobRef


class Route(msgspec.Struct, frozen=True):
    """Address of a view. `esc` and `-` follow routes, not the actions that led to a view."""

    action: str
    argument: str = ""
    """Object shown if it is not a job: a node, a claim, `pod/NAME`."""
    job: JobRef | None = None
    instance: str = ""
    jobs: tuple[JobRef, ...] = ()
    """All jobs of a view of several; `job` is the first of them."""

    def request(self) -> ActionRequest:
        """Return the request that opens the view again."""
        targets = self.jobs or ((self.job,) if self.job is not None else ())
        return ActionRequest(self.action, self.argument, targets, instance=self.instance)


class ActionRequest(Message):
    """Request for an action beyond one view."""

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
        """Name of the action, or the typed word if `is_typed`."""
        self.argument = argument
        self.targets = tuple(targets)
        self.instance = instance
        self.selected = selected
        """Selected object if it is not a job: a node, a context, `NAMESPACE/CLAIM`, `pod/NAME`."""
        self.hidden = hidden
        """Number of targets that are marked but hidden by the filter."""
        # A typed command holds back the keys behind it until it is done.
        self.is_typed = is_typed
