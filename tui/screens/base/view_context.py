"""The session as views see it: keys, cluster, switches and history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tui.files.stored_choices import StoredLayouts
from tui.keys import (
    EVERYWHERE,
    TABLE,
    ActionTable,
    Argument,
    Key,
    ViewDeclaration,
    job_letters,
    remapped,
    unshadowed,
    view_keys,
)
from tui.options import FINISHED_DAYS, OwnColumn
from tui.runs.store import RunStore
from tui.screens import ACTIONS

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.diagnosis.failures import FailureCause
    from k8s.jobs.permissions import Permissions
    from k8s.kinds import JobRef
    from k8s.snapshot import Job
    from tui.feeds.life_feed import LifeFeed
    from tui.feeds.telemetry_feed import TelemetryFeed


def _no_names() -> Mapping[Argument, Sequence[str]]:
    return {}


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class ViewContext:
    """Session of the console, shared by all views."""

    keymap: Mapping[str, str] = field(default_factory=dict)
    """User's keys by binding id; several are separated by commas."""
    is_read_only: bool = False
    # Arguments of commands, for completion.
    names: Callable[[], Mapping[Argument, Sequence[str]]] = _no_names
    typed: dict[str, list[str]] = field(default_factory=lambda: {"/": [], ":": []})
    """Prompt history by mark, oldest first."""
    client: Callable[[], Client | None] = _nothing
    """Cluster client; None until it is connected."""
    # Explains the waiting jobs among the visible ones; call it when others become visible.
    explain: Callable[[Callable[[], Iterable[Job]]], None] = lambda _: None
    telemetry: Callable[[], TelemetryFeed | None] = _nothing
    life: Callable[[], LifeFeed | None] = _nothing
    causes: Callable[[], Sequence[FailureCause] | None] = _nothing
    """Known causes of failures; None for the packaged ones."""
    # Toggles of this session, by name.
    switches: dict[str, bool] = field(default_factory=dict)
    permissions: Callable[[], Permissions | None] = _nothing
    finished_days: float = FINISHED_DAYS
    strip_by: str = ""
    """Node label to group the node bar by; empty groups by GPU model."""
    has_loss: bool = True
    layouts: StoredLayouts = field(default_factory=StoredLayouts)
    runs: RunStore = field(default_factory=RunStore)
    log_folder: Path | None = None
    """Folder for saved logs; None disables saving."""
    forwarded: dict[JobRef, str] = field(default_factory=dict)
    """Local TensorBoard addresses of forwarded jobs."""
    recent: list[str] = field(default_factory=list)
    """Namespaces visited in this cluster, newest first."""
    rows: dict[str, str] = field(default_factory=dict)
    """Last cursor row of each list, by view name: see `ListView.KEEPS_ROW`."""
    actions: ActionTable = ACTIONS
    columns: Mapping[str, tuple[str | OwnColumn, ...]] = field(default_factory=dict)
    """Columns that config.yaml chooses, by list."""

    def keys(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        """Apply the keymap, and remove keys that `--readonly` withholds."""
        return tuple(
            key for key in remapped(keys, self.keymap) if not (self.is_read_only and key.changes_cluster)
        )

    def view_keys(self, view: ViewDeclaration) -> tuple[Key, ...]:
        """Return the keys of a view, without the global ones."""
        return unshadowed(self.keys(view_keys(view, self.actions)))

    def job_letters(self, view: ViewDeclaration) -> tuple[Key, ...]:
        """Return the job keys that are free in a view about a job, one per action."""
        own = (*view_keys(view, self.actions), *view.focused, *TABLE)  # enter is no letter of a job
        found: dict[str, Key] = {}
        for key in unshadowed(remapped(job_letters(self.actions), self.keymap), remapped(own, self.keymap)):
            found.setdefault(key.action, key)
        return tuple(found.values())

    def withheld_keys(self, view: ViewDeclaration) -> tuple[Key, ...]:
        """Return the keys that `--readonly` withholds; they stay bound, to explain the refusal."""
        if not self.is_read_only:
            return ()
        all_keys = (*view_keys(view, self.actions), *self.actions.keys(EVERYWHERE))
        return remapped([key for key in all_keys if key.changes_cluster], self.keymap)

    @property
    def everywhere_keys(self) -> tuple[Key, ...]:
        """Return the global keys."""
        return self.keys(self.actions.keys(EVERYWHERE))
