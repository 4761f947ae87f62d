"""Mirrors that stay correct whatever the server does."""

from __future__ import annotations

import asyncio
import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.cluster import mirror
from k8s.cluster.backoff import DEFAULT_BACKOFF, Backoff
from k8s.text.errors import Expired, KubeError, ServerFailed, Unauthorized, Unreachable
from tests.scripted.feed import PATIENT
from tests.scripted.logs import CountedBackoff
from tests.scripted.mirror import ALL, mirrored, pod, running
from tests.scripted.server import (
    Answer,
    Cut,
    Drop,
    Reply,
    ScriptedCluster,
    Stall,
    Stream,
    page,
    refusal,
    status_object,
)


async def test_the_first_listing_shows_each_page_as_it_comes() -> None:
    stream = Stream()
    async with ScriptedCluster() as cluster:
        cluster.say(
            ALL, page([pod("a")], following="2"), page([pod("b")], following="3"), page([pod("c")], "9")
        )
        cluster.say(ALL, stream, watch=True)
        async with running(cluster) as watched:
            await watched.until(lambda: watched.mirror.state.is_live)
            assert watched.names == ["a", "b", "c"]
            assert (frozenset("a"), False, False) in watched.states
            assert (frozenset("ab"), False, False) in watched.states
            assert watched.mirror.state.is_synced
        assert cluster.asked(ALL, watch=True)[0].query["resourceVersion"] == "9"


async def test_watch_events_update_the_mirror() -> None:
    stream = Stream()
    async with mirrored([page([pod("a")])], stream) as (_, watched):
        await watched.until_pods("a")
        stream.event("ADDED", pod("b", "2"))
        await watched.until_pods("a", "b")
        stream.event("MODIFIED", pod("b", "3", phase="Running"))
        await watched.until(lambda: watched.mirror.objects["b"].status.phase == "Running")
        stream.event("DELETED", pod("a", "4"))
        await watched.until_pods("b")


async def test_a_pod_recreated_under_the_same_name_replaces_the_old_uid() -> None:
    stream = Stream()
    async with mirrored([page([pod("a", uid="old")])], stream) as (_, watched):
        await watched.until_pods("a")
        stream.event("DELETED", pod("a", uid="old")).event("ADDED", pod("a", uid="new"))
        await watched.until(lambda: list(watched.mirror.objects) == ["new"])


async def test_a_watch_that_ends_goes_on_from_the_last_bookmark() -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "77", "creationTimestamp": None}}
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, page([pod("a")], "5"))
        cluster.say(ALL, Stream().event("BOOKMARK", bookmark).end(), Stream(), watch=True)
        async with running(cluster):
            await cluster.until_asked(ALL, 2, watch=True)
            assert [each.query["resourceVersion"] for each in cluster.asked(ALL, watch=True)] == ["5", "77"]
            assert len(cluster.asked(ALL)) == 1


GONE = status_object(410, "too old resource version: 5 (900)", "Expired")


@pytest.mark.parametrize(
    "forgotten",
    [refusal(410, "too old resource version: 5 (900)", "Expired"), Stream().event("ERROR", GONE).end()],
    ids=["as an answer", "as a line"],
)
async def test_an_expired_resource_version_triggers_a_relist_and_is_not_resumed(forgotten: Reply) -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(
            ALL, page([pod("a"), pod("b")], "5"), page([pod("b")], following="2"), page([pod("c")], "900")
        )
        cluster.say(ALL, forgotten, Stream(), watch=True)
        async with running(cluster) as watched:
            await cluster.until_asked(ALL, 2, watch=True)
            assert watched.names == ["b", "c"]
            assert {names for names, _, _ in watched.states} == {frozenset("ab"), frozenset("bc")}
            assert watched.problems == []  # it is the usual thing
            assert [each.query["resourceVersion"] for each in cluster.asked(ALL, watch=True)] == ["5", "900"]


async def test_a_server_that_forgets_everything_at_once_is_not_hammered() -> None:
    async with mirrored([page([pod("a")], "5")], refusal(410), backoff=PATIENT) as (cluster, watched):
        await watched.until_problem(Expired)
        assert watched.names == ["a"]
        assert [len(cluster.asked(ALL)), len(cluster.asked(ALL, watch=True))] == [2, 2]


async def test_a_list_that_expires_between_pages_restarts_unpaged_and_keeps_all_rows() -> None:
    async with ScriptedCluster() as cluster:
        pages = [page([pod("a")], following="2"), page([pod("b")], following="3"), refusal(410)]
        cluster.say(ALL, *pages, page([pod("b"), pod("c")]))
        cluster.say(ALL, Stream(), watch=True)
        async with running(cluster) as watched:
            await watched.until(lambda: watched.mirror.state.is_live)
            rows = dict.fromkeys(names for names, _, _ in watched.states)
            assert list(rows) == [frozenset("a"), frozenset("ab"), frozenset("bc")]
        again = cluster.asked(ALL)[3].query
        assert "continue" not in again and "limit" not in again


@pytest.mark.parametrize(
    ("breaks", "problem"),
    [
        ([Cut()], Unreachable),
        ([Drop(), Drop()], Unreachable),
        ([Answer(b'{"metadata": {}, "items": [{"meta')], ServerFailed),
        ([Answer([1])], ServerFailed),
    ],
    ids=["cut", "drop", "half of it", "no list at all"],
)
async def test_a_list_that_breaks_off_keeps_its_rows(breaks: list[Reply], problem: type[KubeError]) -> None:
    async with mirrored([page([pod("a")], following="2"), *breaks, page([pod("a"), pod("b")])], Stream()) as (
        _,
        watched,
    ):
        await watched.until_problem(problem)
        assert watched.names == ["a"]
        assert not watched.mirror.state.is_live
        await watched.until_pods("a", "b")


async def test_a_broken_watch_keeps_its_rows_reports_the_problem_and_resumes() -> None:
    stream = Stream().event("ADDED", pod("b", "6"))
    async with mirrored([page([pod("a")], "5")], stream, Stream().event("DELETED", pod("a", "7"))) as (
        cluster,
        watched,
    ):
        await watched.until_pods("a", "b")
        stream.send(b'{"type": "DELETED", "obj').drop()
        await watched.until_problem(Unreachable)
        assert watched.names == ["a", "b"]
        await watched.until_pods("b")
        assert [each.query["resourceVersion"] for each in cluster.asked(ALL, watch=True)] == ["5", "6"]
        assert len(cluster.asked(ALL)) == 1


async def test_last_seen_does_not_advance_while_the_cluster_is_unreachable() -> None:
    stream = Stream()
    async with mirrored([page([pod("a")])], stream, Drop()) as (cluster, watched):
        await watched.until(lambda: watched.mirror.state.is_live)
        stream.drop()
        await watched.until_problem(Unreachable)
        heard_s = watched.mirror.last_seen_s
        await cluster.until_asked(ALL, 5, watch=True)
        assert watched.mirror.last_seen_s == heard_s
        assert not watched.mirror.state.is_live


async def test_last_seen_of_an_idle_watch_is_the_time_when_the_connection_broke() -> None:
    stream = Stream()
    async with mirrored([page([pod("a")])], stream, Drop()) as (_, watched):
        await watched.until(lambda: watched.mirror.state.is_live)
        opened_s = watched.mirror.last_seen_s
        broken_s = asyncio.get_running_loop().time()
        stream.drop()
        await watched.until_problem(Unreachable)
        assert opened_s < broken_s <= watched.mirror.last_seen_s


async def test_last_seen_of_a_silent_watch_is_the_last_response_to_its_client() -> None:
    silent = Backoff(first_s=60.0, watch_s=0, grace_s=0.5)
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, page([pod("a")]))
        cluster.say(ALL, Stream(), watch=True)
        cluster.say("/version", Answer({"gitVersion": "v1.36.1"}))
        async with running(cluster, backoff=silent) as watched:
            await watched.until(lambda: watched.mirror.state.is_live)
            opened_s = watched.mirror.last_seen_s
            async with cluster.client() as other:
                await other.get_json("/version")  # somebody else's contact is none of ours
            await watched.client.get_json("/version")
            heard_s = watched.client.last_seen_s
            cluster.replace("/version", Stall())
            await watched.until_problem(Unreachable)
            assert opened_s < heard_s == watched.mirror.last_seen_s


async def test_a_watch_that_is_never_opened_is_not_called_live() -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, page([pod("a")]))
        cluster.say(ALL, Stall(), watch=True)
        async with running(cluster, request_s=0.05) as watched:
            await watched.until_problem(Unreachable)
            assert watched.names == ["a"]
            assert not watched.mirror.state.is_live
        assert not any(is_live for _, _, is_live in watched.states)


async def test_no_list_response_stops_the_mirror() -> None:
    cases: list[tuple[Reply, type[KubeError]]] = [
        (refusal(401, "Unauthorized"), Unauthorized),
        (refusal(500, "etcd leader changed"), ServerFailed),
        (Answer(b"<html>"), ServerFailed),
        (Answer([]), ServerFailed),
        (Answer({"items": {}}), ServerFailed),
        (Answer(b'{"items":' + b"[" * 100_000), ServerFailed),
        (Cut(), Unreachable),
        (refusal(422, "no"), KubeError),
    ]
    for reply, kind in cases:
        async with ScriptedCluster() as cluster:
            cluster.say(ALL, reply, page([pod("a")]))
            cluster.say(ALL, Stream(), watch=True)
            async with running(cluster) as watched:
                await watched.until_problem(kind)
                await watched.until_pods("a")


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b"{}\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": 5}\n',
        b'{"type": "ADDED", "object": {"metadata": {"name": "\xff"}}}\n',
        b'{"type": "BOOKMARK", "object": []}\n',
        b'{"type": "ERROR", "object": []}\n',
        b'{"type": "ERROR", "object": {"code": "many"}}\n',
        b'{"type": "ADDED", "object": ' + b"[" * 100_000 + b"\n",
    ],
    ids=range(10),
)
async def test_no_malformed_watch_line_stops_the_mirror(line: bytes) -> None:
    async with mirrored(
        [page([pod("a")], "5"), page([pod("b")], "6")], Stream(line), Stream().event("ADDED", pod("c"))
    ) as (_, watched):
        await watched.until_problem(ServerFailed)
        assert watched.names == ["a"]
        await watched.until(lambda: "c" in watched.names)


async def test_a_healthy_watch_resets_the_backoff() -> None:
    backoff = CountedBackoff()
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, refusal(500), refusal(500), page([pod("a")], "5"), page([pod("b")], "6"))
        breaks = Stream()
        cluster.say(ALL, breaks, Stream(), watch=True)
        async with running(cluster, backoff=backoff) as watched:
            await watched.until(lambda: watched.mirror.state.is_live)
            assert backoff.failures == [1, 2]
            breaks.send(b"nonsense\n")
            await watched.until_pods("b")
            assert backoff.failures == [1, 2, 1]


async def test_an_object_with_an_invalid_field_is_kept_without_it_and_named_until_corrected() -> None:
    stream = Stream()
    async with mirrored([page([pod("a"), pod("b"), {"metadata": {"name": 5}}], "5")], stream) as (_, watched):
        await watched.until_pods("a", "b")
        assert watched.mirror.state.unreadable == 1
        stream.event("MODIFIED", pod("a", "6", phase=5)).event("ADDED", pod("c", "7"))
        await watched.until_pods("a", "b", "c")
        assert watched.mirror.state.unreadable == 2
        assert watched.problem is None
        assert (missing := watched.mirror.unreadable()) is not None
        assert missing.why == (
            "Of pods some cannot be read in full: "
            "a (Expected `str`, got `int` - at `$.status.phase`), one without a name."
        )
        stream.event("MODIFIED", pod("a", "8")).event("DELETED", pod("b", "9"))
        await watched.until_pods("a", "c")
        assert watched.mirror.state.unreadable == 1


async def test_objects_without_a_uid_do_not_hide_each_other() -> None:
    async with mirrored(
        [page([{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}], "5")], Stream()
    ) as (_, watched):
        await watched.until_pods("a", "b")


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, page([pod("a")]))
        cluster.say(ALL, *[Stream().end() for _ in range(20)], watch=True)
        async with running(cluster, backoff=Backoff(first_s=0.2)):
            await cluster.until_asked(ALL, 3, watch=True)
        first, second, third = cluster.asked(ALL, watch=True)
        assert second.at_s - first.at_s >= 0.2
        assert third.at_s - second.at_s >= 0.4


async def test_a_watch_that_the_server_ends_after_a_while_is_no_error() -> None:
    stream = Stream()
    async with mirrored([page([pod("a")], "5")], stream, Stream()) as (cluster, watched):
        await watched.until(lambda: watched.mirror.state.is_live)
        watched.states.clear()
        stream.end()
        await cluster.until_asked(ALL, 2, watch=True)
        assert all(is_live for _, _, is_live in watched.states)
        assert watched.problems == []


async def test_a_flood_of_changes_creates_no_new_mirror_states_and_lets_other_tasks_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror, "TURN_S", 0.0)
    stream, versions = Stream(), set[str]()

    async def look_on() -> None:
        while "2001" not in versions:
            versions.add(watched.mirror.objects["a"].metadata.resource_version)
            await asyncio.sleep(0)

    async with mirrored([page([pod("a")])], stream) as (_, watched):
        await watched.until(lambda: watched.mirror.state.is_live)
        state, heard_s = watched.mirror.state, watched.mirror.last_seen_s
        changes = [{"type": "MODIFIED", "object": pod("a", str(version))} for version in range(2, 2002)]
        stream.send(b"".join(json.dumps(each).encode() + b"\n" for each in changes))
        await asyncio.gather(look_on(), watched.until(lambda: "2001" in versions))
        assert watched.mirror.state is state and len(versions) > 1500
        assert watched.mirror.last_seen_s >= heard_s


async def test_a_bookmark_does_not_publish_a_new_state() -> None:
    stream = Stream()
    async with mirrored([page([pod("a")], "5")], stream, Stream()) as (_, watched):
        await watched.until(lambda: watched.mirror.state.is_live)
        watched.states.clear()
        stream.event("BOOKMARK", {"metadata": {"resourceVersion": "77"}})
        stream.event("ADDED", pod("b", "78"))
        await watched.until_pods("a", "b")
        assert len(watched.states) == 1


async def test_retry_now_skips_the_backoff_delay() -> None:
    async with mirrored([refusal(500), page([pod("a")])], Stream(), backoff=PATIENT) as (_, watched):
        await watched.until_problem(ServerFailed)
        watched.mirror.retry_now()
        await watched.until_pods("a")


@given(failures=st.integers(1, 10_000))
def test_a_delay_doubles_with_each_failure_up_to_thirty_seconds_and_half_as_much_again(failures: int) -> None:
    doubled_s = min(30.0, 0.8 * 2 ** min(failures - 1, 10))
    assert doubled_s <= DEFAULT_BACKOFF.delay_s(failures) <= doubled_s * 1.5


def test_backoff_delays_double_up_to_the_longest_with_jitter() -> None:
    backoff = Backoff(first_s=1.0, longest_s=4.0)
    delays_s = islice(backoff.delays(), 5)
    for delay_s, least_s in zip(delays_s, (1.0, 2.0, 4.0, 4.0, 4.0), strict=True):
        assert least_s <= delay_s <= least_s * 1.5


def test_backoff_delays_have_jitter() -> None:
    assert len({DEFAULT_BACKOFF.delay_s(1) for _ in range(20)}) > 1
