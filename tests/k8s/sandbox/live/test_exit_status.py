"""`wait` and `submit --follow` exit as jobs do that really run."""

from __future__ import annotations

import asyncio
import os
import sys

from k8s import sandbox
from k8s.client.client import Client
from k8s.models.resources import JOBS
from tests import ROOT
from tests.k8s.sandbox.live.running import batch_job, comes, conditions

KILL_SELF = "import os; os.kill(os.getpid(), 9)"


async def gpuconsole(running: sandbox.SandboxAddress, *words: str) -> tuple[int | None, str, str]:
    """Run a command, and return its exit status, output and notices."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(running.kubeconfig)}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tui", *words),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    return child.returncode, out.decode(), err.decode()


async def test_waiting_and_following_exit_as_the_job_does(
    running: sandbox.SandboxAddress, client: Client
) -> None:
    cases = {
        "well": (("sleep", "0.1"), 0),
        "three": (("sh", "-c", "exit 3"), 3),
        "killed": ((sys.executable, "-c", KILL_SELF), 137),
        "raises": ((sys.executable, "-c", "{}['lr']"), 1),
    }
    for name, (command, _) in cases.items():
        await client.create(JOBS, batch_job(f"w-{name}", *command, backoffLimit=0), "default")
    waits = [gpuconsole(running, "wait", f"w-{name}") for name in cases]
    follows = [
        gpuconsole(running, "submit", "job", "--name", f"f-{name}", "--image=x", "--follow", "--", *command)
        for name, (command, _) in cases.items()
    ]
    found = await asyncio.gather(*waits, *follows)
    expected = [status for _, status in cases.values()]
    assert [status for status, *_ in found] == [*expected, *expected], found
    words = ["w-well Succeeded\n", "w-three Failed\n", "w-killed Failed\n", "w-raises Failed\n"]
    assert [out for _, out, _ in found[: len(cases)]] == words
    for _, _, err in (found[len(cases) - 1], found[-1]):
        assert "-raises failed: pod-0 exit 1: KeyError: 'lr'" in err


async def test_a_wait_ends_with_the_job(running: sandbox.SandboxAddress, client: Client) -> None:
    await client.create(JOBS, batch_job("removed", "sleep", "300"), "default")
    assert await gpuconsole(running, "wait", "removed", "--for=running") == (0, "removed Running\n", "")
    waiting = asyncio.create_task(gpuconsole(running, "wait", "removed"))
    await client.delete(JOBS, "removed", "default")
    status, out, _ = await waiting
    # Where it is gone before the command looks, there is no such job.
    assert (status, out) in ((1, "removed Deleted\n"), (1, ""))


async def test_a_job_past_its_deadline_fails_without_an_exit_code(
    running: sandbox.SandboxAddress, client: Client
) -> None:
    await client.create(JOBS, batch_job("late", "sleep", "300", activeDeadlineSeconds=1), "default")
    status, out, _ = await gpuconsole(running, "wait", "late")
    assert (status, out) == (1, "late Failed\n")
    assert conditions(await comes(client, JOBS, "late", conditions))["Failed"] == "True"
