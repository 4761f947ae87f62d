"""Where the ranks of a job meet when mpirun or srun started them: the address of rank 0, and a port there.

In this order:

1. MASTER_ADDR and MASTER_PORT (`--master-addr`, `--master-port`).
2. All ranks are on this machine: 127.0.0.1, and a port made of the name that mpirun gave the job, or of
   the process that started all of them: MPICH's Hydra gives a job no name.
3. MPI itself: rank 0 broadcasts its address and a port that is free there (see `mpi_address`).
4. The first host of the hostfile that the MPI operator or the user named, where ranks have it.

Under Slurm: MASTER_ADDR and MASTER_PORT, else the first node of the job step and a port made of its number.

torchrun and the PyTorchJob operator always give both variables.
"""

import os
import re
import socket
import zlib
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path

from trainer import slurm
from trainer.messages import InvalidArguments
from trainer.ranks import Ranks

DEFAULT_PORT = 29500
"""torchrun's own."""

HOSTFILE = "/etc/mpi/hostfile"
"""Where the MPI operator mounts the hostfile of a job, in the pod of its launcher."""

_HOSTFILE_VARIABLES = (
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
    "I_MPI_HYDRA_HOST_FILE",
    "HYDRA_HOST_FILE",
)
_JOB_VARIABLES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri")
"""What is the same in all ranks of an mpirun, and another in the next."""
_START_AFTER_PARENT = 17
"""Fields between a process's parent and when it was started."""


def find_master(
    ranks: Ranks,
    env: Mapping[str, str],
    ask_mpi: Callable[[], tuple[str, int] | None],
    *,
    hostfile: str = HOSTFILE,
    hostname: str = "",
) -> tuple[str, int]:
    """Return the address and the port at which the ranks meet; every rank must ask.

    Args:
        ranks: Who asks, of a job of more than one.
        env: The environment of this process.
        ask_mpi: Returns what rank 0 broadcast; None if there is no MPI library.
        hostfile: Looked at when no variable names one.
        hostname: Of this machine.

    Raises:
        InvalidArguments: Nothing says where rank 0 is, or it is not where the hostfile begins; or nothing
            tells this job from another on this machine.
        TrainingError: MPI failed.
    """
    address, port = env.get("MASTER_ADDR", ""), int(env.get("MASTER_PORT") or 0)
    if ranks.launcher == "Slurm":
        return _at_slurm(env, address, port)
    if not address and ranks.local_world_size == ranks.world_size:
        port = port or _port_of_job(env) or _port_of(_hydra_proxy())
        if not port and (answer := ask_mpi()):
            port = answer[1]
        if not port:
            raise InvalidArguments(
                "Nothing tells where the ranks of this job meet from where another's on this machine do.",
                "The launcher gives the job no name, and no MPI library was found that could be asked.",
                "Set MASTER_PORT to a free port, another for each job: MASTER_PORT=29501 mpirun ...",
            )
        return "127.0.0.1", port
    if address and not port:
        port = _port_of_job(env)
    if (not address or not port) and (answer := ask_mpi()):
        return address or answer[0], port or answer[1]
    if not address:
        files = [env[name] for name in _HOSTFILE_VARIABLES if env.get(name)]
        address = _first_host([*files, hostfile], ranks, hostname or socket.gethostname())
    return address, port or _port_of_job(env) or DEFAULT_PORT


def _at_slurm(env: Mapping[str, str], address: str, port: int) -> tuple[str, int]:
    address = address or slurm.first_host(env)
    if not address:
        raise InvalidArguments(
            "Nothing says where rank 0 is.",
            "Neither MASTER_ADDR nor SLURM_STEP_NODELIST is set.",
            "Export MASTER_ADDR, the first node of the job, before srun.",
        )
    return address, port or slurm.port_of_step(env)


def _port_of_job(env: Mapping[str, str]) -> int:
    return _port_of(next((env[name] for name in _JOB_VARIABLES if env.get(name)), ""))


def _port_of(name: str) -> int:
    """Return a port below those that the system hands out, so that two jobs at once rarely share one.

    0 where the job has no name.
    """
    return 20_000 + zlib.crc32(name.encode()) % 10_000 if name else 0


def _hydra_proxy() -> str:
    """Name the process of MPICH's that started all ranks of this machine: its pid and start; "" for none.

    Source: proc_pid_stat(5).
    """
    pid = os.getppid()
    while pid > 1:
        try:
            _, name, fields = re.split(r"\((.*)\)", Path(f"/proc/{pid}/stat").read_text(), flags=re.DOTALL)
        except (OSError, ValueError):
            return ""
        _, parent, *others = fields.split()
        if name.startswith("hydra"):
            return f"{pid} since {others[_START_AFTER_PARENT]}"
        pid = int(parent)
    return ""


def _first_host(files: list[str], ranks: Ranks, hostname: str) -> str:
    for file in files:
        try:
            lines = Path(file).read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        hosts = [words[0] for line in lines if (words := line.partition("#")[0].split())]
        if hosts:
            host = _without_slots(hosts[0])
            if ranks.is_first and not _is_address(host) and host.split(".")[0] != hostname.split(".")[0]:
                raise InvalidArguments(
                    f"Rank 0 is on {hostname}, but {file} begins with {host}.",
                    "The other ranks would look for it there.",
                    f"Say where it is: mpirun -x MASTER_ADDR={hostname}.",
                )
            return host
    raise InvalidArguments(
        "Nothing says where rank 0 is.",
        "MASTER_ADDR is not set, no MPI library was found that could be asked, nor a hostfile.",
        "Start with mpirun -x MASTER_ADDR=HOST, the host of rank 0.",
    )


def _without_slots(host: str) -> str:
    """Cut what MPICH writes behind a host: `job-worker-0:2`."""
    name, colon, slots = host.rpartition(":")
    return name if colon and slots.isdecimal() and ":" not in name else host


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
