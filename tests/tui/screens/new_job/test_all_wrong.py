"""Every field of the new-job form that can be wrong is, and is put right after the focus came to it."""

from __future__ import annotations

from pathlib import Path

from tests.tui.screens.new_job.world import ECHO, JOBS, Form, form
from tui.jobs.new_job.fields import COMMAND, JOB_FORM_FIELDS
from tui.jobs.new_job.form_spec import parse_values
from tui.jobs.new_job.hidden_fields import hidden_fields
from tui.screens.dialogs.confirm import ConfirmScreen

OPEN = {"run": COMMAND, COMMAND: "train.py", "torchrun": "true", "sync_mode": "git"}
"""What has most fields asked."""
RIGHT = {**OPEN, "name": "mended", "sync_source": "https://example.com/a.git", "log_dir": "/workspace/logs"}
"""Values of a job with which nothing is wrong."""
NO_TYPE_TAKES = ("-1", "Ä ö", "a\u2407")
"""Bad input: of a number, of a name, and of any text at all, which may hold no control character."""


def wrong_values(it: Form) -> dict[str, str]:
    """Return a bad text for each text field that is asked."""
    values = {**it.screen.model.values, **RIGHT}
    asked = [each for each in JOB_FORM_FIELDS if each.control != "choice"]
    asked = [each for each in asked if each.key not in hidden_fields(values)]
    return {
        each.key: next(
            text for text in NO_TYPE_TAKES if each.key in parse_values({**values, each.key: text}).problems
        )
        for each in asked
    }


async def mend(it: Form, key: str, text: str) -> None:
    """Write a text into a field, and try to create."""
    await it.write(key, text)
    await it.comes(lambda: key not in it.screen.model.errors)
    await it.pilot.press("ctrl+o")
    await it.comes(lambda: it.focused_key != key or isinstance(it.app.screen, ConfirmScreen))


async def test_every_field_that_is_wrong_says_so_and_is_gone_to_until_all_are_right(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        state = it.screen.model
        wrong = wrong_values(it)
        right = {**state.values, **RIGHT}
        assert len(wrong) > 40
        state.load_draft({**right, **wrong})
        it.screen._show_model()
        await it.pilot.press("ctrl+o")
        await it.comes(lambda: it.focused_key == "name")
        assert {key for key in wrong if not it.field(key).error} == set()
        assert not isinstance(it.app.screen, ConfirmScreen)
        left = dict(list(wrong.items())[::6])  # each is corrected like these, and takes its time
        state.load_draft({key: right[key] for key in wrong if key not in left})
        it.screen._show_model()
        await it.pilot.press("ctrl+o")
        gone_to = []
        while state.errors:
            gone_to.append(it.focused_key)
            await mend(it, gone_to[-1], right[gone_to[-1]])
        assert sorted(gone_to) == sorted(left)
        await it.pilot.press("enter")
        await it.comes(lambda: bool(it.app.results))
        assert it.app.results[0] is not None and it.app.results[0].name == "mended"
        assert len(it.cluster.asked(JOBS, method="POST")) == 2
