"""A rank of a torchrun job raises: rows, commands and documents name it and its exception."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from k8s.client.client import Client
from k8s.models.resources import Resource
from k8s.sandbox import SandboxAddress
from tests import ROOT
from tests.k8s.sandbox.live.running import comes, has

SCRIPT = """
import os, time
rank = int(os.environ["RANK"])
print(f"rank {rank} starts", flush=True)
if rank == 2:
    raise ValueError("bad shard 7")
time.sleep(60)
"""
JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
# torchrun imports torch, on cores that other tests use, too.
PATIENCE_S = 60.0


async def gpuconsole(running: SandboxAddress, *words: str) -> str:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tui", "--kubeconfig", str(running.kubeconfig), *words),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err
    return out.decode()


async def test_the_rank_that_raised_is_named_with_its_exception(
    running: SandboxAddress, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    await gpuconsole(
        running,
        *("submit", "pytorch", "--name", "shards", "--image", "x", "--nproc-per-node", "4"),
        f"torchrun {tmp_path}/train.py",
    )
    await comes(client, JOBS, "shards", has("Failed"), within_s=PATIENCE_S)
    rows = msgspec.json.decode(await gpuconsole(running, "list", "-o", "json"))["items"]
    assert next(each["reason"] for each in rows if each["name"] == "shards") == (
        "rank 2 exit 1: ValueError: bad shard 7"
    )
    failure = msgspec.json.decode(await gpuconsole(running, "get", "shards", "-o", "json"))["failure"]
    assert (failure["rank"], failure["instance"]) == (2, "master-0")
    assert failure["error"] == "ValueError: bad shard 7"
    assert any("train.py" in line for line in failure["traceback"])
    assert any("3 ranks" in each for each in failure["others"])
    for command in ("why", "diagnose"):
        text = await gpuconsole(running, command, "shards")
        assert text.startswith("Failed: rank 2 exit 1 first, ")
        assert ": ValueError: bad shard 7.\n" in text
        assert f"gpuconsole --kubeconfig {running.kubeconfig} logs shards -r 2" in text
    lines = (await gpuconsole(running, "logs", "shards", "-r", "2")).splitlines()
    assert lines[0] == "[rank2]: rank 2 starts"
    assert all(line.startswith("[rank2]: ") for line in lines)
