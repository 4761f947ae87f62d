"""No key without a test, no test of a key that is not there, no binding past the table."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from textual.binding import Binding
from textual.dom import DOMNode

import tui
from tests.tui.keys.proofs import KEYS, Hands, proven_by, proves
from tui.__main__ import main
from tui.keys import view_keys
from tui.screens import ACTIONS, VIEWS, key_table
from tui.widgets.form.fields import ChoiceField, TextField
from tui.widgets.form.job_fields import FieldsTitle

OF_FORMS: dict[type[DOMNode], str] = {
    TextField: "a field: the arrows and enter go from one to the next, as in any form",
    ChoiceField: "a field: the arrows change the value, enter and space show all, as in any form",
    FieldsTitle: "a line that opens the rest of the form, as in any tree",
}
"""Widgets whose keys are no part of the table, and why."""


def modules() -> Iterator[ModuleType]:
    """Import every test module beside this one."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        yield importlib.import_module(f"tests.tui.keys.{path.stem}")


def test_every_key_of_the_table_is_pressed_by_a_test_and_no_test_claims_another() -> None:
    proven: dict[str, str] = {}
    for module in modules():
        proven |= proven_by(module)
    unproven = [id for id in KEYS if id not in proven]
    assert not unproven, f"no test presses: {', '.join(unproven)}; see tests/tui/keys/proofs.py"
    unknown = [f"{id} in {name}" for id, name in proven.items() if id not in KEYS]
    assert not unknown, f"there are no such keys: {', '.join(unknown)}"


def test_every_key_stands_under_a_heading_of_help_and_readme() -> None:
    of_actions = [action.key(on) for action in ACTIONS for on in action.on]
    of_views = [key for view in VIEWS for key in view_keys(view, ACTIONS)]
    lost = [key.id for key in (*of_actions, *of_views) if key.id not in KEYS]
    assert not lost, f"no heading in tui.screens for {', '.join(lost)}"


def test_every_id_stands_once_in_the_table() -> None:
    ids = [key.id for _, keys in key_table().sections for key in keys]
    assert sorted(ids) == sorted(set(ids))


def test_every_binding_of_ours_is_a_key_of_the_table() -> None:
    for found in pkgutil.walk_packages(tui.__path__, "tui."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    for owner in _subclasses(DOMNode):
        if owner.__module__.partition(".")[0] == "tui" and owner not in OF_FORMS:
            for binding in Binding.make_bindings(owner.__dict__.get("BINDINGS", ())):
                where = f"{binding.key} of {owner.__name__}"
                assert binding.id in KEYS, f"{where} has no id of the table, so nobody can change it"
                table = [name.strip() for name in KEYS[binding.id].keys.split(",")]
                assert binding.key in table, f"{where} is not what the table says of {binding.id}"


def _subclasses(owner: type[DOMNode]) -> Iterator[type[DOMNode]]:
    for each in owner.__subclasses__():
        yield each
        yield from _subclasses(each)


def test_info_prints_every_id_with_its_keys_and_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["info", "--keys"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for key in KEYS.values():
        (line,) = [line for line in lines if line.split()[:1] == [key.id]]
        assert line.endswith(key.help) and f" {key.all_shown} " in line


class Lamp:
    """Something with one key, which works or does not."""

    def __init__(self, *, works: bool) -> None:
        self.works, self.is_lit = works, False

    async def press(self, *keys: str) -> None:
        self.is_lit = self.works and "escape" not in keys

    async def until(self, is_so: Callable[[], object]) -> None:
        await asyncio.sleep(0)
        assert is_so(), "never came true"


@pytest.mark.parametrize(
    ("works", "ids", "complaint"),
    [
        (True, ["table.down"], ""),
        (False, ["table.down"], "table.down: j did not do what it should"),
        (True, [], "not pressed: table.down as j, table.down as down"),
    ],
)
async def test_a_test_that_does_not_press_a_key_or_sees_nothing_of_it_proves_nothing(
    works: bool, ids: list[str], complaint: str
) -> None:
    lamp = Lamp(works=works)
    hands = Hands(lamp.press, lamp.until)

    @proves("table.down")
    async def body() -> None:
        for id in ids:
            await hands.press(id, lambda: lamp.is_lit, undo=["escape"])

    assert await complaint_of(body) == "" if not complaint else complaint in await complaint_of(body)


async def test_a_test_that_was_so_before_or_is_skipped_proves_nothing() -> None:
    lamp = Lamp(works=True)
    hands = Hands(lamp.press, lamp.until)

    @proves("table.down")
    async def vacuous() -> None:
        await hands.press("table.down", lambda: True)

    @proves("table.down")
    async def skipped() -> None:
        pytest.skip("not today")

    assert "is so before it is pressed" in await complaint_of(vacuous)
    assert "may not be skipped" in await complaint_of(skipped)


def test_a_test_with_a_mark_that_leaves_it_out_proves_nothing() -> None:
    module = ModuleType("marked")

    @proves("table.down")
    async def test_plain() -> None:
        """Press nothing: only what it says of itself is looked at."""

    @pytest.mark.skip
    @proves("table.up")
    async def test_left_out() -> None:
        """Press nothing."""

    vars(module).update(test_plain=test_plain, test_left_out=test_left_out, helper=test_plain)
    assert proven_by(module) == {"table.down": "test_plain"}


async def complaint_of(test: Callable[[], Awaitable[None]]) -> str:
    """Run a test and return what is wrong with it; nothing when it passes."""
    try:
        await test()
    except AssertionError as error:
        return str(error)
    return ""
