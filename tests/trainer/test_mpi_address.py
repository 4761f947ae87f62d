"""Asking MPI where rank 0 is, with a real mpirun where there is one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from trainer.messages import TrainingError
from trainer.mpi_address import request_mpi

MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
NEEDS_MPI = pytest.mark.skipif(MPIRUN is None, reason="needs mpirun, of Open MPI or MPICH")
ASK = (
    "import os, sys; from trainer.mpi_address import request_mpi; "
    "print('met at', request_mpi(os.environ, 100), flush=True)"
)


def mpirun(*words: str) -> "subprocess.CompletedProcess[str]":
    assert MPIRUN is not None
    flags = ["--allow-run-as-root", "--oversubscribe"] if _is_open_mpi() else []
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [MPIRUN, *flags, *words], env=env, capture_output=True, text=True, timeout=200, check=False
    )


def _is_open_mpi() -> bool:
    said = subprocess.run([str(MPIRUN), "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in said.stdout


@NEEDS_MPI
@pytest.mark.slow
def test_all_ranks_get_the_same_address_and_may_then_end_as_they_like() -> None:
    ran = mpirun("-np", "3", sys.executable, "-P", "-c", ASK)
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line.startswith("met at")]
    assert len(lines) == 3
    assert len(set(lines)) == 1
    ran = mpirun("-np", "2", sys.executable, "-P", "-c", f"{ASK}; sys.exit(3)")
    assert ran.returncode == 3, ran.stderr


@NEEDS_MPI
@pytest.mark.slow
def test_a_rank_that_never_asks_is_not_waited_for_without_end() -> None:
    waits = (
        "import os; from trainer.mpi_address import request_mpi; from trainer.messages import TrainingError\n"
        "try:\n    request_mpi(os.environ, 1)\nexcept TrainingError as error:\n    print(error)"
    )
    ran = mpirun("-np", "1", sys.executable, "-P", "-c", waits, ":", "-np", "1", "sleep", "4")
    assert (
        "Could not get the address of rank 0 from MPI. Not all ranks took part within 1 s." in ran.stdout
    ), ran.stderr


def test_a_question_that_fails_says_why_in_one_sentence() -> None:
    with pytest.raises(
        TrainingError, match=r"Could not get the address of rank 0 from MPI\. OMPI.*RANK is 'x'"
    ):
        request_mpi({**os.environ, "OMPI_COMM_WORLD_RANK": "x", "PYTHONPATH": str(ROOT)}, 60)
