"""`timeline` on a journal with a night: formats, whose jobs, gaps, and wrong words; no cluster is reached."""

from __future__ import annotations

import time

import pytest

from tests.support.night import journal_of
from tests.tui.commands.conftest import CommandLine, write_kubeconfig


@pytest.fixture
def line(alone: CommandLine) -> CommandLine:
    """Return the command line of a user whose cluster is away."""
    alone.set("KUBECONFIG", write_kubeconfig(alone.home, "https://127.0.0.1:1"))
    folder = alone.home / "state" / "gpuconsole"
    journal_of(folder, context="recorded", now_s=float(int(time.time()))).close()
    return alone


async def test_a_table_has_the_events_by_job_and_the_gaps_as_lines(line: CommandLine) -> None:
    ended = await line("timeline", "--since", "9h")
    assert (ended.status, ended.err) == (0, "")
    titles, *rows = ended.out.splitlines()
    assert titles.split() == ["TIME", "JOB", "EVENT", "NAMESPACE", "REASON"]
    shown = [row.split("   ") for row in rows]
    assert [[cell.strip() for cell in row if cell][1:3] for row in shown if row[0]] == [
        ["bert", "– deleted"],
        ["bert", "✕ lost a node"],
        ["sweep", "✕ failed"],
        ["vit", "! printed NaN"],
        ["llm", "○ queued"],
    ]
    assert rows[1].lstrip().startswith("— not observed ") and rows[1].endswith(" (3h00m) —")
    assert "–" in rows[3].split("sweep")[0] and rows[3].endswith("rank 2: ValueError; bad input")


@pytest.mark.parametrize(
    ("words", "events"),
    [
        (("--since", "2h"), ["bert deleted"]),
        (("--since", "9h", "--all-users", "-n", "vision"), "notebook preempted"),
        (("--since", "9h", "-n", "speech"), ["llm queued"]),
        (("--since", "9h", "-n", "speech", "-A"), "vit nan"),
        (("vit",), ["vit nan", "vit started"]),
        (("pytorch/vit", "--since", "5h"), ["vit nan"]),
        (("mpijob/vit",), []),
        (("notebook", "--since", "8h"), ["notebook preempted"]),
        (("--since", "99999d"), "vit started"),
        (("--context", "recorded", "--since", "1m"), []),
    ],
)
async def test_json_has_the_chosen_events(
    line: CommandLine, words: tuple[str, ...], events: str | list[str]
) -> None:
    ended = await line("timeline", *words, "-o", "json")
    assert (ended.status, ended.err) == (0, "")
    found = [f"{each['name']} {each['event']}" for each in ended.values["items"]]
    assert events in found if isinstance(events, str) else events == found
    assert ended.values.keys() == {"items", "since", "until", "gaps"}


async def test_json_has_the_uncertainty_and_cause_of_an_event_and_the_gaps(line: CommandLine) -> None:
    values = (await line("timeline", "sweep", "--since", "9h", "-o", "json")).values
    (item,) = values["items"]
    assert item["after"] < item["time"] and item["uid"] == "uid-sweep" and item["is_mine"] is True
    assert (item["status"], item["cause"], item["kind"]) == ("Failed", "bad input", "PyTorchJob")
    assert [[*gap] for gap in values["gaps"]] == [["from", "to"]] and values["gaps"][0]["from"] == item[
        "after"
    ]


async def test_without_events_the_gaps_are_named(line: CommandLine) -> None:
    (await line("timeline", "--since", "30m")).reports(0, "No known events of your jobs since ")
    ended = await line("timeline", "llm", "--since", "6h")
    ended.reports(0, "No known events of llm since ", "— not observed ")
    (await line("timeline", "mpijob/llm")).reports(0, "No known events of mpijob/llm since ")
    line.set("XDG_STATE_HOME", str(line.home / "new"))
    (await line("timeline")).reports(0, "No known events of your jobs since ")


@pytest.mark.parametrize(
    ("words", "status", "reported"),
    [
        (("nope",), 1, ("Nothing is known of a job nope.", "gpuconsole timeline --all-users")),
        (("--context", "far"), 1, ("There is no context far.", "There are: recorded")),
        (("--since", "9x"), 2, ("'9x' is not a duration",)),
        (("pytorch/",), 2, ("is not a job name",)),
    ],
)
async def test_wrong_words_are_refused_with_the_reason(
    line: CommandLine, words: tuple[str, ...], status: int, reported: tuple[str, ...]
) -> None:
    (await line("timeline", *words)).reports(status, *reported)


async def test_without_a_kubeconfig_there_is_no_cluster(alone: CommandLine) -> None:
    (await alone("timeline")).reports(1, "There is no kubeconfig at ")
    (await alone("timeline", "--sandbox")).reports(0, "No known events of your jobs since ")
    (await alone("timeline", "--server", "https://127.0.0.1:1")).reports(0, "No known events")


async def test_text_from_the_cluster_cannot_reach_the_terminal(line: CommandLine) -> None:
    journal = journal_of(
        line.home / "hostile" / "gpuconsole", context="recorded", now_s=float(int(time.time()))
    )
    journal.write(("UPDATE changes SET reason = ?", "\x1b[2Jgone"), ("UPDATE jobs SET name = ?", "a\x07b"))
    line.set("XDG_STATE_HOME", str(line.home / "hostile"))
    ended = await line("timeline")
    assert "gone" in ended.out and not {"\x1b", "\x07"} & {*ended.out}
