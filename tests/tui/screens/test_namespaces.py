"""The list of namespaces: what each holds, waits for and may have; and going to one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from k8s.models import convert
from k8s.models.namespace import Quota
from tests.scripted.server import Answer, Held, page, refusal
from tests.support.namespace_objects import NAMESPACES, QUOTAS, in_namespace, namespace, quota, serve
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.playground import Playground, console_on, some_objects
from tests.support.screen_text import resize
from tests.tui.settings.keys.world import typed
from tui.app import Console
from tui.screens.lists.jobs import JobsView
from tui.screens.lists.nodes import NodesView
from tui.tables.namespace_usage import NamespaceUsage, QuotaUsage, limits_by_namespace, recent_first

ALL = [namespace(name) for name in ("default", "nlp", "vision")]


def vision_job() -> tuple[Object, Object]:
    job = pytorch_job("vit", gpus=8)
    job["metadata"]["namespace"] = "vision"
    return job, pod_of(job, "master-0", on="b", gpus=8)


def objects() -> dict[str, Any]:
    """Return jobs of two namespaces: 8 GPUs held in each, and 16 waited for in `default`."""
    found, (job, pod) = some_objects(), vision_job()
    return {"nodes": found["nodes"], "pods": [*found["pods"], pod], "jobs": [*found["jobs"], job]}


def order_of(play: Playground) -> list[str]:
    return [row.key for row in play.table.shown_rows]


async def open_namespaces(play: Playground, shows: str = "") -> None:
    await play.press("colon", *"ns", "enter", shows=" Namespaces")
    await play.until(lambda: shows in play.text, shows)


def words_of(play: Playground, name: str) -> list[str]:
    lines = [line.replace("▸", " ").replace("*", " ").split() for line in play.text.splitlines()[1:]]
    return next((words for words in lines if words[:1] == [name]), [])


async def test_each_namespace_shows_its_jobs_held_and_requested_gpus_and_quota(tmp_path: Path) -> None:
    async with console_on(tmp_path, **objects()) as play:
        watch = serve(play.cluster, NAMESPACES, *ALL)
        serve(play.cluster, QUOTAS, quota("gpus", 8, 64), quota("tight", 8, 8, namespace="vision"))
        await open_namespaces(play)
        for size in ((80, 24), (120, 40), (200, 60)):
            await resize(play.pilot, *size)
            await play.until(lambda: "8/64" in play.text and "Active" in words_of(play, "vision"))
            assert words_of(play, "all")[1:5] == ["namespaces", "3", "16", "16"]
            assert words_of(play, "default")[1:6] == ["2", "8", "16", "8/64", "Active"]
            assert words_of(play, "vision")[1:6] == ["1", "8", "0", "8/8", "Active"]
            assert words_of(play, "nlp")[1:5] == ["0", "0", "0", "–"]
            assert "Σ 3 namespaces · 3 unfinished jobs · 16 GPUs held · 16 requested and waiting" in play.text
        watch.event("MODIFIED", namespace("nlp", "Terminating"))
        await play.until(lambda: "Terminating" in words_of(play, "nlp"))


@pytest.mark.slow
async def test_enter_opens_the_jobs_of_a_namespace_and_recent_namespaces_come_first(tmp_path: Path) -> None:
    async with console_on(tmp_path, **objects()) as play:
        serve(play.cluster, NAMESPACES, *ALL)
        serve(play.cluster, QUOTAS)
        await play.press("tab", shows=NodesView)
        await open_namespaces(play)
        await play.until(lambda: play.table.row_count == 4)
        assert play.table.move_to("vision")
        await play.press("enter", shows="lab / vision")
        assert isinstance(play.console.screen, JobsView) and "vit" in play.text and "bert" not in play.text
        await open_namespaces(play)
        await play.until(lambda: play.table.row_count == 4)
        assert [row.key for row in play.table.shown_rows] == ["*", "vision", "default", "nlp"]
        assert words_of(play, "default")[1:4] == ["2", "8", "16"], "those of other namespaces count too"
        await play.press("g", "d", shows="lab / all namespaces")
        await play.until(lambda: "vit" in play.text and "bert" in play.text)
        await play.press("0", shows="lab / default")


async def test_a_namespace_command_with_a_name_switches_immediately(tmp_path: Path) -> None:
    async with console_on(tmp_path, **objects()) as play:
        await play.press("colon", *"ns", "space", *"vision", "enter", shows="lab / vision")
        assert isinstance(play.console.screen, JobsView)
        assert isinstance(play.console, Console)
        assert play.console.context.recent == ["vision"]


@pytest.mark.slow
async def test_an_unknown_namespace_is_reported_and_the_current_one_stays(tmp_path: Path) -> None:
    async with console_on(tmp_path, **objects()) as play:
        play.cluster.say("/api/v1/namespaces/empty", Answer(namespace("empty")))
        play.cluster.say("/api/v1/namespaces/nosuch", refusal(404, "not found", "NotFound"))
        await play.press(*typed("ns nosuch"))
        await play.until(lambda: "There is no namespace 'nosuch'. :ns lists those there are." in play.text)
        await play.press(*typed("ns a/b"), shows="There is no namespace 'a/b'.")
        serve(play.cluster, NAMESPACES, *ALL)
        play.cluster.say("/api/v1/namespaces/visoin", refusal(403, "not you", "Forbidden"))
        await play.press(*typed("ns visoin"))
        await play.until(lambda: "There is no namespace 'visoin'. Did you mean :ns vision?" in play.text)
        assert "lab / default" in play.text and not play.console.context.recent
        await play.press(*typed("ns empty"), shows="lab / empty")


@pytest.mark.slow
async def test_jobs_takes_a_namespace_or_a_filter_and_so_do_the_kinds(tmp_path: Path) -> None:
    async with console_on(tmp_path, **objects()) as play:
        play.cluster.say("/api/v1/namespaces/empty", Answer(namespace("empty")))
        for command, shown, listed in (
            ("jobs /bert", "lab / default", "/bert"),
            ("jobs ber", "lab / default", "/ber"),
            ("pytorchjobs", "lab / default", "/kind:^PyTorchJob$"),
            ("py /bert", "lab / default", "/kind:^PyTorchJob$ bert"),
            ("vcjob", "lab / default", "/kind:^Job$"),
            ("jobs vision", "lab / vision", " Jobs (1)"),
            ("PyTorchJob default", "lab / default", " Jobs (2)  /kind:^PyTorchJob$"),
            ("jobs empty", "lab / empty", " Jobs (0)"),
        ):
            await play.press(*typed(command))
            await play.until(lambda words=(shown, listed): all(each in play.text for each in words))  # type: ignore[misc]
            assert isinstance(play.console.screen, JobsView)


async def test_namespaces_known_from_jobs_are_suggested_while_typing(tmp_path: Path) -> None:
    async with console_on(tmp_path, **objects()) as play:
        field = play.console.screen.query_one(Input)
        await play.press("colon", *"ns", "space", "v")
        await play.until(lambda: field._suggestion == "ns vision")


@pytest.mark.slow
async def test_namespaces_are_sorted_and_left(tmp_path: Path) -> None:
    async with console_on(tmp_path, **objects()) as play:
        serve(play.cluster, NAMESPACES, *ALL, namespace("zoo"))
        serve(play.cluster, QUOTAS)
        await open_namespaces(play)
        await play.until(lambda: play.table.row_count == 5)
        await play.press("N", "N")
        assert order_of(play)[:2] == ["zoo", "vision"]
        await play.press("A")
        assert order_of(play)[-1] == "*", "all together have no age"
        await play.press("escape", shows=JobsView)
        await open_namespaces(play)
        await play.press("tab", shows=JobsView)


async def test_namespaces_known_from_jobs_are_shown_when_listing_is_forbidden(tmp_path: Path) -> None:
    words = 'User "li" cannot list resource "namespaces" at the cluster scope'
    async with console_on(tmp_path, **objects()) as play:
        serve(play.cluster, NAMESPACES, reply=refusal(403, words, "Forbidden"))
        serve(play.cluster, QUOTAS, reply=refusal(403, "no quotas", "Forbidden"))
        serve(play.cluster, in_namespace(QUOTAS), quota("gpus", 8, 64))
        await open_namespaces(play)
        await play.until(lambda: words_of(play, "vision") and "8/64" in words_of(play, "default"))
        assert "This user may not list namespaces." in play.text and words in play.text
        assert ":ns NAME goes to any" in play.text
        assert words_of(play, "all")


async def test_all_namespaces_is_not_offered_to_a_user_limited_to_one_namespace(tmp_path: Path) -> None:
    one = "/api/v1/namespaces/default/pods"
    async with console_on(tmp_path, refused="pods", nodes=[node("a")]) as play:
        serve(play.cluster, one)
        serve(play.cluster, NAMESPACES, reply=refusal(403, "no", "Forbidden"))
        await play.press("ctrl+r")
        console = play.console
        assert isinstance(console, Console)
        await play.until(lambda: any(each.shown for each in console.snapshot.problems.values()))
        await open_namespaces(play)
        await play.until(lambda: words_of(play, "default"))
        assert not words_of(play, "all")


async def test_slow_namespaces_and_an_unreachable_cluster_are_reported(tmp_path: Path) -> None:
    late = Held(page(ALL))
    async with console_on(tmp_path) as play:
        serve(play.cluster, NAMESPACES, reply=late)
        await open_namespaces(play, shows="Reading namespaces…")
        late.let_go()
        await play.until(lambda: words_of(play, "nlp"))
        await play.press("escape")
        await play.cluster.go_away()
        await play.until(lambda: "away" in play.text.splitlines()[0])
        await open_namespaces(play, shows="ctrl+r retries now")


def quotas(*objects: Object) -> list[Quota]:
    return [convert(each, Quota) for each in objects]


def test_the_tightest_of_several_quotas_applies() -> None:
    two = quota("wide", 2, 64), quota("tight", 2, 4)
    found = limits_by_namespace(quotas(*two, quota("other", 9, 8, namespace="x")))
    assert found["default"] == QuotaUsage(2, 4, "nvidia.com/gpu")
    assert found["x"].left == 0


def test_quotas_without_gpu_requests_are_ignored() -> None:
    hard = {"requests.cpu": "4", "pods": "9", "nvidia.com/gpu": "1"}
    cpus = {"metadata": {"namespace": "x"}, "status": {"hard": hard}}
    assert limits_by_namespace(quotas(cpus, {"metadata": {}, "status": {"hard": None}})) == {}


def test_recent_namespaces_come_first_in_order_of_use() -> None:
    names = [
        place.name
        for place in recent_first(
            [NamespaceUsage("a"), NamespaceUsage("b"), NamespaceUsage("c")], ["c", "gone", "b"]
        )
    ]
    assert names == ["c", "b", "a"]
