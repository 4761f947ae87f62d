"""torch in a pod: its stores listen on loopback, and the rendezvous that unpickles is refused."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.sandbox.node.torch_loopback import (
    C10D_REFUSED,
    NCCL_REPLACED,
    OPEN_RENDEZVOUS,
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
def test_c10d_is_refused_with_a_sentence_unless_allowed(env: dict[str, str], tmp_path: Path) -> None:
    words = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}")
    refused = torchrun(env, tmp_path, *words)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1] == C10D_REFUSED
    allowed = torchrun({**env, OPEN_RENDEZVOUS: "1"}, tmp_path, *words)
    assert (allowed.returncode, allowed.stdout) == (0, "sum 2\nsum 2\n"), allowed.stderr


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
