"""Lists whose objects are watched only while they are shown, and those that one value describes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from textual import work
from textual.worker import Worker

from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot
from tui.screens.base.list_view import ListView
from tui.screens.base.request import ActionRequest
from tui.session.list_feed import ListFeed, follow
from tui.settings.keys import ViewDeclaration
from tui.tables.column import Column, Row
from tui.terminal.key_queue import keys_held
from tui.text.empty_states import ELSEWHERE, no_cluster
from tui.text.format import in_namespace
from tui.widgets.table.table import Table


class FeedView(ListView):
    """List of objects from feeds of its own, refreshed at most ten times a second."""

    def __init__(self, *followed: ListFeed[Any]) -> None:
        """Watch `followed`; the notice and the empty state describe the first of them."""
        super().__init__()
        self._followed = followed
        self._changed = asyncio.Event()
        self._following: Worker[None] | None = None

    @property
    def is_synced(self) -> bool:
        """True once the first feed has been listed; False if it was refused."""
        return all(each.state.is_synced and not each.is_refused for each in self._followed[:1])

    @property
    def is_idle(self) -> bool:
        """True if the first feed has been listed or refused, and the widgets are idle."""
        is_read = all(each.state.is_synced or each.is_refused for each in self._followed[:1])
        return (is_read or not self.is_shown) and super().is_idle

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
        if self._followed and mirror is not None and self._following is None:
            following = partial(follow, self._followed, self._changed, self.refresh_view)
            self._following = self.run_worker(following, group="follow", exclusive=True)

    def _stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None

    def notice(self, snapshot: ClusterSnapshot) -> str:
        """Return the reason for missing or stale rows; empty if there is none."""
        first = self._followed[0]
        if snapshot.stale or first.trouble or first.missing is None:
            return snapshot.stale or first.trouble
        return first.missing.words if first.missing.shown else first.missing.why

    def empty_text(self, noun: str, if_empty: str) -> str:
        """Return the text of the empty table.

        Args:
            noun: Plural name of the objects.
            if_empty: Text if everything was read and nothing exists.
        """
        first = self._followed[0]
        if first.is_refused:
            return f"This user may not list {noun}{in_namespace(self.snapshot.namespace)}.\n{ELSEWHERE}"
        if first.state.is_synced:
            return if_empty
        if first.trouble and not self.snapshot.stale:
            return f"The {noun} could not be read yet. Retrying automatically; ctrl+r retries now."
        return first.progress or no_cluster(self.snapshot) or f"Reading {noun}…"

    def refresh_feeds(self) -> None:
        """Retry now, including refused requests."""
        for each in self._followed:
            each.retry_now()


class ListContent(msgspec.Struct, frozen=True):
    """Rows of a list, and the lines around them."""

    rows: Sequence[Row]
    title: Sequence[str]
    """Parts of the title; `{}` stands for the number of rows, and of visible ones."""
    totals: str
    empty: str
    """Text without rows."""
    notice: str = ""
    is_complete: bool = True
    """Everything has been read that no feed follows."""


class ListDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A list as one value. Rows are known by their keys."""

    view: ViewDeclaration
    columns: tuple[Column, ...]
    content: Callable[[DescribedList, Any], ListContent]
    """Returns what to draw; its second argument are the columns to make cells for."""
    on_enter: str
    order: tuple[str, bool] | None = ("name", False)
    no_job: str = ""
    keeps_row: bool = False
    is_namespaced: bool = False
    """Hide the column `namespace` while one namespace is shown."""
    feeds: Sequence[ListFeed[Any]] = ()
    load: Callable[[], Awaitable[None]] | None = None
    """Reads what no feed follows, when the list is opened and on a refresh."""
    job_of: Callable[[DescribedList, str], JobRef | None] = lambda _view, _key: None
    object_of: Callable[[str], str] = str
    instance_of: Callable[[str], str] = lambda _key: ""


class DescribedList(FeedView):
    """List of a `ListDescription`."""

    def __init__(self, description: ListDescription) -> None:
        super().__init__(*description.feeds)
        self.description = description
        self.VIEW, self.COLUMNS, self.ORDER = description.view, description.columns, description.order
        self.ON_ENTER, self.NO_JOB = description.on_enter, description.no_job
        self.KEEPS_ROW = description.keeps_row
        self._is_complete = False

    def on_mount(self) -> None:
        """Read what no feed follows."""
        self._load()

    @work(group="load", exclusive=True)
    async def _load(self) -> None:
        if self.description.load is not None:
            with keys_held(self.app):  # they are for the table that it fills
                await self.description.load()
            self.refresh_view()

    def refresh_feeds(self) -> None:
        """Read everything again."""
        super().refresh_feeds()
        self._load()

    @property
    def is_synced(self) -> bool:
        """True once everything listed has been read."""
        return super().is_synced and self._is_complete

    def watch_notices(self) -> None:
        """Redraw."""
        self.refresh_view()

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        is_of_one = self.description.is_namespaced and self.snapshot.namespace
        columns = self.columns_of(self.COLUMNS, ("namespace",) if is_of_one else ())
        content = self.description.content(self, columns)
        self._is_complete = content.is_complete
        table.empty = content.empty
        table.set_columns(columns, content.rows)
        amount = self.amount_text(len(content.rows))
        self.set_list_title(*(each.replace("{}", amount) for each in content.title))
        self.set_line("notice", content.notice)
        self.set_line("totals", content.totals)

    def current_job(self) -> JobRef | None:
        """Return the job of the row under the cursor."""
        return self.description.job_of(self, self.selected_row())

    def selected_instance(self) -> str:
        """Return the instance of the row under the cursor."""
        return self.description.instance_of(self.selected_row())

    def selected_object(self) -> str:
        """Return the object of the row under the cursor."""
        return self.description.object_of(self.selected_row())

    def action_request_marked(self, name: str) -> None:
        """Request an action for the keys of the marked rows."""
        self.post_message(ActionRequest(name, " ".join(self.query_one(Table).marks)))
