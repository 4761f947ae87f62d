"""README tells of the keys that there are."""

from __future__ import annotations

from tests import ROOT
from tests.readme import README, keys_in, with_keys
from tui.commands.support.key_table import as_markdown
from tui.keys import ACTIONS, key_sections


def test_readme_lists_the_keys_and_commands_that_there_are() -> None:
    written = keys_in(README.read_text(encoding="utf-8"))
    assert written == as_markdown(), "README lists other keys than there are: run python -m tests.readme"


def test_the_list_of_keys_names_each_key_and_each_command_once() -> None:
    lines = as_markdown().splitlines()
    for _, keys in key_sections():
        for key in keys:
            (line,) = [line for line in lines if line.endswith(f" `{key.id}` |")]
            assert key.help in line
    for command in ACTIONS.commands():
        assert lines.count(f"| `{command.usage}` | {command.help} |") == 1


def test_the_list_of_keys_takes_the_place_of_the_one_before_and_of_nothing_else() -> None:
    text = "# Title\n<!-- keys -->\nold\n<!-- /keys -->\nThe rest.\n"
    written = with_keys(text)
    assert written == f"# Title\n<!-- keys -->\n{as_markdown()}<!-- /keys -->\nThe rest.\n"
    assert with_keys(written) == written


def test_the_map_names_every_room() -> None:
    """Rooms of rooms may be named by the room alone."""
    drawing = README.read_text(encoding="utf-8").split("## For whoever carries this on")[1].split("```")[1]
    assert len(drawing.strip().splitlines()) <= 30
    rooms = {path.parent for package in ("tui", "k8s") for path in (ROOT / package).glob("*/__init__.py")}
    rooms |= {path.parent for path in (ROOT / "tui" / "screens").glob("*/__init__.py")}
    assert [
        room.relative_to(ROOT).as_posix() for room in sorted(rooms) if f"{room.name}/" not in drawing
    ] == []
