"""Past runs in the state folder: complete, private, bounded, and shared by several consoles."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tui.runs import store as module
from tui.runs.record import RunRecord, TagSummary
from tui.runs.store import RUNS_FILE, RunStore


def run(uid: str, loss: float | None = 1.0, status: str = "Succeeded") -> RunRecord:
    tags = {"loss": TagSummary(loss, 0.5, 2.0, 10, 3)}
    return RunRecord(uid, f"job-{uid}", "vision", "PyTorchJob", status=status, tags=tags, seen_s=1.0)


def test_stored_runs_survive_a_restart_in_a_private_file(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    first = RunStore(folder)
    assert first.find("a") is None and "a" not in first and first.records() == []
    for each in (run("a", 0.25), RunRecord("b", status="Failed"), run("c", None), run("d", status="Running")):
        first.add(each)
    again = RunStore(folder)
    assert again.find("a") == 0.25 and "b" in again and again.find("b") is None
    assert math.isnan(again.find("c") or 0.0) and "d" not in again
    assert again.get("a") == run("a", 0.25)
    assert [(folder / RUNS_FILE).stat().st_mode & 0o777, first.size_bytes > 0] == [0o600, True]
    assert again.clear() == 4 and RunStore(folder).records() == [] and first.records() == []


def test_jobs_that_never_started_are_no_past_runs() -> None:
    store = RunStore()
    waited = replace(run("w", status="Deleted"), tags={}, created_s=1.0)
    for each in (waited, replace(waited, uid="n", nodes=("a",)), replace(waited, uid="s", started_s=2.0)):
        store.add(each)
    assert ([each.uid for each in store.records()], "w" in store) == (["n", "s"], True)


def test_two_consoles_keep_each_others_runs(tmp_path: Path) -> None:
    one, other = RunStore(tmp_path), RunStore(tmp_path)
    assert one.find("x") is None and other.find("x") is None
    for store, uid in ((one, "a"), (other, "b"), (one, "c"), (other, "a")):
        store.add(run(uid))
    assert [each.uid for each in RunStore(tmp_path).records()] == ["b", "c", "a"]
    assert one.records() == other.records()


def test_only_the_newest_runs_are_retained_also_without_a_writable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RUNS", 4)
    store, memory = RunStore(tmp_path), RunStore()
    for number in range(6):
        store.add(run(str(number)))
        memory.add(run(str(number)))
    kept = [each.uid for each in RunStore(tmp_path).records()]
    assert kept == ["2", "3", "4", "5"] == [each.uid for each in memory.records()]
    monkeypatch.setattr(module, "MAX_BYTES", 2 * len(msgspec.json.encode(run("0"))) + 10)
    store.add(run("6"))
    assert [each.uid for each in store.records()] == ["5", "6"]
    blocked = RunStore(tmp_path / RUNS_FILE)  # a file where the folder should be
    blocked.add(run("a"))
    assert blocked.find("a") == 1.0


def test_a_run_with_very_many_settings_is_stored_without_its_variables(tmp_path: Path) -> None:
    large = msgspec.structs.replace(run("a"), env={str(number): "x" * 400 for number in range(200)})
    RunStore(tmp_path).add(large)
    found = RunStore(tmp_path).get("a")
    assert found is not None and found.env == {} and found.loss == 1.0


DAMAGE = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"{}", b'{"uid": 3}', b"null", b"[" * 5000, b'{"uid":"x","tags":{"loss":3}}', b"\xff"]),
    st.integers(0, 200).map(lambda at: msgspec.json.encode(run("cut"))[:at]),
)


@given(st.lists(DAMAGE, max_size=6), st.integers(0, 6))
def test_damaged_records_are_reported_and_valid_ones_retained(damage: list[bytes], place: int) -> None:
    good = [msgspec.json.encode(run(uid)) for uid in ("good-1", "good-2")]
    lines = [*damage[:place], good[0], *damage[place:], good[1]]
    with TemporaryDirectory() as folder:
        path = Path(folder) / RUNS_FILE
        path.write_bytes(b"\n".join(lines))  # the last line has no end
        store = RunStore(Path(folder))
        uids = {each.uid for each in store.records()}
        assert {"good-1", "good-2"} <= uids
        assert all(str(path) in problem for problem in store.problems)
        store.add(run("new"))
        assert {"good-1", "good-2", "new"} <= {each.uid for each in RunStore(Path(folder)).records()}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / RUNS_FILE).mkdir()
    store = RunStore(tmp_path)
    assert store.records() == [] and "directory" in store.problems[0].lower()
    store.add(run("a"))
    assert store.find("a") == 1.0
