"""`--type`: jobs of one kind, in Kubernetes' words and in Arena's."""

from __future__ import annotations

import pytest

from k8s.kinds import KINDS, kind_of
from k8s.kinds.base import JobRef
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import NotFound
from tests.k8s.kinds.operator_objects import jobs_in, objects, pods_in, read_pods
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, ScriptedCluster, page
from tests.support.objects import GPU, batch_job, join, read_jobs
from tests.tui.commands.conftest import CommandLine
from tui.commands.support.job_name import Ambiguous, find_job
from tui.commands.support.output import WrongUsage
from tui.text.kind_words import NOT_MADE, matches_kind, words_of

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
