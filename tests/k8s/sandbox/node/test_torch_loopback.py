"""torch in a pod: its stores listen on loopback, and the rendezvous that unpickles meets at a file."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.sandbox.node.torch_loopback import NCCL_REPLACED, RENDEZVOUS_HOST, SIMULATED_GPUS, write_plugin
from tests.support.torch_forks import Fork
from tests.trainer.jobs import free_port

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
def env(tmp_path: Path, imported_torch: None) -> dict[str, str]:
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


def test_a_tcp_store_listens_on_loopback_only_and_reports_a_port_in_use(env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = LISTENING + (
            "from torch.distributed import TCPStore\n"
            "how = dict(wait_for_workers=False, multi_tenant=True)\n"
            f"for host in ('127.0.0.1', 'localhost', {socket.gethostname()!r}):\n"
            "    store = TCPStore(host, 0, None, True, **how)\n"
            "    same = TCPStore(store.host, store.port, is_master=True, **how)\n"
            "    other = TCPStore(host, store.port, is_master=False)\n"
            "    other.set('a', host)\n"
            "    print(set(listening()), same.get('a') == host.encode())\n"
            f"TCPStore('localhost', {port}, 1, True)\n"
        )
        done = Fork(program, env)
        said, error = done.communicate()
    assert said == f"{{'{LOOPBACK}'}} True\n" * 3, error
    assert done.returncode == 1 and "EADDRINUSE" in error


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:{port}"),
        ("--master-addr", "localhost", "--master-port", "{port}"),
    ],
    ids=["c10d", "static"],
)
def test_agents_of_torchrun_meet_at_a_file(
    env: dict[str, str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [each.format(port=port) for each in words]
        done = run(
            env | {"GPUCONSOLE_SANDBOX": str(tmp_path)},
            *("-m", "torch.distributed.run", "--nproc-per-node", "2", *command, str(tmp_path / "ranks.py")),
        )
    assert (done.returncode, done.stdout) == (0, "sum 2\nsum 2\n"), done.stderr


def rank_of(env: dict[str, str], code: str, rank: int) -> Fork:
    """Start one of two ranks of a job in a sandbox, as an operator does."""
    return Fork(code, env | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"})


TWICE = """
import sys, torch, torch.distributed as dist
for _ in range(2):
    dist.init_process_group("gloo")
    found = [None, None]
    dist.all_gather_object(found, dist.get_rank())
    dist.destroy_process_group()
print(found, flush=True)
"""


def test_static_ranks_rendezvous_at_a_file_repeatedly_and_in_any_start_order(
    env: dict[str, str], tmp_path: Path
) -> None:
    port = free_port()
    env |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "GPUCONSOLE_SANDBOX": str(tmp_path)}
    with socket.create_server(("127.0.0.1", int(port))):  # nothing needs it
        for _ in range(2):  # what the first job left is not taken for the second one's
            ranks = [rank_of(env, TWICE, rank) for rank in (1, 0)]
            assert [rank.communicate()[0] for rank in ranks] == ["[0, 1]\n"] * 2
    assert (tmp_path / "stores").stat().st_mode & 0o777 == 0o700
    (link,) = (tmp_path / "stores").glob("*-1")
    assert link.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def meeting(env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The variables of a rank whose job meets at a port of its own."""
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "GPUCONSOLE_SANDBOX": str(tmp_path)}
    return env | own


def test_a_static_rendezvous_held_by_a_running_process_raises_address_in_use(meeting: dict[str, str]) -> None:
    open_it = "import sys, torch.distributed as d; d.init_process_group('gloo', rank=0, world_size=1);"
    holding = f"{open_it} print('held', flush=True); sys.stdin.read()"
    holder = rank_of(meeting, holding, 0)
    assert holder.stdout.readline() == "held\n"
    assert "EADDRINUSE" in rank_of(meeting, holding, 0).communicate()[1]
    holder.communicate()
    assert "held\n" in rank_of(meeting, holding, 0).communicate()


def test_a_rank_whose_rank_0_is_killed_while_they_meet_fails_at_once(meeting: dict[str, str]) -> None:
    code = (
        "import torch.distributed as d; from torch.distributed.rendezvous import rendezvous\n"
        "store = next(rendezvous('env://'))[0]; store.set('first', 'x'); store.get('first')\n"
        "print('met', flush=True); store.get('never')"
    )
    ranks = [rank_of(meeting, code, rank) for rank in (0, 1)]
    for rank in ranks:
        assert rank.stdout.readline() == "met\n"
    ranks[0].kill()
    assert "symbolic links" in ranks[1].communicate()[1]
    assert ranks[1].returncode == 1
    ranks[0].communicate()


def test_a_rank_reports_that_rank_0_never_opened_the_rendezvous(meeting: dict[str, str]) -> None:
    code = (
        "import datetime, torch.distributed as d\n"
        "d.init_process_group('gloo', timeout=datetime.timedelta(seconds=0.2))"
    )
    waiting = rank_of(meeting, code, 1)
    assert "Rank 0 has not opened the rendezvous" in waiting.communicate()[1]
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
        elif line.startswith("type"):
            print(type(store).__name__, flush=True)
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
        self._process = Fork(RENDEZVOUS, env | own)

    def ask(self, line: str) -> str:
        """Have it do something with the rendezvous' state; return what comes of it."""
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_pods_meet_at_the_file_of_the_pod_that_the_endpoint_names_for_as_long_as_it_is_there(
    env: dict[str, str], tmp_path: Path
) -> None:
    def agent(number: int) -> Agent:
        return Agent(env, tmp_path / "sandbox", f"el-worker-{number}")

    later, host = agents = [agent(1), agent(0)]
    assert host.ask("type") == "FileStore"
    assert host.ask("set") == "True"
    assert later.ask("get") == "b'set\\n'", "though it began before the host did"
    link = tmp_path / "sandbox" / "pods" / "uid-el-worker-0" / "rendezvous"
    assert link.stat().st_mode & 0o777 == 0o600
    host.end()
    assert later.ask("get") == "el-worker-0, which had the rendezvous, is gone."
    agents[1] = again = agent(0)
    assert again.ask("set") == "True", "nothing of the first is left"
    assert later.ask("get") == "el-worker-0, which had the rendezvous, is gone.", "it is another one"
    agents.append(new := agent(2))
    assert new.ask("get") == "b'set\\n'"
    for each in agents:
        each.end()


def test_gloo_works_in_nccls_place_where_gpus_are_simulated(meeting: dict[str, str]) -> None:
    other = 'dist.get_backend(dist.new_group(backend="nccl"))'
    code = RANKS.replace('"gloo")', f'"nccl"); print(dist.get_backend(), {other}, flush=True)')
    ranks = [rank_of(meeting | {SIMULATED_GPUS: "0,1"}, code, rank) for rank in (0, 1)]
    said, errors = zip(*(rank.communicate() for rank in ranks), strict=True)
    assert said == ("gloo gloo\nsum 2\n",) * 2, errors
    assert "".join(errors).count(NCCL_REPLACED) == 1


def test_nccl_stays_where_no_gpus_are_simulated(meeting: dict[str, str]) -> None:
    alone = Fork(RANKS.replace("gloo", "nccl"), meeting | {"RANK": "0", "WORLD_SIZE": "1"})
    _, error = alone.communicate()
    assert alone.returncode == 1
    assert NCCL_REPLACED not in error


def test_torchvision_is_imported_though_it_was_built_for_cuda(env: dict[str, str]) -> None:
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    said, error = Fork("from torchvision import datasets, transforms; print('works')", env).communicate()
    assert said == "works\n", error
