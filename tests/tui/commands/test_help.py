"""`help`: the manual in the terminal."""

from __future__ import annotations

import pytest

from tui.__main__ import main
from tui.commands import COMMANDS
from tui.manual import TOPICS, find_topic


@pytest.mark.parametrize("topic", TOPICS)
def test_every_chapter_is_printed_without_its_markers(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", topic]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# ")
    assert "<!--" not in printed


def test_without_a_topic_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{topic} " in printed for topic in TOPICS)


@pytest.mark.parametrize("command", [name for each in COMMANDS for name in (each.name, *each.aliases)])
def test_help_of_a_command_is_its_help_unless_a_chapter_has_the_name(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        main(["help", command])
    except SystemExit as end:
        assert end.code == 0
    assert capsys.readouterr().out.startswith("# " if find_topic(command) else "usage: gpuconsole")


def test_an_unknown_topic_is_wrong_usage_and_lists_the_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "nonsense"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "There is no topic 'nonsense'." in captured.err
    assert "topology" in captured.err


def test_the_start_of_a_topic_is_enough_where_it_is_the_only_one() -> None:
    assert find_topic("topo") == "topology"
    assert find_topic("c") == ""
    assert find_topic("LOGS") == "logs"
