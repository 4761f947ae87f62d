"""Address and port of rank 0 under mpirun: MASTER_ADDR and MASTER_PORT, or what rank 0 broadcasts by MPI.

torchrun and the PyTorchJob operator set both variables; mpirun does not give ranks on other hosts the name of
the first one. The MPI library runs in a process of its own, because it may end the process at will and leaves
signal handlers and threads behind.
"""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path

from trainer.messages import TrainingError
from trainer.ranks import Ranks
from trainer.signals import LAUNCHER_PID_VARIABLE, stop_when_launcher_dies

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
            [sys.executable, "-P", "-m", "trainer.mpi_address"],
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
