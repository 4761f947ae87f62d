"""The recorder of changes: their times, several observers, gaps, and failing writes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from k8s.cluster.cluster_mirror import LONGEST_IDLE_S
from k8s.snapshot import LifeSigns, Silence
from k8s.status import Status
from tests.support.scripted_cluster import ScriptedCluster, at
from tui.runs.journal.database import JOURNAL_FILE, Journal
from tui.runs.journal.recorder import SETTLE_S

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(tmp_path: Path) -> ScriptedCluster:
    return ScriptedCluster(tmp_path)


async def test_each_change_is_written_with_its_time(cluster: ScriptedCluster) -> None:
    cluster.observer()
    await cluster.tick(to_s=40)
    cluster.put("bert", Status.PENDING, created=at(38))
    await cluster.tick(to_s=60)
    cluster.put("bert", Status.RUNNING, started=at(55), gpus_allocated=4)
    await cluster.tick(to_s=90)
    cluster.life["uid-bert"] = LifeSigns(Silence(at(70), 1.0))
    await cluster.tick(to_s=120)
    cluster.life.clear()
    cluster.put("bert", Status.RUNNING, restarts=1)
    await cluster.tick(to_s=150)
    cluster.put("bert", Status.FAILED, finished=at(149), reason="exit 1")
    await cluster.tick(to_s=151)
    cluster.causes["uid-bert"] = "CUDA out of memory"
    cluster.put("bert", Status.FAILED, finished=at(149), reason="rank 0 exit 1: OutOfMemoryError")
    await cluster.tick(to_s=160)
    columns = "at_s, after_s, status, alerts, restarts, gpus_held, gpus_waiting, reason, cause"
    assert cluster.changes(columns) == [
        (38, None, "Pending", "", 0, 0, 4, "", ""),
        (55, None, "Running", "", 0, 4, 0, "", ""),
        (90, None, "Running", "silent", 0, 4, 0, "", ""),
        (120, None, "Running", "", 1, 4, 0, "", ""),
        (149, None, "Failed", "", 1, 0, 0, "rank 0 exit 1: OutOfMemoryError", "CUDA out of memory"),
    ]


async def test_unobserved_changes_get_the_times_of_the_objects(cluster: ScriptedCluster) -> None:
    first = cluster.observer()
    for name in ("ended", "waited", "deleted"):
        cluster.put(name, Status.PENDING)
    cluster.put("stayed", Status.RUNNING)
    await cluster.tick(to_s=60)
    cluster.recorders.remove(first)
    cluster.now_s = 3_000
    cluster.put("ended", Status.SUCCEEDED, started=at(500), finished=at(2_000))
    cluster.put("waited", Status.SUSPENDED)
    cluster.put("new", Status.FAILED, created=at(700), started=at(800), finished=at(900))
    del cluster.jobs["deleted"]
    cluster.now_s = 3_600
    cluster.observer()
    await cluster.tick()
    pending = [(name, 0, None, "Pending") for name in ("ended", "waited", "deleted")]
    assert cluster.changes("name, at_s, after_s, status") == [
        *pending,
        ("stayed", 0, None, "Running"),
        ("ended", 500, None, "Running"),
        ("new", 700, None, "Pending"),
        ("new", 800, None, "Running"),
        ("new", 900, None, "Failed"),
        ("ended", 2_000, None, "Succeeded"),
        ("waited", 3_600, 60, "Suspended"),
        ("deleted", 3_600, 60, "Deleted"),
    ]
    assert cluster.observed() == [(0, 60), (3_600, 3_600)]


async def test_observers_of_one_cluster_write_each_change_once(cluster: ScriptedCluster) -> None:
    fast, slow = cluster.observer("record"), cluster.observer()
    await cluster.tick()
    states = (Status.PENDING, Status.RUNNING, Status.PENDING, Status.RUNNING, Status.FAILED)
    older = []
    for status in states:
        cluster.put("bert", status, started=None)
        older.append(dict(cluster.jobs))
        await cluster.tick(fast)
        cluster.now_s += 10
    for cluster.jobs in older:  # what the other one is told later
        await cluster.tick(slow)
    await cluster.tick(cluster.observer())
    assert [status for _, _, status in cluster.changes()] == [*states]


async def test_news_of_an_observer_that_is_late_are_not_written_after_those_of_another(
    cluster: ScriptedCluster,
) -> None:
    fast, slow = cluster.observer("record"), cluster.observer()
    await cluster.tick()
    cluster.put("bert", Status.PENDING, gpus_allocated=2)
    late = dict(cluster.jobs)
    cluster.jobs = {"bert": replace(late["bert"], gpus_allocated=0)}
    await cluster.tick(fast)
    cluster.put("bert", Status.RUNNING)
    await cluster.tick(fast)
    now, cluster.jobs = cluster.jobs, late
    await cluster.tick(slow, to_s=LONGEST_IDLE_S, every_s=1)  # its next snapshot comes no sooner
    cluster.jobs = now
    await cluster.tick()
    assert cluster.changes("status, gpus_held") == [("Pending", 0), ("Running", 4)]
    cluster.put("bert", Status.RUNNING, gpus_allocated=2)  # the other one has not seen it at all
    cluster.recorders.remove(fast)
    await cluster.tick(to_s=LONGEST_IDLE_S + SETTLE_S + 2, every_s=1)
    assert cluster.changes("at_s, status, gpus_held")[-1] == (LONGEST_IDLE_S, "Running", 2)


async def test_a_lost_server_and_a_sleeping_machine_leave_gaps(cluster: ScriptedCluster) -> None:
    cluster.observer()
    cluster.put("bert", Status.RUNNING)
    await cluster.tick(to_s=100)
    cluster.stale_since_s = 80
    await cluster.tick(to_s=200)
    cluster.stale_since_s = None
    cluster.put("bert", Status.RESTARTING, gpus_allocated=0)
    await cluster.tick(to_s=300)
    cluster.now_s = 5_000
    cluster.put("bert", Status.RUNNING)
    await cluster.tick(to_s=5_020)
    assert [(round(start), round(end)) for start, end in cluster.observed()] == [
        (0, 80), (200, 300), (5_000, 5_020),
    ]  # fmt: skip
    after = [(status, after_s and round(after_s)) for status, after_s in cluster.changes("status, after_s")]
    assert after == [("Running", None), ("Restarting", 80), ("Running", 300)]


async def test_jobs_that_cannot_be_read_are_not_gone(cluster: ScriptedCluster) -> None:
    cluster.observer()
    cluster.put("bert", Status.RUNNING)
    cluster.put("gpt", Status.RUNNING, namespace="text")
    await cluster.tick(to_s=30)
    cluster.covered = "text"
    await cluster.tick(to_s=60)
    cluster.unreadable, cluster.jobs = {"PyTorchJob"}, {}
    await cluster.tick(to_s=90)
    assert "Deleted" not in [status for _, _, status in cluster.changes()]
    namespaces = Journal(cluster.folder).rows("SELECT namespace FROM observed ORDER BY id")
    assert namespaces == [("",), ("text",)]


async def test_jobs_of_others_that_have_ended_are_not_recorded(cluster: ScriptedCluster) -> None:
    cluster.put("done", Status.SUCCEEDED, user="wu")
    cluster.put("runs", Status.RUNNING, user="wu")
    cluster.put("mine", Status.SUCCEEDED)
    cluster.observer()
    await cluster.tick(to_s=30)
    cluster.put("runs", Status.SUCCEEDED)
    await cluster.tick(to_s=60)
    assert cluster.changes("name, status, is_mine") == [
        ("runs", "Running", 0), ("mine", "Succeeded", 1), ("runs", "Succeeded", 0),
    ]  # fmt: skip


async def test_a_locked_journal_gets_the_changes_later(cluster: ScriptedCluster) -> None:
    recorder = cluster.observer()
    await cluster.tick(to_s=1)
    other = sqlite3.connect(cluster.folder / JOURNAL_FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    cluster.put("bert", Status.PENDING)
    await cluster.tick(to_s=2)
    cluster.put("bert", Status.RUNNING)
    await cluster.tick(to_s=3)
    assert recorder.journal.problems and cluster.changes() == []
    other.execute("ROLLBACK")
    await cluster.tick(to_s=4)
    assert cluster.changes() == [("bert", 1, "Pending"), ("bert", 2, "Running")]


async def test_a_journal_that_was_emptied_or_replaced_is_filled_again(cluster: ScriptedCluster) -> None:
    cluster.observer()
    cluster.put("bert", Status.PENDING)
    await cluster.tick(to_s=10)
    journal = Journal(cluster.folder)
    journal.write(("DELETE FROM changes",), ("DELETE FROM jobs",), ("DELETE FROM observed",))
    cluster.put("bert", Status.RUNNING)
    await cluster.tick(to_s=30)
    assert cluster.changes()[-1] == ("bert", 10, "Running") and cluster.observed() == [(0, 30)]
    journal.close()
    for path in cluster.folder.iterdir():
        path.unlink()
    cluster.put("bert", Status.FAILED)
    await cluster.tick(to_s=60)
    assert cluster.changes()[-1] == ("bert", 30, "Failed") and cluster.observed() == [(0, 60)]


async def test_a_folder_that_is_out_of_reach_for_a_time_loses_no_changes(cluster: ScriptedCluster) -> None:
    recorder, away = cluster.observer(), cluster.folder.with_name("away")
    cluster.put("bert", Status.PENDING)
    await cluster.tick(to_s=10)
    cluster.folder.rename(away)
    cluster.folder.write_text("no folder")
    for status in (Status.RUNNING, Status.FAILED):
        cluster.put("bert", status)
        await cluster.tick(to_s=cluster.now_s + 20)
    assert "File exists" in recorder.journal.problems[0]
    cluster.folder.unlink()
    away.rename(cluster.folder)
    await cluster.tick(to_s=70)
    assert [status for _, _, status in cluster.changes()] == ["Pending", "Running", "Failed"]
    assert cluster.observed() == [(0, 70)] and recorder.journal.problems == []


async def test_a_clock_that_is_set_back_does_not_reorder(cluster: ScriptedCluster) -> None:
    cluster.observer()
    cluster.put("bert", Status.PENDING)
    await cluster.tick(to_s=50)
    job = cluster.put("bert", Status.RUNNING, started=at(0) - timedelta(seconds=9))
    await cluster.tick()
    cluster.now_s = 45
    cluster.jobs["bert"] = replace(job, restarts=1)
    await cluster.tick()
    assert cluster.changes() == [("bert", 0, "Pending"), ("bert", 50, "Running"), ("bert", 50, "Running")]


WRITER = """
import asyncio, sys
from pathlib import Path
from k8s.status import Status
from tests.support.scripted_cluster import ScriptedCluster

async def record():
    cluster = ScriptedCluster(Path(sys.argv[1]))
    cluster.observer(sys.argv[2])
    for number in range(100_000):
        cluster.now_s = float(number)
        cluster.put(f"{sys.argv[2]}-{number}", Status.RUNNING)
        await cluster.tick()
        print(number, flush=True)

asyncio.run(record())
"""


@pytest.mark.parametrize("turns", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_changes_that_were_acknowledged_survive_a_kill_of_their_recorders(tmp_path: Path, turns: int) -> None:
    acknowledged: set[str] = set()
    for turn in range(turns):
        names = [f"{observer}-{turn}" for observer in ("console", "record")]
        commands = [[sys.executable, "-c", WRITER, str(tmp_path), name] for name in names]
        recorders = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True, cwd=ROOT) for each in commands]
        for each in recorders:
            assert each.stdout is not None
            for _ in range(3 + turn % 7):
                each.stdout.readline()
        for name, each in zip(names, recorders, strict=True):
            os.kill(each.pid, signal.SIGKILL)
            count = 3 + turn % 7 + len(each.communicate()[0].splitlines()[:-1])
            acknowledged |= {f"{name}-{number}" for number in range(count)}
    journal = Journal(tmp_path)
    assert acknowledged <= {
        name for (name,) in journal.rows("SELECT name FROM jobs JOIN changes ON job = jobs.id")
    }
    assert journal.problems == [] and journal.rows("PRAGMA integrity_check") == [("ok",)]
