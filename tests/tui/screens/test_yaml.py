"""Text views: an object as YAML (searched, folded, without secrets), and text that has to be fetched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import Forbidden
from tests.scripted.server import Answer, Asked, Reply, Stall, Stream, refusal
from tests.support.hosted_view import hosted
from tests.support.objects import Object, pytorch_job
from tests.support.playground import Playground, console_on
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.text import TextView
from tui.screens.documents.yaml import YamlScreen
from tui.widgets.text_lines import TextLines

OWN = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
ALL = OWN.rpartition("/")[0]
TOKEN = "hf_abcdefghijklmnopqrst"


def bert(version: str = "7", **spec: Any) -> Object:
    job = pytorch_job("bert", resourceVersion=version)
    job["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]
    template = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    template["spec"]["containers"][0]["env"] = [{"name": "HF_TOKEN", "value": TOKEN}]
    job["spec"] |= spec
    return job


@asynccontextmanager
async def yaml_view(
    tmp_path: Path, obj: Object | None = None, *, watch: Reply | None = None, **options: Any
) -> AsyncIterator[Playground]:
    async with console_on(tmp_path, jobs=[bert()], **options) as play:
        play.cluster.say(OWN, Answer(obj or bert()))
        play.cluster.say(ALL, watch or Stall(), watch=True)
        await play.press("y", shows="kind: PyTorchJob")
        yield play


def title(play: Playground) -> str:
    return play.text.splitlines()[1]


def reader(play: Playground) -> TextLines:
    return play.console.screen.query_one(TextLines)


async def test_yaml_is_shown_with_secrets_hidden_and_managed_fields_folded(tmp_path: Path) -> None:
    async with yaml_view(tmp_path) as play:
        assert "Jobs › bert › YAML" in title(play) and "1 secret hidden" in title(play)
        assert "value: ••••" in play.text and TOKEN not in play.text
        assert "managedFields: … 3 lines folded" in play.text
        await play.press("M", shows="manager: kubectl")
        await play.press("M")
        await play.until(lambda: "manager: kubectl" not in play.text)


async def test_a_search_counts_matches_and_wraps_around(tmp_path: Path) -> None:
    notes = [f"note {number}" for number in range(100)]
    async with yaml_view(tmp_path, bert(notes=notes), size=(80, 24)) as play:
        lines = play.text.count("\n")
        await play.press("slash", *"NOTE 9", "enter")
        await play.until(lambda: "/NOTE 9  1 of 11" in title(play))
        assert "note 9" in play.text and play.text.count("\n") == lines
        await play.press("n", "n")
        assert "3 of 11" in title(play) and "note 91" in play.text
        await play.press("N", "N", "N")
        assert "11 of 11" in title(play) and "note 99" in play.text
        await play.press("escape")
        assert "of 11" not in title(play) and isinstance(play.console.screen, YamlScreen)
        await play.press("slash", *"nowhere", "enter")
        await play.until(lambda: "nothing found" in title(play))


@pytest.mark.slow
async def test_secrets_are_shown_only_after_confirmation_and_never_copied(tmp_path: Path) -> None:
    async with yaml_view(tmp_path) as play:
        await play.press("x", shows=ConfirmScreen)
        await play.press("enter")
        assert TOKEN not in play.text
        await play.press("x", "right", "enter")
        await play.until(lambda: TOKEN in play.text and "SECRETS SHOWN" in title(play))
        screen = play.console.screen
        assert isinstance(screen, YamlScreen)
        copied = screen.copy_text()
        assert "value: ••••" in copied and TOKEN not in copied
        assert "managedFields" not in copied and copied.startswith("apiVersion: kubeflow.org/v1\n")
        await play.press("x")
        await play.until(lambda: TOKEN not in play.text)


def is_watch(asked: Asked) -> bool:
    return asked.query.get("fieldSelector") == "metadata.name=bert"


async def test_the_yaml_view_watches_its_object_and_reports_its_deletion(tmp_path: Path) -> None:
    watch = Stream()
    async with yaml_view(tmp_path, watch=watch) as play:
        await play.until(lambda: any(is_watch(each) for each in play.cluster.requests))
        asked = next(each for each in play.cluster.requests if is_watch(each))
        assert asked.query["resourceVersion"] == "7"
        watch.event("MODIFIED", bert("8", suspend=True))
        await play.until(lambda: "suspend: true" in play.text)
        assert len(play.cluster.asked(OWN)) <= 2  # the view, and the list for its reason
        watch.event("DELETED", bert("9", suspend=True))
        await play.until(lambda: "gone: this is its last state" in title(play))
        assert "suspend: true" in play.text


async def test_the_yaml_view_can_be_paused_and_refreshed_manually(tmp_path: Path) -> None:
    watch = Stream()
    async with yaml_view(tmp_path, watch=watch) as play:
        await play.until(lambda: " live" in title(play))
        await play.cluster.until_asked(ALL, watch=True)
        await play.press("r")
        await watch.is_over.wait()
        await play.until(lambda: " still" in title(play))
        play.cluster.forget(OWN)
        play.cluster.say(OWN, Answer(bert("9", suspend=True)))
        await play.press("ctrl+r", shows="suspend: true")


async def test_a_missing_watch_permission_is_reported_above_the_yaml(tmp_path: Path) -> None:
    async with yaml_view(tmp_path, watch=refusal(403, "cannot watch", "Forbidden")) as play:
        await play.until(lambda: "not live: you may not watch it" in title(play))
        assert "kind: PyTorchJob" in play.text


async def test_any_object_is_named_by_its_kind_and_its_secrets_are_hidden(tmp_path: Path) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "default", "resourceVersion": "1"},
        "data": {"password": "c3dvcmRmaXNo"},
    }
    async with console_on(tmp_path, jobs=[bert()]) as play:
        play.cluster.say("/api/v1/namespaces/default/secrets/s", Answer(secret))
        play.cluster.say("/api/v1/namespaces/default/secrets", Stall(), watch=True)
        await play.press("colon", *"yaml secret/s", "enter", shows="password: ••••")
        await play.press("escape", "colon", *"yaml nonsense/s", "enter", shows="No kind 'nonsense'.")
        path = "/api/v1/namespaces/default/secrets/t"
        play.cluster.say(path, refusal(403, "cannot get secrets", "Forbidden"))
        await play.press("colon", *"yaml secret/t", "enter", shows="cannot get secrets")


async def test_long_yaml_lines_scroll_sideways_or_wrap(tmp_path: Path) -> None:
    async with yaml_view(tmp_path, bert(words="word " * 60 + "end"), size=(80, 40)) as play:
        assert "end" not in play.text and "›" in play.text
        await play.press("w", shows="word end")
        await play.press("w")
        await play.press(*["right"] * 20)
        assert "word end" in play.text
        await play.press(*["left"] * 20)
        assert "apiVersion" in play.text


@pytest.mark.slow
async def test_a_very_large_object_can_be_scrolled_searched_and_wrapped(tmp_path: Path) -> None:
    huge = bert(
        notes=[{"name": f"n{number}", "value": f"some words {number}"} for number in range(25_000)],
        blob="x" * 500_000,
    )
    async with yaml_view(tmp_path, huge) as play:
        await play.press("G")
        assert reader(play).top_line + reader(play).size.height > 50_000
        await play.press("slash", *"words 24999", "enter")
        await play.until(lambda: "1 of 1" in title(play) and "some words 24999" in play.text)
        await play.press("w", "G")
        assert "xxxx" in play.text


TRIED = "\n".join(f"pod-{index}: nvidia-smi is not there, nor anything like it" for index in range(4))
HELP = (
    "It needs a pod on the node that sees all of its GPUs, and the right to run a command there, pods/exec."
)


async def test_an_error_is_shown_in_full_until_the_text_loads_and_a_later_error_keeps_the_text() -> None:
    answers: list[Forbidden | str] = [
        Forbidden("Could not read the links.", TRIED, HELP),
        "GPU0 X",
        Forbidden("No more."),
    ]

    async def fetch() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Forbidden):
            raise answer
        return answer

    async with hosted(TextView("links", fetch, wraps=False), ClusterSnapshot(), size=(60, 20)) as (
        app,
        pilot,
    ):
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "Could not read the links." in app.text
        assert "pod-3: nvidia-smi" in app.text
        assert "pods/exec." in app.text
        app.view.refresh_feeds()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "GPU0 X" in app.text and "Could not" not in app.text
        assert not app.screen.query_one(TextLines).wraps
        app.view.refresh_feeds()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "GPU0 X" in app.text and "No more." in app.text  # what is known stays
