"""Rank of this process in the job, from the variables of any launcher.

Sources: torchrun's "Environment Variables" page; the PyTorchJob operator (RANK, WORLD_SIZE, MASTER_*, where
RANK counts pods); Open MPI's OMPI_COMM_WORLD_*; the PMI_* and MPI_* variables of MPICH and Intel MPI.
"""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.messages import InvalidArguments

_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("Open MPI", *(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),
    ("Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("the environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)

# These launchers do not give the address of the rendezvous; `trainer.mpi_address` finds it.
MPI_LAUNCHERS = ("Open MPI", "MPICH")

_PYTORCH_JOB_POD = re.compile(r"(.+)-(?:master|worker)-\d+")


def job_name(env: Mapping[str, str] | None = None) -> str:
    """Return the name of this pod's job, from the pod's name; "" if there is none.

    A pod's host has its name: <job>-master-0 of a PyTorchJob, <job>-3 or <job>-3-x7k2p of an Indexed Job.
    """
    env = os.environ if env is None else env
    pod = env.get("HOSTNAME") or socket.gethostname()
    index = env.get("JOB_COMPLETION_INDEX", "")
    pattern = re.compile(rf"(.+)-{re.escape(index)}(?:-[a-z0-9]{{5}})?") if index else _PYTORCH_JOB_POD
    found = pattern.fullmatch(pod)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Rank and number of processes, in the job and on this node."""

    rank: int
    world_size: int
    local_rank: int  # on this machine or in this pod; selects the GPU
    local_world_size: int
    launcher: str  # "torchrun", "Open MPI", "MPICH", "the environment" or "alone"

    @property
    def is_first(self) -> bool:
        """True for rank 0, which logs and writes for all."""
        return self.rank == 0

    @property
    def is_first_here(self) -> bool:
        """True for one process per machine."""
        return self.local_rank == 0

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> "Ranks":
        """Read the ranks; mpirun inside a pod wins over the pod's own RANK, and torchrun over both."""
        env = os.environ if env is None else env
        for launcher, rank, size, local_rank, local_size in _LAUNCHERS:
            if (
                (rank not in env and size not in env)
                or (launcher == "torchrun" and "TORCHELASTIC_RUN_ID" not in env)
                or (launcher == "Hydra" and local_rank not in env)
            ):
                continue
            here, all_here = _number(env, local_rank, 0), _number(env, local_size, 1)
            name = "MPICH" if launcher == "Hydra" else launcher
            ranks = cls(_number(env, rank), _number(env, size), here, all_here, name)
            ranks._check(rank, size, local_rank, local_size)
            _check_master_address(env, ranks)
            return ranks
        tasks = env.get("SLURM_STEP_NUM_TASKS", "").strip()
        if tasks not in ("", "1"):  # as lone processes they would write each other's files
            raise InvalidArguments(
                f"srun started {tasks} tasks, but ranks are no longer read from Slurm.",
                now="Start torchrun once a node (srun --ntasks-per-node 1 torchrun ...), or use mpirun.",
            )
        return cls(0, 1, 0, 1, "alone")

    def _check(self, rank: str, size: str, local_rank: str, local_size: str) -> None:
        for name, value, size_name, limit in (
            (rank, self.rank, size, self.world_size),
            (local_rank, self.local_rank, local_size, self.local_world_size),
        ):
            if limit < 1:
                raise InvalidArguments(f"{size_name} is {limit}.", "A job has at least one process.")
            if not 0 <= value < limit:
                why, now = f"Ranks count from 0 to {limit - 1}.", "Check the job's environment."
                raise InvalidArguments(f"{name} is {value} but {size_name} is {limit}.", why, now)
        if self.local_world_size > self.world_size:
            raise InvalidArguments(
                f"{local_size} is {self.local_world_size} but {size} is only {self.world_size}.",
                now="Check the job's environment.",
            )


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name, "").strip()
    if not text and default is not None:
        return default
    if not text:
        why = "The rank and the number of processes must come together."
        now = "Start with torchrun or mpirun, or set both."
        raise InvalidArguments(f"{name} is not set.", why, now)
    try:
        return int(text)
    except ValueError:
        raise InvalidArguments(f"{name} is {text!r}, which is not a whole number.") from None


def _check_master_address(env: Mapping[str, str], ranks: Ranks) -> None:
    if ranks.world_size == 1:
        return
    _number(env, "MASTER_PORT", 0)
    if ranks.launcher in MPI_LAUNCHERS:
        return
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not env.get(name):
            raise InvalidArguments(
                f"{name} is not set, but the job has {ranks.world_size} processes.",
                "They meet at MASTER_ADDR:MASTER_PORT.",
                "Start with torchrun, or set both to an address of rank 0.",
            )
    each_pod = env.get("PET_NPROC_PER_NODE", "")
    is_bare = ranks.launcher == "the environment" and "LOCAL_RANK" not in env
    if is_bare and each_pod.isdigit() and int(each_pod) > 1:
        raise InvalidArguments(
            f"WORLD_SIZE counts {each_pod} processes a pod, but this pod started one.",
            "RANK is the number of the pod here; the job would wait for the missing ranks.",
            "Start the trainer with torchrun.",
        )
