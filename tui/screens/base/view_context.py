"""Keys, settings, switches and history, which all views share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tui.runs.store import RunStore
from tui.settings.keys import (
    EVERYWHERE,
    ROW,
    TABLE,
    ActionTable,
    Argument,
    Key,
    ViewDeclaration,
    remapped,
    unshadowed,
    view_keys,
)
from tui.settings.options import FINISHED_DAYS, OwnColumn

if TYPE_CHECKING:
    from k8s.kinds import JobRef


# In other lists the footer has no room for keys that change the job.
_OF_JOBS = ("jobs", "job")


def _no_names() -> Mapping[Argument, Sequence[str]]:
    return {}


class ViewContext(msgspec.Struct, frozen=True):
    """Keys, settings and history of the console, shared by all views."""

    keymap: Mapping[str, str] = msgspec.field(default_factory=dict)
    """User's keys by binding id; several are separated by commas."""
    is_read_only: bool = False
    # Arguments of commands, for completion.
    names: Callable[[], Mapping[Argument, Sequence[str]]] = _no_names
    typed: dict[str, list[str]] = msgspec.field(default_factory=lambda: {"/": [], ":": []})
    """Prompt history by mark, oldest first."""
    # Toggles of this session, by name.
    switches: dict[str, bool] = msgspec.field(default_factory=dict)
    finished_days: float = FINISHED_DAYS
    strip_by: str = ""
    """Node label to group the node bar by; empty groups by GPU model."""
    has_loss: bool = True
    runs: RunStore = msgspec.field(default_factory=RunStore)
    log_folder: Path | None = None
    """Folder for saved logs; None disables saving."""
    forwarded: dict[JobRef, str] = msgspec.field(default_factory=dict)
    """Local TensorBoard addresses of forwarded jobs."""
    recent: list[str] = msgspec.field(default_factory=list)
    """Namespaces visited in this cluster, newest first."""
    rows: dict[str, str] = msgspec.field(default_factory=dict)
    """Last cursor row of each list, by view name: see `ListView.KEEPS_ROW`."""
    actions: ActionTable = msgspec.field(default_factory=ActionTable)
    columns: Mapping[str, tuple[str | OwnColumn, ...]] = msgspec.field(default_factory=dict)
    """Columns that config.yaml chooses, by list."""

    def keys(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        """Apply the keymap, and remove keys that `--readonly` withholds."""
        return self.permitted(remapped(keys, self.keymap))

    def permitted(self, keys: Iterable[Key]) -> tuple[Key, ...]:
        """Remove the keys that `--readonly` withholds; they stay bound, to explain the refusal."""
        return tuple(key for key in keys if not (self.is_read_only and key.changes_cluster))

    def view_keys(self, view: ViewDeclaration, *, is_about_job: bool = False) -> tuple[Key, ...]:
        """Return the keys of a view, also withheld ones, without the global ones.

        Args:
            view: Its own keys come before those that act on the job of a row.
            is_about_job: The view, such as that of a log, is about one job.
        """
        own = unshadowed(remapped(view_keys(view, self.actions), self.keymap))
        if not (view.has_job_rows or is_about_job):
            return own
        # Enter is no letter of a job.
        focused = view.focused if view.has_job_rows else (*view.focused, *TABLE)
        taken = (*own, *remapped(focused, self.keymap))
        of_job = unshadowed(remapped(self.actions.keys(ROW), self.keymap), taken)
        if not view.has_job_rows:
            return (*own, *(replace(key, footer="") for key in of_job))
        if view.name not in _OF_JOBS:
            of_job = tuple(replace(key, footer="") if key.changes_cluster else key for key in of_job)
        order = [key.id for key in (*self.actions.keys(view.name, ROW), *view.keys)]
        return tuple(sorted((*own, *of_job), key=lambda key: ("enter" not in key.keys, order.index(key.id))))

    @property
    def everywhere_keys(self) -> tuple[Key, ...]:
        """Return the global keys."""
        return self.keys(self.actions.keys(EVERYWHERE))
