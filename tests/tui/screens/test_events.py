"""The list of events: live, folded, of one namespace or all; and what it says where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8s.models import convert
from k8s.models.event import Event
from tests.scripted.server import Answer, Held, page, refusal
from tests.support.namespace_objects import EVENTS, event, in_namespace, serve
from tests.support.objects import Object
from tests.support.playground import Playground, bert, console_on, some_objects
from tests.support.sample_cluster import ago
from tests.support.screen_text import resize
from tui.screens.dialogs.detail import DetailScreen
from tui.screens.dialogs.help import HelpScreen
from tui.screens.job.job import JobView
from tui.screens.lists.events import EventsView
from tui.screens.lists.jobs import JobsView
from tui.tables.events import EventGrouper, jobs_by_reference

HERE = in_namespace(EVENTS)

no_room = [
    event(
        f"no-room-{place}",
        ("Pod", f"bert-{place}"),
        "FailedScheduling",
        "0/2 nodes are available.",
        kind="Warning",
        at=ago(minutes=9 - number),
        count=3,
    )
    for number, place in enumerate(("master-0", "worker-0"))
]
pulled = event("pulled", ("Pod", "notebook"), "Pulled", "Image is\nalready present", at=ago(minutes=2))
made = event("made", ("PyTorchJob", "bert"), "Created", "Created pod bert-master-0", at=ago(hours=2))
elsewhere = event("far", ("Pod", "vis-1"), "BackOff", "Back-off", kind="Warning", namespace="vision")


async def open_events(play: Playground, shows: str = "") -> None:
    await play.press("colon", *"events", "enter", shows=EventsView)
    await play.until(lambda: shows in play.text, shows)


def line_with(play: Playground, word: str) -> str:
    return next((line for line in play.text.splitlines() if word in line), "")


async def test_events_are_listed_newest_first_and_grouped_per_job(tmp_path: Path) -> None:
    async with console_on(tmp_path, size=(80, 24), **some_objects()) as play:
        watch = serve(play.cluster, HERE, made, *no_room, pulled)
        await open_events(play)
        for size in ((80, 24), (120, 40), (200, 60)):
            await resize(play.pilot, *size)
            await play.until(lambda: play.table.row_count == 3 and "? help" in play.text.splitlines()[-1])
            rows = [line for line in play.text.splitlines() if "Warning" in line or "Normal" in line]
            assert ["Pulled" in rows[0], "FailedSc" in rows[1], "Created" in rows[2]] == [True] * 3
            words = rows[1].split()
            assert {"Warning", "+1", "6"} <= set(words)
            assert words[0].endswith("m"), "the age of the newest of them"
            assert "Events (3)" in play.text and "NAMESPACE" not in play.text
            assert "Σ 4 events in 3 lines · 2 warnings" in play.text
        assert "pod/bert-master-0 +1" in rows[1] and "Image is already present" in rows[0]
        watch.event("DELETED", made).event("ADDED", event("new", ("Pod", "notebook"), "Started", "Started"))
        await play.until(lambda: "Created" not in play.text and "Started" in play.text)
        assert "Events (3)" in play.text


@pytest.mark.slow
async def test_the_event_watch_stops_below_another_view_and_resumes_without_a_new_list(
    tmp_path: Path,
) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        watch = serve(play.cluster, HERE, made)
        await open_events(play)
        await play.cluster.until_asked(HERE, watch=True)
        await play.press("question_mark", shows=HelpScreen)
        assert not watch.is_over.is_set()
        await play.press("escape", "colon", *"ctx", "enter", shows=" Contexts")
        await play.until(watch.is_over.is_set)
        await play.press("escape")
        await play.cluster.until_asked(HERE, 2, watch=True)
        # Home explains waiting jobs by their own events.
        assert len([each for each in play.cluster.asked(HERE) if "fieldSelector" not in each.query]) == 1
        assert "Created" in play.text
        await play.press("escape", shows=JobsView)


async def test_keys_on_an_event_open_its_details_or_its_job(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        serve(play.cluster, HERE, *no_room, pulled)
        await open_events(play)
        await play.until(lambda: play.table.row_count == 2)
        assert play.table.move_to("event-pulled")
        await play.press("enter", shows=DetailScreen)
        assert "Pod default/notebook" in play.text and "already present" in play.text
        await play.press("escape")
        assert "Unknown command" not in play.text
        assert play.table.move_to("event-no-room-master-0")
        await play.press("v", shows=DetailScreen)
        assert "seen        6 times" in play.text
        await play.press("escape", "d", shows=JobView)
        await play.press("escape", shows=EventsView)


async def test_the_warnings_only_filter_persists_after_leaving_and_reopening_the_view(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        watch = serve(play.cluster, HERE, *no_room, pulled)
        await open_events(play)
        await play.until(lambda: play.table.row_count == 2)
        await play.press("F")
        assert play.table.row_count == 1 and "Events (1)  warnings only" in play.text
        watch.event("DELETED", no_room[0]).event("DELETED", no_room[1])
        await play.until(lambda: "No warning in namespace default." in play.text)
        assert "F shows all 1 event" in play.text
        await play.press("tab")
        await open_events(play, shows="warnings only")
        await play.press("F", shows="Pulled")


async def test_the_zero_key_toggles_all_namespaces(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        serve(play.cluster, HERE, made)
        serve(play.cluster, EVENTS, made, elsewhere)
        await open_events(play, shows="Events (1)")
        await play.press("0", shows="Events (2)")
        assert "NAMESPACE" in play.text and "vision" in line_with(play, "vis-1")
        await play.press("0")
        await play.until(lambda: "Events (1)" in play.text and "NAMESPACE" not in play.text)


async def test_an_empty_event_list_names_a_key_and_tab_opens_the_volumes(tmp_path: Path) -> None:
    async with console_on(tmp_path) as play:
        serve(play.cluster, HERE)
        await open_events(play, shows="No events in namespace default")
        assert "0 shows all namespaces" in play.text
        await play.press("tab", shows=" Volumes")


async def test_a_forbidden_event_list_is_explained_and_ctrl_r_retries_it(tmp_path: Path) -> None:
    words = 'events is forbidden: User "li" cannot list resource "events"'
    async with console_on(tmp_path) as play:
        serve(play.cluster, HERE, reply=refusal(403, words, "Forbidden"))
        await open_events(play, shows="This user may not list events in namespace default.")
        assert words in play.text and ":ns switches namespace" in play.text
        serve(play.cluster, HERE, made)
        await play.press("ctrl+r", shows="Created")


async def test_all_namespaces_falls_back_to_the_namespace_with_permission(tmp_path: Path) -> None:
    words = 'events is forbidden: User "li" cannot list resource "events" at the cluster scope'
    async with console_on(tmp_path, is_all_namespaces=True) as play:
        serve(play.cluster, EVENTS, reply=refusal(403, words, "Forbidden"))
        serve(play.cluster, HERE, made)
        await open_events(play)
        notice = "Only those in namespace default are shown."
        await play.until(lambda: "Created" in play.text and notice in play.text)


async def test_a_slow_event_list_shows_a_loading_message(tmp_path: Path) -> None:
    late = Held(page([made]))
    async with console_on(tmp_path) as play:
        serve(play.cluster, HERE, reply=late)
        await open_events(play, shows="Reading events…")
        late.let_go()
        await play.until(lambda: "Created" in play.text)


async def test_a_lost_cluster_is_reported_and_keeps_the_events(tmp_path: Path) -> None:
    async with console_on(tmp_path) as play:
        serve(play.cluster, HERE, made)
        await open_events(play, shows="Created")
        await play.cluster.go_away()
        await play.until(lambda: "away" in play.text.splitlines()[0])
        assert "Created" in play.text
        await play.press("0")  # another list, of which nothing is known yet
        await play.until(lambda: "ctrl+r retries now" in play.text)
        await play.cluster.come_back()
        serve(play.cluster, EVENTS, made, elsewhere)
        await play.press("ctrl+r", shows="vis-1")


async def test_a_failing_list_is_named_while_the_rest_is_live(tmp_path: Path) -> None:
    async with console_on(tmp_path) as play:
        serve(play.cluster, HERE, reply=Answer({"message": "etcd is slow"}, 500))
        await open_events(play, shows="events: The cluster says: etcd is slow")
        assert "could not be read yet" in play.text and "live" in play.text.splitlines()[0]


@pytest.mark.slow
async def test_ten_thousand_events_are_listed_and_the_last_can_be_reached(tmp_path: Path) -> None:
    many = [event(f"e{each}", ("Pod", f"p{each}"), "Pulled", f"pulled {each}") for each in range(10_000)]
    async with console_on(tmp_path) as play:
        serve(play.cluster, HERE, *many)
        await open_events(play, shows="Events (10,000)")
        await play.press("G")
        assert play.table.cursor_key == play.table.shown_rows[-1].key


def events_of(*objects: Object) -> list[Event]:
    return [convert(each, Event) for each in objects]


def test_an_event_group_keeps_its_identity_until_one_of_its_events_changes() -> None:
    teller, events = EventGrouper(), events_of(*no_room, pulled)
    first = teller.group(events, {})
    assert len(first) == 3, "the pods of no job are told apart"
    assert [id(each) for each in teller.group(events, {})] == [id(each) for each in first]
    again = teller.group([*events[:2], *events_of({**pulled, "count": 9})], {})
    assert again[0].folded.count == 9
    assert [id(each) for each in again[1:]] == [id(each) for each in first[1:]]


def test_events_are_assigned_to_a_job_once_the_job_is_known() -> None:
    from tests.support.objects import joined

    objects = some_objects()
    _, jobs = joined(objects["nodes"], objects["pods"], objects["jobs"])
    teller, events = EventGrouper(), events_of(*no_room, made)
    assert {each.job for each in teller.group(events, {})} == {None}
    told = teller.group(events, jobs_by_reference(jobs.values()))
    assert [each.job and each.job.name for each in told] == ["bert", "bert"]
    assert bert["metadata"]["name"] == "bert"


def test_an_event_without_fields_is_still_listed() -> None:
    (told,) = EventGrouper().group(events_of({"metadata": {"uid": "e"}, "reason": None, "count": None}), {})
    assert (told.folded.about, told.folded.count, told.folded.first) == ("?/", 1, None)


def test_a_very_long_event_message_is_truncated_when_parsed() -> None:
    (found,) = events_of(event("e", ("Pod", "p"), "R", "x" * 100_000))
    assert found.message is not None and len(found.message) == 4097
