"""`submit --follow` of a job whose launcher prints for all ranks: rank 0 alone, and the job's outcome."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from k8s.sandbox import SandboxAddress
from tests import ROOT

LINE = 'echo before; for rank in 0 1 2 3; do echo "[1,$rank]<stdout>:by rank"; done; echo after; exit 3'
"""Prints as mpirun does with --tag-output, which is not what is tested here."""


async def test_an_mpi_job_is_followed_by_what_its_launcher_and_rank_0_say(
    running: SandboxAddress, tmp_path: Path
) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tui", "--kubeconfig", str(running.kubeconfig), "submit", "--follow"),
        *("mpi", "--name", "follow", "--image", "x", "--workers", "2", "--slots-per-worker", "2", LINE),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode == 3, err
    assert out.decode().splitlines() == [
        "MPIJob default/follow created.",
        "before",
        "[1,0]<stdout>:by rank",
        "after",
    ]
    assert f"To see why: gpuconsole --kubeconfig {running.kubeconfig} why follow" in err.decode()
