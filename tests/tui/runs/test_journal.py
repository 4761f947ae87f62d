"""The journal: several writers, sudden ends, damage, a full disk, and its bounds."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path
from typing import cast

import pytest

from k8s.client.client import Client
from k8s.logs import LogLine, Options, Target, targets_of
from k8s.logs.read import read
from k8s.text.errors import KubeError, NotFound
from tests.scripted.log_stores import PROXY, ScriptedLoki, at, entries
from tests.scripted.server import Answer, ScriptedCluster
from tests.support.history import BEGAN_S, DAY_S, HOUR_S, TIMES, new_job, write_change, write_day
from tests.support.objects import joined, pod_of, pytorch_job
from tui.runs.journal import database as module
from tui.runs.journal import kept_logs
from tui.runs.journal.database import JOURNAL_FILE, Journal
from tui.runs.journal.kept_logs import KeptLogs, keep_logs
from tui.runs.record import RunRecord
from tui.runs.store import RunStore
from tui.settings.options import HistoryOptions

WRITER = """
import sys
from pathlib import Path
from tui.runs.record import RunRecord
from tui.runs import store as module
module.MAX_RUNS = 10**9
store = module.RunStore(Path(sys.argv[1]))
for number in range(100_000):
    store.add(RunRecord(f"{sys.argv[2]}-{number}", nodes=("a",)))
    print(number, flush=True)
"""


def test_runs_that_were_acknowledged_survive_a_kill_of_their_writers(tmp_path: Path) -> None:
    for turn in range(3):
        starts = [[sys.executable, "-c", WRITER, str(tmp_path), f"{turn}-{name}"] for name in "ab"]
        writers = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in starts]
        for each in writers:
            assert each.stdout is not None
            for _ in range(20):
                each.stdout.readline()
            os.kill(each.pid, signal.SIGKILL)
        acknowledged = [len((each.communicate())[0].splitlines()) + 20 for each in writers]
        store = RunStore(tmp_path)
        uids = {each.uid for each in store.records()}
        for name, count in zip("ab", acknowledged, strict=True):
            assert {f"{turn}-{name}-{number}" for number in range(count - 1)} <= uids
        assert store.problems == () and store.journal.rows("PRAGMA integrity_check") == [("ok",)]
        store.journal.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"not a database at all" * 99),
        lambda path: path.write_bytes(path.read_bytes()[:5000] + b"\xff" * 4096 + path.read_bytes()[9096:]),
    ],
    ids=["other", "pages"],
)
def test_a_damaged_journal_is_set_aside_and_named(tmp_path: Path, damage: object) -> None:
    first = Journal(tmp_path)
    for number in range(200):
        first.write(("INSERT INTO runs (uid, record) VALUES (?, ?)", f"u{number}", b"x" * 400))
    first.close()
    other = RunStore(tmp_path)
    other.get("u0")  # has it open
    damage(tmp_path / JOURNAL_FILE)  # type: ignore[operator]
    for store, uid in ((again := RunStore(tmp_path), "new"), (other, "late")):
        store.add(RunRecord(uid, nodes=("a",)))
    assert "it was moved to journal-damaged-" in again.problems[0]
    assert len([*tmp_path.glob("journal-damaged-*")]) == 1
    assert [each.uid for each in RunStore(tmp_path).records()] == ["new", "late"]


def test_journals_that_are_damaged_one_after_the_other_are_all_set_aside(tmp_path: Path) -> None:
    damaged = [b"%d: not a database" % number * 99 for number in range(4)]  # two of them within a second
    for each in damaged:
        (tmp_path / JOURNAL_FILE).write_bytes(each)
        (store := RunStore(tmp_path)).add(RunRecord("a", nodes=("n",)))
        store.journal.close()
    assert sorted(each.read_bytes() for each in tmp_path.glob("journal-damaged-*")) == damaged


READER = """
import ctypes, sys
from pathlib import Path
from tui.runs.record import RunRecord
from tui.runs.store import RunStore
ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())  # modes bind root too
store = RunStore(Path(sys.argv[1]))
print(len(store.records()), *store.problems)
store.add(RunRecord("b", nodes=("n",)))
print(len(store.records()), *store.problems)
"""


@pytest.mark.parametrize("is_damaged", [False, True], ids=["clean", "damaged"])
def test_a_journal_in_a_folder_that_cannot_be_written_is_read(tmp_path: Path, is_damaged: bool) -> None:
    folder = tmp_path / "a %20#?x=y"
    (store := RunStore(folder)).add(RunRecord("a", nodes=("n",)))
    store.journal.close()
    path = folder / JOURNAL_FILE
    path.write_bytes(b"not a database" * 99 if is_damaged else path.read_bytes())
    folder.chmod(0o500)
    found = subprocess.run([sys.executable, "-c", READER, folder], capture_output=True, text=True).stdout
    folder.chmod(0o700)
    clean = f"1\n1 {path}: attempt to write a readonly database; what happens now is not kept\n"
    assert found == (f"0 {path}: file is not a database\n" * 2 if is_damaged else clean)


def test_a_journal_of_the_first_version_keeps_its_runs_and_logs(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / JOURNAL_FILE) as first:
        for statement in (*module.MIGRATIONS[0], "PRAGMA user_version = 1"):
            first.execute(statement)
        run = b'{"uid": "a", "nodes": ["n"]}'
        first.execute("INSERT INTO runs (uid, record) VALUES ('a', ?)", (run,))
        first.execute("INSERT INTO logs VALUES ('a', 'pod', 'main', '{}', 9e9, 0, 'x')")
    store = RunStore(tmp_path)
    assert [each.uid for each in store.records()] == ["a"]
    store.journal.prune()  # their age counts from now
    assert len(store.records()) == 1 and len(store.journal.rows("SELECT 1 FROM logs")) == 1
    assert store.journal.rows("PRAGMA user_version") == [(len(module.MIGRATIONS),)] and not store.problems


def test_a_journal_of_a_newer_version_stays_unchanged(tmp_path: Path) -> None:
    Journal(tmp_path).rows("SELECT 1")
    with sqlite3.connect(tmp_path / JOURNAL_FILE) as other:
        other.execute("PRAGMA user_version = 99")
    store = RunStore(tmp_path)
    store.add(RunRecord("a", nodes=("n",)))
    assert "newer gpuconsole" in store.problems[0] and store.get("a") is not None
    with sqlite3.connect(tmp_path / JOURNAL_FILE) as other:
        assert other.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_a_write_to_a_full_or_locked_journal_fails_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_S", 0.01)
    found, put = Journal(tmp_path), "INSERT INTO runs (uid, record) VALUES (?, ?)"
    assert found.write((put, "a", b"a"))
    found.rows("PRAGMA max_page_count = 20")
    assert not found.write((put, "b", b"x" * 200_000))
    assert "full" in found.problems[0]
    assert found.write((put, "b", b"b")) and found.problems == []  # less fits
    with sqlite3.connect(tmp_path / JOURNAL_FILE, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not found.write((put, "c", b"c")) and "locked" in found.problems[0]
        assert found.rows("SELECT uid FROM runs") == [("a",), ("b",)]
        assert Journal(tmp_path).is_on_disk  # opening it writes nothing
        found.keep((put, "e", b"e"))
        found.keep(("INSERT INTO nowhere VALUES (1)",))  # holds nobody up
        found.keep((put, "f", b"f"))
        other.execute("ROLLBACK")
    assert found.write((put, "d", b"d"))
    found.reopened().keep()
    assert [uid for (uid,) in found.rows("SELECT uid FROM runs")] == [*"abdef"]


DAYS, LOG_BYTES = 90, 4_000
ETERNAL, ENDED = 100_000, 100_001


@pytest.mark.parametrize(
    ("size_mib", "jobs", "cut"), [(200, 4, 0), (1.6, 4, 1), (1, 4, 2), (1, 8, 3), (1, 16, 6), (1, 32, 8)]
)
def test_ninety_days_stay_within_the_bounds_and_the_oldest_and_largest_go_first(
    tmp_path: Path, size_mib: float, jobs: int, cut: int
) -> None:
    history = HistoryOptions(size_mib=size_mib)
    journal = Journal(tmp_path, history)
    write_change(journal, ETERNAL, BEGAN_S, "Pending")
    write_change(journal, ETERNAL, BEGAN_S + 1, "Running")
    write_change(journal, ENDED, BEGAN_S, "Failed")
    journal.write(new_job(ETERNAL, BEGAN_S), new_job(ENDED, BEGAN_S))
    journal.write(("INSERT INTO idle VALUES (?, ?, '', 1, 1)", ENDED, BEGAN_S + DAYS * DAY_S))
    for day in range(DAYS):
        write_day(journal, day, jobs, LOG_BYTES)
        journal.prune(now_s=BEGAN_S + (day + 1) * DAY_S)
    first_s = BEGAN_S + (DAYS - history.days) * DAY_S
    oldest = {
        table: journal.rows(f"SELECT min({at_s}) FROM {table} WHERE {at_s} > ?", BEGAN_S + 1)[0][0]
        for table, at_s in TIMES.items()
    }
    assert all(at_s is None or at_s >= first_s for at_s in oldest.values())
    assert [table for table in TIMES if (oldest[table] or 1e12) > first_s + 2 * HOUR_S] == [*TIMES][:cut]
    old = journal.rows("SELECT job, status FROM changes WHERE at_s < ?", first_s)
    assert old == [(ETERNAL, "Running")]  # it may still run
    ((rows,),) = journal.rows("SELECT count(*) FROM jobs WHERE id < ?", ETERNAL)
    assert rows == jobs * 30 if cut < 6 else rows <= jobs * 30
    named = journal.rows("SELECT id FROM jobs WHERE id >= ?", ETERNAL)
    assert named == ([(ETERNAL,), (ENDED,)] if cut < 5 else [(ETERNAL,)])
    assert journal.size_bytes <= size_mib * (1 << 20) + (32 << 10)  # the index of the log of writes


def test_bounds_are_checked_every_few_minutes_only(tmp_path: Path) -> None:
    journal, put = Journal(tmp_path), "INSERT INTO runs (uid, record, kept_s) VALUES (?, '', ?)"
    for now_s, kept in ((1e9, 0), (1e9 + 299, 1), (1e9 + 300, 0), (1e9 - 1e5, 0)):  # the clock is set back
        journal.write((put, "a", 0.0))
        journal.prune(now_s)
        assert journal.rows("SELECT count(*) FROM runs") == [(kept,)]


def test_without_a_history_only_choices_outlive_the_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEFAULT_HISTORY", HistoryOptions(size_mib=1))
    kept = RunStore(tmp_path)
    kept.add(RunRecord("before", nodes=("a",)))
    off = RunStore(tmp_path, HistoryOptions(size_mib=0))
    assert off.records() == []
    off.add(RunRecord("now", nodes=("a",)))
    write_day(off.journal, 0, 100, LOG_BYTES)
    off.journal.write(("INSERT INTO choices VALUES ('layout lab', 'list')",))
    off.journal.prune(BEGAN_S + DAY_S)
    assert 0 < off.journal.rows("SELECT count(*) FROM logs")[0][0] < 200  # memory is bounded, too
    off.journal.prune(BEGAN_S + 40 * DAY_S)
    assert off.journal.rows("SELECT uid FROM runs") == [("now",)]
    assert kept.journal.rows("SELECT name FROM choices") == [("layout lab",)]
    assert [each.uid for each in kept.records()] == ["before"] and off.problems == ()


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "ext4", "tmpfs"])
def test_the_log_of_writes_is_not_mapped_where_machines_share_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts = f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path} {kind} rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda _path, **_: mounts)
    mode = "wal" if kind in ("ext4", "tmpfs") else "truncate"
    assert Journal(tmp_path).rows("PRAGMA journal_mode") == [(mode,)]


async def test_kept_lines_are_read_as_from_the_cluster(tmp_path: Path) -> None:
    made = pytorch_job("bert", workers=2)
    pods = [pod_of(made, "master-0", on="a", phase="Succeeded"), pod_of(made, "worker-0", on="a")]
    job = joined([], pods, [made])[1]["bert"]

    async def tail(target: Target, lines: int) -> list[LogLine]:
        if target.name == "worker-0":
            raise KubeError("gone")
        texts = (b"step 1\r50%", b"", b"\xff loss 2", b"last")
        return [LogLine((1_700_000_000 + at) * 10**9 + 7, text, target, at) for at, text in enumerate(texts)]

    store = RunStore(tmp_path)
    part = [LogLine(1_700_000_009 * 10**9, b"streamed", targets_of(job)[1], 0)]
    await keep_logs(store.journal, job, tail, lambda target, _: part if target.name == "worker-0" else [])
    await keep_logs(store.journal, job, None, lambda *_: part)  # it is gone by now
    kept = KeptLogs(store.journal, RunRecord(job.uid))
    assert kept.is_partial and [each.name for each in kept.targets] == ["master-0", "worker-0"]
    client = cast("Client", kept)

    async def raws(**options: object) -> list[bytes]:
        batches = read(client, kept.targets, Options(**options))  # type: ignore[arg-type]
        return [each.raw async for batch in batches for each in batch if isinstance(each, LogLine)]

    assert await raws() == [b"step 1\r50%", b"", b"\xff loss 2", b"last"]
    assert (await raws(every=True))[-1] == b"streamed" and await raws(instance="worker-0") == [b"streamed"]
    assert await raws(tail=1) == [b"last"] and await raws(tail=0) == [] == await raws(since_s=5)
    assert await raws(since_time="2023-11-14T22:13:22Z") == [b"\xff loss 2", b"last"]
    assert (await raws(raw=True)) == [b"step 1\r50%\n\n\xff loss 2\nlast\n"]
    with pytest.raises(NotFound, match="Only its last run"):
        await raws(previous=True)
    master, worker = kept.texts()
    assert master.startswith("─ master-0, its last 4 lines ─") and "others may be missing" in worker
    ((body,), _) = store.journal.rows("SELECT body FROM logs ORDER BY pod")
    assert zlib.decompress(body).startswith(b"2023-11-14T22:13:20.000000007Z step 1\r50%\n")


async def test_a_rank_of_which_nothing_was_read_is_a_gap_beside_the_others(tmp_path: Path) -> None:
    made = pytorch_job("bert", workers=2)
    job = joined([], [pod_of(made, name, on="a") for name in ("master-0", "worker-0")], [made])[1]["bert"]
    journal, line = RunStore(tmp_path).journal, LogLine(10**18, b"step 1", targets_of(job)[0], 0)

    async def tail(target: Target, lines: int) -> list[LogLine]:
        if not target.is_chief:
            raise KubeError("gone")
        return [line]

    await keep_logs(journal, job, None, lambda *_: [])
    assert not KeptLogs(journal, RunRecord(job.uid)).targets
    await keep_logs(journal, job, tail, lambda *_: [])
    kept = KeptLogs(journal, RunRecord(job.uid))
    assert kept.is_partial and [kept.last_lines(each, 9) for each in kept.targets] == [["step 1"], []]


async def test_a_log_that_was_read_before_its_end_is_partial(tmp_path: Path) -> None:
    made, journal = pytorch_job("bert", workers=2), RunStore(tmp_path).journal

    async def keep(text: bytes, master: str, worker: str, *, can_read: bool = True) -> list[object]:
        pods = [pod_of(made, "master-0", phase=master), pod_of(made, "worker-0", phase=worker)]
        job = joined([], pods, [made])[1]["bert"]

        async def tail(target: Target, lines: int = 1) -> list[LogLine]:
            return [LogLine(10**18, text, target, 0)]

        lines = await tail(targets_of(job)[0])
        await keep_logs(journal, job, tail if can_read else None, lambda *_: lines)
        rows = journal.rows("SELECT body, is_partial FROM logs ORDER BY pod")
        return [(zlib.decompress(body)[-2:-1], bool(is_partial)) for body, is_partial in rows]

    assert await keep(b"1", "Succeeded", "Running") == [(b"1", False), (b"1", True)]
    assert await keep(b"2", "Running", "Running") == [(b"2", True)] * 2
    assert await keep(b"3", "Running", "Running", can_read=False) == [(b"2", True)] * 2
    assert await keep(b"4", "Failed", "Failed") == [(b"4", False)] * 2


def test_another_process_that_leaves_takes_no_writes_along(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    put = "INSERT INTO choices (name, value) VALUES (?, ?)"
    assert first.write((put, "a", "1")) and second.write((put, "b", "2"))
    visit = "import sys; from pathlib import Path; from tui.runs.journal.database import Journal\n"
    visit += "found = Journal(Path(sys.argv[1])); print(found.rows('SELECT name FROM choices'))"
    command = [sys.executable, "-c", visit, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[('a',), ('b',)]\n"
    assert first.write((put, "c", "3")) and second.write((put, "d", "4"))
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found == "[('a',), ('b',), ('c',), ('d',)]\n"


async def test_lines_that_were_not_kept_are_read_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_logs, "KEPT_LINES", 3)
    made = pytorch_job("bert", workers=2)
    made["metadata"]["namespace"] = "vision"
    pods = [pod_of(made, "master-0", on="a", phase="Succeeded"), pod_of(made, "worker-0", on="a")]
    job = joined([], pods, [made])[1]["bert"]
    texts = [f"line {number}" for number in range(8)]
    masters, workers = (entries(f"bert-{name}", texts) for name in ("master-0", "worker-0"))

    async def tail(target: Target, lines: int) -> list[LogLine]:
        if target.name == "worker-0":
            raise KubeError("gone")
        return [LogLine(at_ns, text.encode(), target, 0) for _, at_ns, text in masters[-lines:]]

    journal = RunStore(tmp_path).journal
    await keep_logs(journal, job, tail, lambda target, _: [LogLine(at(1), b"streamed", target, 0)])
    record = RunRecord(job.uid, "bert", "vision", "PyTorchJob", ended_s=at(0) / 1e9, created_s=at(0) / 1e9)
    kept = KeptLogs(journal, record)
    assert kept.lacks_lines(1) and not KeptLogs(journal, RunRecord("")).targets

    async def raws(instance: str, **options: object) -> list[str]:
        wanted = Options(instance=instance, **options)  # type: ignore[arg-type]
        batches = read(cast("Client", kept), kept.targets, wanted)
        return [each.raw.decode() async for batch in batches for each in batch if isinstance(each, LogLine)]

    loki, proxy = ScriptedLoki([*masters, *workers]), PROXY.format("monitoring", "loki")
    loki.held += [*entries("bert-worker-1", ["one"]), *entries("bert-large-worker-2", ["other"])]
    loki.held += [({**loki.held[-2][0], "container": "istio-proxy"}, at(0), "x")]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        loki.serve(cluster, proxy)
        await kept.add_stored(client, "monitoring/loki")
        assert kept.source.startswith("Loki monitoring/loki, until 20") and not kept.problem
        assert [each.name for each in kept.targets] == ["master-0", "worker-0", "worker-1"]
        asked = len(loki.asked)
        assert await raws("master-0", tail=2) == texts[-2:] and len(loki.asked) == asked
        assert await raws("master-0") == texts and await raws("master-0", tail=5) == texts[-5:]
        # Of a log that was only streamed, the store has all.
        assert await raws("worker-0", tail=1) == texts[-1:] and await raws("worker-1") == ["one"]
        assert [each.pod for each in kept.in_container("istio-proxy")] == ["bert-worker-1"]
        await kept.load()
        assert "worker-1, its last 1 lines ─\none" in "\n".join(kept.texts())
        kept = KeptLogs(journal, record)
        await kept.add_stored(client, "monitoring/loki")
        cluster.replace(f"{proxy}/loki/api/v1/query_range", Answer(b"\x1b[0mtimeout", 504))
        assert await raws("worker-0") == ["streamed"] and kept.problem.endswith("504: timeout")
        with pytest.raises(NotFound, match="Could not read Loki monitoring/loki"):
            await raws("worker-1")
        await (kept := KeptLogs(journal, record)).add_stored(client, "monitoring/loki")
        assert not kept.source and kept.problem.endswith("504: timeout")
