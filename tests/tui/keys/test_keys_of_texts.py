"""Each key of texts, of YAML, of what lies over a view, and of questions does what the table says."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.scripted.server import Answer
from tests.support.namespace_objects import EVENTS, event, in_namespace, serve
from tests.support.objects import Object
from tests.support.playground import Playground
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import (
    BERT,
    PYTORCH_JOBS,
    changes,
    drawn_otherwise,
    look_of,
    seen,
    titled,
    typed,
    unseen,
    world,
)

SECRET = "hf_abcdefghijklmnopqrst"


def long_object() -> Object:
    """Return an object of more than a hundred lines: notes, a long line, a secret, managed fields."""
    notes = [f"note {number}" for number in range(100)]
    meta = BERT["metadata"] | {"managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]}
    env = [{"name": "HF_TOKEN", "value": SECRET}]
    return {"notes": [*notes, f"long {'~' * 120} END"], "env": env, **BERT, "metadata": meta}


@asynccontextmanager
async def yaml(tmp_path: Path) -> AsyncIterator[Playground]:
    """Open it, on a screen for sixteen lines of it."""
    async with world(tmp_path, size=(80, 20)) as play:
        play.cluster.forget(f"{PYTORCH_JOBS}/bert")
        play.cluster.say(f"{PYTORCH_JOBS}/bert", Answer(long_object()))
        await play.press("N", "g", "y")
        await play.until(seen(play, "notes:"))
        yield play
        assert changes(play) == []


def top(play: Playground) -> int:
    """Return the number of the first note on the screen; -1 at the start, 100 where there is none."""
    found = re.search(r"note (\d+)", play.text)
    return -1 if "notes:" in play.text else int(found[1]) if found else 100


def is_between(play: Playground, least: int, most: int) -> Callable[[], bool]:
    """Return a test of whether the first note on the screen is one of these."""
    return lambda: least <= top(play) <= most


@proves(
    "text.down",
    "text.up",
    "text.page_down",
    "text.page_up",
    "text.half_down",
    "text.half_up",
    "text.start",
    "text.end",
)
async def test_keys_move_through_a_text(tmp_path: Path) -> None:
    async with yaml(tmp_path) as play:
        hands, at_start = Hands.on(play), is_between(play, -1, -1)
        await hands.press("text.down", is_between(play, 0, 0), undo=["k"])
        await play.press("j")
        await hands.press("text.up", at_start, undo=["j"])
        await play.press("g")
        await hands.press("text.page_down", is_between(play, 12, 16), undo=["g"])
        await play.press("space")
        await hands.press("text.page_up", at_start, undo=["space"])
        await play.press("g")
        await hands.press("text.half_down", is_between(play, 5, 8), undo=["g"])
        await play.press("ctrl+d")
        await hands.press("text.half_up", at_start)
        await hands.press("text.end", is_between(play, 20, 100), undo=["g"])
        await play.press("G")
        await hands.press("text.start", at_start, undo=["G"])


@proves("text.left", "text.right", "text.next", "text.previous", "text.wrap")
async def test_keys_search_a_text_and_show_its_long_lines(tmp_path: Path) -> None:
    async with yaml(tmp_path) as play:
        hands = Hands.on(play)
        await play.press("slash", *"note 9", "enter")
        await play.until(titled(play, "/note 9  1 of 11"))
        await hands.press("text.next", titled(play, "/note 9  2 of 11"))
        await hands.press("text.previous", titled(play, "/note 9  1 of 11"))
        await play.press(*"nnnnnn", *"jjj")
        await play.until(seen(play, "note 97", "long ~"))
        await hands.press("text.wrap", seen(play, "END"), undo=["w"])
        await hands.press("text.right", unseen(play, "note 97"), undo=["left"])
        await play.press("right")
        await hands.press("text.left", seen(play, "note 97"), undo=["right"])


@proves("yaml.managed", "yaml.secrets", "yaml.live")
async def test_keys_of_yaml_show_what_is_folded_and_hidden(tmp_path: Path) -> None:
    async with yaml(tmp_path) as play:
        hands = Hands.on(play)
        await play.press("slash", *"creationTimestamp", "enter")
        await play.until(seen(play, "lines folded"))
        await hands.press("yaml.managed", seen(play, "manager: kubectl"), undo=["m"])
        await hands.press("yaml.live", titled(play, "still"), undo=["r"])
        await hands.press("yaml.secrets", seen(play, "Show 1 secret on this screen?"), undo=["escape"])
        await play.press("escape", "slash", *"HF_TOKEN", "enter")
        await play.until(seen(play, "••••"))
        assert SECRET not in play.text
        await play.press("x", "tab", "enter")
        await play.until(seen(play, SECRET, "SECRETS SHOWN"))
        await hands.press("yaml.secrets", unseen(play, SECRET))


@proves("detail.close", "detail.down", "detail.up", "help.close", "help.down", "help.up")
async def test_keys_of_what_lies_over_a_view_scroll_and_close_it(tmp_path: Path) -> None:
    async with world(tmp_path, size=(80, 20)) as play:
        hands = Hands.on(play)
        await play.press("question_mark")
        await play.until(seen(play, "This view", "Open the job:"))
        await hands.press("help.down", unseen(play, "This view"), undo=["k"])
        await play.press("j")
        await hands.press("help.up", seen(play, "This view"), undo=["j"])
        await hands.press("help.close", unseen(play, "Open the job:"), undo=["question_mark"])
        await play.press("escape")
        long = event("long", ("Pod", "p"), "Long", "\n".join(f"word {number}" for number in range(60)))
        serve(play.cluster, in_namespace(EVENTS), long)
        await play.press(*typed("events"))
        await play.until(seen(play, "pod/p"))
        await play.press("v")
        await play.until(seen(play, "word 0", "word 1"))
        await hands.press("detail.down", unseen(play, "word 0"), undo=["k"])
        await play.press("j")
        await hands.press("detail.up", seen(play, "word 0"), undo=["j"])
        await hands.press("detail.close", unseen(play, "word 9"), undo=["v"])
        assert changes(play) == []


@proves("dialog.escape", "dialog.previous", "dialog.next", "delete.propagation")
async def test_keys_of_questions_choose_an_answer_and_none_is_given_before(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        await play.press("N", "g", "n", "x", "escape")
        await play.until(seen(play, "Save draft", "Discard", "Keep editing"))
        answers = ("Save draft", "Discard", "Keep editing")
        at_rest = {answer: look_of(play, f" {answer} ") for answer in answers}

        await hands.press(
            "dialog.next", drawn_otherwise(play, " Discard ", at_rest["Discard"]), undo=["left"]
        )
        await hands.press(
            "dialog.previous",
            drawn_otherwise(play, " Keep editing ", at_rest["Keep editing"]),
            undo=["right"],
        )
        await hands.press("dialog.escape", unseen(play, "Save draft"))
        await play.until(titled(play, "New job"))
        await play.press("escape", "right", "enter")
        await play.until(titled(play, "Jobs ("))
        await play.press("ctrl+d")
        await play.until(seen(play, "Delete 1 job?", "Background:"))
        await hands.press("delete.propagation", seen(play, "Foreground:"), undo=["p", "p"])
        await hands.press("dialog.escape", unseen(play, "Delete 1 job?"))
        assert changes(play) == []
