"""Advice that names a command names the key in the console, the user's own where there is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.scripted.server import Answer
from tests.support.objects import batch_job
from tests.support.playground import console_on
from tui.keys.advice import console_advice

SOURCES = sorted([*(ROOT / "k8s" / "diagnosis").rglob("*.py"), *(ROOT / "k8s" / "logs").rglob("*.py")])


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Resume it: gpuconsole resume bert", "Resume it: R"),
        ("See what it printed: gpuconsole logs bert -i worker-0", "See what it printed: l on worker-0"),
        ("See what it printed: gpuconsole logs bert -i w-0 -c init", "See what it printed: l on w-0"),
        ("See what it printed: gpuconsole logs bert -i w-0 --previous", "See what it printed: p on w-0"),
        ("See what it printed: gpuconsole logs bert -r 17", "See what it printed: l on rank 17"),
        ("Create the claim, or name one that exists: gpuconsole data list", ":volumes"),
        ("Ask why with: gpuconsole why", "Ask why with: W"),
        ("Start over: gpuconsole sandbox reset", "Start over: gpuconsole sandbox reset"),
    ],
)
def test_advice_names_the_key_where_there_is_one(said: str, shown: str) -> None:
    assert console_advice(said, {}).endswith(shown)
    assert console_advice(said, {"jobs.resume": "ctrl+t"}).endswith(shown.replace(": R", ": ^t"))


def test_every_command_that_diagnosis_advises_has_a_key() -> None:
    texts = re.findall(
        r'f?"([^"\n]*(?:gpuconsole|kubectl) [a-z][^"\n]*)"', "\n".join(map(Path.read_text, SOURCES))
    )
    advised = [
        re.sub(r"\{[^}]*\}", "x", text) for text in texts if ": gpuconsole" in text or ": kubectl" in text
    ]
    assert len(advised) >= 5
    for text in advised:
        assert not re.search("gpuconsole|kubectl", console_advice(text, {})), text


async def test_why_of_a_suspended_job_names_the_key_that_resumes_it(tmp_path: Path) -> None:
    paused = batch_job("paused", 1, 1, suspend=True)
    async with console_on(tmp_path, batch=[paused]) as play:
        play.cluster.say("/apis/batch/v1/namespaces/default/jobs/paused", Answer(paused))
        await play.press("W")
        await play.until(lambda: "Suspended: its object says suspend, so it has no pods." in play.text)
        assert "Resume it: R" in play.text
        assert "pod-0" not in play.text and "gpuconsole resume" not in play.text
