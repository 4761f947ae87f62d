"""Rank of this process in the job, from the variables of any launcher, and the address of rank 0.

mpirun does not give ranks on other hosts the name of the first one, so rank 0 broadcasts MASTER_ADDR and
MASTER_PORT by MPI. The library runs in a process of its own, `python -m trainer.ranks`: it may end the
process at will, and leaves signal handlers and threads behind.

Sources: torchrun's "Environment Variables" page; the PyTorchJob operator (RANK, WORLD_SIZE, MASTER_*, where
RANK counts pods); Open MPI's OMPI_COMM_WORLD_*; the PMI_* and MPI_* variables of MPICH and Intel MPI.
"""

import contextlib
import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from trainer.messages import InvalidArguments, TrainingError
from trainer.signals import LAUNCHER_PID_VARIABLE, stop_when_launcher_dies

_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("Open MPI", *(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),
    ("Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("the environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)

# These launchers do not give the address of the rendezvous: see `find_master`.
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


# Open MPI 3 to 5; MPICH and Intel MPI; either.
_LIBRARIES = ("libmpi.so.40", "libmpi.so.12", "libmpi.so")
# Source: the MPICH ABI Compatibility Initiative's mpi.h.
_MPICH_COMM_WORLD, _MPICH_BYTE = 0x44000000, 0x4C00010D
_LONGEST_ADDRESS = 256
# Exit status of the child process if no MPI library knows all ranks.
_NO_LIBRARY = 3


def find_master(
    ranks: Ranks, env: Mapping[str, str], request: Callable[[], tuple[str, int]]
) -> tuple[str, int]:
    """Return address and port of the rendezvous, on every rank; `request` is `request_mpi`, if needed."""
    address, port = env.get("MASTER_ADDR", ""), int(env.get("MASTER_PORT") or 0)
    if address and port:
        return address, port
    broadcast = request()
    if not address and ranks.local_world_size == ranks.world_size:
        address = "127.0.0.1"
    return address or broadcast[0], port or broadcast[1]


def request_mpi(env: Mapping[str, str], wait_s: int) -> tuple[str, int]:
    """Return the address of rank 0 and a port that was free there; waits `wait_s` seconds for all ranks."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "trainer.ranks"],
            env={**env, LAUNCHER_PID_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=wait_s,
            close_fds=False,  # MPICH's library speaks with its launcher through one
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(f"Not all ranks took part within {wait_s} s") from error
    if done.returncode == _NO_LIBRARY:
        raise _failed("No MPI library was found that knows all ranks")
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip(" -")]
        raise _failed(lines[0].removesuffix(".") if lines else f"It ended with status {done.returncode}")
    address, port = done.stdout.split()[-2:]
    return address, int(port)


def _failed(why: str) -> TrainingError:
    why, now = f"{why}.", "Set it: mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT."
    return TrainingError("Could not get the address of rank 0 from MPI.", why, now)


def own_address() -> str:
    """Return the address of this host for others: that of its name, else that of its default route."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        addresses = [str(address[0]).partition("%")[0] for *_, address in found]
    except OSError:
        addresses = []
    for address in addresses:
        if not (ip_address(address).is_loopback or ip_address(address).is_link_local):
            return address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as no_packet_is_sent, contextlib.suppress(OSError):
        no_packet_is_sent.connect(("192.0.2.1", 9))
        return str(no_packet_is_sent.getsockname()[0])
    return "127.0.0.1"


def _load(env: Mapping[str, str]) -> ctypes.CDLL | None:
    """Load the MPI library, that of the launcher if there are several; None if there is none."""
    folders = [Path(env["OMPI_LIBDIR_LOC"])] if env.get("OMPI_LIBDIR_LOC") else []
    folders += [Path(env[name], "lib") for name in ("OPAL_PREFIX", "I_MPI_ROOT") if env.get(name)]
    mpirun = shutil.which("mpirun")
    if mpirun:
        folders += [each.parents[1] / "lib" for each in (Path(mpirun), Path(mpirun).resolve())]
    beside = [folder / name for folder in folders for name in _LIBRARIES]
    for path in (*(str(each) for each in beside if each.exists()), *_LIBRARIES):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return None


def _handles(library: ctypes.CDLL) -> tuple[ctypes.c_void_p | ctypes.c_int, ctypes.c_void_p | ctypes.c_int]:
    """Return MPI_COMM_WORLD and MPI_BYTE: objects in Open MPI's library, numbers in the others'."""
    try:
        world, byte = (ctypes.c_char.in_dll(library, f"ompi_mpi_{name}") for name in ("comm_world", "byte"))
    except ValueError:
        return ctypes.c_int(_MPICH_COMM_WORLD), ctypes.c_int(_MPICH_BYTE)
    return ctypes.c_void_p(ctypes.addressof(world)), ctypes.c_void_p(ctypes.addressof(byte))


def main(world_size: int) -> int:
    """Broadcast, print address and port, and return the exit status."""
    library = _load(os.environ)
    if library is None:
        return _NO_LIBRARY
    world, byte = _handles(library)
    rank, size = ctypes.c_int(), ctypes.c_int()
    text = ctypes.create_string_buffer(_LONGEST_ADDRESS)
    library.MPI_Init(None, None)
    library.MPI_Comm_rank(world, ctypes.byref(rank))
    library.MPI_Comm_size(world, ctypes.byref(size))
    if rank.value == 0:
        with socket.create_server(("", 0)) as free:
            text.value = f"{own_address()} {free.getsockname()[1]}".encode()
    library.MPI_Bcast(text, _LONGEST_ADDRESS, byte, 0, world)
    library.MPI_Finalize()
    if size.value != world_size:
        return _NO_LIBRARY  # another MPI's than the launcher's: to it, each process is alone
    print(text.value.decode())
    return 0


if __name__ == "__main__":
    stop_when_launcher_dies()
    try:
        sys.exit(main(Ranks.from_env().world_size))
    except TrainingError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_status)
