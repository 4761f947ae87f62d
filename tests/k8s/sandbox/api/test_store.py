"""The sandbox's database: acknowledged writes survive a restart, and failures are reported."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from k8s.errors import Expired
from k8s.sandbox.api.store import Object, Store, StoreError


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


def test_after_a_restart_older_versions_are_forgotten(store: Store) -> None:
    store.put("pods", obj("a"))
    store.put("pods", obj("b"))
    store.close()
    again = Store(store.path)
    try:
        assert again.changes_after("pods", 2) == []
        with pytest.raises(Expired):
            again.changes_after("pods", 1)
        again.put("pods", obj("c"))
        assert len(again.changes_after("pods", 2)) == 1
    finally:
        again.close()


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


def test_a_damaged_object_is_reported(store: Store) -> None:
    store.put("pods", obj("a"))
    store.close()
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE objects SET body = x'7b'")
    database.close()
    with pytest.raises(StoreError, match="damaged"):
        Store(store.path)


def test_a_database_of_a_newer_program_is_refused(store: Store) -> None:
    store.close()
    with sqlite3.connect(store.path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="newer"):
        Store(store.path)


def test_a_path_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as error:
        Store(tmp_path / "file" / "store")
    assert str(tmp_path) in str(error.value)
    with pytest.raises(StoreError):
        Store(tmp_path)


def test_a_full_disk_refuses_the_write_and_changes_nothing(store: Store) -> None:
    store.put("pods", obj("a"))
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


def test_a_thousand_writes_take_little_time(store: Store) -> None:
    start = time.process_time()
    for number in range(1000):
        store.put("pods", obj(f"p-{number}", spec={"x": "y" * 2000}))
    assert time.process_time() - start < 3


def test_only_versions_before_the_oldest_stored_change_are_expired(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", changes_kept=3)
    for number in range(6):
        store.put("pods", obj(f"p-{number}"))
    assert [change.version for change in store.changes_after("pods", 3)] == [4, 5, 6]
    with pytest.raises(Expired):
        store.changes_after("pods", 2)
    store.close()
