"""`--type`: jobs of one kind, in Kubernetes' words and in Arena's."""

from __future__ import annotations

import pytest

from k8s.kinds import KINDS, kind_of
from k8s.kinds.base import JobRef
from tests.k8s.kinds.operator_objects import objects
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, ScriptedCluster, page
from tests.tui.commands.conftest import CommandLine
from tui.jobs.kind_words import NOT_MADE, matches_kind, words_of

TF_JOBS = "/apis/kubeflow.org/v1/tfjobs"


@pytest.fixture
def with_tensorflow(cluster: ScriptedCluster) -> ScriptedCluster:
    """Serve a TFJob in the namespace vision, beside the PyTorchJobs, one of them of its name."""
    job, *pods = objects("tfjob-running")
    say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs", "tfjobs"], "batch/v1": ["jobs"]})
    cluster.say(TF_JOBS, page([job]))
    cluster.forget("/api/v1/pods")
    cluster.say("/api/v1/pods", page(pods))
    other = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {**job["metadata"], "uid": "p"},
    }
    cluster.forget("/apis/kubeflow.org/v1/pytorchjobs")
    cluster.say("/apis/kubeflow.org/v1/pytorchjobs", page([{**other, "spec": {}}]))
    return cluster


@pytest.mark.parametrize("word", ["tfjob", "tf", "TFJob", "tfjobs", "tfjobs.kubeflow.org"])
@pytest.mark.parametrize("flag", ["--type", "-T"])
async def test_a_list_shows_the_jobs_of_one_kind(
    run: CommandLine, with_tensorflow: ScriptedCluster, word: str, flag: str
) -> None:
    for words in (("list", "-A"), ("top", "jobs", "-A")):
        ended = await run(*words, flag, word, "-o", "json")
        assert [job["kind"] for job in ended.values["items"]] == ["TFJob"]


async def test_one_of_two_namesakes_is_meant_by_its_kind(
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


async def test_a_job_of_the_kind_alone_is_deleted(run: CommandLine, with_tensorflow: ScriptedCluster) -> None:
    path = "/apis/kubeflow.org/v1/namespaces/vision/tfjobs/dist-mnist"
    with_tensorflow.say(path, Answer({}), method="DELETE")
    ended = await run("delete", "dist-mnist", "-n", "vision", "--type=tfjob", "--yes")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == "TFJob vision/dist-mnist is being deleted.\n"
    assert len(with_tensorflow.asked(path, method="DELETE")) == 1


async def test_a_job_of_another_kind_is_not_meant(run: CommandLine) -> None:
    ended = await run("get", "running", "--type", "mpijob")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("There is no MPIJob running in namespace default.")
    assert (await run("get", "running", "--type", "pytorchjob")).status == 0
    ended = await run("list", "--type", "mpijob")
    assert (ended.status, ended.err) == (0, "No jobs of type mpijob in namespace default.\n")


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("get", "x"),
        ("logs", "x"),
        ("delete", "x", "--yes"),
        ("top", "jobs"),
        ("suspend", "x", "--yes"),
    ],
    ids=" ".join,
)
async def test_a_kind_that_nobody_knows_is_wrong_usage(run: CommandLine, words: tuple[str, ...]) -> None:
    ended = await run(*words, "--type", "nonsense")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("Unknown kind 'nonsense'. Known kinds: PyTorchJob, ")


@pytest.mark.parametrize("word", ["et", "etjob", "dp", "sparkjob", "horovod", "hj"])
async def test_arenas_other_kinds_are_known_where_there_are_none(run: CommandLine, word: str) -> None:
    ended = await run("list", "--type", word)
    assert (ended.status, ended.err) == (0, f"No jobs of type {word} in namespace default.\n")


@pytest.mark.parametrize(
    ("word", "kinds"),
    [
        ("mpi", {"MPIJob"}),
        ("pytorch", {"PyTorchJob"}),
        ("rj", {"RayJob"}),
        ("vj", {"Job batch.volcano.sh"}),
        ("volcanojob", {"Job batch.volcano.sh"}),
        ("trainjob", {"TrainJob"}),
    ],
)
def test_arenas_words_mean_kinds(word: str, kinds: set[str]) -> None:
    found = [kind.resource for kind in KINDS if matches_kind(kind, word)]
    volcano = {f"{each.kind} {each.group}" if each.kind == "Job" else each.kind for each in found}
    assert volcano == kinds


def test_kinds_of_other_operators_are_found_by_arenas_words() -> None:
    job = JobRef("default", "x", "TrainingJob", "kai.alibabacloud.com/v1alpha1")
    assert matches_kind(kind_of(job), "et")
    assert not matches_kind(kind_of(job), "tf")


def test_no_word_stands_for_two_kinds_or_for_one_that_is_not_made() -> None:
    words = [word for kind in KINDS if not hasattr(kind, "manifest") for word in words_of(kind)]
    assert len(words) == len(set(words))
    made = {word for kind in KINDS if hasattr(kind, "manifest") for word in words_of(kind)}
    assert not made & set(NOT_MADE)
