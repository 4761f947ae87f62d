"""Notices of jobs in a console that shows something else: counter, toast, terminal, hook and list."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.scripted.server import Answer, Held, ScriptedCluster, Stall, Stream, refusal
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.playground import JOBS, Playground, console_on
from tests.support.sample_cluster import ago
from tests.tui.settings.keys.world import titled, typed
from tui.runs.journal.database import JOURNAL_FILE, Journal
from tui.settings.options import NotifyOptions
from tui.tables.notices import JobNotice
from tui.verbs import notices

HOSTILE = "\x1b]0;gone\x07[red]x[/]; $(touch gone) \u202e\n'"


def mine(name: str, **meta: Any) -> Object:
    return pytorch_job(name, gpus=1, annotations={"gpuconsole.dev/user": "li"}, **meta)


def ended(job: Object, kind: str, why: str = "", at: str = "") -> Object:
    condition = {"type": kind, "status": "True", "reason": why, "message": why}
    return job | {"status": {"conditions": [condition], "completionTime": at or ago(seconds=1)}}


BERT, OTHER = mine("bert"), mine("other")


def scene(*jobs: Object) -> dict[str, Any]:
    return {
        "nodes": [node("a", 8)],
        "jobs": list(jobs),
        "pods": [pod_of(job, "master-0", on="a", gpus=1) for job in jobs],
    }


def tell(play: Playground, *jobs: Object) -> None:
    for job in jobs:
        play.watches["jobs"].event("MODIFIED", job)


def header(play: Playground) -> str:
    return play.text.splitlines()[0]


def row(play: Playground, words: str) -> str:
    """Return the row with these words, up to them: its time, its age and its job."""
    return next(line.partition(words)[0] for line in play.text.splitlines() if words in line)


@pytest.fixture(autouse=True)
def toasts_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "TOGETHER_S", 0.5)
    monkeypatch.setenv("TERM", "foot")
    monkeypatch.delenv("TMUX", raising=False)


@pytest.mark.slow
async def test_a_failure_notice_appears_in_any_view_and_ctrl_n_opens_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console_on(tmp_path, size=(80, 24), **scene(BERT, OTHER)) as play:
        written: list[str] = []
        monkeypatch.setattr(play.console, "write_to_terminal", written.append)
        await play.press(*typed("nodes"))
        tell(play, ended(BERT, "Failed", HOSTILE))
        await play.until(lambda: "✕1" in header(play) and "bert failed" in play.text)
        assert "^n opens it" in play.text and "li" in header(play) and header(play).endswith("live")
        assert len(header(play)) <= 80 and "[red]x[/]" in play.text and "\x1b" not in play.text
        (sequence,) = written
        assert sequence.startswith("\x1b]777;notify;bert failed;") and sequence.count("\x1b") == 2
        tell(play, ended(OTHER, "Succeeded", at=ago(seconds=-1)))
        await play.until(lambda: "✕1 ✓1" in header(play))
        await play.press("ctrl+n")
        await play.until(titled(play, "Jobs › other   "))
        await play.until(lambda: "✕1" in header(play) and "✓" not in header(play))
        await play.press("ctrl+n")
        await play.until(titled(play, "Jobs › bert   "))
        await play.press("ctrl+n")
        await play.until(titled(play, "Notices (2)"))
        assert written == [sequence]


@pytest.mark.slow
async def test_a_failure_is_reported_once_its_log_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Held(Answer(f"{ago(seconds=2)} [rank0]: ValueError: no column label_9\n".encode()))
    path = "/api/v1/namespaces/default/pods/bert-master-0/log"

    def prepare(cluster: ScriptedCluster) -> None:
        cluster.say(path, log)

    async with console_on(tmp_path, size=(80, 24), prepare=prepare, **scene(BERT)) as play:
        reports: list[JobNotice] = []
        assert play.console.notifier is not None
        monkeypatch.setattr(play.console.notifier, "_toast", reports.extend)
        await play.press(*typed("nodes"))
        pod = pod_of(BERT, "master-0", on="a", phase="Failed", gpus=1)
        end = {"exitCode": 3, "reason": "Error", "finishedAt": ago(seconds=1)}
        own = {"name": "pytorch", "restartCount": 0, "state": {"terminated": end}}
        play.watches["pods"].event("MODIFIED", pod | {"status": pod["status"] | {"containerStatuses": [own]}})
        tell(play, ended(BERT, "Failed"))
        await play.until(lambda: "✕1" in header(play))
        await play.cluster.until_asked(path)
        await play.until(lambda: play.console.notifier and play.console.notifier._is_waiting)
        assert not reports
        log.let_go()
        await play.until(lambda: reports)
        assert [each.reason for each in reports] == ["rank 0 exit 3: ValueError: no column label_9"]


@pytest.mark.slow
async def test_opening_the_notices_list_shows_all_notices_and_resets_the_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.screens.base.list_view.AGES_S", 0.1)
    async with console_on(tmp_path, **scene(BERT, OTHER)) as play:
        await play.press(*typed("notifications"), shows="No news about your jobs")
        await play.press("escape")
        tell(play, ended(BERT, "Failed", "bad shard"), ended(OTHER, "Succeeded"))
        await play.until(lambda: "1 failed, 1 ended" in play.text and ":notices lists them" in play.text)
        await play.press(*typed("notices"))
        await play.until(titled(play, "Notices (2)"))
        assert "✕ failed" in play.text and "✓ ended" in play.text
        await play.until(lambda: "✕1" not in header(play))
        failed = row(play, "✕ failed")
        await play.until(lambda: row(play, "✕ failed") != failed)  # it is older now
        await play.press("N", "g", "enter")
        await play.until(titled(play, "Jobs › bert   "))


@pytest.mark.parametrize("key", ["ctrl+n", "enter"])
async def test_opening_a_job_marks_all_of_its_notices_as_seen(tmp_path: Path, key: str) -> None:
    waits = scene(BERT) | {"pods": [pod_of(BERT, "master-0", phase="Pending")]}
    async with console_on(tmp_path, **waits) as play:
        for restarts, counter in ((0, "▸1"), (1, "↻1 ▸1")):
            state: Object = {"name": "pytorch", "state": {"running": {}}, "restartCount": restarts}
            pod = pod_of(BERT, "master-0", on="a", gpus=1, containerStatuses=[state])
            play.watches["pods"].event("MODIFIED", pod)
            await play.until(lambda: counter in header(play))  # noqa: B023
        await play.press(key)
        await play.until(titled(play, "Jobs › bert   "))
        await play.until(lambda: "↻" not in header(play) and "▸" not in header(play))


async def test_notices_are_stored_and_shared_with_other_consoles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "SHARE_S", 0.05)
    other = Journal(tmp_path / "state")
    async with console_on(tmp_path, **scene(BERT)) as play:
        tell(play, failed := ended(BERT, "Failed", HOSTILE))
        await play.until(lambda: other.rows("SELECT key FROM notices"))
    async with console_on(tmp_path, **scene(failed)) as play:
        await play.until(lambda: "✕1" in header(play))
        await play.press(*typed("notices"))
        await play.until(titled(play, "Notices (1)"))
        await play.until(lambda: b'"is_seen":true' in other.rows("SELECT body FROM notices")[0][0])
        assert "✕" not in header(play) and "[red]x[/]" in play.text
        assert other.write(("DELETE FROM notices",))
        await play.until(titled(play, "Notices (0)"))


async def test_a_problem_of_the_journal_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[str] = []
    monkeypatch.setattr(notices.Notifier, "_report", lambda _, problem, title: reports.append(problem))
    monkeypatch.setattr(notices, "SHARE_S", 0.05)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / JOURNAL_FILE).write_bytes(b"no database" * 999)
    async with console_on(tmp_path, **scene(BERT)) as play:
        await play.until(lambda: reports)
        tell(play, ended(BERT, "Failed"))
        await play.until(lambda: Journal(tmp_path / "state").rows("SELECT key FROM notices"))
        assert len(reports) == 1 and "it was moved to journal-damaged-" in reports[0]


async def test_many_failures_at_once_share_toasts_and_are_all_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [mine(f"job-{number}") for number in range(60)]
    async with console_on(tmp_path, **scene(*jobs)) as play:
        notify, toasts = play.console.notify, []

        def count(*arguments: Any, **options: Any) -> None:
            toasts.append(options.get("title"))
            notify(*arguments, **options)

        monkeypatch.setattr(play.console, "notify", count)
        began_s = time.monotonic()
        tell(play, *(ended(job, "Failed") for job in jobs))
        await play.until(lambda: "✕60" in header(play) and toasts)
        await play.until(lambda: "and 58 more" in play.text or len(toasts) > 1)
        # On a loaded machine the jobs arrive over many seconds.
        assert len(toasts) <= 1 + (time.monotonic() - began_s) / notices.TOGETHER_S
        await play.press(*typed("notices"))
        await play.until(titled(play, "Notices (60)"))


async def test_a_failure_during_an_outage_is_notified_afterwards_with_its_age(tmp_path: Path) -> None:
    async with console_on(tmp_path, **scene(BERT)) as play:
        play.cluster.replace(JOBS, refusal(500, "etcd is gone"), watch=True)
        play.watches["jobs"].drop()
        await play.until(lambda: play.console.snapshot.stale)
        assert not play.console.notices
        failed = {"type": "MODIFIED", "object": ended(BERT, "Failed", at=ago(minutes=90))}
        play.cluster.replace(JOBS, Stream(failed), Stall(), watch=True)
        await play.press("ctrl+r", shows="bert failed 1h30m ago")


async def test_notify_off_suppresses_all_notices(tmp_path: Path) -> None:
    async with console_on(tmp_path, **scene(BERT), notify=NotifyOptions(events=())) as play:
        tell(play, ended(BERT, "Failed"))
        await play.until(lambda: play.console.snapshot.jobs[0].status == "Failed")
        await play.press(*typed("notices"))
        await play.until(titled(play, "Notices (0)"))
        assert "✕" not in header(play)


async def test_each_of_two_consoles_notifies_and_the_hook_receives_the_event(tmp_path: Path) -> None:
    hook = (
        "sh",
        "-c",
        f"printenv GPUCONSOLE_EVENT GPUCONSOLE_JOB GPUCONSOLE_REASON > {tmp_path}/facts; exit 4",
    )
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    options = NotifyOptions(exec=hook, toast="off", counter="off")
    async with (
        console_on(first, **scene(BERT)) as one,
        console_on(second, **scene(BERT), notify=options) as two,
    ):
        for play in (one, two):
            tell(play, ended(BERT, "Failed", HOSTILE))
        await one.until(lambda: "✕1" in header(one))
        await two.until(lambda: "notify.exec failed" in two.text and "sh: exit 4." in two.text)
        event, job, reason, *rest = (tmp_path / "facts").read_text().splitlines()
        assert (event, job, rest) == ("failed", "bert", []) and "$(touch gone)" in reason
        assert not Path("gone").exists() and "✕" not in header(two)
