"""Keys, settings, switches and history, which all views share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tui.runs.store import RunStore
from tui.settings.keys import (
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
from tui.settings.options import FINISHED_DAYS, OwnColumn
from tui.settings.stored_choices import StoredLayouts

if TYPE_CHECKING:
    from k8s.kinds import JobRef


def _no_names() -> Mapping[Argument, Sequence[str]]:
    return {}


@dataclass(frozen=True, slots=True)
class ViewContext:
    """Keys, settings and history of the console, shared by all views."""

    keymap: Mapping[str, str] = field(default_factory=dict)
    """User's keys by binding id; several are separated by commas."""
    is_read_only: bool = False
    # Arguments of commands, for completion.
    names: Callable[[], Mapping[Argument, Sequence[str]]] = _no_names
    typed: dict[str, list[str]] = field(default_factory=lambda: {"/": [], ":": []})
    """Prompt history by mark, oldest first."""
    # Toggles of this session, by name.
    switches: dict[str, bool] = field(default_factory=dict)
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
    actions: ActionTable = field(default_factory=ActionTable)
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
