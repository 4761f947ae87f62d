"""The letters of a job work in every view about it, except where a view has a meaning of its own for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripted.server import Answer
from tests.tui.keys.world import (
    BERT,
    BERT_PODS,
    PODS,
    PYTORCH_JOBS,
    changes,
    seen,
    title,
    titled,
    typed,
    world,
)

LOGS, CURVES, WHY = "Jobs › bert › logs", "Jobs › bert › curves", "Jobs › bert › why"
EVENTS, YAML, USAGE = "Jobs › bert   ", "Jobs › bert › YAML", "Jobs › bert › usage"
CLONE, DELETE, SUSPEND = "New job, clone of bert", "Delete 1 job?", "Suspend 1 job?"
FORWARD = "TensorBoard of bert is forwarded"
ALL = {
    "l": LOGS,
    "p": "previous run",
    "m": CURVES,
    "W": WHY,
    "u": USAGE,
    "y": YAML,
    "Y": YAML,
    "v": EVENTS,
    "d": EVENTS,
    "b": CLONE,
    "ctrl+d": DELETE,
    "H": SUSPEND,
    "f": FORWARD,
    "F": FORWARD,
    "X": "Commands for PyTorchJob bert",
}
"""What each letter leads to."""


OWN: dict[str, dict[str, str]] = {
    "W": {"W": WHY, "ctrl+d": WHY, "F": WHY},
    "u": {"u": USAGE, "d": USAGE, "F": USAGE},
    "y": {"y": YAML, "Y": YAML, "m": YAML, "ctrl+d": YAML, "F": YAML},
    "l": {"l": LOGS, "m": LOGS, "f": "", "ctrl+d": LOGS, "p": "previous run"},
    "m": {"l": CURVES, "y": CURVES, "m": CURVES, "H": CURVES, "F": CURVES},
}
"""What letters do instead in the view that a letter opens; nothing is expected where it is empty."""


async def test_letters_of_a_job_work_in_views_about_it(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.press("N", "g")
        for view, own in OWN.items():
            await play.press(view)
            await play.until(titled(play, ALL[view]))
            at_rest = title(play).partition("  ")[0]
            for letter, words in (ALL | own).items():
                if not words:  # it shows the log alone, without a title
                    continue
                await play.press(letter)
                await play.until(seen(play, words))
                if words == FORWARD:
                    await play.press(letter)  # ends it
                elif words == "previous run" and view == "l":
                    await play.press("p")
                elif words not in at_rest:
                    await play.press("escape")
                await play.until(lambda at_rest=at_rest: title(play).startswith(at_rest))  # type: ignore[misc]
            await play.press("escape")
            await play.until(titled(play, " Jobs ("))
        assert changes(play) == []


async def test_letters_are_the_job_s_in_its_pane_beside_the_list(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.press("N", "g", "3")
        for letter, words in (("m", CURVES), ("l", LOGS), ("W", WHY), ("n", "New job")):
            await play.until(seen(play, "line 99 of bert-master-0"))
            await play.press(letter)
            await play.until(titled(play, words))
            await play.press("escape")


@pytest.mark.parametrize(
    ("line", "named"), [("", "l on worker-0"), ("[rank3]: ValueError: bad shard 7", "l on rank 3")]
)
async def test_why_opens_the_log_of_the_instance_that_its_advice_names(
    tmp_path: Path, line: str, named: str
) -> None:
    ended = {"name": "pytorch", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    failed = BERT_PODS[1] | {"status": {"phase": "Failed", "containerStatuses": [ended]}}
    bert = BERT | {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    bert["spec"] = BERT["spec"] | {"nprocPerNode": "2"}
    async with world(tmp_path, jobs=[bert], pods=[BERT_PODS[0], failed]) as play:
        for path, found in ((f"{PYTORCH_JOBS}/bert", bert), (f"{PODS}/bert-worker-0", failed)):
            play.cluster.forget(path)
            play.cluster.say(path, Answer(found))
        if line:
            play.cluster.replace(
                f"{PODS}/bert-worker-0/log", Answer(line.encode() + b"\nline 99 of bert-worker-0\n")
            )
        await play.press(*typed("why bert"))
        await play.until(seen(play, named))
        await play.press("l")
        await play.until(seen(play, "line 99 of bert-worker-0"))


async def test_read_only_refuses_letters_that_change_a_job(tmp_path: Path) -> None:
    async with world(tmp_path, is_read_only=True) as play:
        await play.press("N", "g", "W")
        await play.until(titled(play, WHY))
        await play.press("b")
        await play.until(seen(play, "Changes are disabled by --readonly."))
        await play.press("question_mark")
        await play.until(seen(play, "Logs (live)"))
        assert "Clone" not in play.text
