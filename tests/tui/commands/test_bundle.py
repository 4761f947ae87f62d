"""`bundle`: one private file with all readable data of a job, and none of its secrets."""

from __future__ import annotations

import asyncio
import json
import stat
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.scripted.server import Answer, ScriptedCluster, page, refusal
from tests.support.objects import Object, recorded
from tests.tui.commands.conftest import CommandLine
from tui.feeds.cluster_feed import ClusterFeed
from tui.files.support_bundle import make_bundle

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PODS_PATH = "/api/v1/namespaces/default/pods"
KEY = "wandb0123456789abcdef0123456789abcdef012"
AT = "2026-11-20T18:36:0"
TOKEN = "secret-token"
"""Token of the test's kubeconfig."""


def pods_of(name: str) -> list[Object]:
    return [
        pod for pod in recorded("pods") if pod["metadata"].get("labels", {}).get("pytorch-job-name") == name
    ]


def serve(cluster: ScriptedCluster, name: str) -> None:
    """Serve a job whose variables hold a secret, its pods, and a log that prints it."""
    job = next(each for each in recorded("pytorchjobs") if each["metadata"]["name"] == name)
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        container = role["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "WANDB_API_KEY", "value": KEY}]
    cluster.say(f"{JOBS}/{name}", Answer(job))
    for pod in pods_of(name):
        path = f"{PODS_PATH}/{pod['metadata']['name']}"
        cluster.say(path, Answer(pod))
        log = f"{AT}6.000000000Z wandb login {KEY}\n{AT}7.000000000Z \x1b[1mloss=0.5\x1b[0m {TOKEN}\n"
        cluster.say(f"{path}/log", Answer(log.encode()))


def unpacked(path: Path) -> dict[str, str]:
    """Return the files of a bundle by their names within its folder."""
    with tarfile.open(path) as tar:
        found = {}
        for entry in tar:
            assert stat.S_IMODE(entry.mode) == 0o600
            file = tar.extractfile(entry)
            assert file is not None
            found[entry.name.partition("/")[2]] = file.read().decode()
        return found


async def test_a_bundle_has_everything_but_secrets(run: CommandLine) -> None:
    serve(run.cluster, "running")
    path = run.home / "running.tar.gz"
    ended = await run("bundle", "running", "-o", str(path), "--tail", "50")
    assert (ended.status, ended.out) == (0, f"{path}\n"), ended.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in run.home.iterdir() if "running" in each.name] == [path.name]
    files = unpacked(path)
    parts = ["job.yaml", "pods.yaml", "events.yaml", "groups.yaml", "why.txt", "nodes.json", "versions.txt"]
    assert list(files) == [*parts, "logs/master-0.log", "README.txt"]
    assert files["groups.yaml"] == "# There are none.\n"
    assert KEY not in "".join(files.values())
    assert TOKEN not in "".join(files.values())
    job = yaml.safe_load(files["job.yaml"])
    assert job["metadata"]["name"] == "running"
    assert "managedFields" not in job["metadata"]
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "WANDB_API_KEY", "value": "<redacted env WANDB_API_KEY>"}]
    assert files["logs/master-0.log"].splitlines() == [
        "2026-11-20T18:36:06.000000000Z wandb login <redacted env WANDB_API_KEY>",
        "2026-11-20T18:36:07.000000000Z loss=0.5 <redacted login>",
    ]
    assert files["why.txt"].startswith("It runs: 1 of 1 pod.")
    assert [row["name"] for row in json.loads(files["nodes.json"])] == ["gpu-node-0"]
    assert {"context: recorded", "server: v1.36.2"} <= {
        line if not line.startswith("server") else line[:15] for line in files["versions.txt"].splitlines()
    }
    assert run.cluster.host not in files["versions.txt"]
    assert {pod["kind"] for pod in yaml.safe_load_all(files["pods.yaml"])} == {"Pod"}
    assert "env WANDB_API_KEY  2 x" in files["README.txt"]
    (asked,) = run.cluster.asked(f"{PODS_PATH}/{pods_of('running')[0]['metadata']['name']}/log")
    assert asked.query["tailLines"] == "50"


async def test_unreadable_parts_are_named_in_the_readme(run: CommandLine) -> None:
    path = run.home / "x.tar.gz"
    run.cluster.say(f"{JOBS}/running", refusal(403, "you may not get pytorchjobs", "Forbidden"))
    run.cluster.say(f"{JOBS}/running", refusal(403, "you may not get pytorchjobs", "Forbidden"))
    pod = pods_of("running")[0]["metadata"]["name"]
    run.cluster.say(f"{PODS_PATH}/{pod}/log", refusal(400, "container is waiting to start", "BadRequest"))
    run.cluster.replace("/api/v1/namespaces/default/events", Answer(b"nonsense"))
    ended = await run("bundle", "running", "-o", str(path))
    assert ended.status == 0
    readme = unpacked(path)["README.txt"]
    assert "job.yaml: The cluster says: you may not get pytorchjobs" in readme
    assert "logs/master-0.log: The cluster says: container is waiting to start" in readme
    assert "events.yaml: " in readme
    assert "Left out: job.yaml: The cluster says: you may not get pytorchjobs" in ended.err


async def test_bundle_reports_a_missing_output_folder_and_a_negative_tail(run: CommandLine) -> None:
    serve(run.cluster, "running")
    (await run("bundle", "running", "-o", str(run.home / "no" / "x.tar.gz"))).reports(
        1, "No such file or directory"
    )
    assert (await run("bundle", "running", "--tail", "-1")).status == 2


async def test_a_cancelled_bundle_keeps_the_previous_file(cluster: ScriptedCluster, tmp_path: Path) -> None:
    serve(cluster, "running")
    path = tmp_path / "x.tar.gz"
    path.write_bytes(b"the one before")
    reached = asyncio.Event()

    def progress(done: int, total: int, words: str) -> None:
        assert 0 <= done < total
        if words.startswith("logs/"):
            reached.set()

    async with cluster.client() as client:
        snapshot = await ClusterFeed(client, "default").read_once()
        job = next(each for each in snapshot.jobs if each.ref.name == "running")
        making = asyncio.create_task(make_bundle(client, snapshot, job, path, progress=progress))
        await asyncio.wait_for(reached.wait(), 30)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
    assert [each.name for each in tmp_path.iterdir()] == ["x.tar.gz"]
    assert path.read_bytes() == b"the one before"


async def test_a_bundle_contains_the_pod_group_and_reports_forbidden_kueue_workloads(
    run: CommandLine,
) -> None:
    serve(run.cluster, "running")
    uid = next(
        each["metadata"]["uid"] for each in recorded("pytorchjobs") if each["metadata"]["name"] == "running"
    )
    mine = {"metadata": {"name": "podgroup-1", "ownerReferences": [{"uid": uid}]}, "spec": {"minMember": 1}}
    other = {"metadata": {"name": "podgroup-2"}}
    run.cluster.say("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups", page([mine, other]))
    run.cluster.say(
        "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads",
        refusal(403, "no workloads for you", "Forbidden"),
    )
    path = run.home / "x.tar.gz"
    assert (await run("bundle", "running", "-o", str(path))).status == 0
    files = unpacked(path)
    groups = list(yaml.safe_load_all(files["groups.yaml"]))
    assert [(each["kind"], each["metadata"]["name"]) for each in groups] == [("PodGroup", "podgroup-1")]
    assert (
        "groups.yaml, workloads.kueue.x-k8s.io: The cluster says: no workloads for you" in files["README.txt"]
    )
