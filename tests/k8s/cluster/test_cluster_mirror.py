"""The feed of the console: mirrors joined into snapshots, ten a second at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.cluster.backoff import Backoff
from k8s.cluster.cluster_mirror import IDLE_FACTOR, PUBLISH_S, ClusterMirror, list_progress, trouble_of
from k8s.cluster.mirror import Mirror, MirrorState
from k8s.models import Meta, Pod, Reader
from k8s.models.resources import PODS as ALL_PODS
from k8s.snapshot import ClusterSnapshot, Missing
from k8s.text.errors import Unreachable
from tests.scripted.feed import BERT, JOBS, NODES, PODS, WATCHED, jobs_of, running, serve, serve_small
from tests.scripted.server import Answer, Asked, Compute, Drop, ScriptedCluster, Stall, Stream, page, refusal
from tests.support.objects import node, pod_of, pytorch_job
from tui.settings.options import local_user
from tui.tables.filters import own_names


async def test_nodes_pods_and_jobs_are_joined_into_one_snapshot() -> None:
    async with ScriptedCluster() as cluster:
        serve(cluster)
        async with running(cluster) as feed:
            snapshot = await feed.until(lambda each: each.is_synced)
    assert (snapshot.gpus_total, snapshot.gpus_allocated) == (8, 8)
    assert [(job.ref.name, job.gpus_allocated) for job in snapshot.jobs] == [("bert", 8)]
    state = snapshot.context, snapshot.user, snapshot.stale, dict(snapshot.problems)
    assert state == ("scripted", "li", "", {})


async def test_snapshots_are_published_at_most_ten_times_a_second_and_the_last_is_complete() -> None:
    async with ScriptedCluster() as cluster:
        streams = serve(cluster)
        async with running(cluster) as feed:
            await feed.until(lambda each: each.is_synced)
            before = len(feed.published)
            for number in range(2000):
                streams[NODES].event("ADDED", node(f"more-{number}"))
            await feed.until(lambda each: len(each.nodes) == 2001)
            times = [at_s for at_s, _ in feed.published[before:]]
            assert len(feed.published) - before < 2000 / 10
            assert all(later - earlier >= PUBLISH_S * 0.95 for earlier, later in pairwise(times))


async def test_second_pages_come_after_a_snapshot_with_all_first_ones_and_the_shown_namespace() -> None:
    found: list[list[tuple[str, int, str]]] = []
    others = [pytorch_job("other", namespace="far"), node("n2"), pod_of(BERT, "worker-0", uid="far")]
    own: dict[str, list[Any]] = {JOBS: [BERT], NODES: [], PODS: [pod_of(BERT, "master-0", on="n1")]}
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)

        def second(asked: Asked) -> Answer:
            jobs = feed.newest.jobs
            found.append([(job.ref.name, job.gpus_allocated, job.status) for job in jobs])
            return page([], "5")

        for path, other in zip((JOBS, NODES, PODS), others, strict=True):
            head, _, plural = path.rpartition("/")
            cluster.replace(path, page([other], following="2"), Compute(second))
            cluster.say(path, streams[path], watch=True)
            cluster.say(f"{head}/namespaces/default/{plural}", page(own[path]))
        async with running(cluster, "default") as feed:
            await feed.until(lambda each: each.is_synced)
    assert found == [[("bert", 8, "Running")]] * 3


async def test_nothing_is_published_while_nothing_changes() -> None:
    async with ScriptedCluster() as cluster:
        streams = serve(cluster)
        async with running(cluster) as feed:
            for path in streams:
                await cluster.until_asked(path, watch=True)
            await feed.until(lambda each: each.is_synced and not each.stale)
            streams[NODES].event("ADDED", node("n2"))
            await feed.until(lambda each: len(each.nodes) == 2)
            before = len(feed.published)
            streams[NODES].event("ADDED", node("n3"))
            await feed.until(lambda each: len(each.nodes) == 3)
            assert len(feed.published) == before + 1


async def test_switching_the_namespace_sends_no_request() -> None:
    other = pytorch_job("gpt", namespace="other")
    async with ScriptedCluster() as cluster:
        streams = serve(cluster)
        async with running(cluster, "default") as feed:
            await feed.until(lambda each: each.is_synced)
            streams[JOBS].event("ADDED", other)
            feed.mirror.show_namespace("other")
            snapshot = await feed.until(lambda each: [job.ref.name for job in each.jobs] == ["gpt"])
            assert snapshot.namespace == "other"
            assert snapshot.gpus_allocated == 8  # nodes are everybody's
            feed.mirror.show_namespace("")
            await feed.until(lambda each: len(each.jobs) == 2)
            assert len(cluster.asked(JOBS)) == 1


async def test_a_forbidden_list_is_a_problem_with_the_servers_message() -> None:
    async with ScriptedCluster() as cluster:
        serve(cluster)
        cluster.forget(NODES)
        cluster.say(NODES, refusal(403, 'user "li" cannot list nodes'))
        async with running(cluster) as feed:
            snapshot = await feed.until(lambda each: each.is_synced)
    assert list(snapshot.problems) == ["nodes"]
    assert 'user "li" cannot list nodes' in snapshot.problems["nodes"].why
    assert snapshot.stale == ""
    assert [job.gpus_allocated for job in snapshot.jobs] == [8]


async def test_a_snapshot_limited_to_one_namespace_records_the_missing_permission() -> None:
    mine = "/api/v1/namespaces/mine/pods"
    async with ScriptedCluster() as cluster:
        serve(cluster)
        cluster.forget(PODS)
        cluster.say(PODS, refusal(403, "cannot list pods at the cluster scope"))
        cluster.say(mine, page([]))
        cluster.say(mine, Stream(), watch=True)
        async with cluster.client("mine") as client:
            snapshot = await ClusterMirror(client).read_once()
    why = "The cluster says: cannot list pods at the cluster scope"
    assert dict(snapshot.problems) == {"pods": Missing("list", "pods", shown="mine", why=why)}


async def test_an_unserved_kind_is_not_reported_as_a_problem() -> None:
    async with ScriptedCluster() as cluster:
        serve(cluster)
        cluster.forget(JOBS)
        async with running(cluster) as feed:
            snapshot = await feed.until(lambda each: each.is_synced)
    assert dict(snapshot.problems) == {}
    assert [job.gpus_allocated for job in snapshot.jobs] == [8]  # what its pods tell of it


async def test_a_lost_cluster_is_reported_and_its_rows_are_kept() -> None:
    async with ScriptedCluster() as cluster:
        streams = serve(cluster)
        for path in streams:
            cluster.say(path, Drop(), Drop(), Drop(), Stream(), watch=True)
        async with running(cluster) as feed:
            await feed.until(lambda each: each.is_synced and not each.stale)
            for path, stream in streams.items():
                await cluster.until_asked(path, watch=True)
                stream.drop()
            snapshot = await feed.until(lambda each: bool(each.stale))
            assert [job.ref.name for job in snapshot.jobs] == ["bert"]
            assert snapshot.stale_since_s > 0
            feed.mirror.retry_now()
            await feed.until(lambda each: not each.stale)


async def test_a_command_reads_everything_once(cluster: ScriptedCluster, client: Client) -> None:
    serve(cluster)
    snapshot = await ClusterMirror(client).read_once()
    assert snapshot.is_synced
    assert [job.ref.name for job in snapshot.jobs] == ["bert"]
    assert not any(asked.is_watch for asked in cluster.requests)


async def test_read_once_raises_unreachable_if_the_cluster_is_down() -> None:
    async with ScriptedCluster() as cluster:
        client = cluster.client()
    async with client:
        with pytest.raises(Unreachable):
            await ClusterMirror(client).read_once()


async def test_read_once_reports_forbidden_lists_as_problems(
    cluster: ScriptedCluster, client: Client
) -> None:
    serve(cluster)
    cluster.forget(NODES)
    cluster.forget(JOBS)
    cluster.say(NODES, refusal(403, "cannot list nodes"))
    snapshot = await ClusterMirror(client).read_once()
    assert list(snapshot.problems) == ["nodes"]
    assert snapshot.is_synced


async def test_the_snapshot_age_is_that_of_the_mirror_silent_longest() -> None:
    reset = Unreachable("Could not list pods.", "reset")
    async with ScriptedCluster() as cluster, cluster.client() as client:
        mirrors: list[Mirror[Pod]] = []
        for heard_s in (40.0, 10.0, 0.0, 5.0):
            mirror: Mirror[Pod] = Mirror(client, ALL_PODS, ("",), Reader(Pod), _meta, lambda: None)
            mirror.last_seen_s = heard_s
            mirror.state = MirrorState(is_synced=True, problem=reset)
            mirrors.append(mirror)
        mirrors[3].state = MirrorState(is_synced=True, is_live=True)
        word, _, since_s = trouble_of(mirrors, None)
        assert (word, since_s) == ("away", 10.0), "not of what was never heard, nor of what is live"


async def test_slow_snapshots_are_published_with_proportional_pauses() -> None:
    slow_s = 0.1
    times: list[tuple[float, float]] = []
    async with ScriptedCluster() as cluster:
        streams = serve(cluster)
        async with running(cluster) as feed:
            await feed.until(lambda each: each.is_synced)

            def slowly(snapshot: ClusterSnapshot) -> None:
                began_s = time.monotonic()
                while time.monotonic() < began_s + slow_s:
                    pass
                times.append((began_s, time.monotonic()))
                feed.publish(snapshot)

            feed.on_publish = slowly
            for number in range(3):
                streams[NODES].event("ADDED", node(f"more-{number}"))
                await feed.until(partial(has_nodes, number + 2))
    gaps = [later - ended for (_, ended), (later, _) in pairwise(times)]
    assert gaps and all(gap >= IDLE_FACTOR * slow_s * 0.95 for gap in gaps)


async def test_a_snapshot_is_published_once_it_is_prepared() -> None:
    steps: list[ClusterSnapshot] = []

    def prepare(snapshot: ClusterSnapshot) -> Iterator[None]:
        for _ in range(3):
            steps.append(snapshot)
            yield

    async with ScriptedCluster() as cluster:
        streams = serve(cluster)
        async with running(cluster) as feed:
            await feed.until(lambda each: each.is_synced)
            feed.prepare = prepare
            streams[NODES].event("ADDED", node("more"))
            published = await feed.until(partial(has_nodes, 2))
            assert sum(each is published for each in steps) == 3


def test_before_the_first_page_no_progress_is_shown() -> None:
    assert list_progress([(ALL_PODS, MirrorState())]) == ""


def has_nodes(amount: int, snapshot: ClusterSnapshot) -> bool:
    return len(snapshot.nodes) == amount


def _meta(pod: Pod) -> Meta:
    return pod.metadata


async def test_a_server_that_hangs_behind_open_watches_is_marked_away_until_it_answers() -> None:
    attentive = Backoff(first_s=0.01, heartbeat_s=0.2, heartbeat_answer_s=0.05)
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        async with running(cluster, backoff=attentive) as feed:
            await feed.until_live(cluster, WATCHED)
            cluster.say_everywhere(Stall())
            for stream in streams.values():  # sent from the server's cache, whatever its storage does
                stream.event("BOOKMARK", {"metadata": {"resourceVersion": "6"}})
            snapshot = await feed.until(lambda each: each.trouble == "away")
            assert "did not answer in time" in snapshot.stale
            assert snapshot.stale_since_s > 0 and jobs_of(snapshot) == ["bert"]
            cluster.say_everywhere(None)
            await feed.until(lambda each: not each.stale)
            watches = [asked for asked in cluster.requests if asked.is_watch]
            assert len(watches) == len(WATCHED)  # the open ones went on


@pytest.mark.parametrize("code", [500, 503])
async def test_a_server_whose_storage_fails_is_not_live(code: int) -> None:
    attentive = Backoff(first_s=0.01, heartbeat_s=0.05)
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        async with running(cluster, backoff=attentive) as feed:
            await feed.until_live(cluster, WATCHED)
            cluster.say_everywhere(refusal(code, "etcdserver: request timed out"))
            snapshot = await feed.until(lambda each: bool(each.trouble))
            assert (snapshot.trouble, "etcdserver" in snapshot.stale) == ("failing", True)


async def test_a_heartbeat_is_requested_only_after_a_time_without_events() -> None:
    every_s, sent_s = 0.3, []
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        async with running(cluster, backoff=Backoff(heartbeat_s=every_s)) as feed:
            await feed.until_live(cluster, WATCHED)
            for number in range(40):
                sent_s.append(asyncio.get_running_loop().time())
                streams[NODES].event("ADDED", node(f"n-{number}"))
                await feed.until(partial(_has_nodes, number + 1))
            beats_s = [each.at_s for each in cluster.requests if each.query.get("limit") == "1"]
            # A loaded machine may be silent for as long.
            for beat_s in (each for each in beats_s if each > sent_s[0]):
                assert beat_s - max(each for each in sent_s if each < beat_s) >= every_s


def _has_nodes(least: int, snapshot: ClusterSnapshot) -> bool:
    return len(snapshot.nodes) >= least


async def test_the_user_name_comes_from_a_self_subject_review() -> None:
    said = Answer({"status": {"userInfo": {"username": "admin"}}}, 201)
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        cluster.forget("/version")
        cluster.say("/version", Answer({"gitVersion": "v1.36.0"}))
        cluster.say("/apis/authentication.k8s.io/v1/selfsubjectreviews", said, method="POST")
        async with running(cluster) as feed:
            snapshot = await feed.until(lambda each: each.user == "admin")
    assert {"admin", local_user()} <= own_names(snapshot.user)
    assert snapshot.server_version == "v1.36.0"
