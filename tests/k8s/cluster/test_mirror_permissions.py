"""Mirrors of collections that may not be read in full, or are not served."""

from __future__ import annotations

import asyncio

import pytest

from k8s.client.client import Client
from k8s.cluster.backoff import Backoff
from k8s.snapshot import Missing
from k8s.text.errors import Forbidden, NotFound, Unreachable
from tests.scripted.mirror import ALL, MINE, Watched, mirrored, pod, running
from tests.scripted.server import ScriptedCluster, Stream, page, refusal


async def test_a_forbidden_cluster_wide_list_falls_back_to_the_own_namespace_and_is_reported() -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, refusal(403, 'user "li" cannot list pods at the cluster scope'))
        cluster.say(MINE, page([pod("a")]))
        cluster.say(MINE, Stream(), watch=True)
        async with running(cluster, "", "mine") as watched:
            await watched.until(lambda: watched.mirror.state.is_live)
            assert watched.names == ["a"]
            assert watched.mirror.namespace == "mine"
            assert watched.problem is None
            why = 'The cluster says: user "li" cannot list pods at the cluster scope'
            assert watched.mirror.missing == Missing("list", "pods", shown="mine", why=why)


async def test_a_refusal_that_is_over_is_noticed_when_the_watch_ends() -> None:
    stream = Stream()
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, refusal(403, "starting"), page([pod("a"), pod("b")]))
        cluster.say(MINE, page([pod("a")]))
        cluster.say(MINE, stream, watch=True)
        cluster.say(ALL, Stream(), watch=True)
        async with running(cluster, "", "mine") as watched:
            await watched.until_pods("a")
            stream.end()
            await watched.until_pods("a", "b")
            assert watched.mirror.missing is None


async def test_a_forbidden_watch_falls_back_to_a_list_of_the_own_namespace() -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, page([pod("a"), pod("foreign")], "5"))
        cluster.say(ALL, refusal(403, "cannot watch"), watch=True)
        cluster.say(MINE, page([pod("a")], "6"))
        cluster.say(MINE, Stream(), watch=True)
        async with running(cluster, "", "mine") as watched:
            await watched.until(lambda: watched.mirror.state.is_live)
            assert watched.names == ["a"]
            assert watched.mirror.missing is not None
            assert (watched.mirror.missing.verb, watched.mirror.missing.shown) == ("watch", "mine")


async def test_listed_rows_are_kept_and_relisted_when_watching_is_forbidden() -> None:
    async with mirrored(
        [page([pod("a")], "5"), page([pod("a"), pod("b")], "6")], refusal(403, "cannot watch")
    ) as (_, watched):
        await watched.until_pods("a", "b")
        await watched.until(lambda: watched.mirror.state.is_absent)
        assert watched.names == ["a", "b"]
        assert watched.mirror.missing is not None
        assert watched.mirror.missing.words.startswith("This user may not watch pods.")


@pytest.mark.parametrize("names", ["", "a"], ids=["empty", "with a pod"])
@pytest.mark.parametrize("code", [403, 404])
async def test_a_403_or_404_after_a_working_watch_is_retried_before_fallback(code: int, names: str) -> None:
    stream = Stream()
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, page([pod(name) for name in names]))
        cluster.say(ALL, stream, refusal(code), refusal(code), Stream(), watch=True)
        async with running(cluster, "", "mine") as watched:
            await watched.until(lambda: watched.mirror.state.is_live)
            stream.end()
            await cluster.until_asked(ALL, 4, watch=True)
            assert {shown for shown, is_synced, _ in watched.states if is_synced} == {frozenset(names)}
            assert watched.mirror.missing is None
            assert cluster.asked(MINE) == []


async def test_a_403_of_the_first_list_after_an_outage_is_retried() -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, refusal(403, "starting"), refusal(403, "starting"), page([pod("a")]))
        cluster.say(ALL, Stream(), watch=True)
        await cluster.go_away()
        async with running(cluster, "", "mine") as watched:
            await watched.until_problem(Unreachable)
            await cluster.come_back()
            await watched.until_pods("a")
            assert cluster.asked(MINE) == []


async def test_a_forbidden_list_is_retried_at_growing_intervals() -> None:
    streams = [Stream() for _ in range(4)]
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, refusal(403, "not all"))
        cluster.say(MINE, page([pod("a")]))
        cluster.say(MINE, *streams, watch=True)
        async with running(cluster, "", "mine", backoff=Backoff(first_s=0.01, longest_s=0.02)) as watched:
            for number, stream in enumerate(streams, 1):
                await cluster.until_asked(MINE, number, watch=True)
                stream.end()
            asked = [int(each.query["timeoutSeconds"]) for each in cluster.asked(MINE, watch=True)]
            assert watched.names == ["a"]
            assert len(cluster.asked(ALL)) == len(streams), "a refusal that was believed is not doubted"
    for open_s, least_s in zip(asked, (60, 120, 240, 290), strict=False):
        assert least_s <= open_s <= least_s * 1.1


async def test_a_kind_that_is_removed_takes_its_rows_with_it() -> None:
    stream = Stream()
    async with mirrored([page([pod("a")])], stream, refusal(404)) as (cluster, watched):
        await watched.until(lambda: watched.mirror.state.is_live)
        cluster.forget(ALL)
        stream.end()
        await watched.until(lambda: watched.mirror.state.is_absent)
        assert watched.names == []


async def test_a_fully_forbidden_collection_is_reported_and_retried_cluster_wide_later() -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, refusal(403, "not all"), page([pod("a")]))
        cluster.say(MINE, refusal(403, "not even mine"))
        cluster.say(ALL, Stream(), watch=True)
        async with running(cluster, "", "mine") as watched:
            await watched.until_problem(Forbidden)
            why = "The cluster says: not even mine"
            assert watched.mirror.missing == Missing("list", "pods", namespace="mine", why=why)
            assert watched.mirror.state.is_synced and watched.mirror.state.is_absent
            assert watched.names == []
            await watched.until_pods("a")


async def test_a_kind_that_is_not_served_is_empty_until_it_appears() -> None:
    async with mirrored(
        [refusal(404, "the server could not find the requested resource"), page([pod("a")])], Stream()
    ) as (_, watched):
        await watched.until_problem(NotFound)
        assert watched.mirror.state.is_synced
        await watched.until_pods("a")


async def test_list_once_falls_back_to_the_namespace_and_raises_its_error(
    cluster: ScriptedCluster, client: Client
) -> None:
    cluster.say(ALL, refusal(403, "not all"))
    cluster.say(MINE, page([pod("a")]), refusal(403, "not even mine"))
    watched = Watched(client, ("", "mine"))
    await watched.mirror.list_once()
    assert watched.names == ["a"]
    refused = Watched(client, ("", "mine")).mirror
    with pytest.raises(Forbidden, match="not even mine"):
        await refused.list_once()
    running = asyncio.create_task(refused.run())
    await cluster.until_asked(MINE, 3)
    assert len(cluster.asked(ALL)) == 3, "it is not doubted again"
    running.cancel()
    await asyncio.wait([running])


async def test_each_403_after_a_recovery_is_retried_before_fallback() -> None:
    streams = [Stream(), Stream(), Stream()]
    no = refusal(403, "starting")
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, page([pod("a")]))
        cluster.say(ALL, streams[0], no, no, streams[1], no, no, streams[2], watch=True)
        async with running(cluster, "", "mine") as watched:
            for asked, stream in enumerate(streams[:2]):
                await watched.until(lambda: watched.mirror.state.is_live)
                stream.end()
                await cluster.until_asked(ALL, 4 + 3 * asked, watch=True)
            await watched.until(lambda: watched.mirror.state.is_live)
            assert {names for names, is_synced, _ in watched.states if is_synced} == {frozenset("a")}
            assert watched.mirror.missing is None
            assert cluster.asked(MINE) == []


async def test_a_new_403_after_an_accepted_one_was_lifted_is_retried_without_a_relist() -> None:
    first, second = Stream(), Stream()
    no = refusal(403, "starting")
    async with mirrored([page([pod("a")])], first, no, no, no, no, second, no, Stream()) as (
        cluster,
        watched,
    ):
        await watched.until(lambda: watched.mirror.state.is_live)
        first.end()
        await watched.until(lambda: watched.mirror.state.is_absent)
        await watched.until(lambda: watched.mirror.state.is_live)
        absences = len([each for each in watched.problems if each is Forbidden])
        watched.states.clear()
        second.end()
        await cluster.until_asked(ALL, 8, watch=True)
        await watched.until(lambda: watched.mirror.state.is_live)
        assert {names for names, _, _ in watched.states} == {frozenset("a")}
        assert watched.mirror.missing is None
        assert len(cluster.asked(ALL)) == 2, "the refusal was not believed, so nothing was listed anew"
        assert absences
