"""Address and port of rank 0, if mpirun started the ranks.

In this order:

1. MASTER_ADDR and MASTER_PORT (`--master-addr`, `--master-port`).
2. If all ranks are on this machine: 127.0.0.1, and a port derived from the name that mpirun gave the job, or
   from the process that started all of them, as MPICH's Hydra gives a job no name.
3. MPI itself: rank 0 broadcasts its address and a free port (see `mpi_address`).
4. The first host of the hostfile of the MPI operator or the user, if ranks have it.

torchrun and the PyTorchJob operator always set both variables.
"""

import os
import re
import socket
import zlib
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path

from trainer.messages import InvalidArguments
from trainer.ranks import Ranks

# torchrun's own.
DEFAULT_PORT = 29500

# Mount path of the hostfile in the launcher pod of the MPI operator.
HOSTFILE = "/etc/mpi/hostfile"

_HOSTFILE_VARIABLES = (
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
    "I_MPI_HYDRA_HOST_FILE",
    "HYDRA_HOST_FILE",
)
# The same in all ranks of an mpirun, and different for the next one.
_JOB_VARIABLES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri")
# Fields of /proc/PID/stat between the parent and the start time.
_START_AFTER_PARENT = 17


def find_master(
    ranks: Ranks,
    env: Mapping[str, str],
    request_mpi: Callable[[], tuple[str, int] | None],
    *,
    hostfile: str = HOSTFILE,
    hostname: str = "",
) -> tuple[str, int]:
    """Return address and port of the rendezvous; every rank must call this, in a job of more than one.

    `request_mpi` returns the broadcast of rank 0, or None if there is no MPI library. `hostfile` is read if
    no variable names one.
    """
    address, port = env.get("MASTER_ADDR", ""), int(env.get("MASTER_PORT") or 0)
    if not address and ranks.local_world_size == ranks.world_size:
        port = port or _port_of_job(env) or _port_of(_hydra_proxy())
        if not port and (answer := request_mpi()):
            port = answer[1]
        if not port:
            raise InvalidArguments(
                "Could not choose a port for this job that another job on this machine does not use too.",
                "The launcher gives the job no name, and no MPI library was found.",
                "Set MASTER_PORT to a free port, another for each job: MASTER_PORT=29501 mpirun ...",
            )
        return "127.0.0.1", port
    if address and not port:
        port = _port_of_job(env)
    if (not address or not port) and (answer := request_mpi()):
        return address or answer[0], port or answer[1]
    if not address:
        files = [env[name] for name in _HOSTFILE_VARIABLES if env.get(name)]
        address = _first_host([*files, hostfile], ranks, hostname or socket.gethostname())
    return address, port or _port_of_job(env) or DEFAULT_PORT


def _port_of_job(env: Mapping[str, str]) -> int:
    return _port_of(next((env[name] for name in _JOB_VARIABLES if env.get(name)), ""))


def _port_of(name: str) -> int:
    """Return a port below the ephemeral range, so that two jobs rarely share one; 0 for an empty name."""
    return 20_000 + zlib.crc32(name.encode()) % 10_000 if name else 0


def _hydra_proxy() -> str:
    """Return pid and start time of the Hydra process that started all ranks here; "" if there is none.

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
            host = re.sub(r"^([^:]+):\d+$", r"\1", hosts[0])  # MPICH writes slots behind it: `job-worker-0:2`
            is_other = host.partition(".")[0] != hostname.partition(".")[0]
            if ranks.is_first and is_other and not _is_address(host):
                raise InvalidArguments(
                    f"Rank 0 is on {hostname}, but {file} begins with {host}.",
                    "The other ranks would look for it there.",
                    f"Set it: mpirun -x MASTER_ADDR={hostname}.",
                )
            return host
    raise InvalidArguments(
        "The address of rank 0 is unknown.",
        "MASTER_ADDR is not set, and neither an MPI library nor a hostfile was found.",
        "Start with mpirun -x MASTER_ADDR=HOST, the host of rank 0.",
    )


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
