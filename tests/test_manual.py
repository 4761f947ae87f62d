"""README and manual: complete, up to date, and with links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import JOB_FIELDS
from tests import ROOT
from tests.manual import (
    MANUAL,
    PARTS,
    README,
    chapter,
    flags_as_markdown,
    keys_as_markdown,
    part_of,
    with_part,
)
from tui.screens import ACTIONS, key_table
from tui.settings.manual import TOPICS
from tui.text.kind_words import words_of


@pytest.mark.parametrize("name", PARTS)
def test_generated_tables_are_up_to_date(name: str) -> None:
    topic, make = PARTS[name]
    written = part_of(chapter(topic).read_text(encoding="utf-8"), name)
    assert written == make(), f"the table of {name} is out of date: run python -m tests.manual"


def test_every_chapter_is_a_topic_with_a_title() -> None:
    assert {path.stem for path in MANUAL.glob("*.md")} == set(TOPICS)
    for topic in TOPICS:
        text = chapter(topic).read_text(encoding="utf-8")
        assert text.startswith("# "), topic


def test_the_readme_is_an_introduction() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 2000


LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("path", [README, *sorted(MANUAL.glob("*.md"))], ids=lambda path: path.name)
def test_links_point_to_existing_files(path: Path) -> None:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def test_the_readme_links_every_chapter() -> None:
    text = README.read_text(encoding="utf-8")
    assert [topic for topic in TOPICS if f"(tui/settings/manual/{topic}.md)" not in text] == []


def test_the_flag_table_has_a_line_per_field_and_names_the_supported_kinds() -> None:
    lines = flags_as_markdown().splitlines()
    for name, field in JOB_FIELDS.items():
        (line,) = [line for line in lines if f"| `{name}` |" in line]
        assert field.help in line
        for kind in CREATABLE:
            if name not in kind.lacks:
                assert line.endswith("| all |") or words_of(kind)[0] in line.split(" | ")[-1]


def test_the_list_of_keys_names_each_key_and_each_command_once() -> None:
    lines = keys_as_markdown().splitlines()
    for _, keys in key_table().sections:
        for key in keys:
            (line,) = [line for line in lines if line.endswith(f" `{key.id}` |")]
            assert key.help in line
    for command in ACTIONS.commands():
        assert lines.count(f"| `{command.usage}` | {command.help} |") == 1


def test_a_generated_table_replaces_only_the_previous_one() -> None:
    text = "# Title\n<!-- keys -->\nold\n<!-- /keys -->\nThe rest.\n"
    written = with_part(text, "keys", "new\n")
    assert written == "# Title\n<!-- keys -->\nnew\n<!-- /keys -->\nThe rest.\n"
    assert with_part(written, "keys", "new\n") == written


def test_the_architecture_diagram_names_every_package() -> None:
    """Rooms of rooms may be named by the room alone."""
    drawing = chapter("architecture").read_text(encoding="utf-8").split("```")[1]
    assert len(drawing.strip().splitlines()) <= 30
    rooms = {path.parent for package in ("tui", "k8s") for path in (ROOT / package).glob("*/__init__.py")}
    rooms |= {path.parent for path in (ROOT / "tui" / "screens").glob("*/__init__.py")}
    assert [
        room.relative_to(ROOT).as_posix() for room in sorted(rooms) if f"{room.name}/" not in drawing
    ] == []


def test_every_file_and_folder_that_the_manual_names_exists() -> None:
    named = {
        (topic, path)
        for topic in TOPICS
        for path in re.findall(
            r"`((?:tui|k8s|trainer|themes|tests)/[\w/.-]*\w/?)`", chapter(topic).read_text(encoding="utf-8")
        )
    }
    named -= {("configuration", "themes/mine.toml")}  # the user's own, in the config folder
    assert named
    assert [(topic, path) for topic, path in sorted(named) if not (ROOT / path).exists()] == []
