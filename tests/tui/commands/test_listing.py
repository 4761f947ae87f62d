"""Lists with kubectl's flags: selectors, order, formats, and watching."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator

import pytest

from tests.scripted.server import ScriptedCluster, page
from tests.support.objects import pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine, write_kubeconfig
from tests.tui.commands.test_wait import JOBS, PODS, Cluster, is_over

TEAMS = {"bert": "nlp", "gpt": "nlp", "resnet": "vision"}


@pytest.fixture
async def jobs(run: CommandLine) -> AsyncIterator[CommandLine]:
    """Return the command line of a user with three jobs, of which one has failed."""
    async with ScriptedCluster() as scripted:
        objects = []
        for name, team in TEAMS.items():
            job = pytorch_job(name)
            job["metadata"]["labels"] = {"team": team}
            job["status"] = is_over(1) if name == "gpt" else {}
            objects.append(job)
        scripted.say(JOBS, page(objects))
        pods = [pod_of(each, "master-0", on="n1") for each in objects[::2]]
        for path, items in ((PODS, pods), ("/api/v1/nodes", []), ("/apis/batch/v1/jobs", [])):
            scripted.say(path, page(items))

        run.set("KUBECONFIG", write_kubeconfig(run.home, scripted.host))
        yield run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-l", "team=nlp"), {"bert", "gpt"}),
        (("-l", "team notin (nlp)"), {"resnet"}),
        (("--selector=!team",), set()),
        (("--field-selector", "status=Failed"), {"gpt"}),
        (("--field-selector", "status!=Failed,kind==PyTorchJob"), {"bert", "resnet"}),
        (("--field-selector", "metadata.name=bert"), {"bert"}),
        (("-l", "team=nlp", "--field-selector", "status!=Failed"), {"bert"}),
    ],
)
async def test_selectors_choose_jobs(jobs: CommandLine, words: tuple[str, ...], expected: set[str]) -> None:
    ended = await jobs("list", "-o", "jsonpath={range .items[*]}{.name} {end}", *words)
    assert (ended.status, set(ended.out.split())) == (0, expected), ended.err


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("name", ["bert", "gpt", "resnet"]),
        ("-name", ["resnet", "gpt", "bert"]),
        (".metadata.name", ["bert", "gpt", "resnet"]),
        ("{.name}", ["bert", "gpt", "resnet"]),
        ("instances_total", ["gpt", "bert", "resnet"]),
    ],
)
async def test_sort_by_orders_the_list_by_a_field(jobs: CommandLine, field: str, expected: list[str]) -> None:
    ended = await jobs("list", f"--sort-by={field}", "--no-headers")
    found = [line.split()[0] for line in ended.out.splitlines()]
    assert sorted(found) == sorted(expected)
    assert found.index(expected[0]) < found.index(expected[-1])


async def test_list_supports_kubectls_name_custom_columns_csv_and_no_headers_formats(
    jobs: CommandLine,
) -> None:
    assert set((await jobs("list", "-o", "name")).out.split()) == {f"PyTorchJob/{name}" for name in TEAMS}
    table = (
        await jobs("list", "-o", "custom-columns=JOB:.name,IS:.status,NONE:.nothing", "--sort-by=name")
    ).out
    assert table.splitlines()[:2] == ["JOB      IS        NONE", table.splitlines()[1]]
    assert table.splitlines()[1].split()[::2] == ["bert", "<none>"]
    rows = list(csv.DictReader(io.StringIO((await jobs("list", "-o", "csv", "--sort-by=name")).out)))
    assert [row["name"] for row in rows] == sorted(TEAMS)
    assert {"status", "gpus_requested", "age_s", "reason"} <= rows[0].keys()
    plain = (await jobs("list", "--no-headers")).out
    assert len(plain.splitlines()) == 3
    assert "NAME" not in plain


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-o", "jsonpath={.items[*].name}"), False),
        (("-o", "custom-columns=NAME:.name,IS:.status"), False),
        (("--sort-by", "name"), False),
        (("-o", "custom-columns=NAME:.name,LOSS:.loss"), True),
        (("-o", "jsonpath={.items[*]}"), True),
        (("-o", "jsonpath={.items}"), True),
        (("-o", "jsonpath={..silent_s}"), True),
        (("--sort-by", "loss"), True),
        (("-o", "csv"), True),
        ((), False),
    ],
)
async def test_list_reads_logs_only_for_fields_derived_from_logs(
    run: CommandLine, words: tuple[str, ...], expected: bool
) -> None:
    assert (await run("list", *words)).status == 0
    assert any(asked.path.endswith("/log") for asked in run.cluster.requests) is expected


async def test_top_and_data_lists_take_the_same_flags(run: CommandLine) -> None:
    nodes = (await run("top", "nodes", "-o", "jsonpath={.items[*].name}")).out.split()
    assert nodes
    ended = await run("top", "nodes", "--field-selector", f"name={nodes[0]}", "-o", "name")
    assert ended.out == f"node/{nodes[0]}\n"
    totals = await run("top", "nodes", "-o", "jsonpath={.gpus_total}")
    assert totals.out.strip().isdecimal()
    claims = await run("data", "list", "-o", "custom-columns=CLAIM:.name", "--no-headers")
    assert claims.status == 0
    assert "CLAIM" not in claims.out
    jobs = await run("top", "jobs", "-o", "csv")
    assert jobs.out.startswith("name,") or "name" in jobs.out.splitlines()[0].split(",")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-l", "team="), ""),
        (("-l", "team in"), "is not a label selector"),
        (("--field-selector", "status"), "write FIELD=VALUE"),
        (("--sort-by", "a["), "a ] is missing"),
        (("-o", "jsonpath={.a"), "a brace is not closed"),
        (("-o", "custom-columns=NAME"), "is not TITLE:.path"),
        (("-o", "jsn"), "did you mean json? choose from table, wide, json, yaml, name, csv"),
    ],
)
async def test_a_malformed_selector_sort_path_or_format_is_a_usage_error(
    jobs: CommandLine, words: tuple[str, ...], why: str
) -> None:
    ended = await jobs("list", *words)
    assert ended.status == (2 if why else 0)
    assert why in ended.err


async def test_a_watched_list_prints_only_the_changed_job(run: CommandLine) -> None:
    changing = Cluster(run.cluster, "bert", "gpt")
    child = run.fork("list", "-w")
    first = [(await child.line()).split() for _ in range(3)]
    assert {line[0] for line in first} == {b"NAME", b"bert", b"gpt"}
    await changing.until_watched(
        *("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", "/api/v1/namespaces/default/pods")
    )
    changing.change("gpt", is_over(0))
    line = await child.line()
    assert line.split()[0] == b"gpt"
    assert b"Succeeded" in line
    await child.leave()


async def test_a_watched_job_prints_its_line_at_each_change(run: CommandLine) -> None:
    changing = Cluster(run.cluster, "bert", "gpt")
    child = run.fork("get", "bert", "-w")
    await asyncio.gather(changing.until_watched(), child.line())
    assert (await child.line()).split()[0] == b"bert"
    changing.change("gpt", is_over(0))
    changing.end("bert", 3)
    lines = [await child.line()]
    while b"Failed" not in lines[-1]:
        lines.append(await child.line())
    assert {line.split()[0] for line in lines} == {b"bert"}
    await child.leave()
