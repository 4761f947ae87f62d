"""Runs a command in another pod, as ssh or `kubectl exec` would: the pods' `ssh` and `kubexec`.

mpirun starts its daemons with it, so that the ranks are processes of the worker pods: they have those
pods' environment and volumes, end with them, and end when the launcher goes. The container's shim starts
the command, with the input, output and errors of this process for its own.

Started as `python -I -S remote_shell.py ssh|kubexec [OPTIONS] HOST COMMAND...`; needs only the standard
library. GPUCONSOLE_HOSTS names a folder with a link, by the name of each running pod, to its container's
folder; GPUCONSOLE_MPI_LAUNCH, where mpirun asks, a folder for notes of how the hosts' daemons ended. Other
hosts than pods are left to the machine's own ssh.
"""

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

EXEC_SOCKET = "exec.sock"
WAIT_S, _TURN_S = 30.0, 0.1
"""How long mpirun's hosts are waited for: an operator makes the launcher and the workers at once."""
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"
"""ssh's options that are followed by a value. Source: ssh(1)."""
_SHELL = ("/bin/sh", "-c")
_ON_LOOPBACK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_loopback.py")
"""What keeps MPI's daemons and ranks from listening on other addresses."""
_FAILED = 255
"""How ssh exits when it could not run the command."""
_PRELUDE = (
    '[ "$OMPI_MCA_btl" = ^tcp ] && unset OMPI_MCA_btl; '
    'export OMPI_MCA_btl_sm_backing_directory="${TMPDIR:-/tmp}" '
    'MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}" MASTER_PORT="${MASTER_PORT:-$GPUCONSOLE_JOB_PORT}"; '
)
"""What ranks find: MPI's way from pod to pod, where to meet, and a folder of their pod's for the memory that
ranks of one host share, as to MPI all pods are one host."""


def main(program: str, *words: str) -> int:
    """Run the command; return its exit status."""
    host, command = split(words)
    if not host:
        return _fail(f"usage: {program} HOST COMMAND...")
    notes = os.environ.get("GPUCONSOLE_MPI_LAUNCH", "")
    folder = os.path.join(os.environ.get("GPUCONSOLE_HOSTS", ""), host.partition(".")[0])
    connection = connect(folder, WAIT_S if notes else 0.0)
    if connection is None:
        real = shutil.which("ssh", path=_path_without_ours())
        if real is not None and program == "ssh" and not notes and not os.path.lexists(folder):
            os.execv(real, ["ssh", *words])
        return _fail(f"{program}: {host} is not a running pod of this namespace")
    if notes:
        note(notes, "")
    shell = (sys.executable, "-I", "-S", _ON_LOOPBACK, *_SHELL) if notes else _SHELL
    try:
        status = run(connection, shell, (_PRELUDE if notes else "") + command)
    except (OSError, ValueError) as error:
        return _fail(f"{program}: {host}: {error}")
    if notes:
        note(notes, str(status))
    return status


def note(folder: str, end: str) -> None:
    """Leave a note for mpirun's starter, if it still looks: how the command ended, empty while it runs."""
    fresh = f"{folder}.{os.getpid()}"
    with suppress(OSError):
        with open(fresh, "w") as file:
            file.write(end)
        os.replace(fresh, os.path.join(folder, str(os.getpid())))


def split(words: Sequence[str]) -> tuple[str, str]:
    """Return the host and the shell's line behind ssh's options."""
    left = list(words)
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if len(option) == 2 and option[1] in _WITH_VALUE and left:
            left.pop(0)
    host = left.pop(0).rpartition("@")[2] if left else ""
    return host, " ".join(left)


def connect(folder: str, within_s: float) -> socket.socket | None:
    """Return a connection to the shim of the container in a folder, once there is one; else None."""
    deadline = time.monotonic() + within_s
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            # By way of the folder: the path itself may be too long for a socket's address.
            at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
            try:
                connection.connect(f"/proc/self/fd/{at}/{EXEC_SOCKET}")
            finally:
                os.close(at)
            return connection
        except OSError:
            connection.close()
        if time.monotonic() >= deadline:
            return None
        time.sleep(_TURN_S)


def run(connection: socket.socket, shell: Sequence[str], line: str) -> int:
    """Have a container's shim run a shell's line; return its exit status, as a shell counts a signal.

    Raises:
        OSError, ValueError: The shim is gone or does not start it.
    """
    request = json.dumps({"argv": [*shell, line], "terminal": False}).encode() + b"\n"
    sent = socket.send_fds(connection, [request], [0, 1, 2])
    connection.sendall(request[sent:])
    # From here on the command alone holds them, so that whoever reads its output sees it end.
    for descriptor in (0, 1):
        os.close(descriptor)
    with connection.makefile("rb") as reports:
        started = json.loads(reports.readline() or b'{"error": "its container has ended"}')
        if "error" in started:
            raise OSError(started["error"])
        status = int(json.loads(reports.readline() or b'{"status": -9}')["status"])
    return status if status >= 0 else 128 - status


def _path_without_ours() -> str:
    """Return the PATH without the folder of the pods' programs."""
    ours = os.path.join(os.environ.get("GPUCONSOLE_SANDBOX", ""), "bin")
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(each for each in folders if each != ours)


def _fail(words: str) -> int:
    sys.stderr.write(f"{words}\n")
    return _FAILED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
