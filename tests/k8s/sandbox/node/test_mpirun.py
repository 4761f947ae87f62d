"""Programs of the pods: mpirun and ssh, the stand-in for git-sync, and one that keeps others on loopback."""

from __future__ import annotations

import base64
import ipaddress
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from k8s.sandbox.node import programs
from k8s.sandbox.node.programs import PROGRAMS, mpirun, tensorboard_program
from k8s.sandbox.node.programs.mpirun import adapt, open_mpi_environment, open_mpi_release, with_mounts
from k8s.sandbox.node.programs.on_loopback import on_loopback
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


pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git: apt-get install git")
_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def git(at: Path, *words: str) -> str:
    """Run git in a folder as a named user; return its output."""
    name = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *name, *words], cwd=at, env=os.environ | _ALONE, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(repository: Path, text: str) -> str:
    """Commit a file that says `text`; return the commit."""
    (repository / "said.txt").write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", text)
    return git(repository, "rev-parse", "HEAD")


def make_repository(at: Path) -> Path:
    at.mkdir()
    git(at, "init", "-q", "-b", "main")
    commit(at, "first")
    return at


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "net")


def sync(root: Path, repo: str, *, words: Iterable[str] = (), **variables: str) -> tuple[int, str]:
    """Run git-sync once; return its exit status and what it says."""
    env = {"PATH": os.environ["PATH"], "HOME": str(root.parent), "TMPDIR": str(root.parent), **_ALONE}
    env |= {"GIT_SYNC_REPO": repo, "GIT_SYNC_ROOT": str(root), "GIT_SYNC_ONE_TIME": "true"}
    env |= {"GIT_SYNC_BRANCH": "main", **variables}
    done = subprocess.run(
        [*PROGRAMS["git-sync"], *words], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr


def test_a_login_in_the_repository_url_is_not_logged(tmp_path: Path) -> None:
    status, said = sync(tmp_path / "code", "https://li:s3cr3t@127.0.0.1:1/team/code.git")
    assert status == 1 and "git clone of https://127.0.0.1:1/team/code.git" in said
    assert "s3cr3t" not in said


def test_a_branch_is_fetched_and_a_second_sync_gets_its_new_commits(repository: Path, tmp_path: Path) -> None:
    root = tmp_path / "code"
    assert sync(root, f"file://{repository}") == (
        0,
        f"file://{repository}: main is at {git(repository, 'rev-parse', 'HEAD')}\n",
    )
    link = root / "net"
    assert (link / "said.txt").read_text() == "first"
    assert link.readlink() == Path(git(repository, "rev-parse", "HEAD")), "also where it is mounted elsewhere"
    second = commit(repository, "second")
    assert sync(root, f"file://{repository}")[0] == 0
    assert (link / "said.txt").read_text() == "second"
    assert git(link, "rev-parse", "HEAD") == second
    assert len([each for each in root.iterdir() if each.name not in (".git", "net")]) == 1, "no old commit"
    assert sync(root, f"file://{repository}") == (0, ""), "nothing is new"


def test_a_commit_or_a_tag_is_taken_though_the_branch_went_on(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "v1")
    commit(repository, "second")
    for index, rev in enumerate((first, first[:9], "v1")):
        root = tmp_path / f"code-{index}"
        assert sync(root, str(repository), GIT_SYNC_REV=rev, GIT_SYNC_DEST="here")[0] == 0
        assert (root / "here" / "said.txt").read_text() == "first"


def test_submodules_come_along_unless_they_are_off(repository: Path, tmp_path: Path) -> None:
    part = make_repository(tmp_path / "part")
    git(repository, "submodule", "--quiet", "add", f"file://{part}", "part")
    git(repository, "commit", "-qm", "part")
    allowed = {"GIT_ALLOW_PROTOCOL": "file"}
    assert sync(tmp_path / "a", str(repository), **allowed)[0] == 0
    assert (tmp_path / "a" / "net" / "part" / "said.txt").read_text() == "first"
    assert sync(tmp_path / "b", str(repository), GIT_SYNC_SUBMODULES="off", **allowed)[0] == 0
    assert not (tmp_path / "b" / "net" / "part" / "said.txt").exists()
    status, why = sync(tmp_path / "c", str(repository))
    assert status == 1 and "transport 'file' not allowed" in why


@pytest.mark.parametrize("sandbox", ["", "elsewhere", "code"])
def test_a_folder_of_this_machine_is_never_emptied(repository: Path, tmp_path: Path, sandbox: str) -> None:
    root = tmp_path / "code"
    root.mkdir()
    (root / "thesis.tex").write_text("years")
    variables = {"GPUCONSOLE_SANDBOX": str(tmp_path / sandbox)} if sandbox else {}
    status, said = sync(root, str(repository), **variables)
    assert status == 1
    assert f"git-sync empties {root} before it clones" in said
    assert [each.name for each in root.iterdir()] == ["thesis.tex"]


def test_a_link_that_led_to_another_folder_leaves_it_as_it_is(repository: Path, tmp_path: Path) -> None:
    root = tmp_path / "code"
    assert sync(root, str(repository))[0] == 0
    mine = make_repository(tmp_path / "mine")
    (root / "net").unlink()
    (root / "net").symlink_to(mine)
    assert sync(root, str(repository))[0] == 0
    assert (mine / "said.txt").read_text() == "first"


def test_a_half_finished_earlier_sync_is_replaced(repository: Path, tmp_path: Path) -> None:
    root = tmp_path / "code"
    (root / ".git").mkdir(parents=True)
    (root / "junk").write_text("")
    (root / "net").symlink_to("nowhere")
    assert sync(root, str(repository), GPUCONSOLE_SANDBOX=str(tmp_path))[0] == 0
    assert (root / "net" / "said.txt").read_text() == "first"
    assert not (root / "junk").exists()


@pytest.mark.parametrize(
    ("variables", "words", "why"),
    [
        ({"GIT_SYNC_BRANCH": "nope"}, (), "Remote branch nope not found in upstream origin"),
        ({"GIT_SYNC_BRANCH": ""}, (), "Without a branch git-sync takes master: name another one"),
        ({"GIT_SYNC_REV": "0123456789abcdef0123456789abcdef01234567"}, (), "git rev-parse of"),
        ({"GIT_SYNC_REPO": "/no/such/place"}, (), "repository '/no/such/place' does not exist"),
        ({"GIT_SYNC_REPO": ""}, (), "which repository?"),
        ({"GIT_SYNC_REPO": "fd::17"}, (), "Such a URL can run programs"),
        ({"GIT_SYNC_REPO": "ext::sh -c touch% /tmp/x"}, (), "Such a URL can run programs"),
        ({}, ("--exechook-command=true",), "reads variables only, not --exechook-command"),
        ({"GIT_SYNC_SSH": "true", "GIT_SSH_KEY_FILE": "/no/key"}, (), "No such file or directory: '/no/key'"),
        ({"PATH": "/nowhere"}, (), "Install git (apt-get install git)"),
    ],
)
def test_errors_are_in_the_log_and_the_termination_message(
    repository: Path, tmp_path: Path, variables: dict[str, str], words: tuple[str, ...], why: str
) -> None:
    last = tmp_path / "last"
    given = {"GIT_SYNC_REPO": str(repository), **variables, "GPUCONSOLE_TERMINATION_LOG": str(last)}
    status, said = sync(tmp_path / "code", given.pop("GIT_SYNC_REPO"), words=words, **given)
    assert status == 1
    assert why in said
    assert said == f"git-sync: {last.read_text()}\n"


class _Private(SimpleHTTPRequestHandler):
    """HTTP server of files behind a password."""

    def do_GET(self) -> None:
        wanted = base64.b64encode(b"li:s3cret").decode()
        if self.headers.get("Authorization") != f"Basic {wanted}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder to those who know the password; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Private, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_private_repository_requires_a_login(repository: Path, tmp_path: Path) -> None:
    git(repository, "update-server-info")
    with serving(tmp_path) as address:
        fetch = partial(sync, repo=f"{address}/net/.git", GIT_SYNC_DEST="net")
        wrong = fetch(tmp_path / "a", GIT_SYNC_USERNAME="li", GIT_SYNC_PASSWORD="other")
        alone = fetch(tmp_path / "b")
        right = fetch(tmp_path / "c", GIT_SYNC_USERNAME="li", GIT_SYNC_PASSWORD="s3cret")
    assert wrong[0] == 1 and "Authentication failed" in wrong[1] and "other" not in wrong[1]
    assert alone[0] == 1 and "Authentication failed" in alone[1]
    assert right[0] == 0, right
    assert (tmp_path / "c" / "net" / "said.txt").read_text() == "first"


PROGRAM = (sys.executable, "-I", "-S", str(Path(programs.__file__).with_name("on_loopback.py")))
LISTEN = """
import socket, sys, threading
def listen(family, address, **options):
    made = socket.socket(family)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, options["alone"])
    made.bind((address, 0))
    made.listen()
    return made
def show():
    first = listen(socket.AF_INET, "0.0.0.0")
    print(first.getsockname()[0])
    print(listen(socket.AF_INET6, "::", alone=1).getsockname()[0])
    both = listen(socket.AF_INET6, "::", alone=0)
    print(both.getsockname()[0])
    for port in (first.getsockname()[1], both.getsockname()[1]):
        print(socket.create_connection((sys.argv[1], port)).getpeername()[0])
for each in (show, lambda: threading.Thread(target=show).start()):
    each()
"""


def own_address() -> str:
    """Return an address of this machine besides loopback; loopback where it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.255", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def run_on_loopback(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, words[0], *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_wildcard_listener_is_bound_to_loopback_and_reached_by_the_machines_address() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    done = run_on_loopback(sys.executable, "-c", LISTEN, own_address())
    if "listens on all addresses" in done.stderr:
        pytest.skip("this kernel has no way")
    assert done.stdout.split() == ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.0.0.1", "127.0.0.1"] * 2, done


@pytest.mark.parametrize(
    ("asked", "gets"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.9", "127.0.0.9"),
        ("0.0.0.0", "127.0.0.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("::1", "::1"),
        ("::", "::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ("::ffff:0.0.0.0", "::ffff:127.0.0.1"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
    ],
)
def test_only_wildcard_addresses_are_replaced_by_loopback(asked: str, gets: str) -> None:
    assert read_back(on_loopback(socket_address(asked))) == ipaddress.ip_address(gets)


def test_an_address_of_this_machine_is_loopback_in_either_family() -> None:
    own = own_address()
    assert read_back(on_loopback(socket_address(own))) == ipaddress.ip_address("127.0.0.1")
    mapped = ipaddress.ip_address("::ffff:127.0.0.1")
    assert read_back(on_loopback(socket_address(f"::ffff:{own}"))) == mapped


def socket_address(address: str) -> bytes:
    """Return a `sockaddr_in` or `sockaddr_in6` with port 80."""
    packed = ipaddress.ip_address(address).packed
    if len(packed) == 4:
        return struct.pack("=H", socket.AF_INET) + struct.pack("!H", 80) + packed + bytes(8)
    return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", 80, 0) + packed + bytes(4)


def read_back(address: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    assert address[2:4] == struct.pack("!H", 80)
    return ipaddress.ip_address(address[4:8] if len(address) == 16 else address[8:24])


def test_nested_loopback_wrappers_keep_a_socket_on_loopback() -> None:
    done = run_on_loopback(
        *PROGRAM,
        sys.executable,
        sys.executable,
        "-c",
        "import socket; s = socket.create_server(('', 0)); print(s)",
    )
    assert done.stderr == "" or "listens on all addresses" in done.stderr
    assert "laddr=('127.0.0.1'" in done.stdout or done.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -9 $$"), 137),
        (("no-such-program",), 127),
        (("true",), 0),
    ],
)
def test_the_loopback_wrapper_exits_with_the_status_of_its_program(
    words: tuple[str, ...], status: int
) -> None:
    assert run_on_loopback(*words).returncode == status


def test_a_signal_is_handled_by_the_wrapped_program() -> None:
    line = "trap 'echo asked; exit 5' TERM; echo begun; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        [*PROGRAM, "sh", "sh", "-c", line], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"begun\n"
        # As the shim does: to everybody below it.
        os.killpg(process.pid, signal.SIGTERM)
        assert said.readline() == b"asked\n"
    assert process.wait(30) == 5
