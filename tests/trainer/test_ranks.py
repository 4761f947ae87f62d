"""Ranks, as torchrun, an operator or MPI give them, and where those that mpirun started meet."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.trainer.jobs import open_mpi_env
from trainer.master import DEFAULT_PORT, find_master
from trainer.messages import InvalidArguments, TrainingError
from trainer.mpi_address import own_address, request_mpi
from trainer.ranks import Ranks, job_name

MEETING = {"MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}


TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("env", "ranks"),
    [
        ({}, Ranks(0, 1, 0, 1, "alone")),
        (MEETING | TORCHRUN | {"TORCHELASTIC_RUN_ID": "none", "PET_NPROC_PER_NODE": "4"},
         Ranks(5, 8, 1, 4, "torchrun")),
        (MEETING | {"RANK": "1", "WORLD_SIZE": "2"}, Ranks(1, 2, 0, 1, "the environment")),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Ranks(0, 1, 0, 1, "the environment")),
        (MEETING | {"RANK": "0", "WORLD_SIZE": "1"} | open_mpi_env(3, 4, 2), Ranks(3, 4, 1, 2, "Open MPI")),
        (MEETING | MPICH, Ranks(1, 2, 1, 2, "MPICH")),
    ],
    ids=["alone", "torchrun", "an operator", "one rank without a master address", "Open MPI", "MPICH"],
)  # fmt: skip
def test_ranks_are_read_as_each_launcher_gives_them(env: dict[str, str], ranks: Ranks) -> None:
    assert Ranks.from_env(env) == ranks
    assert ranks.is_first == (ranks.rank == 0)
    assert ranks.is_first_here == (ranks.local_rank == 0)


SRUN = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "7", "SLURM_LOCALID": "1", "SLURM_NODEID": "2"}


def test_tasks_of_srun_are_refused_but_not_launchers_inside_them() -> None:
    with pytest.raises(InvalidArguments, match=r"srun started 7 tasks, .* Start torchrun once a node"):
        Ranks.from_env(SRUN)
    assert Ranks.from_env(SRUN | MPICH) == Ranks(1, 2, 1, 2, "MPICH")
    own = MEETING | {"RANK": "1", "WORLD_SIZE": "2"}
    assert Ranks.from_env(SRUN | own).launcher == "the environment"
    assert Ranks.from_env(SRUN | own | {"TORCHELASTIC_RUN_ID": "none"}).launcher == "torchrun"
    for of_a_shell in ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, {"SLURM_STEP_NUM_TASKS": "1"}):
        assert Ranks.from_env(of_a_shell).launcher == "alone"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2 but WORLD_SIZE is 2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK is -1 but WORLD_SIZE is 2"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE is 0"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK is 'one', which is not a whole number"),
        ({"RANK": "1"}, "WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "LOCAL_RANK is 1 but LOCAL_WORLD_SIZE is 1"),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "2"}, "is 2 but WORLD_SIZE is only 1"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
        ({"RANK": "0", "WORLD_SIZE": "4", "PET_NPROC_PER_NODE": "2"}, "Start the trainer with torchrun"),
    ],
)
def test_an_inconsistent_environment_raises_invalid_arguments(env: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArguments, match=words):
        Ranks.from_env(MEETING | env)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"HOSTNAME": "ddp-digits-1-master-0"}, "ddp-digits-1"),
        ({"HOSTNAME": "ddp-digits-1-worker-12"}, "ddp-digits-1"),
        ({"HOSTNAME": "digits-3", "JOB_COMPLETION_INDEX": "3"}, "digits"),
        ({"HOSTNAME": "digits-3-x7k2p", "JOB_COMPLETION_INDEX": "3"}, "digits"),
        ({"HOSTNAME": "digits-1-3-x7k2p", "JOB_COMPLETION_INDEX": "3"}, "digits-1"),
        ({"HOSTNAME": "gpu-box-3"}, ""),
        ({"HOSTNAME": "odd", "JOB_COMPLETION_INDEX": "(["}, ""),
    ],
)
def test_a_pod_knows_its_job_by_its_own_name_and_a_machine_has_none(env: dict[str, str], name: str) -> None:
    assert job_name(env) == name


HOSTFILE = """
# of two workers
job-worker-0.job.default.svc slots=2
job-worker-1.job.default.svc slots=2
"""
MPI_SAYS = ("10.0.0.7", 40123)


def find(
    env: dict[str, str],
    rank: int = 1,
    *,
    local_size: int = 2,
    mpi: bool = True,
    hostfile: str = "",
    host: str = "",
) -> tuple[str, int]:
    ranks = Ranks.from_env(open_mpi_env(rank, 4, local_size) | env)
    return find_master(
        ranks, env, lambda: MPI_SAYS if mpi else None, hostfile=hostfile or "/nowhere", hostname=host
    )


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, ("a", 1)),
        ({"MASTER_ADDR": "a"}, ("a", MPI_SAYS[1])),
        ({"MASTER_PORT": "1"}, ("10.0.0.7", 1)),
        ({"MASTER_ADDR": "", "MASTER_PORT": ""}, MPI_SAYS),
        ({}, MPI_SAYS),
    ],
)
def test_the_master_address_comes_from_the_environment_before_mpi(
    env: dict[str, str], expected: tuple[str, int]
) -> None:
    assert find(env) == expected


def test_a_master_host_without_a_port_gets_the_default_port_without_mpi() -> None:
    assert find({"MASTER_ADDR": "a"}, mpi=False) == ("a", DEFAULT_PORT)


def test_ranks_of_one_machine_meet_there_at_a_port_that_all_of_them_and_no_other_job_know() -> None:
    jobs = [{"PMIX_NAMESPACE": "prterun-vm-1@1"}, {"PMIX_NAMESPACE": "prterun-vm-2@1"}]
    found = [{find(env, rank, local_size=4, mpi=False) for rank in range(4)} for env in jobs]
    assert [len(each) for each in found] == [1, 1]
    assert found[0] != found[1]
    for [(address, port)] in found:
        assert address == "127.0.0.1"
        assert 20_000 <= port < 30_000
    assert find({"MASTER_PORT": "7"}, local_size=4) == ("127.0.0.1", 7)
    known = {find({**env, "MASTER_ADDR": "a"}, mpi=False) for env in jobs}
    assert known == {("a", port) for [(_, port)] in found}


HYDRA = {
    "PMI_FD": "9", "PMI_HOSTNAME": "vm", "PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2", "HYDI_CONTROL_FD": "7",
}  # fmt: skip
"""Everything that MPICH 5's mpiexec passes to a rank: nothing in it names the job."""


def test_mpich_ranks_on_one_machine_use_the_port_exchanged_by_mpi() -> None:
    ranks = Ranks.from_env(HYDRA)
    assert find_master(ranks, HYDRA, lambda: MPI_SAYS) == ("127.0.0.1", MPI_SAYS[1])
    with pytest.raises(
        InvalidArguments, match=r"another job on this machine does not use too\..* Set MASTER_PORT to"
    ):
        find_master(ranks, HYDRA, lambda: None)
    asked = HYDRA | {"MASTER_PORT": "7"}
    assert find_master(ranks, asked, lambda: pytest.fail("asked in vain")) == ("127.0.0.1", 7)


@pytest.mark.parametrize(
    "name",
    [
        *("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"),
        *("HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"),
    ],
)
def test_without_an_mpi_library_the_master_is_read_from_the_hostfile(tmp_path: Path, name: str) -> None:
    (tmp_path / "hosts").write_text(HOSTFILE)
    (tmp_path / "other").write_text("elsewhere")
    env = {name: str(tmp_path / "hosts")}
    expected = ("job-worker-0.job.default.svc", DEFAULT_PORT)
    assert find(env, mpi=False, hostfile=str(tmp_path / "other")) == expected
    assert find(env, rank=0, mpi=False, host="job-worker-0") == expected


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("job-worker-0:2\njob-worker-1:2\n", "job-worker-0"),
        ("10.1.2.3 slots=1", "10.1.2.3"),
        ("fd00::7 slots=1", "fd00::7"),
        ("  # none\n\n  job-worker-0 max_slots=3 # first\n", "job-worker-0"),
    ],
)
def test_the_hostfile_of_each_mpi_is_understood(tmp_path: Path, text: str, host: str) -> None:
    (tmp_path / "hostfile").write_text(text)
    found = find({}, rank=0, mpi=False, hostfile=str(tmp_path / "hostfile"), host="job-worker-0")
    assert found == (host, DEFAULT_PORT)


def test_rank_0_refuses_a_hostfile_that_begins_with_another_host(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text(HOSTFILE)
    with pytest.raises(InvalidArguments, match=r"Rank 0 is on job-launcher, but .* begins with job-worker-0"):
        find({}, rank=0, mpi=False, hostfile=str(tmp_path / "hostfile"), host="job-launcher")


@pytest.mark.parametrize("text", [None, "", "# nothing\n", b"\xff\xfe"])
def test_an_unknown_master_address_raises_an_error_with_a_hint(
    tmp_path: Path, text: str | bytes | None
) -> None:
    file = tmp_path / "hostfile"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidArguments, match=r"The address of rank 0 is unknown.*-x MASTER_ADDR=HOST"):
        find({}, mpi=False, hostfile=str(file))


def test_a_host_has_an_address_of_its_own() -> None:
    assert own_address()


MEET = """
import os
from trainer.master import find_master
from trainer.ranks import Ranks
address = find_master(Ranks.from_env(), os.environ, lambda: None)
os.write(1, f"{' '.join(map(str, address))}\\n".encode())  # in one piece: another rank writes there too
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_ranks_of_mpich_know_each_other_by_the_process_that_started_them(tmp_path: Path) -> None:
    proxy = tmp_path / "hydra_pmi_proxy"
    proxy.write_text('#!/bin/sh\n"$@" & PMI_RANK=0 MPI_LOCALRANKID=0 sh -c \'"$@"; true\' sh "$@"; wait\n')
    proxy.chmod(0o755)
    command = [str(proxy), sys.executable, "-P", "-c", MEET]
    env = os.environ | HYDRA | {"PYTHONPATH": str(ROOT)}
    jobs = [
        subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(3)
    ]
    met = [job.communicate()[0].splitlines() for job in jobs]
    for lines in met:
        assert len(lines) == 2 and len(set(lines)) == 1, lines
        assert lines[0].startswith("127.0.0.1 2")
    assert len({lines[0] for lines in met}) > 1


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
def test_all_ranks_get_the_same_master_address_and_exit_freely_afterwards() -> None:
    ran = mpirun("-np", "3", sys.executable, "-P", "-c", ASK)
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line.startswith("met at")]
    assert len(lines) == 3
    assert len(set(lines)) == 1
    ran = mpirun("-np", "2", sys.executable, "-P", "-c", f"{ASK}; sys.exit(3)")
    assert ran.returncode == 3, ran.stderr


@NEEDS_MPI
@pytest.mark.slow
def test_a_rank_that_never_takes_part_causes_a_timeout() -> None:
    waits = (
        "import os; from trainer.mpi_address import request_mpi; from trainer.messages import TrainingError\n"
        "try:\n    request_mpi(os.environ, 1)\nexcept TrainingError as error:\n    print(error)"
    )
    ran = mpirun("-np", "1", sys.executable, "-P", "-c", waits, ":", "-np", "1", "sleep", "4")
    assert (
        "Could not get the address of rank 0 from MPI. Not all ranks took part within 1 s." in ran.stdout
    ), ran.stderr


def test_a_failed_mpi_request_reports_the_reason() -> None:
    with pytest.raises(
        TrainingError, match=r"Could not get the address of rank 0 from MPI\. OMPI.*RANK is 'x'"
    ):
        request_mpi({**os.environ, "OMPI_COMM_WORLD_RANK": "x", "PYTHONPATH": str(ROOT)}, 60)
