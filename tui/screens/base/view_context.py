"""What the application gives each view: whose keys, which cluster, what was chosen and typed before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tui.files.layout_file import KeptLayouts
from tui.keys import ACTIONS, EVERYWHERE, ActionTable, Argument, Key, remapped, view_keys
from tui.options import FINISHED_DAYS

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.jobs.permissions import Permissions
    from k8s.kinds import JobRef
    from tui.feeds.telemetry_feed import TelemetryFeed


def _no_names() -> Mapping[Argument, Sequence[str]]:
    return {}


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class ViewContext:
    """What the application gives each view."""

    keymap: Mapping[str, str] = field(default_factory=dict)
    """The user's own keys: ids of bindings to keys with commas between."""
    is_read_only: bool = False
    """Keys that change something on the cluster are not there."""
    names: Callable[[], Mapping[Argument, Sequence[str]]] = _no_names
    """Returns what commands may take, for completion."""
    typed: dict[str, list[str]] = field(default_factory=lambda: {"/": [], ":": []})
    """What was typed before on the prompt, by its mark, the oldest first."""
    client: Callable[[], Client | None] = _nothing
    """Returns the cluster once it is reached, for what no snapshot tells."""
    telemetry: Callable[[], TelemetryFeed | None] = _nothing
    """Returns what the cluster's GPUs do, once it is reached."""
    switches: dict[str, bool] = field(default_factory=dict)
    """What the user switched on or off for as long as the console runs, by the switch's name."""
    permissions: Callable[[], Permissions | None] = _nothing
    """Returns what this user may do there, once that can be asked."""
    finished_days: float = FINISHED_DAYS
    """How long the list shows jobs that have finished."""
    strip_by: str = ""
    """The label of nodes by which home sums up those that it has no room for; empty for the GPUs' model."""
    has_loss: bool = True
    """Whether home reads the loss of running jobs, unless that is switched."""
    layouts: KeptLayouts = field(default_factory=KeptLayouts)
    """Which panes home shows in each context."""
    log_folder: Path | None = None
    """Where logs are saved to; without one they are not."""
    forwarded: dict[JobRef, str] = field(default_factory=dict)
    """Jobs whose TensorBoard is forwarded, and its address here."""
    recent: list[str] = field(default_factory=list)
    """Namespaces of this cluster that were gone to, the newest first."""
    rows: dict[str, str] = field(default_factory=dict)
    """The row on which the cursor of a list was left, by the view's `NAME`: see `ListView.KEEPS_ROW`."""
    actions: ActionTable = ACTIONS
    """What views can ask for."""

    def keys(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        """Return those of the keys that are there for this user, as the user has mapped them."""
        return tuple(
            key for key in remapped(keys, self.keymap) if not (self.is_read_only and key.changes_cluster)
        )

    def view_keys(self, view: str) -> tuple[Key, ...]:
        """Return the keys of the view with this name, without those of every view."""
        return self.keys(view_keys(view, self.actions))

    def withheld_keys(self, view: str) -> tuple[Key, ...]:
        """Return the keys that `--readonly` takes from a view: they are bound, to be refused in words."""
        if not self.is_read_only:
            return ()
        all_keys = (*view_keys(view, self.actions), *self.actions.keys(EVERYWHERE))
        return remapped([key for key in all_keys if key.changes_cluster], self.keymap)

    @property
    def everywhere_keys(self) -> tuple[Key, ...]:
        """Return the keys of every view."""
        return self.keys(self.actions.keys(EVERYWHERE))
