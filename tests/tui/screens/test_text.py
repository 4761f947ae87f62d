"""Text that is asked for: what it says when there is none to be had."""

from __future__ import annotations

from k8s.errors import Forbidden
from k8s.snapshot import ClusterSnapshot
from tests.support.hosted_view import hosted
from tui.screens.documents.text import TextView
from tui.widgets.text_lines import TextLines

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
