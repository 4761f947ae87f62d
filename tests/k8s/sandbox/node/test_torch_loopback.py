"""torch in a pod: its stores listen on loopback, and the rendezvous that unpickles meets at a file."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.sandbox.node.torch_loopback import (
    NCCL_REPLACED,
    OPEN_RENDEZVOUS,
    RENDEZVOUS_HOST,
    SIMULATED_GPUS,
    write_plugin,
)

pytest.importorskip("torch")

LISTENING = """
import os, pathlib
def listening():
    inodes = set()
    for each in os.listdir("/proc/self/fd"):
        try:
            inodes.add(os.readlink(f"/proc/self/fd/{each}"))
        except OSError:
            pass
    found = []
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.append(fields[1].partition(":")[0])
    return found
"""
LOOPBACK = "0100007F"
RANKS = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
os.write(1, b"sum %d\\n" % int(total))  # whole, beside another rank's
dist.destroy_process_group()
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The variables of a pod whose Python finds the plug-in."""
    write_plugin(tmp_path / "python")
    usual = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    return {
        **usual,
        "PYTHONPATH": str(tmp_path / "python"),
        "PET_LOCAL_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


def run(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=120, check=False
    )


def torchrun(env: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "ranks.py").write_text(RANKS)
    script = str(folder / "ranks.py")
    return run(env, "-m", "torch.distributed.run", "--nproc-per-node", "2", *words, script)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", socket.gethostname()])
def test_a_store_listens_on_loopback_only(env: dict[str, str], host: str) -> None:
    program = LISTENING + (
        "from torch.distributed import TCPStore\n"
        f"store = TCPStore({host!r}, 0, None, True, wait_for_workers=False, multi_tenant=True)\n"
        "same = TCPStore(store.host, store.port, is_master=True, wait_for_workers=False, multi_tenant=True)\n"
        f"other = TCPStore({host!r}, store.port, is_master=False)\n"
        "other.set('a', 'b')\n"
        "print(listening(), same.get('a'))\n"
    )
    done = run(env, "-c", program)
    assert done.stdout == f"['{LOOPBACK}'] b'b'\n", done.stderr


def test_a_taken_port_is_said_to_be_taken(env: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        program = f"import torch.distributed as d; d.TCPStore('localhost', {taken.getsockname()[1]}, 1, True)"
        done = run(env, "-c", program)
    assert done.returncode == 1
    assert "EADDRINUSE" in done.stderr


@pytest.mark.slow
def test_torchrun_alone_in_its_pod_works(env: dict[str, str], tmp_path: Path) -> None:
    done = torchrun(env, tmp_path, "--standalone")
    assert (done.returncode, done.stdout) == (0, "sum 2\nsum 2\n"), done.stderr


@pytest.mark.slow
def test_c10d_meets_at_a_file_unless_an_open_store_is_allowed(env: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    words = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}")
    with socket.create_server(("127.0.0.1", port)):
        kept = torchrun(env, tmp_path, *words)
        assert (kept.returncode, kept.stdout) == (0, "sum 2\nsum 2\n"), kept.stderr
    allowed = torchrun({**env, OPEN_RENDEZVOUS: "1"}, tmp_path, *words)
    assert (allowed.returncode, allowed.stdout) == (0, "sum 2\nsum 2\n"), allowed.stderr


def rank_of(env: dict[str, str], script: Path, rank: int, **more: str) -> subprocess.Popen[str]:
    """Start one of two ranks of a job in a sandbox, as an operator does."""
    own = {"RANK": str(rank), "WORLD_SIZE": "2", "GPUCONSOLE_SANDBOX": str(script.parent), **more}
    words = [sys.executable, str(script)]
    return subprocess.Popen(
        words, env=env | own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


TWICE = """
import sys, torch, torch.distributed as dist
for _ in range(2):
    dist.init_process_group("gloo")
    found = [None, None]
    dist.all_gather_object(found, dist.get_rank())
    dist.destroy_process_group()
print(found, flush=True)
"""


@pytest.mark.slow
def test_static_ranks_meet_at_a_file_also_a_second_time_and_in_whatever_order_they_start(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    port = free_port()
    env |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    with socket.create_server(("127.0.0.1", port)):  # nothing needs it
        for _ in range(2):  # what the first job left is not taken for the second one's
            ranks = [rank_of(env, tmp_path / "twice.py", rank) for rank in (1, 0)]
            assert [rank.communicate(timeout=100)[0] for rank in ranks] == ["[0, 1]\n"] * 2
    assert (tmp_path / "stores").stat().st_mode & 0o777 == 0o700
    (link,) = (tmp_path / "stores").glob("*-1")
    assert link.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_agents_of_torchrun_meet_at_a_file(env: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    env |= {"GPUCONSOLE_SANDBOX": str(tmp_path)}
    with socket.create_server(("127.0.0.1", port)):
        done = torchrun(env, tmp_path, "--master-addr", "localhost", "--master-port", str(port))
    assert (done.returncode, done.stdout) == (0, "sum 2\nsum 2\n"), done.stderr


def test_a_static_rendezvous_of_another_living_process_is_said_to_be_taken(
    env: dict[str, str], tmp_path: Path
) -> None:
    open_it = "import sys, torch.distributed as d; d.init_process_group('gloo', rank=0, world_size=1);"
    (tmp_path / "holder.py").write_text(f"{open_it} print('held', flush=True); sys.stdin.read()")
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    holder = rank_of(env, tmp_path / "holder.py", 0)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    done = rank_of(env, tmp_path / "holder.py", 0).communicate(timeout=100)
    assert "EADDRINUSE" in done[1]
    holder.communicate()
    assert "held\n" in rank_of(env, tmp_path / "holder.py", 0).communicate(timeout=100)


@pytest.mark.slow
def test_a_rank_whose_rank_0_is_killed_while_they_meet_fails_at_once(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "met.py").write_text(
        "import torch.distributed as d; from torch.distributed.rendezvous import rendezvous\n"
        "store = next(rendezvous('env://'))[0]; store.set('first', 'x'); store.get('first')\n"
        "print('met', flush=True); store.get('never')"
    )
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [rank_of(env, tmp_path / "met.py", rank) for rank in (0, 1)]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "met\n"
    ranks[0].kill()
    assert "symbolic links" in ranks[1].communicate(timeout=60)[1]
    assert ranks[1].returncode == 1
    ranks[0].communicate()


def test_a_rank_whose_rank_0_never_comes_says_so(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(
        "import datetime, torch.distributed as d\n"
        "d.init_process_group('gloo', timeout=datetime.timedelta(seconds=0.2))"
    )
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    waiting = rank_of(env, tmp_path / "alone.py", 1)
    assert "Rank 0 has not opened the rendezvous" in waiting.communicate(timeout=100)[1]
    assert waiting.returncode == 1


RENDEZVOUS = """
import sys, torch
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend as c10d
parameters = RendezvousParameters("c10d", "127.0.0.1:20001", "run", 1, 3)
backend, store = c10d.create_backend(parameters)
for line in sys.stdin:
    try:
        if line.startswith("set"):
            print(backend.set_state(line.encode())[2], flush=True)
        else:
            print(backend.get_state()[0], flush=True)
    except RendezvousConnectionError as error:
        print(error, flush=True)
"""


class Agent:
    """A torchrun in a pod, observed by its output; its pod is found by name after `publish`."""

    def __init__(self, env: dict[str, str], sandbox: Path, name: str) -> None:
        container = sandbox / "pods" / f"uid-{name}" / "pytorch"
        container.mkdir(parents=True, exist_ok=True)
        (sandbox / "hosts").mkdir(exist_ok=True)
        link = sandbox / "hosts" / name
        link.unlink(missing_ok=True)
        link.symlink_to(container)
        own = {"HOSTNAME": name, "GPUCONSOLE_POD_UID": f"uid-{name}", RENDEZVOUS_HOST: "el-worker-0"}
        own |= {"GPUCONSOLE_SANDBOX": str(sandbox), "GPUCONSOLE_HOSTS": str(sandbox / "hosts")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RENDEZVOUS],
            env=env | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, line: str) -> str:
        """Have it do something with the rendezvous' state; return what comes of it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


def test_pods_meet_at_the_file_of_the_pod_that_the_endpoint_names_for_as_long_as_it_is_there(
    env: dict[str, str], tmp_path: Path
) -> None:
    agents = [Agent(env, tmp_path / "sandbox", f"el-worker-{index}") for index in (1, 0)]
    try:
        later, host = agents
        assert host.ask("set") == "True"
        assert later.ask("get") == "b'set\\n'", "though it began before the host did"
        assert (
            oct((tmp_path / "sandbox" / "pods" / "uid-el-worker-0" / "rendezvous").stat().st_mode)[-3:]
            == "600"
        )
        host.end()
        assert later.ask("get") == "el-worker-0, which had the rendezvous, is gone."
        agents.append(again := Agent(env, tmp_path / "sandbox", "el-worker-0"))
        assert again.ask("set") == "True", "nothing of the first is left"
        assert later.ask("get") == "el-worker-0, which had the rendezvous, is gone.", "it is another one"
        agents.append(new := Agent(env, tmp_path / "sandbox", "el-worker-2"))
        assert new.ask("get") == "b'set\\n'"
    finally:
        for each in agents:
            each.end()


@pytest.mark.parametrize("simulated", ["0,1", ""])
def test_gloo_works_in_nccls_place_where_gpus_are_simulated(
    env: dict[str, str], tmp_path: Path, simulated: str
) -> None:
    if simulated:
        env[SIMULATED_GPUS] = simulated
    (tmp_path / "ranks.py").write_text(
        RANKS.replace(
            '"gloo")',
            '"nccl"); other = dist.get_backend(dist.new_group(backend="nccl"))'
            '; print(f"{dist.get_backend()} {other}\\n", end="")',
        )
    )
    port = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", *port, str(tmp_path / "ranks.py")]
    done = run(env, *words)
    if simulated:
        assert (done.returncode, done.stdout.count("gloo gloo"), done.stdout.count("sum 2")) == (0, 2, 2), (
            done.stderr
        )
        assert done.stderr.count(NCCL_REPLACED) == 1
    else:
        assert done.returncode != 0
        assert NCCL_REPLACED not in done.stderr


@pytest.mark.parametrize("first", ["import torch", "import torchvision"])
def test_torchvision_is_imported_whatever_comes_first(env: dict[str, str], first: str) -> None:
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    done = run(env, "-c", f"{first}; from torchvision import datasets, transforms; print('works')")
    assert done.stdout == "works\n", done.stderr
