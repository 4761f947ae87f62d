"""The four jobs of the guide with GPU topology, in a sandbox with simulated links: run, deleted, compared."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from k8s import sandbox
from k8s.client.client import Client
from k8s.jobs.create import delete_job
from k8s.kinds import JobRef
from k8s.models.resources import JOBS, PODS
from tests.k8s.sandbox.live.running import comes
from tests.support.guide_runs import GUIDE
from tui.feeds.cluster_feed import ClusterFeed
from tui.feeds.run_feed import NodesAndPods, read_run, record_runs
from tui.runs.compare import Comparison, fit
from tui.runs.store import RunStore

SCRIPT = """for i in 0 1 2; do echo "Iter #$i: $RATE img/sec per GPU"; done
echo "Total img/sec on 4 GPU(s): $TOTAL +-2.5"; sleep 600"""


def job(name: str, gpus: int, pods: int, model: str = "", rate: float = 0.0) -> dict[str, object]:
    """Return a Job whose pods print what Horovod's benchmark prints, and go on."""
    env = {"RATE": f"{rate / 4:.1f}", "TOTAL": f"{rate:.1f}"}
    container = {
        "name": "c",
        "image": "uber/horovod",
        "command": ["sh", "-c", SCRIPT, "benchmark.py", f"--model={model}", "--batch-size=64"],
        "env": [{"name": key, "value": text} for key, text in env.items()],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"completions": pods, "parallelism": pods, "template": template},
    }


async def test_the_jobs_of_the_guide_are_compared_after_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    address = await sandbox.start(sandbox.SandboxOptions(nodes=1, links="dgx-1v"))
    store = RunStore(tmp_path / "state")
    try:
        async with await Client.connect(str(address.kubeconfig)) as client:

            async def start(name: str, *what: object) -> None:
                await client.create(JOBS, job(name, *what), "default")  # type: ignore[arg-type]
                await comes(client, JOBS, name, lambda found: found.get("status", {}).get("ready"))

            async def delete(name: str) -> None:
                await delete_job(client, JobRef("default", name, "Job", "batch/v1"))
                while await client.list(PODS, "default", label_selector=f"job-name={name}"):
                    await asyncio.sleep(0.03)

            for name, model, _, _, rate in GUIDE:
                held = [] if "topo" in name else [f"hold-{number}" for number in range(4)]
                for each in held:
                    await start(each, 2, 1)
                for each in held[::2]:  # free GPUs on both CPU sockets
                    await delete(each)
                await start(name, 1, 4, model, rate)
                feed = ClusterFeed(client, "default")
                snapshot = await feed.read_once()
                found = next(each for each in snapshot.jobs if each.ref.name == name)
                place = NodesAndPods(snapshot.nodes, feed.pods)
                while (await read_run(client, found, place)).throughput is None:
                    await asyncio.sleep(0)
                await record_runs(client, [found], store, place)
                for each in (name, *held[1::2]):
                    await delete(each)
    finally:
        assert await sandbox.stop()
    comparison = Comparison(RunStore(tmp_path / "state").records(), now_s=0, sort_by="-throughput")
    fields, rows, _ = fit(comparison, 140)
    assert [row[0] for row in rows] == [name for name, *_ in sorted(GUIDE, key=lambda each: -each[-1])]
    columns = {field.key: [row[at] for row in rows] for at, field in enumerate(fields)}
    assert columns["throughput"] == ["1252", "822", "820", "481"]
    assert columns["model"] == ["resnet50", "resnet50", "vgg16", "vgg16"]
    assert [text.partition(" ")[0] for text in columns["link"]] == ["NV1", "SYS", "NV1", "SYS"]
    assert [len(bar) for bar in columns["bar"]] == sorted(map(len, columns["bar"]), reverse=True)
