"""Notices about jobs from two snapshots, and the user's commands that get them."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from k8s.snapshot import NO_SIGNS, ClusterSnapshot, CurveAlert, Job, LifeSigns, Missing, Silence
from k8s.status import Status
from tests.support.objects import joined, pod_of, pytorch_job
from tui.runs.journal.database import Journal
from tui.settings.options import NoticeEvent, NotifyOptions
from tui.tables.notices import MAX_NOTICES, REPEATED, JobNotice, NoticeLog, counter, stored_notices
from tui.terminal.hooks import MAX_RUNNING, MAX_WAITING, HookRunner, hook_environment, hook_problem, run_hook

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LAB = ClusterSnapshot(context="lab", user="li", is_synced=True)
BERT = pytorch_job("bert", gpus=1)


def job(name: str = "bert", **fields: Any) -> Job:
    """Return a running job of li, made before the session, as it is in a snapshot."""
    made = pytorch_job(name, gpus=1)
    row = joined([], [pod_of(made, "master-0", on="a")], [made])[1][name]
    defaults = {"status": Status.RUNNING, "user": "li", "reason": "", "created": NOW - timedelta(days=1)}
    return replace(row, **{**defaults, **fields})


def broken(row: Job, reason: str = "exit 1", restarts: int = 0, at: datetime | None = None) -> Job:
    pod = msgspec.structs.replace(
        row.instances[0], status=Status.FAILED, reason=reason, restarts=restarts, finished=at
    )
    return replace(row, status=Status.RESTARTING, reason=f"master-0 {reason}", instances=(pod,))


def restarted(row: Job, restarts: int = 1) -> Job:
    return replace(row, instances=(msgspec.structs.replace(row.instances[0], restarts=restarts),))


Seen = Job | tuple[Job, LifeSigns]


class Watched:
    def __init__(self, **options: Any) -> None:
        self.log = NoticeLog(NotifyOptions(**options))
        self.now = NOW

    def see(self, *seen: Seen | None, after_s: float = 1.0, **fields: Any) -> list[JobNotice]:
        self.now += timedelta(seconds=after_s)
        pairs = [(each, NO_SIGNS) if isinstance(each, Job) else each for each in seen if each is not None]
        jobs, life = tuple(job for job, _ in pairs), {job.uid: signs for job, signs in pairs}
        return self.log.update(replace(LAB, life=life, **fields), jobs, self.now)

    def share(self, journal: Journal) -> str:
        """Exchange notices as a console does, and return those that it has, unseen ones with a star."""
        self.log.merge("lab", stored_notices(journal, "lab"))
        statements, saved = self.log.unsaved()
        assert journal.write(*statements)
        self.log.record_saved(saved)
        return ", ".join(each.text + "*" * (not each.is_seen) for each in self.log.items)

    def events(self, *jobs: Seen | None, **fields: Any) -> list[str]:
        return [f"{each.job.name} {each.event}" for each in self.see(*jobs, **fields)]


OLD = job()
SINCE = NOW - timedelta(seconds=30)
OVER = replace(OLD, status=Status.SUCCEEDED)
STEPS = CurveAlert("slow", "a step takes 12s, usually 4s")
SLOW = OLD, LifeSigns(alerts=(STEPS,))
HIGH = LifeSigns(alerts=(CurveAlert("diverged", "its loss is high"), STEPS))
DIVERGED = OLD, HIGH
NAN = LifeSigns(alerts=(CurveAlert("nan", "its newest loss is not a finite number"),))
QUIET = LifeSigns(Silence(SINCE, 2.0, ("rank 2",)))
SILENT = OLD, QUIET
_POD = {"restarts": 1, "rank_restarts": 1, "reason": "rank 0 exit 3, its launcher restarted the ranks"}
LAUNCHED = replace(OLD, instances=(msgspec.structs.replace(OLD.instances[0], **_POD),))
GONE_OBJECT = replace(OLD, replicas=())

TURNS: list[tuple[str, Seen | None, Seen | None, list[str]]] = [
    ("nothing", OLD, job(), []),
    ("it failed", OLD, replace(OLD, status=Status.FAILED), ["failed"]),
    ("it ended", OLD, replace(OLD, status=Status.SUCCEEDED), ["ended"]),
    ("it ended at once", job(status=Status.PENDING), job(status=Status.SUCCEEDED), ["ended"]),
    ("it starts", job(status=Status.PENDING), OLD, ["started"]),
    ("it leaves the queue", job(status=Status.QUEUED), OLD, ["started"]),
    ("it is resumed", job(status=Status.SUSPENDED), OLD, ["started"]),
    ("it waits", job(status=Status.PENDING), job(status=Status.STARTING), []),
    ("it is silent", OLD, SILENT, ["silent"]),
    ("it stays silent", SILENT, (OLD, LifeSigns(Silence(SINCE, 3.0))), []),
    ("it prints again", SILENT, OLD, []),
    ("it is over and silent", OLD, (OVER, QUIET), ["ended"]),
    ("NaN", OLD, (OLD, NAN), ["nan"]),
    ("NaN goes on", (OLD, NAN), (replace(OLD, reason="x"), NAN), []),
    ("it slows down", OLD, SLOW, ["slow"]),
    ("it stays slow", SLOW, (OLD, LifeSigns(alerts=(CurveAlert("slow", "a step takes 13s"),))), []),
    ("it diverges, too", SLOW, DIVERGED, ["diverged"]),
    ("all is well again", DIVERGED, OLD, []),
    ("it is over and slow", OLD, (replace(OLD, status=Status.FAILED), SLOW[1]), ["failed"]),
    ("it ends with NaN", OLD, (OVER, NAN), ["ended", "nan"]),
    ("it ends diverged", DIVERGED, (OVER, HIGH), ["ended"]),
    ("its launcher restarts a rank", OLD, LAUNCHED, ["restarted"]),
    ("a pod failed", OLD, broken(OLD), ["restarted"]),
    ("another try fails", broken(OLD), broken(OLD, restarts=3), []),
    ("a restart between two snapshots", OLD, restarted(OLD), ["restarted"]),
    ("the failed pod is back", broken(OLD), restarted(OLD), []),
    ("its pods start again", job(status=Status.STARTING, restarts=1), replace(OLD, restarts=1), []),
    ("it was asked to stop", OLD, broken(OLD, "exit 143 (SIGTERM)"), []),
    ("it is being deleted", OLD, replace(OLD, status=Status.TERMINATING), []),
    ("being deleted it fails", job(status=Status.TERMINATING), job(status=Status.FAILED), []),
    ("its object was deleted", OLD, broken(GONE_OBJECT), []),
    ("it is suspended", OLD, replace(OLD, status=Status.SUSPENDED), []),
    ("it is gone", OLD, None, []),
    ("a new one waits", None, job(status=Status.PENDING, created=NOW + timedelta(seconds=2)), []),
    ("a new one runs", None, job(created=NOW + timedelta(seconds=2)), ["started"]),
    ("a short one", None, job(status=Status.FAILED, created=NOW + timedelta(seconds=2)), ["failed"]),
    ("an old one appears", None, job(status=Status.FAILED, finished=NOW - timedelta(hours=1)), []),
    ("an old one appears and runs", None, OLD, []),
    ("another user's", job(user="chen"), job(user="chen", status=Status.FAILED), []),
]


@pytest.mark.parametrize(
    ("before", "after", "found"), [each[1:] for each in TURNS], ids=[e[0] for e in TURNS]
)
def test_each_status_change_of_the_users_own_job_gives_the_expected_notices(
    before: Seen | None, after: Seen | None, found: list[str]
) -> None:
    watched = Watched(toast="mine")
    assert watched.events(before) == []
    assert watched.events(after, after_s=61) == [f"bert {event}" for event in found]
    assert watched.events(after, after_s=60) == []


def test_a_notice_of_an_end_or_a_restart_gives_the_trouble_in_the_output() -> None:
    watched = Watched()
    watched.see(OLD)
    (notice,) = watched.see(LAUNCHED, after_s=61)
    assert notice.reason == "master-0: rank 0 exit 3, its launcher restarted the ranks"
    over = replace(LAUNCHED, status=Status.SUCCEEDED, finished=watched.now)
    (notice,) = watched.see(over)
    assert (notice.event, notice.reason) == ("ended", "")
    (late,) = watched.see((over, LifeSigns(alerts=HIGH.alerts[:1])))
    assert [each.reason for each in watched.log.newest([notice, late])] == ["its loss is high"] * 2


def test_conditions_from_before_the_console_opened_give_no_notices() -> None:
    watched = Watched()
    watched.see(OLD)
    assert watched.events((OLD, NAN), after_s=30) == []
    assert watched.events(SLOW, after_s=1) == []
    watched.see(OLD)
    assert watched.events((OLD, NAN), after_s=61) == ["bert nan"]
    assert [each.reason for each in watched.see(SLOW)] == ["a step takes 12s, usually 4s"]
    for minutes, usual_s, found in ((5, 2.0, []), (5, 90.0, ["bert silent"]), (-1, 2.0, ["bert silent"])):
        watched = Watched()
        watched.see(OLD)
        silence = Silence(NOW - timedelta(minutes=minutes), usual_s)
        # Other ranks than the first may be read for the first time after many minutes.
        assert watched.events((OLD, LifeSigns(silence)), after_s=600) == found


def test_the_first_snapshot_and_a_context_switch_give_no_notices() -> None:
    failed = job(status=Status.FAILED, finished=NOW)
    watched = Watched()
    assert watched.events(OLD, is_synced=False) == []
    assert watched.events(failed) == []
    assert watched.events(OLD, context="farm") == []
    assert watched.events(failed, context="lab") == []


def test_a_namespace_switch_with_limited_permissions_gives_no_notices() -> None:
    refused = {"pods": Missing("list", "pods", shown="default")}
    new = job("new", status=Status.FAILED, created=NOW + timedelta(seconds=5))
    watched = Watched()
    watched.see(OLD, namespace="default", problems=refused)
    assert watched.events(new, namespace="vision", problems=refused) == []
    assert watched.events(replace(new, status=Status.PENDING), namespace="vision", problems=refused) == []
    assert watched.events(job("other", created=NOW + timedelta(seconds=5)), namespace="vision") == []


def test_changes_during_an_outage_give_notices_with_their_actual_times() -> None:
    other, waits = job("other"), job("waits", status=Status.PENDING)
    watched = Watched()
    watched.see(OLD, other, waits)
    assert watched.events(OLD, other, waits, stale="reset", after_s=60) == []
    at = NOW + timedelta(minutes=30)
    found = watched.see(
        replace(OLD, status=Status.FAILED, finished=at),
        broken(other, at=at + timedelta(minutes=1)),
        replace(waits, status=Status.RUNNING, started=at + timedelta(minutes=2)),
        after_s=2 * 3600,
    )
    assert [(each.event, each.at - at) for each in found] == [
        (NoticeEvent.FAILED, timedelta()),
        (NoticeEvent.RESTARTED, timedelta(minutes=1)),
        (NoticeEvent.STARTED, timedelta(minutes=2)),
    ]
    assert [each.event for each in watched.log.items] == ["started", "restarted", "failed"]


def test_a_started_notice_of_a_pending_job_uses_the_observed_time() -> None:
    watched = Watched()
    watched.see(job(status=Status.PENDING))
    (found,) = watched.see(job(started=NOW - timedelta(hours=3)))
    assert found.at == watched.now


def test_a_flapping_job_gives_one_notice_with_a_count() -> None:
    watched = Watched()
    watched.see(OLD)
    watched.now += timedelta(minutes=1)
    found = [watched.events(row) for _ in range(5) for row in (SILENT, OLD)]
    assert found[0] == ["bert silent"] and not any(found[1:])
    (kept,) = watched.log.items
    assert (kept.count, kept.text) == (5, "bert went silent ×5")
    assert watched.events(SILENT, after_s=REPEATED.total_seconds() + 1) == ["bert silent"]


def test_a_failed_job_is_notified_once_and_replaces_its_restart_notice() -> None:
    watched = Watched()
    watched.see(OLD)
    failed = replace(OLD, status=Status.FAILED)
    found = [watched.events(row) for row in (broken(OLD), failed, broken(OLD), restarted(failed, 2), failed)]
    assert found[:2] == [["bert restarted"], ["bert failed"]] and not any(found[2:4])
    assert [each.text for each in watched.log.items] == ["bert failed"]


def test_a_recreated_pod_gives_no_second_started_notice() -> None:
    watched = Watched()
    watched.see(OLD)
    watched.see(broken(OLD))
    assert watched.events(job(status=Status.PENDING)) == []
    assert watched.events(OLD) == []


def test_a_reason_that_becomes_known_later_replaces_the_first() -> None:
    watched = Watched()
    watched.see(OLD)
    failed = replace(OLD, status=Status.FAILED, reason="rank 2 exit 1")
    (first,) = watched.see(failed)
    assert watched.events(replace(failed, reason="rank 2 exit 1: ValueError: bad shard 7")) == []
    (kept,) = watched.log.newest([first])
    assert kept.reason == "rank 2 exit 1: ValueError: bad shard 7"
    assert kept.facts("li")["exit_code"] == "1" and kept.facts("li")["time"] == "2026-11-21T12:00:02Z"


def test_a_silence_notice_names_the_rank_and_its_usual_interval() -> None:
    watched = Watched()
    watched.see(OLD)
    (found,) = watched.see(SILENT, after_s=99)
    assert found.reason == "no line of rank 2 for 2m, usually every 2s"


def test_the_counter_counts_unseen_notices_and_each_finished_job_once() -> None:
    watched = Watched()
    watched.see(OLD, job("a"), job("b"))
    watched.see(SILENT, job("a"), (job("b"), NAN), after_s=61)
    assert counter(watched.log.unseen()) == (("!2", "pending"),)
    watched.see(SILENT, job("a", status=Status.SUCCEEDED), job("b", status=Status.FAILED))
    assert [text for text, _ in counter(watched.log.unseen())] == ["✕1", "!1", "✓1"]
    watched.log.mark_seen(*watched.log.items)
    assert watched.log.unseen() == {}


def test_notify_options_select_events_and_job_owners() -> None:
    failed = {"status": Status.FAILED}
    for options, found in (
        ({"events": (NoticeEvent.ENDED,)}, []),
        ({"events": ()}, []),
        ({"toast": "all"}, ["bert failed", "other failed"]),
        ({"toast": "off", "counter": "all"}, ["bert failed", "other failed"]),
        ({"toast": "off", "counter": "off"}, ["bert failed"]),
    ):
        watched = Watched(**options)
        watched.see(OLD, job("other", user="chen"))
        assert watched.events(job(**failed), job("other", user="chen", **failed)) == found, options
        assert len(counter(watched.log.unseen())) == (1 if found and options.get("counter") != "off" else 0)


def test_the_notice_log_is_bounded() -> None:
    jobs = tuple(job(f"job-{number}") for number in range(1000))
    watched = Watched()
    watched.see(*jobs)
    assert len(watched.see(*(replace(each, status=Status.FAILED) for each in jobs))) == 1000
    assert len(watched.log.items) == MAX_NOTICES


def test_the_reason_of_an_ended_job_leaves_out_pods_that_are_still_there_for_a_moment() -> None:
    cases = {
        "2 pods still there, with 2 GPUs": "",
        "rank 0 exit 1; no restart is left; 1 pod still there": "rank 0 exit 1; no restart is left",
        "1 pod, still there": "1 pod, still there",
    }
    for reason, shown in cases.items():
        watched = Watched()
        watched.see(OLD)
        (notice,) = watched.see(replace(OLD, status=Status.FAILED, reason=reason))
        assert notice.reason == shown
        assert watched.see(replace(OLD, status=Status.FAILED, reason=shown)) == []


def test_notices_outlive_their_console_and_other_consoles_show_them(tmp_path: Path) -> None:
    one, other, failed = Watched(), Watched(), replace(OLD, status=Status.FAILED)
    for each in (one, other):
        each.see(OLD, job("b"))
        assert each.share(Journal(tmp_path)) == ""
    assert one.events(failed, job("b")) == ["bert failed"]
    one.share(Journal(tmp_path))
    assert other.share(Journal(tmp_path)) == "bert failed*"
    assert other.events(failed, job("b")) == ["bert failed"], "it has not reported it yet"
    assert other.events(failed, job("b", status=Status.SUCCEEDED)) == ["b ended"]
    other.log.mark_seen(other.log.items[1])
    assert other.share(Journal(tmp_path)) == "b ended*, bert failed"
    before = one.log.items
    assert one.share(Journal(tmp_path)) == "b ended*, bert failed" and one.log.items is not before
    items = one.log.items
    assert one.share(Journal(tmp_path)) and one.log.items is items, "nothing has changed"
    assert Watched().share(Journal(tmp_path)) == "b ended*, bert failed"
    assert Watched(events=(NoticeEvent.ENDED,)).share(Journal(tmp_path)) == "b ended*"
    elsewhere = NoticeLog(NotifyOptions())
    elsewhere.merge("farm", stored_notices(Journal(tmp_path), "farm"))
    assert elsewhere.items == ()


@pytest.mark.parametrize(("is_old", "found"), [(False, []), (True, ["bert silent"])])
def test_an_event_that_was_stored_before_a_restart_is_not_reported_again(
    tmp_path: Path, is_old: bool, found: list[str]
) -> None:
    before, after = Watched(), Watched()
    before.see(OLD)
    before.see(SILENT, after_s=61)
    before.share(Journal(tmp_path))
    after.now = NOW + REPEATED * is_old
    silent = OLD, LifeSigns(Silence(after.now, 2.0))
    after.see(OLD)
    assert after.share(Journal(tmp_path)) == "bert went silent*"
    assert after.events(silent, after_s=90) == found
    assert after.share(Journal(tmp_path)) == f"bert went silent{' ×2' * is_old}*"
    assert after.events(OLD) == after.events(silent) == [] and after.log.items[0].count == 2 + is_old


def test_changes_of_this_console_since_the_last_exchange_stay(tmp_path: Path) -> None:
    one, other = Watched(), Watched()
    for each in (one, other):
        each.see(OLD)
        each.see(broken(OLD))
        each.share(Journal(tmp_path))
    other.log.mark_seen(*other.log.items)
    other.share(Journal(tmp_path))
    for restarts in (1, 2):
        one.see(restarted(OLD, restarts))
    assert one.share(Journal(tmp_path)) == "bert restarted ×2"
    one.see(replace(OLD, status=Status.FAILED))  # withdraws a restart
    shown = "bert failed*, bert restarted"
    assert one.share(Journal(tmp_path)) == shown == other.share(Journal(tmp_path))


def test_a_withdrawn_notice_is_deleted_for_other_consoles_too(tmp_path: Path) -> None:
    one, other = Watched(), Watched()
    one.see(OLD)
    one.see(broken(OLD))
    assert one.share(Journal(tmp_path)) == other.share(Journal(tmp_path)) == "bert restarted*"
    one.see(replace(OLD, status=Status.FAILED))
    assert one.share(Journal(tmp_path)) == other.share(Journal(tmp_path)) == "bert failed*"


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"{", b'{"at": 1}', 7, "naive", "farm"])
def test_damaged_stored_notices_are_left_out(tmp_path: Path, body: object) -> None:
    watched = Watched()
    watched.see(OLD)
    watched.see(replace(OLD, status=Status.FAILED))
    watched.share(journal := Journal(tmp_path))
    ((good,),) = journal.rows("SELECT body FROM notices")
    body = {"naive": good.replace(b'Z"', b'"'), "farm": good.replace(b'"lab"', b'"farm"')}.get(
        str(body), body
    )
    assert body != good and journal.write(("INSERT INTO notices VALUES ('lab', 'x', 1, ?)", body))
    assert [each.text for each in stored_notices(journal, "lab")] == ["bert failed"]


HOSTILE = 'it\'s $(touch gone) `touch gone`; "x" & | > gone\nnext\0\x1b]0;x\x07'


async def test_a_hook_receives_the_event_in_its_environment_and_hostile_text_is_not_executed(
    tmp_path: Path,
) -> None:
    script = f"cd {tmp_path} && printenv GPUCONSOLE_REASON GPUCONSOLE_EXIT_CODE > facts; echo said; exit 3"
    log = tmp_path / "log"
    facts = {"reason": HOSTILE, "exit_code": None}
    assert await run_hook(["sh", "-c", script], facts, log_file=log) == 3
    assert (tmp_path / "facts").read_text() == 'it\'s $(touch gone) `touch gone`; "x" & | > gone␊next␀\n\n'
    assert not (tmp_path / "gone").exists()
    assert log.read_text().endswith("notify.exec sh: exit 3\nsaid\n")
    assert log.stat().st_mode & 0o777 == 0o600


def test_hook_environment_values_are_one_line_and_truncated() -> None:
    found = hook_environment({"job": "a\n" + "x" * 100_000})["GPUCONSOLE_JOB"]
    assert len(found) == 2000 and "\n" not in found


async def test_a_hook_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/child; wait"
    assert await run_hook(["sh", "-c", script], {}, timeout_s=0.5, log_file=tmp_path / "log") == 124
    child = int((tmp_path / "child").read_text())
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        await asyncio.sleep(0.01)
    assert "did not finish in 0 s" in hook_problem(["sh"], 124, 0.1)


async def test_a_cancelled_hook_is_killed(tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    task = asyncio.create_task(
        run_hook(["sh", "-c", f"echo $$ > {started}; exec sleep 600"], {}, log_file=tmp_path / "log")
    )
    pid = int(await asyncio.to_thread(started.read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["/nowhere/hook"], "/nowhere/hook: exit 127: command not found."),
        (["/etc/passwd"], "/etc/passwd: exit 126: not executable."),
        (["sh", "-c", "kill -9 $$"], "sh: exit 137."),
        (["true"], ""),
    ],
)
async def test_a_failed_hook_is_reported_with_its_exit_status(
    tmp_path: Path, words: list[str], why: str
) -> None:
    assert hook_problem(words, await run_hook(words, {}, log_file=tmp_path / "log")) == why


async def test_excess_hook_runs_are_dropped_and_reported_once(tmp_path: Path) -> None:
    reports: list[str] = []
    runner = HookRunner(["sh", "-c", "exit 7"], tmp_path / "log", reports.append)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(MAX_WAITING + MAX_RUNNING + 20):
            tasks.create_task(runner.run({}))
    assert reports == [f"sh: more than {MAX_WAITING} runs are queued; some are dropped."]
    assert (tmp_path / "log").read_text().count("exit 7") == MAX_WAITING + MAX_RUNNING
