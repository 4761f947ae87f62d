"""Watches of the sandbox under load: nothing lost, nothing twice, and a 410 after falling behind."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from k8s.sandbox.api.admission.registry import Write
from k8s.sandbox.api.http import lists
from k8s.sandbox.api.served import BY_KEY
from k8s.sandbox.api.store import Store
from tests.k8s.sandbox.calls import Api, config, pod, thing
from tests.k8s.sandbox.conftest import serving


async def test_a_watch_that_falls_behind_ends_with_410(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", changes_kept=5)
    async with serving(store, tmp_path) as (server, api), api.watching("configmaps") as events:
        write, served = Write(), BY_KEY["configmaps"]
        # All in one turn of the loop: no watch can keep up with that.
        for number in range(20):
            server.registry.create(served, "default", config(f"c-{number}"), write)
        assert (await events.next())["object"]["code"] == 410
    store.close()


async def test_busy_kinds_do_not_expire_the_changes_of_others(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", changes_kept=2)
    async with serving(store, tmp_path) as (_, api):
        start = (await api.get("pods")).version
        for number in range(10):
            await api.made("configmaps", config(f"c-{number}"))
        async with api.watching("pods", resourceVersion=start) as events:
            await api.made("pods", pod("p"))
            assert await events.take(1) == [("ADDED", "p")]
    store.close()


async def test_after_a_restart_a_watch_resumes_or_expires(store: Store, tmp_path: Path) -> None:
    async with serving(store, tmp_path) as (_, api):
        first = (await api.made("pods", pod("a")))["metadata"]["resourceVersion"]
        last = (await api.made("pods", pod("b")))["metadata"]["resourceVersion"]
    store.close()
    again = Store(store.path)
    async with serving(again, tmp_path) as (_, api):
        async with api.watching("pods", resourceVersion=last) as events:
            await api.made("pods", pod("c"))
            assert await events.take(1) == [("ADDED", "c")]
        async with api.watching("pods", resourceVersion=first) as events:
            assert (await events.next())["object"]["reason"] == "Expired"
    again.close()


async def test_initial_events_end_with_a_bookmark(sandbox: Api) -> None:
    await sandbox.made("pods", pod("a"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with sandbox.watching("pods", **query) as events:
        assert (await events.next())["type"] == "ADDED"
        bookmark = (await events.next())["object"]["metadata"]
    assert bookmark["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["resourceVersion"] == (await sandbox.get("pods")).version


async def test_bookmarks_advance_an_idle_watch(sandbox: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "BOOKMARK_S", 0.1)
    async with sandbox.watching("pods", resourceVersion="1", allowWatchBookmarks="true") as events:
        newest = (await sandbox.made("configmaps", config("c")))["metadata"]["resourceVersion"]
        while (event := await events.next())["object"]["metadata"]["resourceVersion"] != newest:
            assert event["type"] == "BOOKMARK"


async def test_every_watcher_sees_every_change_once(sandbox: Api) -> None:
    count, readers = 300, 8
    start = (await sandbox.get("configmaps")).version

    async def read() -> list[tuple[str, str]]:
        async with sandbox.watching("configmaps", resourceVersion=start) as events:
            return await events.take(count)

    reading = [asyncio.create_task(read()) for _ in range(readers)]
    await asyncio.gather(*(sandbox.made("configmaps", config(f"c-{number}")) for number in range(count)))
    seen = await asyncio.gather(*reading)
    wanted = {("ADDED", f"c-{number}") for number in range(count)}
    assert all(set(each) == wanted and len(each) == count for each in seen)


@pytest.mark.slow
async def test_thousands_of_changes_a_second_reach_a_watcher(store: Store, tmp_path: Path) -> None:
    count = 5000
    async with serving(store, tmp_path) as (server, api), api.watching("pods") as events:
        served, write = BY_KEY["pods"], Write()

        async def change() -> None:
            for number in range(count):
                server.registry.create(served, "default", pod(f"p-{number}"), write)
                if number % 50 == 0:
                    await asyncio.sleep(0)

        begun = time.process_time()
        changing = asyncio.create_task(change())
        assert len(await events.take(count)) == count
        took_s = time.process_time() - begun
        await changing
    print(f"{count / took_s:,.0f} changes for a second of CPU, writing and reading them included")
    assert count / took_s > 1000


async def test_a_thousand_pods_are_listed_quickly(store: Store, tmp_path: Path) -> None:
    async with serving(store, tmp_path) as (server, api):
        for number in range(1000):
            server.registry.create(BY_KEY["pods"], "default", pod(f"p-{number}"), Write())
        await api.get("pods")
        begun = time.process_time()
        async with api.session.get(
            f"{api.url}/api/v1/pods", headers={"Authorization": f"Bearer {api.token}"}
        ) as response:
            body = await response.read()
        took_s = time.process_time() - begun
    print(f"1,000 pods, {len(body) / 1e6:.1f} MB, in {took_s * 1000:.0f} ms")
    assert took_s < 0.1


async def test_a_watch_of_a_namespace_shows_no_other(sandbox: Api) -> None:
    await sandbox.call("POST", "/api/v1/namespaces", thing("Namespace", "other"))
    start = (await sandbox.get("configmaps")).version
    for query in ({}, {"resourceVersion": start}, {"labelSelector": "a=b"}):
        async with sandbox.watching("configmaps", **query) as events:
            sandbox.namespace = "other"
            await sandbox.made("configmaps", config("theirs", labels={"a": "b"}))
            await sandbox.patch("configmaps", "theirs", {"data": {"k": "2"}})
            await sandbox.delete("configmaps", "theirs")
            sandbox.namespace = "default"
            await sandbox.made("configmaps", config("ours", labels={"a": "b"}))
            assert await events.take(1) == [("ADDED", "ours")]
        await sandbox.delete("configmaps", "ours")
        start = (await sandbox.get("configmaps")).version


async def test_changes_during_a_slow_read_arrive(sandbox: Api) -> None:
    count, large = 80, "x" * 300_000
    start = (await sandbox.get("configmaps")).version
    async with sandbox.watching("configmaps", resourceVersion=start) as events:
        # Nobody reads: the server's first writes fill the sockets, and the watch waits in the middle of one.
        for number in range(count):
            await sandbox.made("configmaps", config(f"c-{number}", {"k": large}))
        assert await events.take(count) == [("ADDED", f"c-{number}") for number in range(count)]
