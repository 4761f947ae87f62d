"""One stream per container, however many views and feeds read its log."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from tests.support.playground import Playground, console_on
from tests.tui.screens.home_lab import lab_of

HOME, LOGS = "job-000 · rank 0 of 1 · step 99/99 · master-0", r"› logs(.|\n)*step 99/99"
JOB, CURVES = r"Jobs › job-000 (.|\n)*Running +1 +a +0 +\d+m", "from log lines of master-0"
WAY = [("l", LOGS), ("escape", HOME)] * 2
WAY += [("enter", JOB), ("l", LOGS), ("escape", JOB), ("escape", HOME), ("m", CURVES), ("escape", HOME)]


def is_shown(play: Playground, pattern: str) -> bool:
    return re.search(pattern, play.text) is not None


async def test_home_job_logs_and_curves_share_one_stream_of_a_log(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(1)
    async with console_on(tmp_path, size=(160, 40), **objects) as play:
        await play.press("N", "g")
        await play.until(partial(is_shown, play, HOME))
        await play.until(lambda: bool(play.session.life.losses))
        before = len(logs.glanced)
        for key, pattern in WAY:
            await play.press(key)
            await play.until(partial(is_shown, play, pattern), pattern)
        assert logs.opened == ["job-000-master-0"] and len(logs.glanced) == before
