"""Expired logins and forbidden lists: reported, retried, and everything else goes on."""

from __future__ import annotations

from tests.k8s.client.test_reliability import asked_of
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
from tests.scripted.server import Answer, ScriptedCluster, Stream, page, refusal
from tests.support.objects import pod_of, pytorch_job


async def test_a_login_that_is_over_is_said_and_tried_again_when_the_user_asks() -> None:
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        over = refusal(401, "Unauthorized")
        for path in WATCHED:
            cluster.say(path, over, watch=True)
        async with running(cluster, backoff=PATIENT) as feed:
            await feed.until_live(cluster, WATCHED)
            before = asked_of(cluster)
            cluster.forget("/version")
            cluster.say("/version", over)
            for stream in streams.values():
                stream.drop()
            feed.cluster_feed.retry_now()
            over_login = await feed.until(lambda each: each.trouble == "login expired")
            assert "Unauthorized" in over_login.stale and "ctrl+r" in over_login.stale
            cluster.forget("/version")
            cluster.say("/version", Answer({"gitVersion": "v1.36.1"}))
            for path in WATCHED:
                cluster.forget(path, watch=True)
                cluster.say(path, Stream(), watch=True)
            await poked_until(feed, lambda each: not each.stale)
            assert keeps_its_rows(feed)
        assert asked_of(cluster)[PODS] == before[PODS]


async def test_a_login_that_is_over_is_tried_again_by_itself() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        cluster.forget(PODS)
        cluster.say(PODS, refusal(401, "Unauthorized"))
        async with running(cluster, backoff=HASTY) as feed:
            await feed.until(lambda each: each.trouble == "login expired")
            cluster.forget(PODS)
            cluster.say(PODS, page([pod_of(BERT, "master-0", on="n1")]))
            assert jobs_of(await feed.until_live(cluster, WATCHED)) == ["bert"]


async def test_without_the_right_to_list_nodes_those_that_pods_are_on_are_shown() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        cluster.forget(NODES)
        cluster.say(NODES, refusal(403, 'User "li" cannot list resource "nodes"', "Forbidden"))
        async with running(cluster, backoff=PATIENT) as feed:
            snapshot = await feed.until(lambda each: each.is_synced)
        assert [(row.name, row.gpus_allocated, row.gpus_total) for row in snapshot.nodes] == [("n1", 8, 0)]
        assert snapshot.nodes[0].status not in ("Ready", "NotReady")
        assert [(each.verb, each.resource) for each in snapshot.missing_gpus] == [("list", "nodes")]
        assert 'User "li" cannot list resource "nodes"' in snapshot.missing_gpus[0].words
        assert (snapshot.missing_jobs, snapshot.stale) == ((), "")
        assert len(cluster.asked(NODES)) == 1


async def test_who_may_list_one_namespace_only_starts_there_and_may_go_to_another() -> None:
    other = pytorch_job("gpt", namespace="other")
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        for path in (PODS, JOBS):
            cluster.forget(path)
            cluster.say(path, refusal(403, "not at the cluster scope", "Forbidden"))
        jobs = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
        serve_lists(cluster, {"/api/v1/namespaces/default/pods": [], jobs.format("default"): [BERT]})
        serve_lists(cluster, {"/api/v1/namespaces/other/pods": [], jobs.format("other"): [other]})
        async with running(cluster, "default", backoff=PATIENT) as feed:
            snapshot = await feed.until(lambda each: each.is_synced and not each.stale)
            assert jobs_of(snapshot) == ["bert"]
            assert snapshot.missing_jobs == ()  # nothing that is asked for is missing
            assert [each.shown for each in snapshot.missing_gpus] == ["default"]  # but other holders are
            feed.cluster_feed.show_namespace("other")
            await feed.until(lambda each: each.is_synced and jobs_of(each) == ["gpt"])
            feed.cluster_feed.show_namespace("")
            everything = await feed.until(lambda each: each.is_synced and jobs_of(each) == ["bert"])
            assert {each.resource for each in everything.missing_jobs} == {"pods", "pytorchjobs.kubeflow.org"}
