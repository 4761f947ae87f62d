"""Commands of the console on jobs that really run: how they exit, what they follow, and whom they name."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import pytest

from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.models.resources import JOBS
from k8s.sandbox import SandboxAddress
from tests import ROOT
from tests.k8s.sandbox.live.running import Space, batch_job, conditions, has
from tui.commands import console
from tui.settings.options import ConsoleOptions
from tui.terminal import tty_state

BY_RANK = 'echo before; for rank in 0 1 2 3; do echo "[1,$rank]<stdout>:by rank"; done; echo after; exit 3'
"""Prints as mpirun does with --tag-output, which is not what is tested here."""
SCRIPT = """
import os, time
rank = int(os.environ["RANK"])
print(f"rank {rank} starts", flush=True)
if rank == 2:
    raise ValueError("bad shard 7")
time.sleep(60)
"""


@pytest.mark.slow
async def test_waiting_and_following_exit_as_the_job_does(space: Space) -> None:
    raises = (sys.executable, "-c", "{}['lr']")
    await space.create(JOBS, batch_job("well", "sleep", "0.1", backoffLimit=0))
    await space.create(JOBS, batch_job("raises", *raises, backoffLimit=0))
    submit = ("submit", "job", "--image=x", "--follow", "--name")
    well, raised, killed, followed = await asyncio.gather(
        space.run_console("wait", "well"),
        space.run_console("wait", "raises"),
        space.run_console(*submit, "killed", "--", "sh", "-c", "kill -9 $$$$"),
        space.run_console(*submit, "f-raises", "--", *raises),
    )
    assert well[:2] == (0, "well Succeeded\n")
    assert raised[:2] == (1, "raises Failed\n")
    assert (killed[0], followed[0]) == (137, 1)
    for _, _, err in (raised, followed):
        assert "raises failed: pod-0 exit 1: KeyError: 'lr'" in err


@pytest.mark.slow
async def test_a_wait_ends_with_the_job(space: Space) -> None:
    await space.create(JOBS, batch_job("removed", "sleep", "300"))
    assert await space.gpuconsole("wait", "removed", "--for=running") == "removed Running\n"
    waiting = asyncio.create_task(space.run_console("wait", "removed"))
    await space.delete(JOBS, "removed")
    status, out, _ = await waiting
    # Where it is gone before the command looks, there is no such job.
    assert (status, out) in ((1, "removed Deleted\n"), (1, ""))


async def test_a_job_past_its_deadline_fails_without_an_exit_code(space: Space) -> None:
    await space.create(JOBS, batch_job("late", "sleep", "300", activeDeadlineSeconds=1))
    status, out, _ = await space.run_console("wait", "late")
    assert (status, out) == (1, "late Failed\n")
    assert conditions(await space.comes(JOBS, "late", conditions))["Failed"] == "True"


@pytest.mark.slow
async def test_following_an_mpi_job_prints_lines_of_the_launcher_and_rank_0(
    space: Space, tmp_path: Path
) -> None:
    status, out, err = await space.run_console(
        *("submit", "--follow", "mpi", "--name", "follow", "--image", "x"),
        *("--workers", "2", "--slots-per-worker", "2", BY_RANK),
        cwd=tmp_path,
    )
    assert status == 3, err
    assert out.splitlines() == [
        f"MPIJob {space.name}/follow created.",
        "before",
        "[1,0]<stdout>:by rank",
        "after",
    ]
    assert f"To see why: gpuconsole --kubeconfig '{space.kubeconfig}' -n {space.name} why follow" in err


@pytest.mark.end_to_end
async def test_the_rank_that_raised_is_named_with_its_exception(space: Space, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    await space.gpuconsole(
        *("submit", "pytorch", "--name", "shards", "--image", "x", "--nproc-per-node", "4"),
        f"torchrun {tmp_path}/train.py",
    )
    await space.comes(PYTORCH_JOBS, "shards", has("Failed"))
    (row,) = msgspec.json.decode(await space.gpuconsole("list", "-o", "json"))["items"]
    assert row["reason"] == "rank 2 exit 1: ValueError: bad shard 7"
    failure = msgspec.json.decode(await space.gpuconsole("get", "shards", "-o", "json"))["failure"]
    assert (failure["rank"], failure["instance"]) == (2, "master-0")
    assert failure["error"] == "ValueError: bad shard 7"
    assert any("train.py" in line for line in failure["traceback"])
    assert any("3 ranks" in each for each in failure["others"])
    for command in ("why", "diagnose"):
        text = await space.gpuconsole(command, "shards")
        assert text.startswith("Failed: rank 2 exit 1 first, ")
        assert ": ValueError: bad shard 7.\n" in text
        assert f"gpuconsole --kubeconfig '{space.kubeconfig}' -n {space.name} logs shards -r 2" in text
    lines = (await space.gpuconsole("logs", "shards", "-r", "2")).splitlines()
    assert lines[0] == "[rank2]: rank 2 starts"
    assert all(line.startswith("[rank2]: ") for line in lines)


async def test_a_running_sandbox_is_joined_where_there_is_no_kubeconfig(
    running: SandboxAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(running.kubeconfig.parents[2]))
    for words in (("top", "nodes", "-o", "name"), ("top", "nodes", "--context", "lab")):
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tui", *words),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = (text.decode() for text in await child.communicate())
        if "--context" in words:
            assert child.returncode == 1 and "sandbox that runs" not in err
        else:
            assert (child.returncode, out.split()[-2:]) == (0, ["node/sandbox-0", "node/sandbox-1"]), err
            assert err == "There is no kubeconfig: this is the sandbox that runs on this machine.\n"
    for function in ("terminal_problem", "prepare"):
        monkeypatch.setattr(tty_state, function, str)
    assert console.prepare(ConsoleOptions()).is_sandbox, "without a question"
