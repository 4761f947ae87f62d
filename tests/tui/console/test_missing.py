"""What the console shows of what is not there: a lost cluster, a forbidden list, a deleted job, no curves."""

from __future__ import annotations

from pathlib import Path

from tests.scripted.server import Answer, refusal
from tests.support.playground import LISTS, ONE_JOB, bert, console_on, some_objects
from tui.feeds.curve_feed import LOG_HINT


async def test_a_lost_cluster_is_said_and_the_rows_stay(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        for path in LISTS.values():
            play.cluster.forget(path)
            play.cluster.forget(path, watch=True)
            play.cluster.say(path, refusal(500, "etcd is gone"))
            play.cluster.say(path, refusal(500, "etcd is gone"), watch=True)
        for watch in play.watches.values():
            watch.drop()
        await play.until(lambda: "away" in play.text.splitlines()[0])
        await play.until(lambda: "etcd is gone" in play.text)
        assert play.table.row_count == 2


async def test_what_may_not_be_read_is_named_where_it_is_missed(tmp_path: Path) -> None:
    objects = some_objects()
    async with console_on(tmp_path, refused="nodes", pods=objects["pods"], jobs=objects["jobs"]) as play:
        await play.until(lambda: play.table.row_count == 2)
        await play.press("tab")
        assert 'cannot list resource "nodes"' in play.text
        assert "This user may not list nodes." in play.text


async def test_a_job_that_names_no_event_files_says_so_in_its_curves(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        play.cluster.say(ONE_JOB, Answer(bert))
        await play.press("N", "g", "m")
        await play.until(lambda: "declares no folder for event files" in play.text)
        assert LOG_HINT in play.text
