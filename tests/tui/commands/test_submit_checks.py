"""What `submit` says before it creates a job that would never start."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests import ROOT
from tests.scripted.server import Compute, ScriptedCluster, refusal
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.submitting import (
    PYTORCH_JOBS,
    echo,
)

HUGE = ("submit", "pytorch", "--name", "demo", "--image", "x", "--gpus", "64")
NEVER = "would never start: needs 1 × 64 GPUs; the cluster has 15, at most 8 per node."


async def test_a_job_that_no_node_is_large_enough_for_is_not_created(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    ended = await run(*HUGE, "true")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == (
        f"PyTorchJob demo {NEVER}\nNothing was created.\nTo create it all the same: --force\n"
    )
    assert cluster.asked(PYTORCH_JOBS, method="POST") == []


async def test_it_is_created_by_force(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "--force", "true")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert ended.err == f"Warning: {NEVER}\n"


async def test_too_few_images_for_a_step_of_all_ranks_are_told(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    cluster.accept_companions("default")
    words = ("submit", "pytorch", "--name", "demo", "--image", "x", "--workers", "2", "--trainer", "ddp")
    ended = await run(*words, "--", "--batch-size", "6001")
    assert ended.status == 0
    assert (
        "Warning: would fail: a step takes 6,001 × 2 ranks = 12,002 images, and there are 12,000" in ended.err
    )


async def test_a_dry_run_tells_that_it_would_never_start(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "--dry-run=server", "true")
    assert (ended.status, ended.err) == (0, f"Warning: {NEVER}\n")


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1)])
async def test_somebody_at_a_terminal_is_asked_whether_to_create_what_never_fits(
    run: CommandLine, cluster: ScriptedCluster, answer: str, status: int
) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    words = (sys.executable, "-P", "-m", "tui", *HUGE, "true")

    def end() -> int | None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with Terminal(words, columns=160, env=env, folder=run.home) as terminal:
            terminal.wait_for("Create it all the same? [y/N]")
            terminal.send(answer)
            return terminal.wait_for_end()

    assert await asyncio.to_thread(end) == status
    assert len(cluster.asked(PYTORCH_JOBS, method="POST")) == (1 if status == 0 else 0)


async def test_what_cannot_be_known_of_the_nodes_keeps_no_job_from_being_created(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/default/pods"):
        cluster.forget(path)
        cluster.say(path, refusal(403, "no", "Forbidden"))
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "true")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
