"""`compare` and `runs` of past runs; `prune` removes only what ended long ago and is one's own."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta

import pytest

from k8s.jobs.reader_pod import READER_LABEL
from tests.scripted.server import Answer, ScriptedCluster, page, refusal
from tests.support.guide_runs import ended_run, guide
from tests.support.objects import Object, batch_job, pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine
from trainer.tfevents import EventWriter
from tui.runs.store import OLD_FILE, RunStore

JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


def ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


def ended(name: str, days: float | None, condition: str = "Succeeded", user: str = "li") -> Object:
    """Return a job that ended so many days ago; None when it does not say when."""
    job = pytorch_job(name, creationTimestamp=ago(30), annotations={"gpuconsole.dev/user": user})
    job["status"] = {"conditions": [{"type": condition, "status": "True"}]}
    if days is not None:
        job["status"]["completionTime"] = ago(days)
    return job


@pytest.fixture(autouse=True)
def served(cluster: ScriptedCluster) -> None:
    jobs = [
        ended("old", 8.1),
        ended("old-failed", 9.1, "Failed"),
        ended("young", 2),
        ended("undated", None),
        ended("theirs", 20, user="wang"),
        pytorch_job("waits", creationTimestamp=ago(30), annotations={"gpuconsole.dev/user": "li"}),
    ]
    cluster.replace(JOBS, page(jobs))
    for job in jobs:
        cluster.say(f"{PATH}/{job['metadata']['name']}", Answer({"status": "Success"}), method="DELETE")


def deleted(cluster: ScriptedCluster) -> set[str]:
    """Return the names of the jobs whose deletion was asked for."""
    return {each.path.rpartition("/")[2] for each in cluster.requests if each.method == "DELETE"}


async def test_prune_deletes_leftover_reader_pods(run: CommandLine) -> None:
    pods = "/api/v1/namespaces/default/pods"
    meta = {"name": "bert-reader-x", "namespace": "default", "labels": {READER_LABEL: "true"}}
    run.cluster.say(pods, page([{"metadata": meta, "status": {"phase": "Failed"}}]))
    run.cluster.say(f"{pods}/bert-reader-x", Answer({}), method="DELETE")
    assert "bert-reader-x" not in (await run("prune", "--older-than", "7d", "--dry-run")).err
    found = await run("prune", "--older-than", "90d", "--yes")
    assert "Deleted ended reader pods: bert-reader-x." in found.err
    assert deleted(run.cluster) == {"bert-reader-x"}


async def test_prune_deletes_only_the_users_own_jobs_that_ended_long_ago(run: CommandLine) -> None:
    found = await run("prune", "--older-than", "7d", "--yes")
    assert found.status == 0
    assert deleted(run.cluster) == {"old", "old-failed"}
    assert found.titles() == ["NAME", "KIND", "STATUS", "ENDED", "USER"]
    assert found.row("old") == ["old", "PyTorchJob", "Succeeded", "8d2h", "li"]
    assert found.row("old-failed")[2:4] == ["Failed", "9d2h"]
    assert "Kept: 1 job without a known end." in found.err
    assert "Kept: 1 job of other users; see --all-users." in found.err
    assert "PyTorchJob default/old is being deleted." in found.err


async def test_all_users_and_a_status_can_be_chosen(run: CommandLine) -> None:
    await run("prune", "--older-than", "7d", "--status", "failed", "--yes")
    assert deleted(run.cluster) == {"old-failed"}
    await run("prune", "--older-than", "1d", "--all-users", "--status", "Succeeded,Failed", "--yes")
    assert deleted(run.cluster) == {"old", "old-failed", "young", "theirs"}


async def test_a_dry_run_deletes_nothing(run: CommandLine) -> None:
    found = await run.process("prune", "--older-than", "7d", "--dry-run", "--readonly", "-o", "json")
    assert found.status == 0
    assert {each["name"] for each in found.values["items"]} == {"old", "old-failed"}
    assert found.values["items"][0]["finished"]
    assert deleted(run.cluster) == set()


async def test_prune_succeeds_if_nothing_is_old_enough(run: CommandLine) -> None:
    (await run("prune", "--older-than", "99d", "--yes")).reports(0, "Nothing to prune in namespace default.")


async def test_a_refused_job_does_not_stop_the_others(run: CommandLine) -> None:
    run.cluster.replace(f"{PATH}/old", refusal(403, "you may not", "Forbidden"), method="DELETE")
    found = await run("prune", "--older-than", "7d", "--yes")
    assert found.status == 1
    assert deleted(run.cluster) == {"old", "old-failed"}
    assert "Could not delete PyTorchJob old.\nThe cluster says: you may not" in found.err


async def test_the_last_pods_end_time_dates_a_job_without_a_completion_time(run: CommandLine) -> None:
    run.cluster.forget("/apis/batch/v1/jobs")
    job = batch_job("nightly")
    job["metadata"]["annotations"] = {"gpuconsole.dev/user": "li"}
    job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    pod = pod_of(job, "x", on="n", phase="Failed")
    terminated = {"exitCode": 1, "finishedAt": ago(10.1)}
    pod["status"]["containerStatuses"] = [{"name": "main", "state": {"terminated": terminated}}]
    run.cluster.say("/apis/batch/v1/jobs", page([job]))
    for path in ("/api/v1/pods", "/api/v1/namespaces/default/pods"):
        run.cluster.replace(path, page([pod]))
    found = await run("prune", "--older-than", "7d", "--dry-run")
    assert found.row("nightly") == ["nightly", "Job", "Failed", "10d2h", "li"]


@pytest.mark.parametrize("words", ["", "--older-than soon", "--older-than 7d --status Running"])
async def test_prune_rejects_a_missing_age_and_invalid_filters(run: CommandLine, words: str) -> None:
    assert (await run("prune", *words.split(), "--yes")).status == 2
    assert run.cluster.requests == []


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
    (past.home / "state" / "gpuconsole" / OLD_FILE).write_text(json.dumps({"uid": 1}))
    assert "line 1" in (await past("runs")).err
    (await past("runs", "--clear")).reports(2, "pass --yes to clear")
    assert "kept logs of 4 past runs, the history" in (await past("runs", "--clear", "--yes")).out
    assert "No past runs yet." in (await past("runs")).err
