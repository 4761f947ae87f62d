"""Snapshots that the user sees, and requests to the server, for each way in which a cluster can fail.

One test for every row of the table of failures that concerns lists and watches.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from k8s.cluster.backoff import Backoff
from k8s.status import BEING_READ, Status
from tests.scripted.feed import (
    BERT,
    HASTY,
    JOBS,
    NODES,
    PATIENT,
    PODS,
    WATCHED,
    jobs_of,
    keeps_its_rows,
    poked_until,
    running,
    serve_lists,
    serve_small,
)
from tests.scripted.server import Answer, Drop, Held, Reply, ScriptedCluster, Stream, page, refusal
from tests.support.objects import node, pod_of, pytorch_job
from tui.text.format import Clock


def asked_of(cluster: ScriptedCluster) -> dict[str, int]:
    """Count the lists and watches so far."""
    lists = {path: len(cluster.asked(path)) for path in WATCHED}
    return lists | {f"{path}?watch": len(cluster.asked(path, watch=True)) for path in WATCHED}


async def test_a_server_that_restarts_leaves_the_rows_and_their_age_and_then_everything_goes_on() -> None:
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        for path in streams:
            cluster.say(path, Stream(), watch=True)
        async with running(cluster, backoff=HASTY) as feed:
            cluster_feed = await feed.until_live(cluster, WATCHED)
            before = asked_of(cluster)
            await cluster.go_away()
            away = await feed.until(lambda each: each.trouble == "away")
            assert cluster_feed.stale_since_s == 0.0 < away.stale_since_s <= asyncio.get_running_loop().time()
            assert away.stale
            await cluster.come_back()
            await feed.until(lambda each: not each.stale)
            assert keeps_its_rows(feed)
            after = asked_of(cluster)
        assert all(after[path] == before[path] for path in WATCHED)  # the place was not lost: no list
        assert [each.query["resourceVersion"] for each in cluster.asked(PODS, watch=True)][-1] == "5"


async def test_an_unreachable_cluster_is_probed_once_and_not_by_each_watch() -> None:
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        async with running(cluster, backoff=HASTY) as feed:
            await feed.until_live(cluster, WATCHED)
            before = asked_of(cluster)
            cluster.replace("/version", Drop())
            for stream in streams.values():
                stream.drop()
            await cluster.until_asked("/version", 6)
            assert (await feed.until(lambda each: bool(each.stale))).trouble == "away"
            assert asked_of(cluster) == before
            for path in WATCHED:
                cluster.replace(path, Stream(), watch=True)
            cluster.replace("/version", refusal(403))  # any answer is one
            await feed.until(lambda each: not each.stale)
            assert keeps_its_rows(feed)
        after = asked_of(cluster)
        assert all(after[f"{path}?watch"] == before[f"{path}?watch"] + 1 for path in WATCHED)


async def test_a_cluster_that_is_away_from_the_start_appears_when_it_comes() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        await cluster.go_away()
        async with running(cluster, backoff=HASTY) as feed:
            away = await feed.until(lambda each: each.trouble == "away")
            assert (away.is_synced, away.stale_since_s, away.nodes) == (False, 0.0, ())
            await cluster.come_back()
            assert jobs_of(await feed.until_live(cluster, WATCHED)) == ["bert"]


async def test_a_busy_server_is_shown_as_throttled_and_its_retry_after_is_respected() -> None:
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        busy = refusal(429, "too many requests", headers={"Retry-After": "2"})
        cluster.say(PODS, busy, Stream(), watch=True)
        async with running(cluster, backoff=HASTY) as feed:
            await feed.until_live(cluster, WATCHED)
            streams[PODS].end()
            throttled = await feed.until(lambda each: each.trouble == "throttled")
            assert throttled.throttled_until_s > throttled.stale_since_s
            assert "pods" in throttled.stale and "too many requests" in throttled.stale
            await feed.until(lambda each: not each.stale)
            assert keeps_its_rows(feed)
        _, refused, again = cluster.asked(PODS, watch=True)
        assert again.at_s - refused.at_s >= 2.0
        assert asked_of(cluster)[PODS] == 1  # a busy server is not asked for a whole list


# Answers of servers that are not Kubernetes.
NOTHING_OF_KUBERNETES = {
    "not found": Answer(b"404 page not found", 404),
    "other JSON": Answer({"error": "no such route"}, 404),
    "a page": Answer(b"<!doctype html><title>Welcome</title>", headers={"Content-Type": "text/html"}),
    "an object": Answer({"ok": True}),
}


@pytest.mark.parametrize("reply", NOTHING_OF_KUBERNETES.values(), ids=NOTHING_OF_KUBERNETES)
async def test_a_server_without_a_kubernetes_api_is_not_shown_as_an_empty_cluster(reply: Reply) -> None:
    async with ScriptedCluster() as cluster:
        cluster.say_everywhere(reply)
        async with running(cluster, backoff=HASTY) as feed:
            other = await feed.until(lambda each: bool(each.trouble))
            other = await feed.until(lambda each: each.trouble == "no Kubernetes API")
            assert "This address answers, but it is not a Kubernetes API. " in other.stale
            assert (other.is_synced, other.kinds) == (False, ())
            assert not any(each.is_synced for each in feed.snapshots)
            cluster.say_everywhere(None)
            serve_small(cluster)
            assert jobs_of(await feed.until_live(cluster, WATCHED)) == ["bert"]


@pytest.mark.parametrize("reply", NOTHING_OF_KUBERNETES.values(), ids=NOTHING_OF_KUBERNETES)
async def test_an_address_that_is_given_to_another_server_takes_no_row_away(reply: Reply) -> None:
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        async with running(cluster, backoff=HASTY) as feed:
            await feed.until_live(cluster, WATCHED)
            cluster.say_everywhere(reply)
            for path in WATCHED:
                streams[path].drop()
            await feed.until(lambda each: each.trouble == "no Kubernetes API")
            await cluster.until_asked("/version", len(cluster.asked("/version")) + 4)
            assert keeps_its_rows(feed)


async def test_a_kind_that_is_gone_without_a_status_is_still_gone() -> None:
    plain = Answer(b"404 page not found", 404)
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        cluster.replace(JOBS, plain)
        async with running(cluster, backoff=PATIENT) as feed:
            snapshot = await feed.until(lambda each: each.is_synced)
            assert (snapshot.stale, snapshot.kinds) == ("", ())


async def test_a_failing_collection_is_named_while_the_others_stay_live() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        cluster.replace(JOBS, refusal(500, "etcdserver: leader changed"))
        async with running(cluster, backoff=PATIENT) as feed:
            failing = await feed.until(lambda each: each.trouble == "failing")
            assert failing.stale.startswith("pytorchjobs.kubeflow.org: ")
            assert "etcdserver: leader changed" in failing.stale
            assert len(cluster.asked(JOBS)) == 1
            cluster.replace(JOBS, page([BERT], "5"))
            await poked_until(feed, lambda each: not each.stale and jobs_of(each) == ["bert"])
        assert len(cluster.asked(JOBS)) == 2
        assert len(cluster.asked(PODS)) == len(cluster.asked(NODES)) == 1


async def test_a_half_open_connection_is_noticed_and_the_watch_goes_on_elsewhere() -> None:
    hasty = Backoff(first_s=0.01, longest_s=0.05, watch_s=0, grace_s=0.2)
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        async with running(cluster, backoff=hasty) as feed:
            await cluster.until_asked(PODS, 2, watch=True)
            await feed.until(lambda each: each.is_synced and "did not answer in time" in each.stale)
            assert keeps_its_rows(feed)
        first, second = cluster.asked(PODS, watch=True)[:2]
        assert second.query["resourceVersion"] == first.query["resourceVersion"] == "5"
        assert len(cluster.asked(PODS)) == 1


async def test_a_slow_list_shows_its_rows_page_by_page_and_counts_them() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        pods = [pod_of(BERT, f"worker-{number}", on="n1") for number in range(5)]
        second, third = Held(page(pods[2:4], following="3", remainingItemCount=1)), Held(page(pods[4:], "5"))
        cluster.replace(PODS, page(pods[:2], following="2", remainingItemCount=3), second, third)
        cluster.replace(JOBS, jobs := Held(page([BERT], "5")))
        cluster.replace(NODES, nodes := Held(page([node("n1")], "5")))
        async with running(cluster, backoff=PATIENT) as feed:
            some = await feed.until(lambda each: each.progress == "2 of 5 pods so far…" and bool(each.jobs))
            assert (some.is_synced, some.nodes, len(cluster.asked(PODS))) == (False, (), 1)
            nodes.let_go()
            jobs.let_go()
            some = await feed.until(lambda each: bool(each.jobs and each.jobs[0].replicas))
            assert [each.name for each in some.nodes] == ["n1"]
            assert {each.pod for each in some.jobs[0].instances} >= {"bert-worker-0", "bert-worker-1"}
            assert (some.jobs[0].status, some.jobs[0].reason) == (Status.UNKNOWN, BEING_READ)
            second.let_go()
            await feed.until(lambda each: each.progress == "4 of 5 pods so far…")
            third.let_go()
            whole = await feed.until(lambda each: each.is_synced)
            assert (whole.progress, whole.jobs[0].status) == ("", Status.RUNNING)
            shown = {each.progress for _, each in feed.published}
            assert shown == {"", "2 of 5 pods so far…", "4 of 5 pods so far…"}
        assert [each.query["limit"] for each in cluster.asked(PODS)] == ["500"] * 3


async def test_the_namespace_that_is_shown_is_listed_before_the_second_page_of_all() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        mine = pytorch_job("mine", namespace="vision")
        for path, items in ((JOBS, [mine]), (PODS, [pod_of(mine, "master-0", on="n1")])):
            cluster.replace(path, page([], following="2"), Held(page([], "5")))
            group, _, plural = path.rpartition("/")
            cluster.say(f"{group}/namespaces/vision/{plural}", page(items, "5"))
        async with running(cluster, "vision", backoff=PATIENT) as feed:
            shown = await feed.until(lambda each: bool(each.jobs) and each.jobs[0].instances_running == 1)
            assert (jobs_of(shown), shown.is_synced) == (["mine"], False)


async def test_a_malformed_watch_line_triggers_a_relist() -> None:
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        cluster.replace(NODES, page([node("n1")], "5"), page([node("n1"), node("n2")], "6"))
        cluster.say(NODES, Stream(), watch=True)
        async with running(cluster, backoff=PATIENT) as feed:
            await feed.until_live(cluster, WATCHED)
            streams[NODES].send(b'{"type": "ADDED", "object": {"metadata\n')
            await feed.until(lambda each: "nodes: " in each.stale and "broken line" in each.stale)
            await poked_until(feed, lambda each: len(each.nodes) == 2 and not each.stale)
        assert asked_of(cluster)[NODES] == 2


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
async def test_ages_follow_the_server_clock_even_when_it_is_an_hour_off(ahead_s: float) -> None:
    created = datetime.now(UTC) + timedelta(seconds=ahead_s - 630)
    job = pytorch_job("bert", creationTimestamp=created.strftime("%Y-%m-%dT%H:%M:%SZ"))
    async with ScriptedCluster() as cluster:
        cluster.clock_ahead_s = ahead_s
        serve_small(cluster)
        cluster.replace(JOBS, page([job], "5"))
        async with running(cluster, backoff=PATIENT) as feed:
            snapshot = await feed.until_live(cluster, WATCHED)
    assert abs(snapshot.clock_offset_s - ahead_s) < 3
    assert Clock.ahead(snapshot.clock_offset_s).age(snapshot.jobs[0].created) in ("~10m", "~11m")


async def test_an_expired_login_is_shown_and_retried_on_demand() -> None:
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        over = refusal(401, "Unauthorized")
        for path in WATCHED:
            cluster.say(path, over, watch=True)
        async with running(cluster, backoff=PATIENT) as feed:
            await feed.until_live(cluster, WATCHED)
            before = asked_of(cluster)
            cluster.replace("/version", over)
            for stream in streams.values():
                stream.drop()
            feed.mirror.retry_now()
            over_login = await feed.until(lambda each: each.trouble == "login expired")
            assert "Unauthorized" in over_login.stale and "ctrl+r" in over_login.stale
            cluster.replace("/version", Answer({"gitVersion": "v1.36.1"}))
            for path in WATCHED:
                cluster.replace(path, Stream(), watch=True)
            await poked_until(feed, lambda each: not each.stale)
            assert keeps_its_rows(feed)
        assert asked_of(cluster)[PODS] == before[PODS]


async def test_an_expired_login_is_retried_automatically() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        cluster.replace(PODS, refusal(401, "Unauthorized"))
        async with running(cluster, backoff=HASTY) as feed:
            await feed.until(lambda each: each.trouble == "login expired")
            cluster.replace(PODS, page([pod_of(BERT, "master-0", on="n1")]))
            assert jobs_of(await feed.until_live(cluster, WATCHED)) == ["bert"]


async def test_without_permission_to_list_nodes_the_nodes_of_pods_are_shown() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        cluster.replace(NODES, refusal(403, 'User "li" cannot list resource "nodes"', "Forbidden"))
        async with running(cluster, backoff=PATIENT) as feed:
            snapshot = await feed.until(lambda each: each.is_synced)
        assert [(row.name, row.gpus_allocated, row.gpus_total) for row in snapshot.nodes] == [("n1", 8, 0)]
        assert snapshot.nodes[0].status not in ("Ready", "NotReady")
        assert [(each.verb, each.resource) for each in snapshot.missing_gpus] == [("list", "nodes")]
        assert 'User "li" cannot list resource "nodes"' in snapshot.missing_gpus[0].words
        assert (snapshot.missing_jobs, snapshot.stale) == ((), "")
        assert len(cluster.asked(NODES)) == 1


async def test_a_user_restricted_to_one_namespace_starts_there_and_can_switch() -> None:
    other = pytorch_job("gpt", namespace="other")
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        for path in (PODS, JOBS):
            cluster.replace(path, refusal(403, "not at the cluster scope", "Forbidden"))
        jobs = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
        serve_lists(cluster, {"/api/v1/namespaces/default/pods": [], jobs.format("default"): [BERT]})
        serve_lists(cluster, {"/api/v1/namespaces/other/pods": [], jobs.format("other"): [other]})
        async with running(cluster, "default", backoff=PATIENT) as feed:
            snapshot = await feed.until(lambda each: each.is_synced and not each.stale)
            assert jobs_of(snapshot) == ["bert"]
            assert snapshot.missing_jobs == ()  # nothing that is asked for is missing
            assert [each.shown for each in snapshot.missing_gpus] == ["default"]  # but other holders are
            feed.mirror.show_namespace("other")
            await feed.until(lambda each: each.is_synced and jobs_of(each) == ["gpt"])
            feed.mirror.show_namespace("")
            everything = await feed.until(lambda each: each.is_synced and jobs_of(each) == ["bert"])
            assert {each.resource for each in everything.missing_jobs} == {"pods", "pytorchjobs.kubeflow.org"}
