"""README tells of the keys and flags that there are."""

from __future__ import annotations

import pytest

from k8s.job_spec import JOB_FIELDS
from k8s.kinds import CREATABLE
from tests import ROOT
from tests.readme import PARTS, README, part_of, with_parts
from tui.commands.submit import lacks_of
from tui.commands.support.key_table import as_markdown
from tui.commands.support.kind_words import words_of
from tui.keys import ACTIONS, key_sections


@pytest.mark.parametrize("name", PARTS)
def test_readme_lists_what_there_is(name: str) -> None:
    written = part_of(README.read_text(encoding="utf-8"), name)
    assert written == PARTS[name](), f"README lists other {name} than there are: run python -m tests.readme"


def test_the_list_of_flags_has_a_line_for_every_field_and_says_which_kinds_lack_it() -> None:
    lines = PARTS["flags"]().splitlines()
    for name, field in JOB_FIELDS.items():
        (line,) = [line for line in lines if f"| `{name}` |" in line]
        assert field.help in line
        for kind in CREATABLE:
            if name not in lacks_of(kind):
                assert line.endswith("| all |") or words_of(kind)[0] in line.split(" | ")[-1]


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
    written = with_parts(text)
    assert written == f"# Title\n<!-- keys -->\n{as_markdown()}<!-- /keys -->\nThe rest.\n"
    assert with_parts(written) == written


def test_the_map_names_every_room() -> None:
    """Rooms of rooms may be named by the room alone."""
    drawing = README.read_text(encoding="utf-8").split("## For whoever carries this on")[1].split("```")[1]
    assert len(drawing.strip().splitlines()) <= 30
    rooms = {path.parent for package in ("tui", "k8s") for path in (ROOT / package).glob("*/__init__.py")}
    rooms |= {path.parent for path in (ROOT / "tui" / "screens").glob("*/__init__.py")}
    assert [
        room.relative_to(ROOT).as_posix() for room in sorted(rooms) if f"{room.name}/" not in drawing
    ] == []
