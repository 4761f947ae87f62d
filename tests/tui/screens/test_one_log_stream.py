"""One stream per container, however many views and feeds read its log."""

from __future__ import annotations

from pathlib import Path

from tests.support.playground import console_on
from tests.tui.screens.home_lab import lab_of, shows_rank_0


async def test_home_logs_and_curves_share_one_stream_of_a_log(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(1)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g")
        await play.until(lambda: shows_rank_0(play))
        await play.until(lambda: bool(play.session.life.losses))
        before = len(logs.glanced)
        for _ in range(2):
            await play.press("l")
            await play.until(lambda: "› logs" in play.text and "step 99/99" in play.text)
            await play.press("escape")
            await play.until(lambda: shows_rank_0(play))
        await play.press("m")
        await play.until(lambda: "from log lines of master-0" in play.text)
        await play.press("escape")
        await play.until(lambda: shows_rank_0(play))
        assert logs.opened == ["job-000-master-0"] and len(logs.glanced) == before
