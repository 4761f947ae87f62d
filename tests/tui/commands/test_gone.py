"""Commands about a job that is gone: they read the journal, and say so."""

from __future__ import annotations

import csv

import pytest

from tests.scripted.server import Answer, page
from tests.support.objects import recorded
from tests.tui.commands.conftest import PYTORCH_JOBS, CommandLine

LOG = b"".join(
    b"2026-11-20T18:36:1%d.000000001Z %s\n" % (at, text)
    for at, text in enumerate((b"step 1 loss 2.5\r50%", b"step 2 loss 1.25", b"\xff two", b"MemoryError"))
)
GONE = "-- PyTorchJob default/fails is gone (Failed, "


@pytest.fixture
async def gone(run: CommandLine) -> CommandLine:
    """Return the command line after `fails` was deleted, and its pods."""
    pods, jobs = recorded("pods"), recorded("pytorchjobs")
    (pod,) = [each for each in pods if each["metadata"]["name"] == "fails-master-0"]
    run.cluster.say("/api/v1/namespaces/default/pods/fails-master-0", Answer(pod))
    run.cluster.say("/api/v1/namespaces/default/pods/fails-master-0/log", Answer(LOG))
    run.cluster.say(f"{PYTORCH_JOBS}/fails", Answer({"status": "Success"}), method="DELETE")
    ended = await run("delete", "fails", "--yes")
    assert ended.status == 0, ended.err
    jobs = [each for each in jobs if each["metadata"]["name"] != "fails"]
    run.cluster.replace("/apis/kubeflow.org/v1/pytorchjobs", page(jobs))
    for where in ("/api/v1/pods", "/api/v1/namespaces/default/pods"):
        run.cluster.replace(where, page([each for each in pods if each is not pod]))
    return run


async def test_its_log_is_printed_as_it_was_until_the_journal_is_cleared(gone: CommandLine) -> None:
    status, printed, said = await gone.fork("logs", "pytorch/fails").ends()
    assert (status, printed) == (0, b"step 1 loss 2.5\r50%\nstep 2 loss 1.25\n\xff two\nMemoryError\n")
    assert said.startswith(GONE.encode()) and b"2,000 lines" in said
    assert (await gone.fork("logs", "fails", "-t", "1", "--timestamps").ends())[1][-12:] == b"MemoryError\n"
    for words in (["mpijob/fails"], ["fails", "-n", "other"], ["fails", "-T", "mpi"]):
        assert (await gone("logs", *words)).status == 1
    assert (await gone("runs", "--clear", "--yes")).status == 0
    (await gone("logs", "fails")).reports(1, "There is no job fails in namespace default.")


async def test_its_end_is_explained_from_its_kept_log(gone: CommandLine) -> None:
    why = await gone("why", "fails")
    assert "PyTorchJob default/fails is gone (Failed, " in why.out and "exit 1: MemoryError" in why.out
    assert "cause: The container ran out of memory" in why.out and "gpuconsole logs fails" in why.out
    values = (await gone("why", "fails", "-o", "json")).values
    assert values["status"] == "Failed" and values["failure"]["error"] == "MemoryError"


async def test_its_curves_are_drawn_alone_and_beside_others(gone: CommandLine) -> None:
    found = await gone("curves", "fails", "-o", "json")
    assert found.err.startswith(GONE) and "the journal has it until" in found.err
    assert found.values["source"] == "the journal"
    assert [each["value"] for each in found.values["tags"]["loss"]] == [2.5, 1.25]
    plot = await gone("curves", "fails")
    assert plot.out.startswith("Read from the journal, newest point ")
    folder = gone.home / "run"
    folder.mkdir()
    (folder / "metrics.csv").write_text("step,loss\n1,3\n2,2\n")
    both = await gone("curves", "fails", str(folder), "-o", "csv")
    assert {row["run"] for row in csv.DictReader(both.out.splitlines())} == {"fails", str(folder)}
