"""`record`: one recorder for each context, through lost servers and sudden ends, and whose logs it keeps."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from k8s.kinds.job_spec import USER_ANNOTATION
from k8s.snapshot import ClusterSnapshot, Missing
from tests.scripted.feed import JOBS, PODS, serve_lists
from tests.scripted.server import Answer, ScriptedCluster, Stream, until
from tests.support.journal import record_spans
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.sample_cluster import ago
from tests.tui.commands.conftest import CommandLine, Forked
from tui.commands import record
from tui.commands.record import Report
from tui.runs.journal import recorder_lock as module
from tui.runs.journal.database import JOURNAL_FILE, Journal
from tui.runs.journal.recorder_lock import RecorderLock
from tui.settings.options import ConsoleOptions

OWN, OTHER = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/vision/pods"
ENDED = {"conditions": [{"type": "Succeeded", "status": "True"}]}


def job_and_pod(name: str, user: str, namespace: str = "default") -> list[Object]:
    job = pytorch_job(name, gpus=1, namespace=namespace, annotations={USER_ANNOTATION: user})
    return [job, pod_of(job, "master-0", on="n1", gpus=1, startTime=ago(minutes=5))]


def serve(cluster: ScriptedCluster, *found: list[Object]) -> dict[str, Stream]:
    """Serve jobs and their pods with a log each; return the watches."""
    for _, pod in found:
        place = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        cluster.replace(place, Answer(pod))
        cluster.replace(f"{place}/log", Answer(f"{ago(minutes=1)} step 1 loss 2.5\n".encode()))
    for path in (JOBS, PODS, "/api/v1/nodes"):
        cluster.forget(path)
        cluster.forget(path, watch=True)
    cluster.replace("/apis/batch/v1/jobs", Stream(), watch=True)
    jobs, pods = [list(each) for each in zip(*found, strict=True)]
    return serve_lists(cluster, {"/api/v1/nodes": [node("n1")], JOBS: jobs, PODS: pods})


def state_of(run: CommandLine) -> Path:
    return run.home / "state" / "gpuconsole"


def lock_of(run: CommandLine) -> RecorderLock:
    return RecorderLock(state_of(run), "recorded")


async def recording(run: CommandLine, *words: str) -> tuple[Forked, int]:
    """Start a recorder; return it and its process once it watches."""
    times = len(run.cluster.asked(JOBS, watch=True))
    child = run.fork("record", *words)
    await run.cluster.until_asked(JOBS, times + 1, watch=True)
    holder = lock_of(run).holder()
    assert holder is not None
    return child, holder.pid


def statuses(state: Path) -> list[str]:
    return [each for (each,) in Journal(state).rows("SELECT status FROM changes ORDER BY id")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_changes_of_jobs_are_written_until_a_signal(run: CommandLine, number: signal.Signals) -> None:
    job, pod = job_and_pod("bert", "li")
    streams = serve(run.cluster, [job, pod])
    child, pid = await recording(run)
    await run.cluster.until_asked(f"{OWN}/bert-master-0/log")
    job["metadata"]["resourceVersion"] = "6"
    streams[JOBS].event("MODIFIED", {**job, "status": ENDED})
    await until(lambda: statuses(state_of(run)) == ["Running", "Succeeded"])
    os.kill(pid, number)
    status, _, err = await child.ends()
    assert status == (143 if number == signal.SIGTERM else 0), err
    assert b"Recording your jobs in all namespaces of recorded" in err and err.count(b"\n") == 1
    assert lock_of(run).holder() is None


async def test_after_a_kill_and_while_the_server_is_away_it_goes_on(run: CommandLine) -> None:
    found = job_and_pod("bert", "li")
    serve(run.cluster, found)
    child, pid = await recording(run)
    os.kill(pid, signal.SIGKILL)
    assert (await child.ends())[0] == -signal.SIGKILL
    child, pid = await recording(run)
    await run.cluster.go_away()
    await until(lambda: b"Lost the cluster" in child.errors())
    serve(run.cluster, found)
    await run.cluster.come_back()
    await until(lambda: b"is back after" in child.errors())
    os.kill(pid, signal.SIGTERM)
    status, _, err = await child.ends()
    assert status == 143 and [line.split(b" UTC ")[1][:8] for line in err.splitlines()] == [
        b"Recordin", b"Lost the", b"The clus",
    ]  # fmt: skip


async def test_it_stays_in_the_background_and_a_second_one_is_refused(run: CommandLine) -> None:
    serve(run.cluster, job_and_pod("bert", "li"))
    record_spans(Journal(state_of(run)), (0.0, time.time() + 9))
    ended = await run.process("record", "--stay")
    holder = lock_of(run).holder()
    assert holder is not None and os.getsid(holder.pid) == holder.pid != os.getpid()
    assert ended.status == 0 and f"To end it: kill {holder.pid}" in ended.err
    for words in ((), ("--stay",)):
        refused = await run.process("record", *words)
        refused.reports(
            1, "recorded is being recorded", f"By process {holder.pid} on ", f"kill {holder.pid} ends"
        )
    info = (await run("info", "--json")).values["cluster"]
    assert info["recorder"].items() >= {"pid": holder.pid, "namespace": "", "all_users": False}.items()
    assert info["observed_since"] == "1970-01-01T00:00:00Z"
    await run.cluster.go_away()
    log = state_of(run) / "gpuconsole.log"
    await until(lambda: log.exists() and "Lost the cluster" in log.read_text())
    os.kill(holder.pid, signal.SIGTERM)
    await until(lambda: lock_of(run).holder() is None)


@pytest.mark.parametrize(
    ("all_users", "namespace", "kept"),
    [(False, "", {"mine"}), (True, "", {"mine", "theirs"}), (True, "default", {"mine"})],
)
async def test_logs_are_kept_of_the_requested_users_and_namespaces(
    tmp_path: Path,
    cluster: ScriptedCluster,
    monkeypatch: pytest.MonkeyPatch,
    all_users: bool,
    namespace: str,
    kept: set[str],
) -> None:
    monkeypatch.setattr(record, "BEAT_S", 0.01)
    lock = RecorderLock(tmp_path, "scripted")
    mine, theirs = job_and_pod("mine", "li"), job_and_pod("theirs", "eve", "vision")
    streams = serve(cluster, mine, theirs)
    options = ConsoleOptions(state_folder=tmp_path, config_folder=tmp_path, namespace=namespace)
    journal = Journal(tmp_path)
    async with cluster.client() as client:
        working = asyncio.create_task(record._work(options, client, all_users, Report(options)))
        ways = {"mine": f"{OWN}/mine-master-0/log", "theirs": f"{OTHER}/theirs-master-0/log"}
        for name in kept:
            await cluster.until_asked(ways[name])
        for job in (mine[0], theirs[0]):
            job["metadata"]["resourceVersion"] = "6"
            streams[JOBS].event("MODIFIED", {**job, "status": ENDED})
        await until(lambda: len(journal.rows("SELECT uid FROM logs")) == len(kept))
        await until(lambda: journal.rows("SELECT 1 FROM changes WHERE status = 'Succeeded'"))
        os.utime(lock.path, (0, 0))
        await until(lambda: lock.path.stat().st_mtime)
        working.cancel()
        await asyncio.wait([working])
    assert lock.holder() is None
    assert {uid for (uid,) in journal.rows("SELECT uid FROM logs")} == {f"job-{name}" for name in kept}
    assert journal.rows("SELECT DISTINCT namespace, substr(observer, 1, 7) FROM observed") == [
        (namespace, "record ")
    ]
    if namespace:
        assert not [each for each in cluster.requests if each.path in (PODS, JOBS)]


@pytest.mark.parametrize("blocked", ["journal", "file", "lock", "history"])
async def test_nothing_is_recorded_where_nothing_can_be_written(run: CommandLine, blocked: str) -> None:
    state = state_of(run)
    state.mkdir(parents=True)
    if blocked == "lock":
        lock_of(run).path.mkdir()
    elif blocked == "history":
        config = run.home / "config" / "gpuconsole" / "config.yaml"
        config.parent.mkdir(parents=True)
        config.write_text("history: off\n")
    elif blocked == "journal":
        with sqlite3.connect(state / JOURNAL_FILE) as journal:
            journal.execute("PRAGMA user_version = 99")
    else:  # the version that may be written is another
        (made := Journal(state)).write()
        made.close()
        body = (state / JOURNAL_FILE).read_bytes()
        (state / JOURNAL_FILE).write_bytes(body[:18] + b"\3" + body[19:])
    refused = await run.process("record")
    reason, advice = {
        "journal": ("newer gpuconsole", "XDG_STATE_HOME"),
        "file": ("attempt to write a readonly database", "XDG_STATE_HOME"),
        "lock": (f"{lock_of(run).path}: Is a directory.", "XDG_STATE_HOME"),
        "history": ("config.yaml says history: off.", "Remove it to record."),
    }[blocked]
    refused.reports(1, "Nothing can be recorded.", reason, advice)
    assert run.cluster.requests == []
    unknown = f"unknown: {lock_of(run).path}: Is a directory" * (blocked == "lock")
    assert f"  {unknown or 'does not run'}\n" in (await run("info")).out
    assert (await run("info", "--json")).values["cluster"]["recorder_problem"] == unknown


SYNCED = ClusterSnapshot(is_synced=True)
AWAY, FAILING = (ClusterSnapshot(is_synced=True, stale="x", trouble=word) for word in ("away", "failing"))
EXPIRED = ClusterSnapshot(is_synced=True, stale="x", trouble="login expired")
NARROW = ClusterSnapshot(
    is_synced=True, problems={"pods": Missing("list", "pods", "", shown="default", why="no")}
)


@pytest.mark.parametrize(
    ("seen", "lines"),
    [
        ((ClusterSnapshot(), SYNCED, SYNCED), []),
        ((ClusterSnapshot(trouble="away"), SYNCED), ["No answer from the cluster (away).", "is back after"]),
        ((SYNCED, AWAY, FAILING, AWAY, SYNCED, AWAY), ["Lost the cluster (away)", "back", "Lost"]),
        ((SYNCED, AWAY, EXPIRED, EXPIRED, SYNCED), ["Lost", "Lost the cluster (login expired)", "back"]),
        ((NARROW, NARROW), ["Only in namespace default: pods"]),
    ],
)
def test_a_line_is_written_for_each_change_and_none_for_a_retry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seen: tuple[ClusterSnapshot, ...], lines: list[str]
) -> None:
    report = Report(ConsoleOptions(state_folder=tmp_path))
    for each in seen:
        report.take(each)
    written = capsys.readouterr().err.splitlines()
    assert len(written) == len(lines)
    assert [part for part, line in zip(lines, written, strict=True) if part not in line] == []


def test_a_full_disk_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, journal = Report(ConsoleOptions(state_folder=tmp_path)), Journal(tmp_path)
    journal.rows("PRAGMA max_page_count = 20")
    for _ in range(3):
        journal.write(("INSERT INTO choices VALUES ('x', ?)", "x" * 200_000))
        report.add_problems(journal, journal)
    assert capsys.readouterr().err.count("disk is full\n") == 1


@pytest.mark.parametrize(
    ("host", "age_s", "has_locks", "is_held"),
    [
        ("here", 0, True, False),  # its lock would be seen
        ("there", 0, True, True),  # locks of other machines may not be seen
        ("there", 100, True, False),
        ("here", 0, False, True),
        ("here", 100, False, False),
    ],
)
def test_a_lock_is_held_by_who_lives(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    age_s: float,
    has_locks: bool,
    is_held: bool,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    lock = RecorderLock(tmp_path, "lab")
    holder = module.RecorderProcess(7, host, time.time(), "vision")
    lock.path.write_text(json.dumps({name: getattr(holder, name) for name in holder.__struct_fields__}))
    os.utime(lock.path, (time.time() - age_s,) * 2)
    if not has_locks:
        monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(OSError("not supported")))
    assert lock.holder() == (holder if is_held else None)
    assert (lock.acquire() is not None) == is_held
    lock.beat()
    assert lock.path.stat().st_mtime > time.time() - module.DEAD_S
    lock.release()


def test_a_lock_is_for_one_context_until_it_is_released(tmp_path: Path) -> None:
    lock, other = RecorderLock(tmp_path, "lab"), RecorderLock(tmp_path, "lab")
    assert lock.acquire("vision", is_for_all_users=True) is None
    assert RecorderLock(tmp_path, "home").acquire() is None
    held = other.acquire()
    assert held is not None and (held.pid, held.namespace, held.is_for_all_users) == (
        os.getpid(), "vision", True,
    )  # fmt: skip
    os.truncate(lock.path, 0)
    assert other.acquire() == module.RecorderProcess() and module.RecorderProcess().words == "a process"
    lock.release()
    assert other.holder() is None and other.acquire() is None
