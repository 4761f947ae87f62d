"""Curves from event files in a pod, log lines, a TensorBoard, a reader pod, and a TrainJob's status."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from k8s.client.client import Client
from k8s.jobs.pod_files import LOCAL_PATH
from k8s.jobs.reader_pod import LIFE_S, READER_LABEL, delete_ended_readers, reader_manifest, running_reader
from k8s.kinds import JobRef
from k8s.kinds.job_spec import JobSpec, Mount
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.logs import LogHub
from k8s.text.errors import KubeError
from tests.k8s.jobs.test_port_forward import ARENA
from tests.scripted.server import (
    SUCCESS,
    Answer,
    Asked,
    Compute,
    ScriptedCluster,
    Socket,
    Stream,
    page,
    refusal,
    until,
)
from tests.support.event_files import job_with_event_files, serve_event_files
from tests.support.objects import Object, joined, pod_of, pytorch_job
from trainer.tfevents import EventWriter
from tui.runs.curve_feed import CurveFeed, StatusPoints

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
PROXY = f"{SERVICES}/bert-tensorboard:6006/proxy/data/plugin/scalars"


class ExecHere(msgspec.Struct):
    """An exec whose commands run here, with `/w` in a folder of this machine."""

    folder: Path
    sent: list[bytes] = msgspec.field(default_factory=list)
    """Output of each command."""

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        words = [
            word if "w/" not in word and word != "/w" else word.replace("/w", str(self.folder), 1)
            for word in request.query.getall("command")
        ]
        shell = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd="/"
        )
        output, errors = await shell.communicate()
        output = output.replace(str(self.folder).encode(), b"/w")
        self.sent.append(output)
        ending = SUCCESS if not shell.returncode else (3, b'{"status": "Failure"}')
        return await Socket([(1, output), (2, errors), ending]).answer(request, closing)


def feed_of(client: Client, job: Object, *, pods: tuple[Object, ...] = (), folder: str = "") -> CurveFeed:
    row = joined([], [*pods], [job])[1]["bert"]
    return CurveFeed(client, REF, lambda: row, folder=folder)


async def test_metric_files_of_all_formats_are_read_incrementally_from_a_pod(tmp_path: Path) -> None:
    job = job_with_event_files("bert")
    pod = pod_of(job, "master-0", containerStatuses=[running])
    logs = tmp_path / "logs"
    logs.mkdir()
    metrics = logs / "metrics.csv"
    metrics.write_text("step,loss\n" + "".join(f"{step},{step / 4}\n" for step in range(20_000)))
    (logs / "notes.txt").write_text("x" * 100)
    writer = EventWriter(logs, flush_s=0)
    writer.write_scalar("train/loss", 1, 0.5)
    pods = ExecHere(tmp_path)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(OWN, Answer(job))
        cluster.say(f"{PODS}/bert-master-0/exec", pods)
        feed = feed_of(client, job, pods=(pod,))
        await feed.read_once()
        assert points(feed)["train/loss"] == [(1, 0.5)]
        assert points(feed)["loss"] == [(step, step / 4) for step in range(20_000)]
        assert (feed.source_text, feed.problem) == ("/w/logs in bert-master-0", "")
        pods.sent.clear()
        with metrics.open("a") as appended:
            appended.write("20000,1.5\n")
        await feed.read_once()
        assert points(feed)["loss"][-1] == (20_000, 1.5)
        assert len(pods.sent) == 2 and len(pods.sent[1]) < 100
    writer.close()


FLOOD = Socket([(1, b"x" * 2**20)] * 9)
"""More than is read of a list of files."""
ERRORS = Socket([(2, b"x" * 2**20)] * 9)


@pytest.mark.parametrize("flood", [FLOOD, ERRORS], ids=["output", "errors"])
async def test_a_pod_that_floods_costs_no_memory_however_often_it_is_read(flood: Socket) -> None:
    job = job_with_event_files("bert")
    pod = pod_of(job, "master-0", containerStatuses=[running])
    gc.collect()
    gc.disable()  # the console's full collections are rare: what is in a cycle stays
    tracemalloc.start()
    try:
        async with ScriptedCluster() as cluster, cluster.client() as client:
            cluster.say(OWN, Answer(job))
            cluster.say(f"{PODS}/bert-master-0/exec", flood)
            feed = feed_of(client, job, pods=(pod,))
            for _ in range(4):
                with pytest.raises(KubeError, match="more than 8,192 KiB"):
                    await feed.read_once()
        assert [each for each in gc.get_objects() if isinstance(each, KubeError)] == []
        assert tracemalloc.get_traced_memory()[0] < 4 * 2**20
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_a_read_that_overflowed_is_not_repeated_at_the_pace_of_one_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = job_with_event_files("bert")
    pod = pod_of(job, "master-0", containerStatuses=[running])
    monkeypatch.setattr("tui.runs.curve_feed.REMOTE_S", 0.001)
    path = f"{PODS}/bert-master-0/exec"
    async with ScriptedCluster() as flooding, ScriptedCluster() as failing:
        flooding.say(path, FLOOD)
        failing.say(path, Socket([(3, b'{"status": "Failure"}')]))
        async with flooding.client() as one, failing.client() as other:
            for cluster in (flooding, failing):
                cluster.say(OWN, Answer(job))
            async with following(one, job, pod) as feed, following(other, job, pod):
                await until(lambda: feed.problem)
                await failing.until_asked(path, 20)
                assert len(flooding.asked(path)) == 1


async def test_metric_folders_are_discovered_in_the_pod_on_request_if_none_is_declared(
    tmp_path: Path,
) -> None:
    job = job_with_event_files("bert")
    del job["metadata"]["annotations"]
    pod = pod_of(job, "master-0", containerStatuses=[running])
    for name in ("a", "b/deep"):
        with EventWriter(tmp_path / name) as writer:
            writer.write_scalar("loss", 1, 0.5)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(OWN, Answer(job))
        cluster.say(f"{PODS}/bert-master-0/exec", ExecHere(tmp_path))
        feed = feed_of(client, job, pods=(pod,))
        with pytest.raises(KubeError, match="declares no folder"):
            await feed.read_once()
        assert not cluster.asked(f"{PODS}/bert-master-0/exec"), "a volume may be large"
        feed.choose_folder("")
        with pytest.raises(KubeError, match=r"Folders with metrics: /w/a, /w/b/deep\."):
            await feed.read_once()
        assert feed.folders == ["/w/a", "/w/b/deep"]
        feed.folder = "/w/b/deep"
        await feed.read_once()
        assert (points(feed), feed.source_text) == ({"loss": [(1, 0.5)]}, "/w/b/deep in bert-master-0")
        (tmp_path / "a" / next((tmp_path / "a").iterdir()).name).unlink()
        alone = feed_of(client, job, pods=(pod,))
        alone.choose_folder("")
        await alone.read_once()
        assert alone.source_text == "/w/b/deep in bert-master-0"


def scalars(asked: Asked) -> Answer:
    if asked.path.endswith("/tags"):
        return Answer({"train": {"loss": {"displayName": ""}, "lr\x1b[2J": {}}, "bad": 3})
    values = {
        "loss": [[1.7e9, 1, 2.5], [1.7e9 + 1, 2, "NaN"], "x", [None, 1, 2]],
        "lr\x1b[2J": [[1.7e9, 1, 0.5]],
    }
    assert asked.query["run"] == "train"
    return Answer(values[asked.query["tag"]])


async def test_without_a_pod_curves_are_read_from_tensorboard_through_the_api_proxy() -> None:
    job = pytorch_job("bert", gpus=1)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(OWN, Answer(job))
        cluster.say(SERVICES, page([ARENA]))
        cluster.say(f"{PROXY}/*", Compute(scalars))
        feed = feed_of(client, job)
        await feed.read_once()
        assert repr(points(feed)) == repr({"loss": [(1, 2.5), (2, math.nan)], "lr": [(1, 0.5)]})
        assert feed.source_text == "TensorBoard at bert-tensorboard:6006"
        assert (feed.newest_s, feed.problem) == (1.7e9 + 1, "")
        assert [curve.run for curve in feed.curves()] == ["train", "train"]


@pytest.mark.parametrize(
    "reply", [Answer(b"<html>"), Answer([1]), refusal(403, "no proxy"), Answer(b"x" * 9_000_000)]
)
async def test_an_invalid_tensorboard_response_does_not_hide_the_missing_folder_error(reply: Answer) -> None:
    job = pytorch_job("bert", gpus=1)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(OWN, Answer(job))
        cluster.say(SERVICES, page([ARENA]))
        cluster.say(f"{PROXY}/*", reply)
        with pytest.raises(KubeError, match="declares no folder"):
            await feed_of(client, job).read_once()


def train_job(updated: str, **metrics: str) -> dict[str, Any]:
    listed = [{"name": name, "value": value} for name, value in metrics.items()]
    return {
        "metadata": {"name": "llm", "namespace": "default"},
        "spec": {"runtimeRef": {"name": "torch"}},
        "status": {"trainerStatus": {"metrics": listed, "lastUpdatedTime": updated}},
    }


async def test_curves_fall_back_to_the_metrics_in_a_trainjobs_status() -> None:
    ref = JobRef("default", "llm", "TrainJob", "trainer.kubeflow.org/v1alpha1")
    async with ScriptedCluster() as cluster, cluster.client() as client:
        path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/llm"
        cluster.say(path, Answer(train_job("2026-01-01T00:00:00Z", loss="0.5", step="10", words="x")))
        feed = CurveFeed(client, ref, lambda: None)
        await feed.read_once()
        assert points(feed) == {"loss": [(10, 0.5)]}
        assert (feed.source_text, feed.newest_s) == ("status of TrainJob llm", 1767225600.0)


def test_each_trainjob_status_update_adds_one_point_and_a_malformed_status_is_ignored() -> None:
    status = StatusPoints()
    assert status.take(train_job("2026-01-01T00:00:00Z", loss="0.5"))
    assert not status.take(train_job("2026-01-01T00:00:00Z", loss="0.25"))
    assert status.take(train_job("2026-01-01T00:00:05Z", loss="0.25"))
    assert list(status.series["loss"].steps) == [1, 2]
    for obj in (
        {},
        {"status": 3},
        {"status": {"trainerStatus": {"lastUpdatedTime": "x", "metrics": [3, {}]}}},
    ):
        assert not status.take(obj)


def test_a_reader_mounts_the_claims_of_the_job_read_only_and_nothing_else() -> None:
    template: dict[str, Any] = {
        "spec": {
            "tolerations": [{"key": "gpu"}],
            "serviceAccountName": "admin",
            "volumes": [
                {"name": "w", "persistentVolumeClaim": {"claimName": "workspace"}},
                {"name": "s", "secret": {"secretName": "s"}},
            ],
            "containers": [
                {
                    "image": "torch:2",
                    "env": [{"name": "TOKEN", "value": "x"}],
                    "volumeMounts": [
                        {"name": "w", "mountPath": "/w", "subPath": "li"},
                        {"name": "s", "mountPath": "/s"},
                    ],
                }
            ],
        }
    }
    pod = reader_manifest("bert", "ns", template)
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert container["image"] == "torch:2"
    assert container["volumeMounts"] == [{"name": "w", "mountPath": "/w", "subPath": "li", "readOnly": True}]
    assert [each["name"] for each in spec["volumes"]] == ["w"]
    assert (spec["activeDeadlineSeconds"], spec["tolerations"]) == (LIFE_S, [{"key": "gpu"}])
    assert not {"serviceAccountName", "env"} & {*spec, *container}
    assert reader_manifest("bert", "ns", template, "busybox")["spec"]["containers"][0]["image"] == "busybox"
    proxy = {"name": "proxy", "image": "proxy:1", "volumeMounts": [{"name": "w", "mountPath": "/w"}]}
    template["spec"]["containers"] = [proxy, {**template["spec"]["containers"][0], "name": "train"}]
    mixed = reader_manifest("bert", "ns", template, container="train")["spec"]["containers"][0]
    assert (mixed["image"], len(mixed["volumeMounts"])) == ("torch:2", 1)
    with pytest.raises(KubeError, match="mount no volume claim"):
        reader_manifest("bert", "ns", {"spec": {"containers": [{"image": "x"}]}})


async def test_the_volume_of_a_job_without_pods_is_read_through_a_reader_that_is_removed(
    tmp_path: Path,
) -> None:
    job = job_with_event_files("bert")
    with EventWriter(tmp_path / "logs") as writer:
        writer.write_scalar("loss", 1, 0.5)
    labels = {READER_LABEL: "true"}
    old, live, other = (
        {
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
            "status": {"phase": phase},
        }
        for name, phase, labels in (
            ("old", "Failed", labels),
            ("live", "Running", labels),
            ("x", "Failed", {}),
        )
    )
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(OWN, Answer(job))
        cluster.say(PODS, page([old, live, other]))
        cluster.say(PODS, Compute(lambda asked: Answer(json.loads(asked.body), 201)), method="POST")
        pending, running_now = (Answer({"status": {"phase": phase}}) for phase in ("Pending", "Running"))
        cluster.say(f"{PODS}/*", pending, running_now)
        cluster.say(f"{PODS}/*", Answer({}), method="DELETE")
        feed = feed_of(client, job)
        with pytest.raises(KubeError, match="does not exist"):
            await feed.read_once()
        manifest = await feed.reader_manifest("busybox")
        name = manifest["metadata"]["name"]
        cluster.say(f"{PODS}/{name}/exec", ExecHere(tmp_path))
        async with running_reader(client, manifest) as feed.reader:
            assert feed.reader == name
            await feed.read_once()
        assert (points(feed), feed.source_text) == ({"loss": [(1, 0.5)]}, f"/w/logs in {name}")
        deleted = [each.path for each in cluster.requests if each.method == "DELETE"]
        assert deleted == [f"{PODS}/old", f"{PODS}/{name}"]
        [listed] = cluster.asked(PODS)
        assert listed.query["labelSelector"] == f"{READER_LABEL}=true"


async def test_a_failed_or_cancelled_reader_pod_is_deleted(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PODS, refusal(403, "no list"))
        cluster.say(PODS, Compute(lambda asked: Answer(json.loads(asked.body), 201)), method="POST")
        cluster.say(f"{PODS}/*", Answer({"status": {"phase": "Failed"}}), Answer({"status": {}}))
        cluster.say(f"{PODS}/*", Answer({}), method="DELETE")
        manifest = {"metadata": {"name": "r", "namespace": "default"}}
        with pytest.raises(KubeError, match="has ended: Failed"):
            async with running_reader(client, manifest):
                raise AssertionError
        waiting = asyncio.create_task(running_reader(client, manifest).__aenter__())
        await cluster.until_asked(f"{PODS}/r", 2)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert len(cluster.asked(f"{PODS}/r", method="DELETE")) == 2
        with pytest.raises(KubeError, match="no list"):
            await delete_ended_readers(client, "default")


REF = JobRef("default", "bert", "PyTorchJob", "kubeflow.org/v1")
OWN = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
POD = "/api/v1/namespaces/default/pods/bert-master-0"
running = {"name": "pytorch", "state": {"running": {}}, "restartCount": 0}


def line(step: int, loss: float, rank: int = 0) -> bytes:
    return f"2026-01-01T00:00:{step:02}Z [rank{rank}]: step {step} loss {loss} lr 0.1\n".encode()


@asynccontextmanager
async def following(
    client: Client, job: Object, pod: Object, feed: CurveFeed | None = None
) -> AsyncIterator[CurveFeed]:
    """Follow the curves of a job, for the first time or again."""
    row = joined([], [pod], [job])[1]["bert"]
    # The next one opens the log again, rather than going on with a stream that is still open.
    feed = feed or CurveFeed(client, REF, lambda: row, hub=LogHub(client, grace=partial(asyncio.sleep, 0)))

    async def nothing() -> None:
        """Draw nothing."""

    task = asyncio.create_task(feed.run(nothing))
    try:
        yield feed
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_reopened_log_stream_adds_each_point_once() -> None:
    job = pytorch_job("bert", gpus=2)
    pod = pod_of(job, "master-0", containerStatuses=[running])
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(OWN, Answer(job))
        cluster.say(POD, Answer(pod))
        cluster.say(f"{POD}/log", Stream(line(1, 2.5), line(2, 2.25)))
        async with following(client, job, pod) as feed:
            await until(lambda: points(feed).get("loss") == [(1, 2.5), (2, 2.25)])
        cluster.forget(f"{POD}/log")
        cluster.say(f"{POD}/log", Stream(line(1, 2.5), line(2, 2.25), line(3, 2.0)))
        async with following(client, job, pod, feed):
            await until(lambda: points(feed)["loss"][-1] == (3, 2.0))
            assert points(feed)["loss"] == [(1, 2.5), (2, 2.25), (3, 2.0)]
            assert not any(curve.restarts for curve in feed.curves())


def points(feed: CurveFeed) -> dict[str, list[Any]]:
    return {curve.tag: list(zip(curve.steps, curve.values, strict=True)) for curve in feed.curves()}


async def test_without_event_files_curves_come_from_the_log_of_rank_0() -> None:
    job = pytorch_job("bert", gpus=2)
    pod = pod_of(job, "master-0", containerStatuses=[running])
    log = Stream(line(1, 2.5), line(1, 7.0, rank=1))
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(OWN, Answer(job))
        cluster.say(POD, Answer(pod))
        cluster.say(f"{POD}/log", log)
        async with following(client, job, pod) as feed:
            await until(lambda: points(feed) == {"loss": [(1, 2.5)], "lr": [(1, 0.1)]})
            assert feed.is_from_log and feed.source_text == "from log lines of master-0"
            log.send(line(2, 2.25))
            await until(lambda: points(feed)["loss"] == [(1, 2.5), (2, 2.25)])
            assert cluster.asked(f"{POD}/log")[0].query["tailLines"] == "20000"
        await log.is_over.wait()


async def test_event_files_replace_log_curves_when_they_appear(tmp_path: Path) -> None:
    job = job_with_event_files("bert")
    pod = pod_of(job, "master-0", containerStatuses=[running])
    log = Stream(line(1, 2.5))
    async with ScriptedCluster() as cluster, cluster.client() as client:
        serve_event_files(cluster, job, tmp_path)
        cluster.say(POD, Answer(pod))
        cluster.say(f"{POD}/log", log)
        async with following(client, job, pod) as feed:
            await until(lambda: feed.is_from_log)
            with EventWriter(tmp_path / "logs", flush_s=0) as writer:
                writer.write_scalar("train/loss", 3, 0.5)
            await until(lambda: points(feed) == {"train/loss": [(3, 0.5)]})
            assert not feed.is_from_log and feed.source_text == "/w/logs on this machine"
            await log.is_over.wait()


async def test_event_files_of_an_mpi_job_are_found_on_its_workers_volume(tmp_path: Path) -> None:
    spec = JobSpec(
        name="bench",
        image="x",
        command=("mpirun", "true"),
        mounts=(Mount("workspace", "/w"),),
        trainer="mpi",
        log_dir="/w/logs",
    )
    job = MPIJob().manifest(spec)
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    assert "workspace" not in str(launcher)
    claim = {"metadata": {"name": "workspace", "annotations": {LOCAL_PATH: str(tmp_path)}}}
    with EventWriter(tmp_path / "logs") as writer:
        writer.write_scalar("benchmark/img_per_sec", 0, 205.0)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs/bench", Answer(job))
        cluster.say("/api/v1/namespaces/default/persistentvolumeclaims/workspace", Answer(claim))
        feed = CurveFeed(client, JobRef("default", "bench", "MPIJob", "kubeflow.org/v2beta1"), lambda: None)
        await feed.read_once()
        assert points(feed) == {"benchmark/img_per_sec": [(0, 205.0)]}
        assert feed.source_text == "/w/logs on this machine"
