"""One view alone, shown a snapshot, whose requests are written down and not done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace
from textual.pilot import Pilot

import themes
from k8s.snapshot import ClusterSnapshot
from tests.support.themed_app import ThemedApp
from tui.screens import ACTIONS
from tui.screens.base import view as frame
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View


class FramedApp(ThemedApp[None]):
    """An app with the looks of the console, and nothing else of it."""

    CSS_PATH = [themes.STYLESHEET, Path(frame.__file__).with_suffix(".tcss")]  # noqa: RUF012


class Hosted(FramedApp):
    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        view.context = replace(view.context, actions=ACTIONS)
        # Name of each request, its subject, and the names of its jobs
        self.requests: list[tuple[str, str, tuple[str, ...]]] = []

    def on_mount(self) -> None:
        self.push_screen(self.view)

    def on_action_request(self, request: ActionRequest) -> None:
        about = request.argument or request.selected or request.instance
        self.requests.append((request.name, about, tuple(ref.name for ref in request.targets)))


@asynccontextmanager
async def hosted(
    view: View, snapshot: ClusterSnapshot, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Hosted, Pilot[None]]]:
    app = Hosted(view)
    async with app.run_test(size=size) as pilot:
        view.snapshot = snapshot
        await pilot.pause()
        yield app, pilot
