"""Lists with kubectl's flags: selectors, order, formats, watching, and jobs of one kind by `--type`."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from k8s.kinds import KINDS, kind_of
from k8s.kinds.base import JobRef
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import NotFound
from tests import ROOT
from tests.k8s.kinds.operator_objects import jobs_in, objects, pods_in, read_pods
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, ScriptedCluster, page, refusal
from tests.support.objects import GPU, batch_job, join, pod_of, pytorch_job, read_jobs
from tests.tui.commands.conftest import CommandLine, write_kubeconfig
from tests.tui.commands.test_wait import JOBS, PODS, Cluster, is_over
from tui.commands.support.job_name import Ambiguous, find_job
from tui.commands.support.listing import ItemList
from tui.commands.support.output import WrongUsage
from tui.commands.support.parser import make_parser
from tui.tables.column import ListColumn
from tui.text.kind_words import NOT_MADE, matches_kind, words_of

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
        run.cluster = scripted
        yield run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-l", "team=nlp"), {"bert", "gpt"}),
        (("-l", "team notin (nlp)"), {"resnet"}),
        (("--selector=!team",), set()),
    ],
)
async def test_selectors_choose_jobs(jobs: CommandLine, words: tuple[str, ...], expected: set[str]) -> None:
    ended = await jobs("list", "-o", "name", *words)
    assert (ended.status, set(ended.out.split())) == (0, {f"PyTorchJob/{each}" for each in expected}), (
        ended.err
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--sort-by=name", ["bert", "gpt", "resnet"]),
        ("--sort-by=-name", ["resnet", "gpt", "bert"]),
        ("--sort-by -name", ["resnet", "gpt", "bert"]),
        ("--sort-by -loss", []),
        ("--sort-by=.metadata.name", ["bert", "gpt", "resnet"]),
        ("--sort-by={.name}", ["bert", "gpt", "resnet"]),
        ("--sort-by=instances_running", ["gpt", "bert", "resnet"]),
    ],
)
async def test_sort_by_orders_the_list_by_a_field(jobs: CommandLine, words: str, expected: list[str]) -> None:
    ended = await jobs("list", *words.split(), "--no-headers")
    found = [line.split()[0] for line in ended.out.splitlines()]
    assert (ended.status, ended.err, sorted(found)) == (0, "", sorted(TEAMS))
    assert not expected or found == expected


async def test_list_supports_kubectls_name_csv_and_no_headers_formats(jobs: CommandLine) -> None:
    assert set((await jobs("list", "-o", "name")).out.split()) == {f"PyTorchJob/{name}" for name in TEAMS}
    rows = list(csv.DictReader(io.StringIO((await jobs("list", "-o", "csv", "--sort-by=name")).out)))
    assert [row["name"] for row in rows] == sorted(TEAMS)
    assert {"status", "gpus_requested", "age_s", "reason"} <= rows[0].keys()
    plain = (await jobs("list", "--no-headers")).out
    assert len(plain.splitlines()) == 3
    assert "NAME" not in plain


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-o", "name"), False),
        (("--sort-by", "name"), False),
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
    nodes = (await run("top", "nodes", "-o", "name", "--sort-by=name")).out.split()
    assert nodes
    assert all(each.startswith("node/") for each in nodes)
    assert json.loads((await run("top", "nodes", "-o", "json")).out)["gpus_total"]
    claims = await run("data", "list", "-o", "wide", "--no-headers")
    assert claims.status == 0
    assert "NAME" not in claims.out
    jobs = await run("top", "jobs", "-o", "csv")
    assert jobs.out.startswith("name,") or "name" in jobs.out.splitlines()[0].split(",")


@pytest.mark.parametrize(
    "line", ["list --sort-by -ages", "top jobs --sort-by=nmae", "top nodes --sort-by x.y"]
)
async def test_an_order_by_an_unknown_field_is_refused_with_those_there_are(
    run: CommandLine, line: str
) -> None:
    ended = await run(*line.split())
    assert (ended.status, ended.out) == (2, "")
    assert "Cannot sort by" in ended.err and "There are: name, " in ended.err


async def test_a_selector_without_a_match_is_named_beside_the_number_of_items(run: CommandLine) -> None:
    jobs = len((await run("list", "-o", "name")).out.split())
    for line, expected in (
        ("list -l team=audio", f"None of {jobs} jobs in namespace default matches -l team=audio."),
        ("top jobs -A -l team=audio", "jobs matches -l team=audio."),
        ("top nodes -l zone=b", "nodes matches -l zone=b."),
        ("data list -l owner=li", "matches -l owner=li."),
        ("list --type=tfjob -l a=b", "No jobs of type tfjob in namespace default."),
    ):
        ended = await run(*line.split())
        assert (ended.status, ended.out) == (0, "") and expected in ended.err, (line, ended.err)


@pytest.mark.parametrize(
    "line", ["list", "top jobs", "data list", "get bert", "wait bert", "prune --dry-run --older-than 1d"]
)
async def test_an_unknown_namespace_is_refused_with_those_there_are(jobs: CommandLine, line: str) -> None:
    scripted = jobs.cluster
    scripted.say("/api/v1/namespaces/visoin", refusal(404, 'namespaces "visoin" not found', "NotFound"))
    scripted.say("/api/v1/namespaces/visoin/persistentvolumeclaims", page([]))
    scripted.say("/api/v1/namespaces", page([{"metadata": {"name": name}} for name in ("audio", "vision")]))
    ended = await jobs("-n", "visoin", *line.split())
    assert (ended.status, ended.out) == (1, "")
    assert "There is no namespace visoin.\nDid you mean vision? There are: audio, vision." in ended.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-l", "team="), ""),
        (("-l", "team in"), "is not a label selector"),
        (("--field-selector", "status=Failed"), "--field-selector is gone: use -o json with jq (see help"),
        (("--field-selector=status=Failed",), "--field-selector is gone: use -o json with jq (see help"),
        (("--sort-by", "a["), "unexpected '['"),
        (("-o", "jsonpath={.a}"), "'jsonpath={.a}'; use -o json with jq (see help scripts), or choose from"),
        (("-o", "custom-columns=NAME:.name"), "use -o json with jq (see help scripts), or choose from table"),
        (("-o", "jsn"), "did you mean json? choose from table, wide, json, yaml, name, csv"),
    ],
)
async def test_a_malformed_selector_sort_path_or_format_is_a_usage_error(
    jobs: CommandLine, words: tuple[str, ...], why: str
) -> None:
    ended = await jobs("list", *words)
    assert ended.status == (2 if why else 0)
    assert why in ended.err


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
async def test_the_jq_lines_of_the_manual_work(jobs: CommandLine) -> None:
    text = (ROOT / "tui/settings/manual/scripts.md").read_text()
    lines = re.findall(r"^gpuconsole (list|top nodes) -o json \| jq (-r )?'(.+?)'", text, re.M)
    assert len(lines) == 5
    for command, flag, program in lines:
        printed = (await jobs(*command.split(), "-o", "json")).out
        words = ["jq", *flag.split(), program]
        done = subprocess.run(words, input=printed, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), program
        assert done.stdout or command != "list", program


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


class Snapshots:
    """A feed that publishes one snapshot after the other, each once the one before was read."""

    def __init__(self, *snapshots: list[SimpleNamespace]) -> None:
        self._left, self._is_read = list(snapshots), asyncio.Event()

    def items_of(self, snapshot: Any) -> list[SimpleNamespace]:
        self._is_read.set()
        return list(snapshot.items)

    async def run(self, publish: Callable[[Any], None]) -> None:
        for items in self._left:
            publish(SimpleNamespace(is_synced=True, stale="", trouble="", items=items))
            await self._is_read.wait()
            self._is_read.clear()


@pytest.mark.parametrize(
    ("form", "users"), [("table", []), ("name", []), ("wide", ["wu"]), ("csv", ["wu"]), ("json", ["wu"])]
)
async def test_a_watched_list_repeats_no_row_whose_change_it_does_not_show(
    capsys: pytest.CaptureFixture[str], form: str, users: list[str]
) -> None:
    columns: tuple[ListColumn[Any, None], ...] = (
        ListColumn("name", "NAME", value=lambda each, _: each.name, printed="table"),
        ListColumn("user", "USER", value=lambda each, _: each.user, printed="wide"),
        ListColumn("age_s", "AGE", value=lambda each, _: each.age_s, printed="table"),
    )
    first, grown = (SimpleNamespace(name="bert", user="li", age_s=age) for age in (1, 2))
    feed: Any = Snapshots([grown], [SimpleNamespace(name="bert", user="wu", age_s=3)])
    listing = ItemList(
        make_parser().parse_args(["list", "-o", form]),
        columns,
        name_of=lambda each: f"job/{each.name}",
        labels_of=lambda _: {},
    )
    listing.write([first], None, columns)
    before = capsys.readouterr().out
    assert "bert" in before
    await listing.watch(feed, [first], lambda: None, columns, feed.items_of, lambda each: each.name)
    assert re.findall("li|wu|job/", capsys.readouterr().out) == users


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


TF_JOBS = "/apis/kubeflow.org/v1/tfjobs"


@pytest.fixture
def with_tensorflow(cluster: ScriptedCluster) -> ScriptedCluster:
    """Serve a TFJob in the namespace vision, beside the PyTorchJobs, one of them of its name."""
    job, *pods = objects("tfjob-running")
    say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs", "tfjobs"], "batch/v1": ["jobs"]})
    cluster.say(TF_JOBS, page([job]))
    cluster.replace("/api/v1/pods", page(pods))
    other = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {**job["metadata"], "uid": "p"},
    }
    cluster.replace("/apis/kubeflow.org/v1/pytorchjobs", page([{**other, "spec": {}}]))
    return cluster


@pytest.mark.usefixtures("with_tensorflow")
async def test_a_list_shows_the_jobs_of_one_kind(run: CommandLine) -> None:
    for words in (("list", "-A", "--type", "tfjob"), ("top", "jobs", "-A", "-T", "tfjobs.kubeflow.org")):
        ended = await run(*words, "-o", "json")
        assert [job["kind"] for job in ended.values["items"]] == ["TFJob"]


async def test_the_type_flag_selects_one_of_two_jobs_with_the_same_name(
    run: CommandLine, with_tensorflow: ScriptedCluster
) -> None:
    ended = await run("get", "dist-mnist", "-n", "vision", "--type", "tfjob")
    assert ended.status == 0
    assert "Kind:       TFJob kubeflow.org/v1" in ended.out
    assert "chief-0" in ended.out
    ended = await run("get", "dist-mnist", "-n", "vision", "-T", "py", "-o", "json")
    assert ended.values["kind"] == "PyTorchJob"
    assert (await run("get", "dist-mnist", "-n", "vision")).status == 1
    assert (await run("get", "tf/dist-mnist", "-n", "vision")).status == 0


async def test_delete_with_a_type_deletes_only_the_job_of_that_kind(
    run: CommandLine, with_tensorflow: ScriptedCluster
) -> None:
    path = "/apis/kubeflow.org/v1/namespaces/vision/tfjobs/dist-mnist"
    with_tensorflow.say(path, Answer({}), method="DELETE")
    ended = await run("delete", "dist-mnist", "-n", "vision", "--type=tfjob", "--yes")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == "TFJob vision/dist-mnist is being deleted.\n"
    assert len(with_tensorflow.asked(path, method="DELETE")) == 1


async def test_the_type_flag_excludes_jobs_of_other_kinds(run: CommandLine) -> None:
    ended = await run("get", "running", "--type", "mpijob")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("There is no MPIJob running in namespace default.")
    assert (await run("get", "running", "--type", "pytorchjob")).status == 0
    for word in ("mpijob", "etjob", "sparkjob"):
        ended = await run("list", "--type", word)
        assert (ended.status, ended.err) == (0, f"No jobs of type {word} in namespace default.\n")


@pytest.mark.parametrize("words", [("list",), ("get", "x"), ("delete", "x", "--yes")], ids=" ".join)
async def test_an_unknown_type_is_a_usage_error(run: CommandLine, words: tuple[str, ...]) -> None:
    ended = await run(*words, "--type", "nonsense")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("Unknown kind 'nonsense'. Known kinds: PyTorchJob, ")


@pytest.mark.parametrize(
    ("word", "kinds"),
    [
        ("mpi", {"MPIJob"}),
        ("tf", {"TFJob"}),
        ("TFJob", {"TFJob"}),
        ("tfjobs", {"TFJob"}),
        ("pytorch", {"PyTorchJob"}),
        ("rj", {"RayJob"}),
        ("vj", {"Job batch.volcano.sh"}),
        ("volcanojob", {"Job batch.volcano.sh"}),
        ("trainjob", {"TrainJob"}),
    ],
)
def test_arenas_type_aliases_match_their_kinds(word: str, kinds: set[str]) -> None:
    found = [kind.resource for kind in KINDS if matches_kind(kind, word)]
    volcano = {f"{each.kind} {each.group}" if each.kind == "Job" else each.kind for each in found}
    assert volcano == kinds


def test_arenas_et_alias_matches_the_et_operators_trainingjob() -> None:
    job = JobRef("default", "x", "TrainingJob", "kai.alibabacloud.com/v1alpha1")
    assert all(matches_kind(kind_of(job), word) for word in ("et", "etjob"))
    assert not matches_kind(kind_of(job), "tf")


def test_kind_aliases_are_unique_and_exclude_kinds_that_cannot_be_created() -> None:
    words = [word for kind in KINDS if not hasattr(kind, "manifest") for word in words_of(kind)]
    assert len(words) == len(set(words))
    made = {word for kind in KINDS if hasattr(kind, "manifest") for word in words_of(kind)}
    assert not made & set(NOT_MADE)


def snapshot() -> ClusterSnapshot:
    """Return a Job of Kubernetes and one of Volcano of one name, and MPIJobs of two systems."""
    mine = batch_job("vgg")
    mine["metadata"]["namespace"] = "vision"
    made = [*read_jobs(mine), *jobs_in("volcano-running"), *jobs_in("mpijob-v1-running")]
    _, jobs = join([], pods_in("volcano-running"), [*made, *jobs_in("t9k-mpi-worker-form")])
    return ClusterSnapshot(namespace="vision", jobs=jobs)


def test_jobs_with_the_same_name_and_kind_are_distinguished_by_api_group() -> None:
    for words in ("vgg", "Job/vgg", "jobs/vgg"):
        with pytest.raises(Ambiguous) as caught:
            find_job(snapshot(), words)
        assert set(caught.value.why.split("\n")) == {"jobs.batch/vgg", "jobs.batch.volcano.sh/vgg"}
    assert find_job(snapshot(), "jobs.batch/vgg").ref.api_version == "batch/v1"
    for words in ("jobs.batch.volcano.sh/vgg", "volcano job/vgg"):
        assert find_job(snapshot(), words).ref.api_version == "batch.volcano.sh/v1alpha1"


def test_an_mpijob_is_found_in_any_api_group() -> None:
    assert find_job(snapshot(), "MPIJob/resnet").ref.api_version == "kubeflow.org/v1"
    assert find_job(snapshot(), "mpijobs/mpi-example").ref.api_version == "batch.tensorstack.dev/v1beta1"
    with pytest.raises(NotFound, match="There is no MPIJob vgg in namespace vision"):
        find_job(snapshot(), "mpijobs/vgg")


def test_an_unknown_kind_is_rejected_with_a_list_of_known_kinds() -> None:
    with pytest.raises(WrongUsage, match=r"Unknown kind 'Nonsense'\. Known kinds: PyTorchJob, MPIJob"):
        find_job(snapshot(), "Nonsense/vgg")
    with pytest.raises(WrongUsage, match="is not a job name"):
        find_job(snapshot(), "Job/")


def test_a_statefulset_that_holds_gpus_is_found_by_name_and_kind() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": True}
    pod = {
        "metadata": {"name": "web-0", "namespace": "vision", "uid": "p", "ownerReferences": [owner]},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {GPU: 1}}}]},
    }
    _, jobs = join([], read_pods(pod), [])
    there = ClusterSnapshot(namespace="vision", jobs=jobs)
    for words in ("web", "StatefulSet/web", "statefulsets.apps/web"):
        assert find_job(there, words).ref.kind == "StatefulSet"
