"""A machine with other users: what jobs in the sandbox open to them, and what they cannot reach."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from tests.k8s.sandbox.live.running import Space, has, listening_sockets, marked, pytorch_job
from tests.support import second_account

RANKS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", int(total), "port", os.environ["MASTER_PORT"], flush=True)
while not os.path.exists(os.environ["RELEASE"]):
    time.sleep(0.05)
dist.destroy_process_group()
"""
KNOCK = """
import socket, sys
for address, port in (word.split(":") for word in sys.argv[1:]):
    try:
        socket.create_connection((address, int(port)), timeout=5).close()
    except OSError as error:
        print(type(error).__name__)
    else:
        print("open")
"""


def own_address() -> str:
    """Return an address of this machine that others can reach; empty when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


@pytest.mark.slow
async def test_the_ranks_of_a_job_listen_on_loopback_only(space: Space, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    release = tmp_path / "release"
    (tmp_path / "ranks.py").write_text(RANKS)
    command = ("torchrun", str(tmp_path / "ranks.py"))
    job = pytorch_job("local", *command, env={"MARK": space.name, "RELEASE": str(release)})
    await space.create(PYTORCH_JOBS, job)
    try:
        await space.comes(PYTORCH_JOBS, "local", has("Running"))
        said = await space.says("local-master-0", "sum 2 port ")
        found = listening_sockets(marked(space.name))
        assert {str(address) for address, _ in found} == {"127.0.0.1"}
        outside = own_address()
        port = int(said.split("port ")[1].split()[0])
        assert port not in {number for _, number in found}, "they meet at a file"
        if os.geteuid() == 0:
            assert second_account.said(KNOCK, f"127.0.0.1:{port}").split() == ["ConnectionRefusedError"]
        if os.geteuid() == 0 and outside:
            words = [f"{outside}:{port}" for _, port in found]
            answers = second_account.said(KNOCK, *words).split()
            assert set(answers) == {"ConnectionRefusedError"}
    finally:
        release.touch()
    await space.comes(PYTORCH_JOBS, "local", has("Succeeded"))
