"""Ranks from torchrun, an operator or MPI, where those of mpirun meet, and the device of each."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.trainer.jobs import open_mpi_env
from trainer.messages import InvalidArguments, TrainingError
from trainer.ranks import Ranks, find_master, job_name, own_address, request_mpi

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
def test_the_job_name_comes_from_the_name_of_the_pod(env: dict[str, str], name: str) -> None:
    assert job_name(env) == name


BROADCAST = ("10.0.0.7", 40123)


@pytest.mark.parametrize(
    ("env", "local_size", "expected"),
    [
        ({"MASTER_ADDR": "a"}, 2, ("a", BROADCAST[1])),
        ({"MASTER_PORT": "1"}, 2, ("10.0.0.7", 1)),
        ({"MASTER_ADDR": "", "MASTER_PORT": ""}, 2, BROADCAST),
        ({}, 2, BROADCAST),
        ({}, 4, ("127.0.0.1", BROADCAST[1])),
        ({"MASTER_ADDR": "a"}, 4, ("a", BROADCAST[1])),
    ],
)
def test_the_master_address_comes_from_the_environment_before_mpi(
    env: dict[str, str], local_size: int, expected: tuple[str, int]
) -> None:
    ranks = Ranks.from_env(open_mpi_env(1, 4, local_size) | env)
    assert find_master(ranks, env, lambda: BROADCAST) == expected


def test_mpi_is_not_requested_where_both_variables_are_set() -> None:
    ranks = Ranks.from_env(open_mpi_env(1, 4) | MEETING)
    assert find_master(ranks, MEETING, lambda: pytest.fail("requested")) == ("job-master-0", 23456)


def test_a_host_has_an_address_of_its_own() -> None:
    assert own_address()


MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
NEEDS_MPI = pytest.mark.skipif(MPIRUN is None, reason="needs mpirun, of Open MPI or MPICH")
ASK = (
    "import os, sys; from trainer.ranks import request_mpi; "
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
    ran = mpirun("-np", "2", sys.executable, "-P", "-c", ASK)
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line.startswith("met at")]
    assert len(lines) == 2
    assert len(set(lines)) == 1
    ran = mpirun("-np", "2", sys.executable, "-P", "-c", f"{ASK}; sys.exit(3)")
    assert ran.returncode == 3, ran.stderr


@NEEDS_MPI
def test_a_rank_that_never_takes_part_causes_a_timeout() -> None:
    waits = (
        "import os; from trainer.ranks import request_mpi; from trainer.messages import TrainingError\n"
        "try:\n    request_mpi(os.environ, 1)\nexcept TrainingError as error:\n    print(error)"
    )
    ran = mpirun("-np", "1", sys.executable, "-P", "-c", waits, ":", "-np", "1", "sleep", "4")
    assert (
        "Could not get the address of rank 0 from MPI. Not all ranks took part within 1 s." in ran.stdout
    ), ran.stderr


def test_a_failed_mpi_request_reports_the_reason(tmp_path: Path) -> None:
    none = {"PATH": "", "PYTHONPATH": str(ROOT), "OPAL_PREFIX": "", "LD_LIBRARY_PATH": str(tmp_path)}
    for env, reason in (
        (os.environ | {"OMPI_COMM_WORLD_RANK": "x", "PYTHONPATH": str(ROOT)}, r"OMPI.*RANK is 'x'"),
        (open_mpi_env(0, 2) | none, r"No MPI library was found that knows all ranks\. Set it: mpirun -x"),
    ):
        with pytest.raises(TrainingError, match=rf"Could not get the address of rank 0 from MPI\. {reason}"):
            request_mpi(env, 60)


torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

import torch.distributed as dist

from tests.trainer.jobs import free_port
from trainer.catalogue import find
from trainer.distributed.process_group import ProcessGroup
from trainer.distributed.runtime import choose_device
from trainer.messages import TooFewGpus
from trainer.signals import StopRequest
from trainer.train_ddp import run


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("backend", "words"), [("nccl", "NCCL needs GPUs, and this rank runs"), ("mpi", "built without MPI.")]
)
def test_an_unavailable_backend_is_rejected(backend: str, words: str, ranks: int) -> None:
    if backend == "mpi" and dist.is_mpi_available():
        pytest.skip("this torch was built with MPI")
    with pytest.raises(InvalidArguments, match=f"--backend {backend}: .*{words}"):
        ProcessGroup(Ranks(0, ranks, 0, ranks, "Open MPI"), torch.device("cpu"), 200, backend)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A torch that finds two GPUs, and notes which of them is taken."""
    taken: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    return taken


def test_each_process_uses_the_gpu_of_its_local_rank(two_gpus: list[Any]) -> None:
    for name in ("auto", "cuda"):
        assert choose_device(name, Ranks(3, 4, 1, 2, "torchrun")) == torch.device("cuda", 1)
    assert two_gpus == [torch.device("cuda", 1)] * 2
    assert choose_device("cpu", Ranks(3, 4, 1, 2, "torchrun")) == torch.device("cpu")


@pytest.mark.parametrize("local_rank", [0, 2])
def test_more_processes_than_gpus_exit_with_status_6(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], two_gpus: list[Any], local_rank: int
) -> None:
    ranks = {"RANK": local_rank, "WORLD_SIZE": 3, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": 3}
    meet = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    for name, value in (ranks | meet).items():
        monkeypatch.setenv(name, str(value))
    assert run(find("ddp").parser().parse_args([]), StopRequest()) == 6
    assert capsys.readouterr().err == (
        "error: The job has 3 processes here, but there are only 2 GPUs. Each needs one of its own."
        " Start as many processes as there are GPUs, or use --device cpu.\n"
    )
    assert two_gpus == []


def test_ranks_sharing_a_gpu_get_a_too_few_gpus_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **_more: object) -> None:
        raise dist.DistBackendError(
            "NCCL error in: NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details)\n"
            "Last error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
        )

    group = ProcessGroup(Ranks(0, 2, 0, 1, "the environment"), torch.device("cpu"), 200)
    monkeypatch.setattr(group, "_wait_for_all", dist.HashStore)  # type: ignore[attr-defined]
    monkeypatch.setattr(dist, "init_process_group", refuse)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", free_port())
    with pytest.raises(TooFewGpus, match=r"(?s)same GPU.*both on CUDA device 60.*or use --device cpu"):
        group.init()


def test_ranks_with_mixed_devices_fail_with_the_same_error_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", free_port())
    said: dict[int, TrainingError] = {}

    def join(rank: int, device: str) -> None:
        try:
            ProcessGroup(Ranks(rank, 2, 0, 1, "the environment"), torch.device(device), 200).init()
        except TrainingError as error:
            said[rank] = error

    ranks = [threading.Thread(target=join, args=each) for each in enumerate(("cpu", "cuda"))]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    assert {type(each) for each in said.values()} == {TooFewGpus}
    assert str(said[0]) == str(said[1])
    assert str(said[0]).startswith("Rank 1 computes on a GPU, but rank 0 has none.")
