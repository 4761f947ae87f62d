"""A list whose objects are watched only while it is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.worker import Worker

from k8s.snapshot import ClusterSnapshot
from tui.screens.base.list_view import ListView
from tui.session.list_feed import ListFeed, follow
from tui.tables.column import Row
from tui.text.empty_states import ELSEWHERE, no_cluster
from tui.text.format import count, in_namespace
from tui.widgets.table.table import Table

AGES_S = 10.0


class FeedView(ListView):
    """List of objects from feeds of its own, refreshed at most ten times a second."""

    # Plural name of the objects, as in `No events`.
    NOUN: ClassVar[str] = "objects"

    def __init__(self, *followed: ListFeed[Any]) -> None:
        """Watch `followed`; the title and the empty state describe the first of them."""
        super().__init__()
        self._followed = followed
        self._changed = asyncio.Event()
        self._following: Worker[None] | None = None

    def on_mount(self) -> None:
        """Refresh the ages while nothing changes."""
        self.set_interval(AGES_S, self._changed.set)

    @property
    def is_synced(self) -> bool:
        """True once the first feed has been listed; False if it was refused."""
        return self._followed[0].state.is_synced and not self._followed[0].is_refused

    @property
    def is_idle(self) -> bool:
        """True if the first feed has been listed or refused, and the widgets are idle."""
        is_read = self.is_synced or self._followed[0].is_refused or not self.is_shown
        return is_read and super().is_idle

    def resume_feeds(self) -> None:
        """Start the feeds."""
        self._keep_following()
        self.refresh_view()

    def pause_feeds(self) -> None:
        """Stop the feeds."""
        self._stop()

    def watch_snapshot(self) -> None:
        """Follow a changed cluster or namespace, and refresh."""
        if self.is_shown:
            self._keep_following()
        if self._following is None:
            self.refresh_view()
        else:
            self._changed.set()

    def _keep_following(self) -> None:
        mirror = self.session.mirror if self.session is not None else None
        moved = [each for each in self._followed if each.aim(mirror, self._changed.set)]
        if moved:
            self._stop()
        if mirror is not None and self._following is None:
            following = partial(follow, self._followed, self._changed, self.refresh_view)
            self._following = self.run_worker(following, group="follow", exclusive=True)

    def _stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None

    def fill(self, table: Table, left_out: Sequence[str], rows_of: Callable[[Any], list[Row]]) -> None:
        """Set the columns and rows, without the columns in `left_out`."""
        columns = self.columns_of(self.COLUMNS, left_out)
        table.set_columns(columns, rows_of(columns))

    def set_feed_title(self, heading: str, total: int, *parts: str) -> None:
        """Set the title: heading, number of rows, `parts`, and progress."""
        shown = self.query_one(Table).row_count
        amount = count(total) if shown == total else f"{count(shown)} of {count(total)}"
        self.set_list_title(f"{heading} ({amount})", *parts, self._followed[0].progress)
        self.set_line("notice", self.notice(self.snapshot))

    def notice(self, snapshot: ClusterSnapshot) -> str:
        """Return the reason for missing or stale rows; empty if there is none."""
        first = self._followed[0]
        if snapshot.stale or first.trouble or first.missing is None:
            return snapshot.stale or first.trouble
        return first.missing.words if first.missing.shown else first.missing.why

    def empty_text(self, if_empty: str) -> str:
        """Return the text of the empty table.

        Args:
            if_empty: Text if everything was read and nothing exists.
        """
        first = self._followed[0]
        if first.is_refused:
            return f"This user may not list {self.NOUN}{in_namespace(self.snapshot.namespace)}.\n{ELSEWHERE}"
        if first.state.is_synced:
            return if_empty
        if first.trouble and not self.snapshot.stale:
            return f"The {self.NOUN} could not be read yet. Retrying automatically; ctrl+r retries now."
        return first.progress or no_cluster(self.snapshot) or f"Reading {self.NOUN}…"

    def refresh_feeds(self) -> None:
        """Retry now, including refused requests."""
        for each in self._followed:
            each.retry_now()
