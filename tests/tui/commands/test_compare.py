"""`compare` and `runs`: past runs and folders beside each other."""

from __future__ import annotations

import csv
import json

import pytest

from tests.support.guide_runs import ended_run, guide
from tests.tui.commands.conftest import CommandLine
from trainer.tfevents import EventWriter
from tui.runs.store import RUNS_FILE, RunStore

NAMES = tuple(each.name for each in guide())


@pytest.fixture
def past(alone: CommandLine) -> CommandLine:
    """Return the command line of a user with the runs of the guide, and no cluster."""
    store = RunStore(alone.home / "state" / "gpuconsole")
    for each in guide():
        store.add(each)
    return alone


async def test_past_runs_are_compared_without_their_cluster(past: CommandLine) -> None:
    ended = await past("compare", *NAMES, "--sort-by=-throughput")
    assert ended.status == 0 and "Only past runs are compared" in ended.err
    titles = ended.titles()
    assert titles[:4] == ["NAME", "PLACEMENT", "LINK", "MODEL"]
    assert titles[-1] == "IMG/S" and titles.count("IMG/S") == 2
    bars = [line.split()[-1] for line in ended.out.splitlines()[1:]]
    assert [len(bar) for bar in bars] == [30, 20, 20, 12]
    assert (await past("--ascii", "compare", *NAMES)).out.isascii()
    values = (await past("compare", *NAMES, "-o", "json")).values
    assert values["differing"] == ["placement", "link", "model"]
    assert values["runs"][1]["settings"]["link"] == "SYS 6 GB/s" and values["runs"][0]["gpu_hours"] == 1
    rows = list(csv.DictReader((await past("compare", *NAMES, "-o", "csv")).out.splitlines()))
    assert [row["model"] for row in rows] == ["vgg16", "vgg16", "resnet50", "resnet50"]
    lines = (await past("compare", *NAMES, "--group-by", "model", "-o", "md")).out.splitlines()
    assert lines[0].startswith("| MODEL | N | IMG/S |") and "651 ± 240" in lines[2]


async def test_compare_reports_invalid_arguments_and_runs_without_metrics(past: CommandLine) -> None:
    (await past("compare", NAMES[0])).reports(2, "Name two or more")
    (await past("compare", *NAMES, "--sort-by", "x")).reports(
        2, "Cannot sort by x. There are: name, throughput"
    )
    (await past("compare", *NAMES, "--to-loss", "low")).reports(2, "'low' is not a number")
    assert (await past("compare", NAMES[0], "nosuch")).status == 1
    folder = past.home / "events"
    folder.mkdir()
    (await past("compare", str(folder), NAMES[0])).reports(1, f"no event files or other metrics in {folder}")
    with EventWriter(folder) as events:
        for step in range(3):
            events.write_scalar("loss", step, 3.0 - step, 100.0 + step)
    RunStore(past.home / "state" / "gpuconsole").add(ended_run("other", [3.0, 2.0]))
    ended = await past("compare", str(folder), "other", "--to-loss", "2")
    assert ended.status == 0 and "No setting differs." in ended.err and "TO 2" in ended.out
    assert "not reached" not in ended.err
    ended = await past("compare", str(folder), "other", "--to-loss", "0.25")
    assert "TO 0.25" in ended.out.splitlines()[0]
    lowest = f"The lowest is 1, of {folder}."
    assert f"A loss of 0.25 was not reached by {folder} and other. {lowest}" in ended.err


async def test_past_runs_are_listed_shown_and_cleared(past: CommandLine) -> None:
    ended = await past("runs", "--sort-by", "name")
    assert [line.split()[1] for line in ended.out.splitlines()[1:]] == sorted(NAMES)
    (shown,) = [
        each for each in (await past("runs", "-o", "json")).values["items"] if each["name"] == NAMES[0]
    ]
    assert (shown["throughput"], shown["arguments"]["--model"], shown["link"]) == (
        820.5,
        "vgg16",
        "NV1 20 GB/s",
    )
    assert 'placement: "gpu-1: 0-3"' in (await past("runs", NAMES[0])).out
    (await past("runs", "nosuch")).reports(1, "There is no past run nosuch.")
    assert "4 runs" in (await past("info")).out
    with (past.home / "state" / "gpuconsole" / RUNS_FILE).open("a") as file:
        file.write(json.dumps({"uid": 1}) + "\n")
    assert "line 5" in (await past("runs")).err
    (await past("runs", "--clear")).reports(2, "pass --yes to clear")
    assert "records of 4 past runs" in (await past("runs", "--clear", "--yes")).out
    assert "No past runs yet." in (await past("runs")).err
