"""Arguments of the pods' own mpirun and ssh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from k8s.sandbox.node.programs import mpirun, tensorboard_program
from k8s.sandbox.node.programs.mpirun import adapt, open_mpi_environment, open_mpi_release, with_mounts
from k8s.sandbox.node.programs.remote_shell import split
from k8s.sandbox.node.programs.tensorboard_program import NOT_INSTALLED

HOSTS = {"OMPI_MCA_orte_default_hostfile": "/v/hostfile", "GPUCONSOLE_JOB_PORT": "1234"}
GUIDE = (
    "--allow-run-as-root -np 4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 "
    "-x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "
    "--mca orte_keep_fqdn_hostnames t --mca btl ^openib python train.py --mca btl_tcp_if_include eth0 -x A"
)


def test_the_guides_command_is_taken_by_open_mpi_5() -> None:
    words, left_out = adapt(GUIDE.split(), 5, HOSTS)
    assert " ".join(words) == (
        "--wdir /proc/self/cwd --allow-run-as-root -np 4 --bind-to none --map-by slot -x NCCL_DEBUG=INFO "
        "-x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca orte_keep_fqdn_hostnames t --mca btl ^openib "
        "python train.py --mca btl_tcp_if_include eth0 -x A"
    )
    left = ("-x NCCL_SOCKET_IFNAME=eth0", "--mca btl_tcp_if_include eth0", "--mca oob_tcp_if_include eth0")
    assert left_out == list(left)


@pytest.mark.parametrize("is_installed", [True, False], ids=["installed", "packaged"])
def test_an_installed_mpirun_is_called_by_name_rather_than_by_path(
    tmp_path: Path, *, is_installed: bool
) -> None:
    shell = tmp_path / "mpirun"
    shell.symlink_to("/bin/sh")
    packaged = tmp_path / "packaged"
    packaged.symlink_to("/bin/sh")
    done = subprocess.run(
        [sys.executable, "-I", "-S", mpirun.__file__, "mpirun", str(packaged), "-c", "cat /proc/$$/cmdline"],
        env={"PATH": f"{tmp_path if is_installed else '/nowhere'}:/bin"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout.split(b"\0")[0] == (b"mpirun" if is_installed else bytes(packaged))


@pytest.mark.parametrize(
    ("words", "release", "begins"),
    [
        ("-np 2 ./a", 5, ["--output", "tag", "-np", "2", "./a"]),
        ("-np 2 ./a --output x", 5, ["--output", "tag", "-np"]),
        ("--tag-output -np 2 ./a", 5, ["--tag-output", "-np"]),
        ("--output rank ./a", 5, ["--output", "rank", "./a"]),
        ("-np 2 ./a", 4, ["-np", "2", "./a"]),
    ],
)
def test_lines_are_tagged_for_open_mpi_5_by_an_option_where_4_takes_a_variable(
    words: str, release: int, begins: list[str]
) -> None:
    tagged = {**HOSTS, "OMPI_MCA_orte_tag_output": "1"}
    adapted = adapt(words.split(), release, tagged)[0]
    assert adapted[: 2 + len(begins)] == ["--wdir", "/proc/self/cwd", *begins]


@pytest.mark.parametrize(
    ("words", "adapted"),
    [
        ("-np 2 -bind-to none ./a -b", "--wdir /proc/self/cwd -np 2 -bind-to none ./a -b"),
        ("-wdir /x -n 1 ./a", "-wdir /x -n 1 ./a"),
        ("-x MASTER_ADDR=job-worker-0 -x MASTER_PORT=29500 ./a",
         "--wdir /proc/self/cwd -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT=1234 ./a"),
        ("-x MASTER_PORT ./a", "--wdir /proc/self/cwd -x MASTER_PORT ./a"),
        ("-np 2 -- -odd", "--wdir /proc/self/cwd -np 2 -- -odd"),
        ("-np", "--wdir /proc/self/cwd -np"),
        ("-x", "--wdir /proc/self/cwd -x"),
        ("--mca", "--wdir /proc/self/cwd --mca"),
        ("", "--wdir /proc/self/cwd"),
    ],
)  # fmt: skip
def test_mpirun_4_arguments_are_kept_except_for_host_names_and_the_working_directory(
    words: str, adapted: str
) -> None:
    assert adapt(words.split(), 4, HOSTS) == (adapted.split(), [])


def test_open_mpi_5_has_the_operators_variables_by_its_own_names() -> None:
    own = {"OMPI_MCA_btl": "^tcp", "OMPI_MCA_plm_rsh_agent": "/v/kubexec.sh"}
    found = open_mpi_environment(HOSTS | own, 5)
    assert found["PRTE_MCA_prte_default_hostfile"] == "/v/hostfile"
    assert found["PRTE_MCA_plm_ssh_agent"] == "/v/kubexec.sh"
    assert "OMPI_MCA_btl" not in found
    assert open_mpi_environment(HOSTS, 5)["PRTE_MCA_plm_ssh_agent"] == "ssh"
    assert not [name for name in open_mpi_environment(HOSTS, 4) if name.startswith("PRTE")]


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to", 5),
        ("mpirun (Open MPI) 4.1.4\n", 4),
        ("HYDRA build details:\n    Version: 5.0.2", 0),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18", 0),
        ("", 0),
    ],
)
def test_the_release_of_open_mpi_is_read_from_its_version(version: str, release: int) -> None:
    assert open_mpi_release(version) == release


@pytest.mark.parametrize(
    ("words", "host", "line"),
    [
        ("job-worker-0 prted --x 1", "job-worker-0", "prted --x 1"),
        ("-x -o ConnectionAttempts=10 -l me worker-0.job.svc orted", "worker-0.job.svc", "orted"),
        ("me@job-worker-0 a;b", "job-worker-0", "a;b"),
        ("-q", "", ""),
        ("", "", ""),
    ],
)
def test_ssh_arguments_are_split_into_host_and_command_after_the_options(
    words: str, host: str, line: str
) -> None:
    assert split(words.split()) == (host, line)


def test_arguments_of_ranks_name_the_workers_volumes() -> None:
    mounts = {"/w": "/v/claim", "/w/deep": "/v/other"}
    words = ["-np", "2", "python", "a.py", "--log-dir=/w/logs", "/w/deep/x", "cd /w && ls", "/where", "x/w"]
    assert with_mounts(words, mounts) == [
        *("-np", "2", "python", "a.py", "--log-dir=/v/claim/logs", "/v/other/x", "cd /v/claim && ls"),
        *("/where", "x/w"),
    ]
    assert with_mounts(words, {}) == words


def run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = str(tensorboard_program.__file__)
    env = {"HOME": str(tmp_path), "GPUCONSOLE_SANDBOX": str(tmp_path), "GPUCONSOLE_POD_UID": "u"}
    command = [sys.executable, *words, program, "--host", "0.0.0.0"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_a_missing_tensorboard_package_fails_with_a_message(tmp_path: Path) -> None:
    done = run(tmp_path, "-I", "-S")
    assert (done.returncode, done.stderr) == (1, f"{NOT_INSTALLED}\n")


def test_a_missing_logdir_shows_the_error_of_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    done = run(tmp_path, "-P")
    assert done.returncode == 1
    assert "logdir" in done.stderr and "Traceback" not in done.stderr
