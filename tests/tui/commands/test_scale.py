"""`scale`: elastic jobs only, within their bounds, and only if the cluster has done it."""

from __future__ import annotations

import json

import pytest

from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, page
from tests.support.objects import Object, batch_job, merged, pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine

JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
ENDED = {"conditions": [{"type": "Succeeded", "status": "True"}]}
SAME = {"uid": "job-bert", "resourceVersion": "1"}


def elastic(name: str = "bert", **policy: int) -> Object:
    job = pytorch_job(name, workers=3)
    job["spec"]["elasticPolicy"] = policy or {"minReplicas": 1, "maxReplicas": 4}
    return job


def serve(cluster: ScriptedCluster, job: Object) -> None:
    def taken(asked: Asked) -> Reply:
        return Answer(merged(job, json.loads(asked.body)))

    cluster.replace(JOBS, page([job]))
    path = f"{PATH}/{job['metadata']['name']}"
    cluster.say(path, Answer(job))
    cluster.say(path, Compute(taken), method="PATCH")


async def test_the_workers_of_an_elastic_job_are_changed(run: CommandLine) -> None:
    serve(run.cluster, elastic())
    ended = await run("scale", "bert", "--replicas", "4", "--yes")
    assert (ended.status, ended.out, ended.err) == (
        0,
        "PyTorchJob default/bert scaled from 2 to 4 replicas.\n",
        "",
    )
    (asked,) = run.cluster.asked(f"{PATH}/bert", method="PATCH")
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}
    assert json.loads(asked.body) == {"metadata": SAME, "spec": spec}


async def test_t9k_expected_replicas_are_changed(run: CommandLine) -> None:
    job = {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "PyTorchTrainingJob",
        "metadata": {"name": "mnist", "namespace": "default", "uid": "u", "resourceVersion": "7"},
        "spec": {"elastic": {"enabled": True, "minReplicas": 1, "maxReplicas": 4, "expectedReplicas": 4}},
    }
    path = "/apis/batch.tensorstack.dev/v1beta1/namespaces/default/pytorchtrainingjobs/mnist"
    say_kinds(run.cluster, {"batch.tensorstack.dev/v1beta1": ["pytorchtrainingjobs"]})
    run.cluster.say("/apis/batch.tensorstack.dev/v1beta1/pytorchtrainingjobs", page([job]))
    run.cluster.say(path, Answer(job))
    run.cluster.say(path, Compute(lambda asked: Answer(merged(job, json.loads(asked.body)))), method="PATCH")
    ended = await run("scale", "mnist", "--replicas=2", "--yes")
    assert (ended.status, ended.out) == (
        0,
        "PyTorchTrainingJob default/mnist scaled from 4 to 2 replicas.\n",
    ), ended.err
    (asked,) = run.cluster.asked(path, method="PATCH")
    assert json.loads(asked.body)["spec"] == {"elastic": {"expectedReplicas": 2}}


@pytest.mark.parametrize(
    ("job", "replicas", "why"),
    [
        (pytorch_job("bert", workers=3), 3, "It is not elastic: submit it with"),
        (elastic(), 5, "It is elastic from 1 to 4 replicas."),
        (elastic(), 0, "It is elastic from 1 to 4 replicas."),
        (elastic(maxReplicas=4), 9, "It is elastic from any number to 4 replicas."),
        (elastic(), 2, "It already has 2 replicas."),
        (elastic() | {"status": ENDED}, 3, "It has ended."),
    ],
)
async def test_scale_rejects_non_elastic_jobs_and_out_of_range_replicas(
    run: CommandLine, job: Object, replicas: int, why: str
) -> None:
    serve(run.cluster, job)
    ended = await run("scale", "bert", "--replicas", str(replicas), "--yes")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith(f"Could not scale PyTorchJob bert.\n{why}")
    assert run.cluster.asked(f"{PATH}/bert", method="PATCH") == []


def asked_for(cluster: ScriptedCluster) -> list[int]:
    """Return the number of workers in each patch of the job."""
    patches = [json.loads(asked.body) for asked in cluster.asked(f"{PATH}/bert", method="PATCH")]
    return [patch["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] for patch in patches]


@pytest.mark.parametrize(
    ("words", "workers"),
    [
        ("scalein etjob --name=bert --count=1", 1),
        ("scalein et --name bert", 1),
        ("scaleout etjob --name=bert --count=2", 4),
        ("scaleout pytorchjob --name bert", 3),
    ],
)
async def test_scalein_and_scaleout_change_the_replicas_by_the_count(
    run: CommandLine, words: str, workers: int
) -> None:
    serve(run.cluster, elastic())
    ended = await run(*words.split(), "--yes")
    said = f"PyTorchJob default/bert scaled from 2 to {workers} replica{'s' if workers > 1 else ''}.\n"
    assert (ended.status, ended.out, ended.err) == (0, said, "")
    assert asked_for(run.cluster) == [workers]


async def test_scaleout_reports_flags_without_effect(run: CommandLine) -> None:
    serve(run.cluster, elastic())
    ended = await run(*["scaleout", "etjob", "--name=bert", "--timeout=1m0s", "--retry=2", "--yes"])
    assert (ended.status, ended.err) == (0, "Without effect here: --timeout, --retry.\n")
    assert asked_for(run.cluster) == [3]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("scale bert --replicas -1 --yes", 2, "--replicas: Must be at least 0."),
        ("scale bert --yes", 2, "--replicas is required."),
        ("scale bert --replicas 3 --count 2 --yes", 2, "--count: scale does not take it."),
        ("scalein etjob --name bert --replicas 3 --yes", 2, "--replicas: scalein does not take it."),
        ("scalein etjob --name bert --count 2 --yes", 1, "It is elastic from 1 to 4 replicas."),
        ("scaleout etjob --name bert --count 3 --yes", 1, "It is elastic from 1 to 4 replicas."),
        ("scalein etjob --name bert --count 3 --yes", 1, "It has 2 replicas."),
        ("scalein mpijob --name bert --yes", 1, "There is no MPIJob bert"),
        ("scalein etjob --name other --yes", 1, "There is no job other"),
        ("scalein etjob --name bert --count 0 --yes", 2, "--count: Must be at least 1."),
        ("scalein etjob --name bert --count many --yes", 2, "--count"),
        ("scalein etjob --name bert --timeout soon --yes", 2, "--timeout: 'soon' is not a duration"),
        ("scalein etjob --name bert --script a.sh --yes", 2, "--script: only Alibaba's et-operator"),
        ("scalein etjob --name bert -e A=1 --yes", 2, "--env: only Alibaba's et-operator"),
        ("scalein etjob --yes", 2, "--name is required."),
        ("scalein nothing --name bert --yes", 2, "Unknown kind 'nothing'"),
    ],
)
async def test_an_impossible_count_is_refused(run: CommandLine, words: str, status: int, said: str) -> None:
    serve(run.cluster, elastic())
    (await run(*words.split())).reports(status, said)
    assert asked_for(run.cluster) == []


async def test_scalein_and_scaleout_reject_a_job_with_fixed_pods(run: CommandLine) -> None:
    run.cluster.replace("/apis/batch/v1/jobs", page([batch_job("sweep")]))
    run.cluster.say("/apis/batch/v1/namespaces/default/jobs/sweep", Answer(batch_job("sweep")))
    for words in ("scale sweep --replicas 3", "scalein etjob --name sweep", "scaleout etjob --name sweep"):
        (await run(*words.split(), "--yes")).reports(1, "The number of pods of a Job is fixed.")


@pytest.mark.parametrize("words", ["scalein etjob --name=et-mnist", "scale et-mnist --replicas 2"])
async def test_et_operator_jobs_are_not_scaled(run: CommandLine, words: str) -> None:
    owner = {"apiVersion": "kai.alibabacloud.com/v1alpha1", "kind": "TrainingJob"}
    job = {**owner, "metadata": {"name": "et-mnist", "namespace": "default", "uid": "u"}}
    run.cluster.replace("/api/v1/pods", page([pod_of(job, "worker-0", on="n1")]))
    (await run(*words.split(), "--yes")).reports(
        1, "Could not scale TrainingJob et-mnist.\nAlibaba's et-operator scales it"
    )
