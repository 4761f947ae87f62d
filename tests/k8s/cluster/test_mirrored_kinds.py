"""The kinds of jobs that are mirrored: those that the server has, as they come and go."""

from __future__ import annotations

import pytest

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.cluster.discovery import ServedKinds
from tests.scripted.feed import (
    BERT,
    HASTY,
    PATIENT,
    WATCHED,
    Feed,
    jobs_of,
    keeps_its_rows,
    poked_until,
    pressing,
    running,
    say_kinds,
    serve_lists,
    serve_small,
)
from tests.scripted.server import Answer, ScriptedCluster, Stall, refusal


async def test_a_kind_installed_later_is_mirrored_and_its_rows_disappear_when_it_is_removed() -> None:
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
            assert set(feed.mirror.snapshot().kinds) == {"PyTorchJob", "MPIJob"}
            say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs"]})
            for is_watch in (False, True):
                cluster.forget(there, watch=is_watch)
            streams[there].end()
            await feed.until(lambda each: jobs_of(each) == ["bert"])


async def test_a_kind_temporarily_missing_from_discovery_keeps_its_rows() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        async with running(cluster, backoff=HASTY) as feed:
            await feed.until_live(cluster, WATCHED)
            say_kinds(cluster, {"batch/v1": []})
            async with pressing(feed):  # once is not enough: a discovery under way does not see it
                await cluster.until_asked("/apis/batch/v1", 2)
            feed.mirror.show_namespace("default")
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


async def test_jobs_of_separately_stored_versions_of_a_kind_are_all_listed() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        versions = ("v2beta1", "v1alpha1")
        say_kinds(cluster, {f"kubeflow.org/{version}": ["mpijobs"] for version in versions})
        for version in versions:
            path = f"/apis/kubeflow.org/{version}"
            entry = {"name": "mpijobs", "kind": "MPIJob", "namespaced": True, "verbs": ["list", "watch"]}
            cluster.forget(path)
            cluster.say(path, Answer({"resources": [{**entry, "storageVersionHash": version}]}))
            job = {"metadata": {"name": version, "namespace": "default", "uid": version}, "spec": {}}
            serve_lists(cluster, {f"{path}/mpijobs": [job]})
        async with running(cluster, backoff=PATIENT) as feed:
            await feed.until(lambda each: {"v2beta1", "v1alpha1"} <= set(jobs_of(each)))


RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"


def refuse_all(cluster: ScriptedCluster) -> None:
    """Serve three kinds of jobs, and refuse the lists of nodes and pods."""
    served = {"kubeflow.org/v1": ["pytorchjobs"], "kubeflow.org/v2beta1": ["mpijobs"], "batch/v1": ["jobs"]}
    say_kinds(cluster, served)
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/default/pods"):
        cluster.say(path, refusal(403, f'User "li" cannot list resource "{path}"', "Forbidden"))


def review_of(*rules: dict[str, list[str]], incomplete: bool = False) -> Answer:
    return Answer(
        {"status": {"resourceRules": list(rules), "nonResourceRules": [], "incomplete": incomplete}}
    )


async def test_resources_excluded_by_the_users_rules_are_not_listed(
    cluster: ScriptedCluster, client: Client
) -> None:
    refuse_all(cluster)
    cluster.say(
        RULES, review_of({"verbs": ["create"], "apiGroups": ["*"], "resources": ["*"]}), method="POST"
    )
    feed = ClusterMirror(client)
    snapshot = await feed.read_once()
    lists = [asked.path for asked in cluster.requests if asked.path.endswith("jobs")]
    assert lists == []
    assert feed.reads_nothing
    assert {"nodes", "pods", "pytorchjobs.kubeflow.org", "jobs.batch"} <= snapshot.problems.keys()
    assert snapshot.problems["jobs.batch"].words.startswith("This user may not list jobs.batch")
    assert {asked.path for asked in cluster.requests if asked.method == "POST"} == {RULES}


@pytest.mark.parametrize(
    "review",
    [
        review_of(incomplete=True),
        review_of({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
        review_of({"verbs": ["list"], "apiGroups": ["batch"], "resources": ["pods", "jobs"]}),
        refusal(403, "no review", "Forbidden"),
        Answer(b"nonsense"),
        Answer({"status": {"resourceRules": None}}),
    ],
)
async def test_resources_not_excluded_by_the_users_rules_are_listed(
    review: Answer, cluster: ScriptedCluster, client: Client
) -> None:
    refuse_all(cluster)
    serve_lists(cluster, {"/apis/batch/v1/jobs": []})
    cluster.say(RULES, review, method="POST")
    feed = ClusterMirror(client)
    assert "jobs.batch" not in (await feed.read_once()).problems
    assert cluster.asked("/apis/batch/v1/jobs")
    assert not feed.reads_nothing


async def test_a_discovery_that_fails_later_adds_no_kinds() -> None:
    async with ScriptedCluster() as cluster:
        serve_small(cluster)
        async with running(cluster, backoff=HASTY) as feed:
            await feed.until_live(cluster, WATCHED)
            before = {asked.path for asked in cluster.requests}
            cluster.forget("/apis")
            cluster.say("/apis", refusal(500, "etcdserver: no leader"))
            async with pressing(feed):
                await cluster.until_asked("/apis", len(cluster.asked("/apis")) + 3)
            feed.mirror.show_namespace("default")
            await feed.until(lambda each: each.namespace == "default")
            assert set(feed.mirror.snapshot().kinds) == {"PyTorchJob"}
            asked = {each.path for each in cluster.requests} - before - {"/version"}
            assert {
                path for path in asked if "/authentication.k8s.io/" not in path
            } == set()  # who the user is


@pytest.mark.parametrize("is_known", [True, False])
async def test_no_first_list_waits_for_another_and_with_a_known_server_for_no_answer(is_known: bool) -> None:
    """Over a slow link each answer that is waited for costs a round trip."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        mirror = ClusterMirror(client)
        say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs"]})
        for path in WATCHED:
            cluster.say(path, Stall())
        if is_known:
            mirror.known_served = ServedKinds({"kubeflow.org/v1": frozenset({"pytorchjobs"})})
            cluster.say_everywhere(Stall())
        async with Feed(mirror).running():
            for path in WATCHED:
                await cluster.until_asked(path)
