"""A list of what only it shows: its objects are followed while it is on screen, not while it is covered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.worker import Worker

from k8s.snapshot import ClusterSnapshot
from tui.feeds.cluster_feed import ClusterFeed
from tui.feeds.list_feed import ListFeed, follow
from tui.screens.base.list_view import ListView
from tui.text.empty_states import ELSEWHERE, no_cluster
from tui.text.format import count
from tui.widgets.table.table import Column, Row, Table

AGES_S = 10.0
"""How often ages are written anew though nothing has changed."""
FeedGetter = Callable[[], ClusterFeed | None]
"""Returns the cluster that is shown, once there is one."""


class FeedView(ListView):
    """Draws its table anew, ten times a second at most, whenever what it follows has changed."""

    NOUN: ClassVar[str] = "objects"
    """What is listed, as in `No events`."""

    def __init__(self, cluster_feed: FeedGetter, *followed: ListFeed[Any]) -> None:
        """Show what `followed` finds, the first of which is what the view is about."""
        super().__init__()
        self.cluster_feed = cluster_feed
        """Returns the cluster that is shown, once there is one."""
        self._followed = followed
        self._changed = asyncio.Event()
        self._following: Worker[None] | None = None

    def on_mount(self) -> None:
        """Let ages grow though nothing changes."""
        self.set_interval(AGES_S, self._changed.set)

    @property
    def is_synced(self) -> bool:
        """Whether all that is listed was read once."""
        return self._followed[0].state.is_synced

    def uncovered(self) -> None:
        """Follow again."""
        self._keep_following()
        self.redraw()

    def covered(self) -> None:
        """Let go."""
        self._stop()

    def watch_snapshot(self) -> None:
        """Follow what the console shows, and draw in turn with what is followed."""
        if self.is_shown:
            self._keep_following()
        if self._following is None:
            self.redraw()
        else:
            self._changed.set()

    def _keep_following(self) -> None:
        cluster_feed = self.cluster_feed()
        moved = [each for each in self._followed if each.aim(cluster_feed, self._changed.set)]
        if moved:
            self._stop()
        if cluster_feed is not None and self._following is None:
            following = partial(follow, self._followed, self._changed, self.redraw)
            self._following = self.run_worker(following, group="follow", exclusive=True)

    def _stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None

    def fill(
        self, table: Table, left_out: Sequence[str], rows_of: Callable[[Sequence[Column]], list[Row]]
    ) -> None:
        """Fill the table with the rows that `rows_of` makes for the columns that are not left out."""
        columns = tuple(column for column in self.COLUMNS if column.key not in left_out)
        rows = rows_of(columns)
        if columns == table.columns:
            table.set_rows(rows)
        else:
            table.set_columns(columns, rows)

    def say(self, heading: str, total: int, *parts: str) -> None:
        """Write the title: what is shown of how many, and what chooses it."""
        shown = self.query_one(Table).row_count
        amount = count(total) if shown == total else f"{count(shown)} of {count(total)}"
        self.set_list_title(f"{heading} ({amount})", *parts, self._followed[0].progress)
        self.put("notice", self.notice(self.snapshot))

    def notice(self, snapshot: ClusterSnapshot) -> str:
        """Return why not all is shown, or why it may be old."""
        first = self._followed[0]
        if snapshot.stale or first.trouble or first.missing is None:
            return snapshot.stale or first.trouble
        return first.missing.words if first.missing.shown else first.missing.why

    def nothing(self, if_empty: str) -> str:
        """Return what stands in the empty table: what is true, and what to press.

        Args:
            if_empty: What is said where all was read, and there is nothing.
        """
        first = self._followed[0]
        if first.is_refused:
            return f"This user may not list {self.NOUN}{_where(self.snapshot.namespace)}.\n{ELSEWHERE}"
        if first.state.is_synced:
            return if_empty
        if first.trouble and not self.snapshot.stale:
            return f"The {self.NOUN} could not be read yet. They are asked for again; ctrl+r refreshes now."
        return first.progress or no_cluster(self.snapshot) or f"Reading {self.NOUN}…"

    def refresh_feeds(self) -> None:
        """Ask again at once, also what was refused."""
        for each in self._followed:
            each.retry_now()


def _where(namespace: str) -> str:
    return f" in namespace {namespace}" if namespace else ""
