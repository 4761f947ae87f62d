"""The user's own commands: what they are given, and what they cannot do to the console."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tui.jobs.hooks import (
    MAX_RUNNING,
    MAX_WAITING,
    HookRunner,
    hook_environment,
    hook_problem,
    run_hook,
)

HOSTILE = 'it\'s $(touch gone) `touch gone`; "x" & | > gone\nnext\0\x1b]0;x\x07'


async def test_a_hook_receives_the_event_in_its_environment_and_hostile_text_is_not_executed(
    tmp_path: Path,
) -> None:
    script = f"cd {tmp_path} && printenv GPUCONSOLE_REASON GPUCONSOLE_EXIT_CODE > facts; echo said; exit 3"
    log = tmp_path / "log"
    facts = {"reason": HOSTILE, "exit_code": None}
    assert await run_hook(["sh", "-c", script], facts, log_file=log) == 3
    assert (tmp_path / "facts").read_text() == 'it\'s $(touch gone) `touch gone`; "x" & | > gone␊next␀\n\n'
    assert not (tmp_path / "gone").exists()
    assert log.read_text().endswith("notify.exec sh: exit 3\nsaid\n")
    assert log.stat().st_mode & 0o777 == 0o600


def test_hook_environment_values_are_one_line_and_truncated() -> None:
    found = hook_environment({"job": "a\n" + "x" * 100_000})["GPUCONSOLE_JOB"]
    assert len(found) == 2000 and "\n" not in found


async def test_a_hook_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/child; wait"
    assert await run_hook(["sh", "-c", script], {}, timeout_s=0.5, log_file=tmp_path / "log") == 124
    child = int((tmp_path / "child").read_text())
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        await asyncio.sleep(0.01)
    assert "did not finish in 0 s" in hook_problem(["sh"], 124, 0.1)


async def test_a_cancelled_hook_is_killed(tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    task = asyncio.create_task(
        run_hook(["sh", "-c", f"echo $$ > {started}; exec sleep 600"], {}, log_file=tmp_path / "log")
    )
    pid = int(await asyncio.to_thread(started.read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["/nowhere/hook"], "/nowhere/hook: exit 127: command not found."),
        (["/etc/passwd"], "/etc/passwd: exit 126: not executable."),
        (["sh", "-c", "kill -9 $$"], "sh: exit 137."),
        (["true"], ""),
    ],
)
async def test_a_failed_hook_is_reported_with_its_exit_status(
    tmp_path: Path, words: list[str], why: str
) -> None:
    assert hook_problem(words, await run_hook(words, {}, log_file=tmp_path / "log")) == why


async def test_excess_hook_runs_are_dropped_and_reported_once(tmp_path: Path) -> None:
    reports: list[str] = []
    runner = HookRunner(["sh", "-c", "exit 7"], tmp_path / "log", reports.append)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(MAX_WAITING + MAX_RUNNING + 20):
            tasks.create_task(runner.run({}))
    assert reports == [f"sh: more than {MAX_WAITING} runs are queued; some are dropped."]
    assert (tmp_path / "log").read_text().count("exit 7") == MAX_WAITING + MAX_RUNNING
