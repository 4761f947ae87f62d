"""Commands about a job that is gone: they read the journal, and say so."""

from __future__ import annotations

import csv
import shutil
import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from tests.scripted.server import Answer, page
from tests.support.objects import Object, recorded
from tests.support.sample_cluster import ago
from tests.tui.commands.conftest import PYTORCH_JOBS, CommandLine, Ended, write_kubeconfig
from tui.runs.journal import database
from tui.runs.journal.database import JOURNAL_FILE
from tui.runs.store import RunStore

LOG = b"".join(
    b"2026-11-20T18:36:1%d.000000001Z %s\n" % (at, text)
    for at, text in enumerate((b"step 1 loss 2.5\r50%", b"step 2 loss 1.25", b"two", b"MemoryError"))
)
EVENTS = "/api/v1/namespaces/default/events"
SECRET = "postgres://li:hunter2hunter2@db/x"
GONE = "-- PyTorchJob default/fails is gone (Failed, "


def event(kind: str, name: str, message: str, count: int = 3) -> Object:
    """Return an event that is younger than the recorded jobs."""
    about = {"kind": kind, "name": name, "namespace": "default"}
    meta = {"name": f"{name}.1", "namespace": "default", "uid": name}
    said = {"type": "Warning", "reason": "Told", "message": message, "count": count}
    return {"metadata": meta, "involvedObject": about, "lastTimestamp": ago(minutes=1), **said}


@pytest.fixture
async def gone(run: CommandLine) -> CommandLine:
    """Return the command line after `fails` was deleted, and its pods."""
    pods, jobs = recorded("pods"), recorded("pytorchjobs")
    (pod,) = [each for each in pods if each["metadata"]["name"] == "fails-master-0"]
    run.cluster.say("/api/v1/namespaces/default/pods/fails-master-0", Answer(pod))
    run.cluster.say("/api/v1/namespaces/default/pods/fails-master-0/log", Answer(LOG))
    run.cluster.say(f"{PYTORCH_JOBS}/fails", Answer({"status": "Success"}), method="DELETE")
    run.cluster.replace(
        EVENTS, page([event("Pod", "fails-master-0", f"made \x1b[2J {SECRET}"), event("Pod", "done", "")])
    )
    ended = await run("delete", "fails", "--yes")
    assert ended.status == 0, ended.err
    jobs = [each for each in jobs if each["metadata"]["name"] != "fails"]
    run.cluster.replace("/apis/kubeflow.org/v1/pytorchjobs", page(jobs))
    for where in ("/api/v1/pods", "/api/v1/namespaces/default/pods"):
        run.cluster.replace(where, page([each for each in pods if each is not pod]))
    return run


async def test_its_log_is_printed_as_it_was_until_the_journal_is_cleared(gone: CommandLine) -> None:
    status, printed, said = await gone.fork("logs", "pytorch/fails").ends()
    assert (status, printed) == (0, b"step 1 loss 2.5\r50%\nstep 2 loss 1.25\ntwo\nMemoryError\n")
    assert said.startswith(GONE.encode()) and b"2,000 lines" in said
    assert (await gone.fork("logs", "fails", "-t", "1", "--timestamps").ends())[1][-12:] == b"MemoryError\n"
    for words in (["mpijob/fails"], ["fails", "-n", "other"], ["fails", "-T", "mpi"]):
        assert (await gone("logs", *words)).status == 1
    assert (await gone("runs", "--clear", "--yes")).status == 0
    (await gone("logs", "fails")).reports(1, "There is no job fails in namespace default.")


async def test_its_end_is_explained_from_its_kept_log(gone: CommandLine) -> None:
    why = await gone("why", "fails")
    assert "PyTorchJob default/fails is gone (Failed, " in why.out and "exit 1: MemoryError" in why.out
    assert "cause: The container ran out of memory" in why.out and "gpuconsole logs fails" in why.out
    values = (await gone("why", "fails", "-o", "json")).values
    assert values["status"] == "Failed" and values["failure"]["error"] == "MemoryError"


async def test_its_curves_are_drawn_alone_and_beside_others(gone: CommandLine) -> None:
    found = await gone("curves", "fails", "-o", "json")
    assert found.err.startswith(GONE) and "the journal has it until" in found.err
    assert found.values["source"] == "the journal"
    assert [each["value"] for each in found.values["tags"]["loss"]] == [2.5, 1.25]
    plot = await gone("curves", "fails")
    assert plot.out.startswith("Read from the journal, newest point ")
    folder = gone.home / "run"
    folder.mkdir()
    (folder / "metrics.csv").write_text("step,loss\n1,3\n2,2\n")
    both = await gone("curves", "fails", str(folder), "-o", "csv")
    assert {row["run"] for row in csv.DictReader(both.out.splitlines())} == {"fails", str(folder)}


async def test_its_events_are_printed_without_secrets(gone: CommandLine) -> None:
    gone.cluster.replace(EVENTS, page([]))
    table = await gone("events", "fails")
    assert table.err.startswith(GONE) and table.titles()[:3] == ["AGE", "TYPE", "ABOUT"]
    assert "master-0" in table.out and "\x1b" not in table.out and "hunter2" not in table.out
    (found,) = (await gone("events", "fails", "-o", "json")).values["items"]
    assert (found["about"], found["reason"], found["count"]) == ("master-0", "Told", 3)
    (await gone("events", "done")).reports(0, "No events for PyTorchJob default/done")


async def test_its_record_and_all_facts_are_printed(gone: CommandLine) -> None:
    table = await gone("get", "fails")
    assert table.err.startswith(GONE) and "the journal has it until" in table.err
    assert table.row("default")[1:3] == ["fails", "Failed"]
    record = (await gone("get", "fails", "-o", "json")).values
    assert (record["status"], record["kind"], record["is_gone"], record["loss"]) == (
        "Failed",
        "PyTorchJob",
        True,
        1.25,
    )
    assert "gpus_requested: 1\n" in (await gone("get", "fails", "-o", "yaml")).out
    report = await gone("diagnose", "fails")
    for words in ("exit 1: MemoryError", "Events:", "Told", "loss:  1.25 at step 2", "its last 4 lines"):
        assert words in report.out
    facts = (await gone("diagnose", "fails", "-o", "json")).values
    assert facts["record"] == record | {"ended_ago_s": facts["record"]["ended_ago_s"]}
    assert facts["logs"][0]["lines"][-1] == "MemoryError" and facts["events"][0]["reason"] == "Told"


TROUBLES = {
    "damaged": "file is not a database; it was moved to journal-damaged-",
    "newer": "it was written by a newer gpuconsole",
    "folder": "a directory, a link or no regular file",
    "locked": "database is locked",
}


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_journal_that_cannot_be_read_is_an_error(
    gone: CommandLine, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(database, "LOCK_S", 0.01)
    path = gone.home / "state" / "gpuconsole" / JOURNAL_FILE

    async def ended(words: str) -> Ended:
        shutil.rmtree(path.parent)
        path.parent.mkdir(mode=0o700)
        if trouble == "damaged":
            path.write_bytes(b"garbage" * 9_999)
        elif trouble == "folder":
            path.mkdir()
        with closing(sqlite3.connect(":memory:" if path.exists() else path, isolation_level=None)) as other:
            other.execute("PRAGMA user_version = 99")
            if trouble == "locked":
                other.execute("BEGIN EXCLUSIVE")
            return await gone(*words.split())

    for words in ("logs fails", "why fails", "get fails", "runs", "timeline", "top users --since 9h"):
        (await ended(words)).reports(1, TROUBLES[trouble])
    assert f", {path}: {TROUBLES[trouble]}" in (await ended("info")).out
    if trouble != "damaged":
        (await ended("runs --clear --yes")).reports(1, "Could not delete the records.", TROUBLES[trouble])


@pytest.mark.parametrize("command", ["get", "events", "curves", "diagnose", "why", "logs"])
async def test_the_newest_of_several_runs_is_shown_and_missing_facts_are_named(
    gone: CommandLine, command: str
) -> None:
    (await gone(command, "nosuch")).reports(1, "There is no job nosuch in namespace default.")
    (await gone(command, "fails", "-n", "vision")).reports(1, "There is no job fails in namespace vision.")
    store = RunStore(gone.home / "state" / "gpuconsole")
    (first,) = store.records()
    store.add(replace(first, uid="later", status="Succeeded", reason=""))
    found = await gone(command, "fails")
    needs_more = command in ("events", "curves", "logs")
    assert f"is gone ({'Failed' if needs_more else 'Succeeded'}, " in found.err
    assert "the newest of 2 runs of this name" in found.err and found.status == 0
    assert "of this name" not in (await gone(command, first.uid)).err
    store.journal.write(*((f"DELETE FROM {table}",) for table in ("events", "curves", "logs")))
    if needs_more:
        what = f"Of its {command}, nothing is in the journal."
        (await gone(command, "fails")).reports(1, what, "To see its record: gpuconsole get fails")
    else:
        assert (await gone(command, "fails")).status == 0


async def test_the_journal_is_read_while_the_cluster_is_away(gone: CommandLine) -> None:
    write_kubeconfig(gone.home, "http://127.0.0.1:1")
    for command in ("get", "events", "curves", "why", "logs"):
        ended = await gone(command, "fails")
        assert ended.status == 0 and "fails was last Failed, " in ended.err, command
    (await gone("get", "done")).reports(1, "127.0.0.1:1")
