"""List of the notices of the last days."""

from __future__ import annotations

from typing import Any

from textual.message import Message

from k8s.kinds import JobRef
from tui.screens.base.feed_view import DescribedList, ListContent, ListDescription
from tui.screens.lists import NOTICES
from tui.tables.column import Row, cells
from tui.tables.notices import COLUMNS, MAX_NOTICES
from tui.text.format import Clock, plural


class NoticesSeen(Message):
    """The user has seen all notices."""


def notices_view() -> DescribedList:
    """Return the list of notices, newest first."""
    return DescribedList(
        ListDescription(
            view=NOTICES,
            columns=COLUMNS,
            content=_content,
            on_enter="open_notice",
            order=None,
            no_job="Its job is in another cluster; :ctx switches.",
            job_of=_job_of,
        )
    )


def _content(view: DescribedList, columns: Any) -> ListContent:
    found, clock = view.notices, Clock.ahead(view.snapshot.clock_offset_s)
    if not all(each.is_seen for each in found):
        view.post_message(NoticesSeen())
    full = f" · the newest {MAX_NOTICES}" if len(found) >= MAX_NOTICES else ""
    return ListContent(
        rows=[Row(each.key, cells(each, clock, columns)) for each in found],
        title=[f"Notices ({len(found)})"],
        totals=f"Σ {plural(len(found), 'notice')}{full}",
        empty="No news about your jobs in the last days.",
    )


def _job_of(view: DescribedList, key: str) -> JobRef | None:
    here = view.snapshot.context
    return next((each.job for each in view.notices if each.key == key and each.context == here), None)
