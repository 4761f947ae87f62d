"""`help`: the manual in the terminal."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.tui.commands.conftest import CommandLine
from tui import manual
from tui.__main__ import main
from tui.commands import COMMANDS
from tui.manual import TOPICS, find_topic


@pytest.mark.parametrize("topic", TOPICS)
def test_every_chapter_is_printed_without_its_markers(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", topic]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1] == "=" * len(printed.splitlines()[0])
    prose = [line for line in printed.splitlines() if not line.startswith("    ")]
    assert not [line for line in prose if re.search(r"<!--|\*\*|^\s*\||^#|```|\]\(", line)]


def test_a_chapter_is_wrapped_with_aligned_tables_and_without_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        "# Title\n\nOne **bold** and\n`a *b*` line, [see](x.md).\n- item `x`\n  goes *on* and on and on\n\n"
        "| key | does |\n|---|---|\n| `a\\|b` | one two three four |\n\n```sh\n# run\n```\n\n"
        "    a   # `x`\n    b | c\n"
    )
    monkeypatch.setattr(manual, "read_chapter", lambda _topic: text)
    assert manual.chapter_text("any", 20).splitlines() == [
        *(
            "Title",
            "=====",
            "",
            "One bold and a *b*",
            "line, see.",
            "- item x goes on and",
            "  on and on",
            "",
        ),
        *("key  does", "a|b  one two three", "     four", "", "    # run", "", "    a   # `x`", "    b | c"),
    ]


def test_help_without_a_topic_lists_all_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{topic} " in printed for topic in TOPICS)


@pytest.mark.parametrize("command", [name for each in COMMANDS for name in (each.name, *each.aliases)])
def test_help_prints_the_chapter_or_the_usage_of_every_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        main(["help", command])
    except SystemExit as end:
        assert end.code == 0
    assert capsys.readouterr().out.startswith("usage: gpuconsole") is not bool(find_topic(command))


def test_an_unknown_topic_is_wrong_usage_and_lists_the_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "nonsense"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "There is no topic 'nonsense'." in captured.err
    assert "topology" in captured.err


def test_a_unique_prefix_of_a_topic_finds_it_in_any_case() -> None:
    assert find_topic("topo") == "topology"
    assert find_topic("c") == ""
    assert find_topic("LOGS") == "logs"


async def test_sandbox_status_and_stop_report_a_sandbox_that_is_not_running(alone: CommandLine) -> None:
    found = (await alone("sandbox", "status", "-o", "json")).values
    assert (found["is_running"], found["pid"], found["started"]) == (False, 0, None)
    assert found["folder"] == str(alone.home / "data/gpuconsole/sandbox")
    assert (await alone("sandbox", "status")).out.startswith("The sandbox is not running.\n")
    assert (await alone("sandbox", "stop")).out == "The sandbox is not running.\n"
    assert (await alone("sandbox", "reset", "--yes")).status == 0


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("kubeconfig", 1, "gpuconsole sandbox start"),
        ("start --nodes -1", 2, "--nodes"),
        ("start --container-log-max-size=10", 2, "'10' is not a"),
        ("start --container-log-max-size=much", 2, "'much' is not a"),
        ("start --container-log-max-size=-64Mi", 2, "'-64Mi' is not a"),
        ("start --container-log-max-files=1", 2, "'1' is not a"),
        ("start --container-log-max-files=x", 2, "'x' is not a"),
        ("start --links dgx-1v --gpus-per-node 9", 2, "a machine with --links dgx-1v has at most 8."),
        ("start --links dgx-9", 2, "invalid choice: 'dgx-9'"),
    ],
)
async def test_a_sandbox_that_cannot_be_is_refused(
    alone: CommandLine, line: str, status: int, said: str
) -> None:
    (await alone("sandbox", *line.split())).reports(status, said)


async def test_the_man_page_names_every_command_and_renders(alone: CommandLine) -> None:
    ended = await alone("help", "--man")
    assert ended.status == 0
    for command in COMMANDS:
        assert f"\n.SS\n{command.name}" in ended.out
    assert "0 done; 1 failed" in ended.out
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    words = ("groff", "-man", "-ww", "-Tutf8")
    done = subprocess.run(words, input=ended.out, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "GPUCONSOLE(1)" in done.stdout
