"""Watches: every change once and in order, resumed, selected, and refused when too old."""

from __future__ import annotations

import pytest

from tests.k8s.sandbox.calls import TORCH_JOBS, Api, config, eventually, pod, thing


async def test_a_watch_reports_every_change_in_order(api: Api) -> None:
    start = (await api.get("configmaps")).version
    async with api.watching("configmaps", resourceVersion=start, fieldSelector="metadata.name=c") as events:
        await api.made("configmaps", config("c"))
        await api.made("configmaps", config("other"))
        await api.patch("configmaps", "c", {"data": {"k": "2"}})
        await api.delete("configmaps", "c")
        seen = [await events.next() for _ in range(3)]
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event["object"]["data"]["k"] for event in seen] == ["1", "2", "2"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert int(start) < versions[0] < versions[1] < versions[2]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_a_version_begins_with_all_objects(api: Api, query: dict[str, str]) -> None:
    await api.made("pods", pod("a"))
    await api.made("pods", pod("b"))
    await eventually(lambda: _has(api, "pods", 2))
    async with api.watching("pods", **query) as events:
        assert sorted(await events.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await api.made("pods", pod("c"))
        assert await events.take(1) == [("ADDED", "c")]


async def _has(api: Api, plural: str, count: int) -> bool:
    return len((await api.get(plural, resourceVersion="0")).names) == count


async def test_a_watch_resumes_where_another_ended(api: Api) -> None:
    await api.made("secrets", thing("Secret", "a", type="test/x"))
    middle = (await api.made("secrets", thing("Secret", "b", type="test/x")))["metadata"]["resourceVersion"]
    await api.made("secrets", thing("Secret", "c", type="test/x"))
    await api.delete("secrets", "a")
    async with api.watching("secrets", resourceVersion=middle, fieldSelector="type=test/x") as events:
        assert await events.take(2) == [("ADDED", "c"), ("DELETED", "a")]


async def test_an_object_enters_and_leaves_a_selector(api: Api) -> None:
    start = (await api.get("pods")).version
    query = {"resourceVersion": start, "labelSelector": "on=1"}
    async with api.watching("pods", **query) as events:
        await api.made("pods", pod("p"))
        await api.patch("pods", "p", {"metadata": {"labels": {"on": "1"}}})
        await api.patch("pods", "p", {"metadata": {"annotations": {"a": "b"}}})
        left = (await api.patch("pods", "p", {"metadata": {"labels": {"on": "2"}}})).version
        seen = [await events.next() for _ in range(3)]
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert seen[2]["object"]["metadata"]["resourceVersion"] == left
    assert seen[2]["object"]["metadata"]["labels"] == {"on": "1"}


async def test_a_pod_enters_and_leaves_a_phase(api: Api) -> None:
    await api.made("pods", pod("p", node="nowhere"))
    start = (await api.get("pods")).version
    query = {"resourceVersion": start, "fieldSelector": "status.phase=Running"}
    async with api.watching("pods", **query) as events:
        for phase in ("Running", "Succeeded"):
            await api.patch("pods", "p", {"status": {"phase": phase}}, subresource="status")
        assert await events.take(2) == [("ADDED", "p"), ("DELETED", "p")]


async def test_a_watch_ends_in_time_with_a_bookmark_of_the_newest_version(api: Api) -> None:
    start = (await api.get("pods")).version
    query = {
        "resourceVersion": start,
        "timeoutSeconds": "4" if api.is_real else "1",
        "allowWatchBookmarks": "true",
    }
    async with api.watching("pods", **query) as events:
        newest = (await api.made("pods", pod("p")))["metadata"]["resourceVersion"]
        added, *bookmarks = await events.rest()
    assert added["type"] == "ADDED"
    assert {event["type"] for event in bookmarks} == {"BOOKMARK"}
    assert int(bookmarks[-1]["object"]["metadata"]["resourceVersion"]) >= int(newest)
    assert bookmarks[-1]["object"]["kind"] == "Pod"


async def test_bookmarks_are_sent_on_request_only(api: Api) -> None:
    start = (await api.get("pods")).version
    async with api.watching("pods", resourceVersion=start, timeoutSeconds="1") as events:
        assert await events.rest() == []


async def test_expired_versions_are_answered_with_410(forgetful_api: Api) -> None:
    api = forgetful_api
    async with api.watching(TORCH_JOBS, resourceVersion="1") as events:
        event = await events.next()
        assert await events.next() == {}
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_watch_from_the_future_waits(api: Api) -> None:
    async with api.watching("pods", resourceVersion="999999999", timeoutSeconds="1") as events:
        await api.made("pods", pod("p"))
        assert await events.rest() == []
