"""The sandbox's database and its watches: nothing acknowledged is lost, and a watch behind gets a 410."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from k8s.sandbox.api import lists
from k8s.sandbox.api.served import BY_KEY
from k8s.sandbox.api.store import RESERVE_BYTES, Object, Store, StoreError
from k8s.text.errors import Expired
from tests.k8s.sandbox.calls import Api, config, pod, thing
from tests.k8s.sandbox.conftest import serving


def obj(name: str, namespace: str = "n", **members: object) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, **members}


def names(store: Store) -> list[str]:
    return [record.name for record in store.records("pods")]


def test_objects_and_the_version_survive_a_restart(store: Store) -> None:
    store.put("pods", obj("a", spec={"x": "ä"}))
    store.put("pods", obj("b"))
    store.remove("pods", "n", "b")
    store.close()
    again = Store(store.path)
    try:
        assert (again.version, names(again)) == (3, ["a"])
        record = again.get("pods", "n", "a")
        assert record is not None
        assert (record.version, record.obj["spec"]) == (1, {"x": "ä"})
        assert again.put("pods", obj("c")).obj["metadata"]["resourceVersion"] == "4"
    finally:
        again.close()


def test_a_write_is_on_disk_when_it_is_acknowledged(store: Store, tmp_path: Path) -> None:
    store.put("pods", obj("a"))
    for file in tmp_path.glob("store.sqlite*"):
        shutil.copy(file, tmp_path / file.name.replace("store", "copy"))
    copy = Store(tmp_path / "copy.sqlite")
    assert names(copy) == ["a"]
    copy.close()


def test_changes_are_stored_for_each_kind_separately(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", changes_kept=3)
    store.put("nodes", obj("quiet", ""))
    for number in range(20):
        store.put("pods", obj(f"p-{number}"))
    assert len(store.changes_after("nodes", 0)) == 1
    assert [change.version for change in store.changes_after("pods", 18)] == [19, 20, 21]
    with pytest.raises(Expired):
        store.changes_after("pods", 2)
    store.close()


def test_lists_of_a_namespace_hold_only_its_objects(store: Store) -> None:
    store.put("pods", obj("a", "one"))
    store.put("pods", obj("a", "two"))
    assert [record.namespace for record in store.records("pods", "two")] == ["two"]
    assert [record.namespace for record in store.records("pods")] == ["one", "two"]


def test_a_second_sandbox_cannot_open_the_database(store: Store) -> None:
    with pytest.raises(StoreError, match="Another sandbox is using it"):
        Store(store.path)


def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(StoreError) as error:
        Store(path)
    assert "damaged" in error.value.why
    assert "reset" in error.value.hint


@pytest.mark.parametrize(
    ("change", "why"),
    [("UPDATE objects SET body = x'7b'", "damaged"), ("PRAGMA user_version = 99", "newer")],
    ids=["a damaged object", "a database of a newer program"],
)
def test_a_database_that_cannot_be_read_is_refused(store: Store, change: str, why: str) -> None:
    store.put("pods", obj("a"))
    store.close()
    with sqlite3.connect(store.path) as database:
        database.execute(change)
    database.close()
    with pytest.raises(StoreError, match=why):
        Store(store.path)


def test_a_path_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as error:
        Store(tmp_path / "file" / "store")
    assert str(tmp_path) in str(error.value)
    with pytest.raises(StoreError):
        Store(tmp_path)


def test_on_a_full_disk_objects_are_still_changed_and_removed(store: Store) -> None:
    assert Path(f"{store.path}-wal").stat().st_size > RESERVE_BYTES, "its full length before it is reused"
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(100):
        store.put("pods", obj(f"a{number}", spec="x" * 8_000))
    for number in range(100):
        store.remove("pods", "n", f"a{number}")
    assert names(store) == []


def test_a_full_disk_refuses_the_write_and_changes_nothing(store: Store) -> None:
    store.put("pods", obj("a"))
    store._database.execute("VACUUM")  # uses up the reserve
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError) as error:
        store.put("pods", obj("b", spec="x" * 1_000_000))
    assert "full" in error.value.why
    assert (store.version, names(store)) == (1, ["a"])
    store._database.execute("PRAGMA max_page_count = 1000000")
    assert store.put("pods", obj("b")).version == 2


def test_other_users_cannot_read_the_database(store: Store) -> None:
    assert store.path.stat().st_mode & 0o077 == 0


async def test_a_watch_that_falls_behind_ends_with_410(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", changes_kept=5)
    async with serving(store, tmp_path) as (server, api), api.watching("configmaps") as events:
        served = BY_KEY["configmaps"]
        # All in one turn of the loop: no watch can keep up with that.
        for number in range(20):
            server.registry.create(served, "default", config(f"c-{number}"))
        assert (await events.next())["object"]["code"] == 410
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
        served = BY_KEY["pods"]

        async def change() -> None:
            for number in range(count):
                server.registry.create(served, "default", pod(f"p-{number}"))
                if number % 50 == 0:
                    await asyncio.sleep(0)

        begun = time.process_time()
        changing = asyncio.create_task(change())
        assert len(await events.take(count)) == count
        took_s = time.process_time() - begun
        await changing
    print(f"{count / took_s:,.0f} changes for a second of CPU, writing and reading them included")
    assert count / took_s > 1000


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
