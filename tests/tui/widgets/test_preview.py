"""Details of a job in home: their text, and how little they request from the cluster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s.jobs.permissions import Permissions
from k8s.models import convert
from k8s.models.event import Event
from k8s.text.sanitize import UNSAFE, sanitize
from tests.scripted.server import Answer, Reply, ScriptedCluster, Stall, page, refusal
from tests.support.objects import joined, pod_of
from tests.support.playground import EVENTS, Playground, bert, console_on, some_objects
from tests.tui.screens.test_jobs import job
from tests.tui.settings.keys.world import REVIEWS
from tui.session.preview_data import MAX_EVENTS, PreviewData, fetch_preview
from tui.tables.jobs import JobsNow
from tui.text.cells import cell_len, wrapped
from tui.text.format import Clock
from tui.widgets.home.preview import Lines, Preview, job_preview

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WIDE = (160, 40)


def happened(uid: str, about: str = "bert", about_uid: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": uid, "uid": uid},
        "involvedObject": {"kind": "Pod", "name": about, "uid": about_uid},
        "lastTimestamp": "2026-11-21T11:00:00Z",
        **fields,
    }


def event(**fields: Any) -> Event:
    found: Event = convert(happened("e", **fields), Event)
    return found


def text_of(lines: Lines) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


def says(*said: Reply) -> Callable[[ScriptedCluster], None]:
    """Return a function that lets a cluster send these replies, one after the other, for bert's events."""

    def say(cluster: ScriptedCluster) -> None:
        cluster.forget(EVENTS)
        cluster.say(EVENTS, *said)

    return say


def pane(play: Playground) -> str:
    preview = play.console.screen.query_one(Preview)
    return "\n".join(preview.render_line(y).text for y in range(preview.size.height))


@given(st.text(max_size=200), st.integers(2, 40))
def test_wrapped_words_fit_their_width_and_none_is_lost(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert not any(UNSAFE.search(line) for line in lines)
    assert "".join("".join(lines).split()) == "".join(sanitize(text).split())


def test_the_job_preview_shows_the_reason_and_events() -> None:
    found = replace(job("bert", user="li"), reason="worker-1 exit 1, restarted once")
    glance = PreviewData(
        (event(type="Warning", reason="BackOff", count=3, message="restarting failed container"),)
    )
    told = text_of(job_preview(found, glance, JobsNow(Clock(NOW)), 60, 20))
    for words in ("PyTorchJob · default · li", "worker-1 exit 1", "1h00m BackOff ×3: restarting"):
        assert words in told
    assert len(text_of(job_preview(found, glance, JobsNow(Clock(NOW)), 60, 4)).split("\n")) == 4


@pytest.mark.parametrize("width", [20, 29, 60])
def test_the_job_preview_cuts_no_amounts(width: int) -> None:
    found = replace(job("bert"), started=NOW - timedelta(hours=11), gpus_requested=128, gpus_allocated=128)
    lines = text_of(job_preview(found, None, JobsNow(Clock(NOW)), width, 20)).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert "128/128 GPUs 0/1 pods" in " ".join(" ".join(lines).split())


def test_the_job_preview_reports_forbidden_and_missing_events() -> None:
    refused = PreviewData(events_problem="May not list events.")
    told = text_of(job_preview(job("a"), refused, JobsNow(Clock(NOW)), 60, 30))
    assert "May not list events." in told
    silent = text_of(job_preview(job("a"), PreviewData(), JobsNow(Clock(NOW)), 60, 30))
    assert "None; a cluster forgets them after an hour." in silent


@settings(max_examples=60)
@given(st.text(max_size=80), st.integers(4, 70), st.integers(1, 40))
def test_the_job_preview_is_sanitized_and_fits_for_any_text(words: str, width: int, height: int) -> None:
    told = event(type="Warning", reason=words, message=words)
    found = replace(job("a", user=words, progress=words), reason=words)
    glance = PreviewData((told,) * 3)
    lines = job_preview(found, glance, JobsNow(Clock(NOW)), width, height)
    assert len(lines) <= height
    for line in lines:
        assert not any(UNSAFE.search(text) for text, _ in line)


@pytest.mark.slow
async def test_a_wide_terminal_previews_the_selected_row_and_requests_its_events_once(tmp_path: Path) -> None:
    said = says(page([happened("e", message="pulled [/b] the image")]))
    async with console_on(tmp_path, size=WIDE, prepare=said, **some_objects()) as play:
        await play.press("N", "g")
        await play.until(lambda: "pulled [/b] the image" in pane(play))
        await play.until_idle()  # its pods may come after the job
        preview = play.console.screen.query_one(Preview)
        asked = len(play.cluster.asked(EVENTS))
        for _ in range(3):
            play.console.screen.refresh_view()  # type: ignore[attr-defined]
        assert preview._timer is None
        await play.rest()
        assert len(play.cluster.asked(EVENTS)) == asked
        await play.press("j")
        await play.until(lambda: "Pending  0/16 GPUs" in pane(play))
        assert "Running" not in pane(play)


async def test_a_row_that_changes_during_its_preview_request_is_requested_again(tmp_path: Path) -> None:
    said = says(Stall(), Stall(), page([happened("e", message="pulled")]))
    async with console_on(tmp_path, size=WIDE, prepare=said, **some_objects()) as play:
        await play.press("N", "g")
        await play.cluster.until_asked(EVENTS, 2)
        changed = {**bert["metadata"], "annotations": {"gpuconsole.dev/user": "maria"}}
        play.watches["jobs"].event("MODIFIED", bert | {"metadata": changed})
        await play.until(lambda: "pulled" in pane(play))


async def test_moving_the_cursor_cancels_the_preview_request_of_the_previous_row(tmp_path: Path) -> None:
    async with console_on(tmp_path, size=WIDE, prepare=says(Stall()), **some_objects()) as play:
        await play.press("N", "g")
        await play.cluster.until_asked(EVENTS)
        preview = play.console.screen.query_one(Preview)
        await play.press("j")
        await play.until(
            lambda: not [each for each in preview.workers if each.is_running and each.group == "preview"]
        )
        await play.until(lambda: "waits" in pane(play))
        assert "bert" not in pane(play)


async def test_a_preview_takes_two_requests_and_folds_equal_events() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        found = joined([], [pod_of(bert, "master-0", on="a", gpus=4)], [bert])[1]["bert"]
        many = [
            happened(f"e{number}", about_uid="job-bert", message=f"{number}")
            for number in range(2 * MAX_EVENTS)
        ]
        same = [
            happened(f"e{at}", about_uid="job-bert", message="Back-off", reason="BackOff", count=at)
            for at in (1, 2, 3, 4)
        ]
        other = happened("o", about_uid="job-bert", message="Pulled", reason="Pulled")
        refused = refusal(403, "events is forbidden", "Forbidden")
        listed = page([*many, happened("other", about_uid="an-older-namesake")])
        folded = page([*same, other])
        cluster.say(EVENTS, listed, listed, folded, folded, refused)

        preview = await fetch_preview(client, found)
        assert len(cluster.requests) == 2
        assert sorted(each.query["fieldSelector"] for each in cluster.asked(EVENTS)) == [
            "involvedObject.name=bert",
            "involvedObject.name=bert-master-0",
        ]
        assert len(preview.events) == MAX_EVENTS
        assert "other" not in {each.metadata.uid for each in preview.events}

        preview = await fetch_preview(client, found)
        assert sorted((each.reason, each.count) for each in preview.events) == [
            ("BackOff", 10),
            ("Pulled", 1),
        ]

        preview = await fetch_preview(client, found)
        assert "events is forbidden" in preview.events_problem
        assert preview.events == ()

        # A request that is known to be refused is not sent.
        cluster.say(REVIEWS, Answer({"status": {"allowed": False}}), method="POST")
        asked = len(cluster.asked(EVENTS))
        preview = await fetch_preview(client, found, Permissions(client))
        assert "may not list events" in preview.events_problem
        assert len(cluster.asked(EVENTS)) == asked
