"""Command in another pod, as ssh or `kubectl exec` runs it: the pods' `ssh` and `kubexec`.

mpirun starts its daemons with it, so that ranks are processes of the worker pods: they have those pods'
environment and volumes, and end with them or with the launcher. The container's shim starts the command with
this process's standard streams.

Started as `python -I -S remote_shell.py ssh|kubexec [OPTIONS] HOST COMMAND...`; needs only the standard
library. GPUCONSOLE_HOSTS is a folder with a link to the container folder of each running pod, by name. Under
mpirun, GPUCONSOLE_MPI_LAUNCH is a folder for the exit statuses of the daemons. The machine's own ssh serves
hosts that are not pods.
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
# mpirun's hosts may not run yet: an operator creates the launcher and the workers at once.
WAIT_S, _POLL_S = 30.0, 0.1
# Options of ssh that are followed by a value. Source: ssh(1).
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"
_SHELL = ("/bin/sh", "-c")
_ON_LOOPBACK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_loopback.py")
# Exit status of ssh if it could not run the command.
_FAILED = 255
# Lets ranks connect across pods, tells them where to meet, and gives each pod its own folder for the shared
# memory of one host's ranks, since to MPI all pods are one host.
_PRELUDE = (
    '[ "$OMPI_MCA_btl" = ^tcp ] && unset OMPI_MCA_btl; '
    'export OMPI_MCA_btl_sm_backing_directory="${TMPDIR:-/tmp}" '
    'MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}" MASTER_PORT="${MASTER_PORT:-$GPUCONSOLE_JOB_PORT}"; '
)


def main(program: str, *arguments: str) -> int:
    """Run the command; return its exit status."""
    host, command = split(arguments)
    if not host:
        return _fail(f"usage: {program} HOST COMMAND...")
    notes = os.environ.get("GPUCONSOLE_MPI_LAUNCH", "")
    folder = os.path.join(os.environ.get("GPUCONSOLE_HOSTS", ""), host.partition(".")[0])
    connection = connect(folder, WAIT_S if notes else 0.0)
    if connection is None:
        real = shutil.which("ssh", path=_path_without_ours())
        if real is not None and program == "ssh" and not notes and not os.path.lexists(folder):
            os.execv(real, ["ssh", *arguments])
        return _fail(f"{program}: {host} is not a running pod of this namespace")
    if notes:
        record_exit(notes, "")
    shell = (sys.executable, "-I", "-S", _ON_LOOPBACK, _SHELL[0], *_SHELL) if notes else _SHELL
    try:
        status = run(connection, shell, (_PRELUDE if notes else "") + command)
    except (OSError, ValueError) as error:
        return _fail(f"{program}: {host}: {error}")
    if notes:
        record_exit(notes, str(status))
    return status


def record_exit(folder: str, end: str) -> None:
    """Record a daemon's exit status for the mpirun wrapper; empty while it runs."""
    fresh = f"{folder}.{os.getpid()}"
    with suppress(OSError):
        with open(fresh, "w") as file:
            file.write(end)
        os.replace(fresh, os.path.join(folder, str(os.getpid())))


def split(arguments: Sequence[str]) -> tuple[str, str]:
    """Return the host and the shell command that follow ssh's options."""
    left = list(arguments)
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if len(option) == 2 and option[1] in _WITH_VALUE and left:
            left.pop(0)
    host = left.pop(0).rpartition("@")[2] if left else ""
    return host, " ".join(left)


def connect(folder: str, within_s: float) -> socket.socket | None:
    """Connect to the shim of the container in a folder; None if there is none within `within_s`."""
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
        time.sleep(_POLL_S)


def run(connection: socket.socket, shell: Sequence[str], line: str) -> int:
    """Run a shell command under a container's shim; return its exit status, 128 + N for signal N.

    Raises:
        OSError, ValueError: The shim is gone or cannot start the command.
    """
    request = json.dumps({"argv": [*shell, line], "terminal": False}).encode() + b"\n"
    sent = socket.send_fds(connection, [request], [0, 1, 2])
    connection.sendall(request[sent:])
    # From here on the command alone holds them, so that readers of its output see it end.
    for descriptor in (0, 1):
        os.close(descriptor)
    with connection.makefile("rb") as reports:
        started = json.loads(reports.readline() or b'{"error": "its container has ended"}')
        if "error" in started:
            raise OSError(started["error"])
        status = int(json.loads(reports.readline() or b'{"status": -9}')["status"])
    return status if status >= 0 else 128 - status


def _path_without_ours() -> str:
    ours = os.path.join(os.environ.get("GPUCONSOLE_SANDBOX", ""), "bin")
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(each for each in folders if each != ours)


def _fail(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return _FAILED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
