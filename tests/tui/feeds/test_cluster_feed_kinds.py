"""The kinds of jobs that are mirrored: those that the server has, as they come and go."""

from __future__ import annotations

from tests.scripted.feed import (
    BERT,
    HASTY,
    PATIENT,
    WATCHED,
    jobs_of,
    keeps_its_rows,
    poked_until,
    running,
    say_kinds,
    serve_lists,
    serve_small,
)
from tests.scripted.server import (
    ScriptedCluster,
)


async def test_a_kind_that_is_installed_later_appears_and_goes_with_its_rows() -> None:
    other = {**BERT, "kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1"}
    other["metadata"] = {**BERT["metadata"], "name": "mpi", "uid": "mpi"}
    other["spec"] = {"mpiReplicaSpecs": {}}
    there = "/apis/kubeflow.org/v2beta1/mpijobs"
    async with ScriptedCluster() as cluster:
        streams = serve_small(cluster)
        streams |= serve_lists(cluster, {there: [other]})
        async with running(cluster, backoff=HASTY) as feed:
            await feed.until_live(cluster, WATCHED)
            assert cluster.asked(there) == []
            say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs"], "kubeflow.org/v2beta1": ["mpijobs"]})
            await poked_until(feed, lambda each: sorted(jobs_of(each)) == ["bert", "mpi"])
            assert set(feed.cluster_feed.snapshot().kinds) == {"PyTorchJob", "MPIJob"}
            say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs"]})
            for is_watch in (False, True):
                cluster.forget(there, watch=is_watch)
            streams[there].end()
            await feed.until(lambda each: jobs_of(each) == ["bert"])


async def test_a_server_that_forgets_a_kind_while_it_starts_takes_no_row_away() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        async with running(cluster, backoff=HASTY) as feed:
            await feed.until_live(cluster, WATCHED)
            say_kinds(cluster, {"batch/v1": []})
            feed.cluster_feed.retry_now()
            await cluster.until_asked("/apis", 2)
            feed.cluster_feed.retry_now()
            await cluster.until_asked("/apis/batch/v1")
            feed.cluster_feed.show_namespace("default")
            await feed.until(lambda each: each.namespace == "default")
            assert keeps_its_rows(feed)


async def test_a_kind_in_two_versions_is_mirrored_once() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        say_kinds(cluster, {"kubeflow.org/v2beta1": ["mpijobs"], "kubeflow.org/v1": ["mpijobs"]})
        serve_lists(cluster, {f"/apis/kubeflow.org/{each}/mpijobs": [] for each in ("v1", "v2beta1")})
        async with running(cluster, backoff=PATIENT) as feed:
            await feed.until(lambda each: each.is_synced)
        lists = [asked.path for asked in cluster.requests if asked.path.endswith("/mpijobs")]
        assert len(set(lists)) == 1
