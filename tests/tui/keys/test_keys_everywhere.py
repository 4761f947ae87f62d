"""Each key that works in every view does what the table says, and so do those of the line to type on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.playground import Playground
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import changes, is_one_piece, ordered, seen, title, titled, typed, unseen, world


@pytest.fixture(autouse=True)
def copies_go_to_a_file(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GPUCONSOLE_CLIPBOARD", "file")
    yield


def prompt(play: Playground) -> str:
    """Return the line to type on."""
    return play.text.splitlines()[-2].strip()


@proves("app.history_back", "app.history_forward", "app.aliases")
async def test_keys_of_every_view_walk_through_what_was_shown_and_list_the_commands(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, here = Hands.on(play), play.console.views
        await play.press("{")
        await play.until(seen(play, "No earlier view."))
        await play.press(*typed("nodes"), *typed("why bert"), "escape", "escape")
        await play.press(*typed("jobs"), *typed("events"))
        for before in (" Jobs (", " Nodes (", "› bert › why", " Nodes (", " Jobs ("):
            await hands.press("app.history_back", titled(play, before))
        for after in (" Nodes (", "› bert › why", " Nodes (", " Jobs (", " Events ("):
            await hands.press("app.history_forward", titled(play, after))
        await play.press("}")
        await play.until(seen(play, "No later view."))
        await play.press("{", "{", *typed("users"), "}")
        await play.until(seen(play, "No later view."))
        assert here.current is not None and here.current.VIEW.name == "users"
        await hands.press("app.aliases", seen(play, ":jobs, job, j ", ":compare "), undo=["escape"])
        await play.press("ctrl+a", "G")
        await play.until(seen(play, ":pytorchjobs, pytorchjob, pytorch, py ", "Jobs of kind TrainJob"))
        await play.press("escape")
        assert changes(play) == []


@proves("app.back", "app.filter", "app.command", "app.help", "app.last_view", "app.palette", "app.jump")
async def test_keys_of_every_view_go_back_and_ask_what_is_wanted(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        await hands.press("app.filter", lambda: prompt(play) == "/", undo=back)
        await hands.press("app.command", lambda: prompt(play) == ":", undo=back)
        await hands.press("app.help", seen(play, "This view", "Open the job: instances"), undo=back)
        await hands.press("app.palette", seen(play, "enter d     Open the job: instances"), undo=back)
        await hands.press("app.jump", seen(play, "\n a nodes", "\n s NAME", "waits"), undo=back)
        await play.press("N", "slash", *"bert", "enter")
        await play.until(lambda: "/bert" in title(play) and "waits" not in play.text)
        await hands.press("app.back", ordered(play, "bert", "paused", "waits"))
        await play.press(*typed("nodes"))
        await hands.press("app.last_view", titled(play, " Jobs ("), undo=["minus"])
        await hands.press("app.back", titled(play, " Jobs ("))
        assert changes(play) == []


@proves("app.copy", "app.save", "app.preview", "app.refresh", "app.quit_or_back", "app.interrupt")
async def test_keys_of_every_view_keep_ask_again_and_leave(tmp_path: Path) -> None:
    async with world(tmp_path, size=(150, 40)) as play:
        hands, state = Hands.on(play), tmp_path / "state"
        await play.press("N", "g")
        await play.until(seen(play, "─ events ─"))
        await hands.press("app.preview", unseen(play, "─ events ─"), undo=["z", "z", "z"])
        copied = state / "clipboard.txt"
        await hands.press("app.copy", lambda: copied.is_file() and copied.read_text() == "bert")
        await hands.press("app.save", lambda: list((state / "saved").glob("jobs-*.csv")))
        (saved,) = (state / "saved").iterdir()
        assert saved.read_text().splitlines()[1].startswith("bert,PyTorchJob,Running")
        await play.until(seen(play, f"Saved to {saved}."))
        asked = len(play.cluster.asked("/apis"))
        await hands.press("app.refresh", lambda: len(play.cluster.asked("/apis")) > asked)
        await hands.press("app.quit_or_back", seen(play, "Quit gpuconsole?"), undo=["escape"])
        await play.press("enter")
        await play.until(titled(play, "Jobs › bert   "))
        await hands.press("app.quit_or_back", titled(play, " Jobs ("))
        assert changes(play) == []
        await hands.press("app.interrupt", lambda: play.console.return_code is not None)
        assert play.console.return_code == 0


@proves("prompt.submit", "prompt.close", "prompt.accept", "prompt.older", "prompt.newer")
async def test_keys_of_the_line_to_type_on(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        await play.press("N", "slash", *"bert")
        await hands.press("prompt.submit", lambda: "/bert" in title(play) and prompt(play).startswith("Σ"))
        await play.press("escape", "colon", *"logs be")
        await play.until(lambda: prompt(play) == ":logs bert")
        await hands.press("prompt.accept", lambda: is_one_piece(play, "logs bert"))
        await hands.press("prompt.close", lambda: prompt(play).startswith("Σ"))
        await play.press(*typed("nodes"), *typed("jobs"), "colon")
        await hands.press("prompt.older", lambda: prompt(play) == ":jobs")
        await play.press("up")
        await play.until(lambda: prompt(play) == ":nodes")
        await hands.press("prompt.newer", lambda: prompt(play) == ":jobs")
        assert changes(play) == []
