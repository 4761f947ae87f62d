"""`scalein` and `scaleout`: Arena's commands, for every elastic job."""

from __future__ import annotations

import json

import pytest

from tests.scripted.server import Answer, ScriptedCluster, page
from tests.support.objects import batch_job, pod_of
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.test_scale import PATH, elastic, serve


def asked_for(cluster: ScriptedCluster) -> list[int]:
    """Return how many workers were asked for."""
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
async def test_it_is_scaled_by_so_many_replicas(
    run: CommandLine, cluster: ScriptedCluster, words: str, workers: int
) -> None:
    serve(cluster, elastic())
    ended = await run(*words.split(), "--yes")
    said = f"PyTorchJob default/bert scaled from 2 to {workers} replica{'s' if workers > 1 else ''}.\n"
    assert (ended.status, ended.out, ended.err) == (0, said, "")
    assert asked_for(cluster) == [workers]


async def test_what_changes_nothing_here_is_said(run: CommandLine, cluster: ScriptedCluster) -> None:
    serve(cluster, elastic())
    ended = await run(*["scaleout", "etjob", "--name=bert", "--timeout=1m0s", "--retry=2", "--yes"])
    assert (ended.status, ended.err) == (0, "Without effect here: --timeout, --retry.\n")
    assert asked_for(cluster) == [3]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
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
        ("scalein etjob --yes", 2, "--name"),
        ("scalein nothing --name bert --yes", 2, "Unknown kind 'nothing'"),
        ("scaleout etjob --name bert", 2, "pass --yes to scale"),
        ("--readonly scaleout etjob --name bert --yes", 1, "--readonly"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_reason(
    run: CommandLine, cluster: ScriptedCluster, words: str, status: int, said: str
) -> None:
    serve(cluster, elastic())
    ended = await run(*words.split())
    assert (ended.status, ended.out) == (status, "")
    assert said in ended.err
    assert asked_for(cluster) == []


async def test_a_job_that_is_not_elastic_says_so(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.forget("/apis/batch/v1/jobs")
    cluster.say("/apis/batch/v1/jobs", page([batch_job("sweep")]))
    cluster.say("/apis/batch/v1/namespaces/default/jobs/sweep", Answer(batch_job("sweep")))
    for word in ("scalein", "scaleout"):
        ended = await run(word, "etjob", "--name", "sweep", "--yes")
        assert ended.status == 1
        assert "The number of pods of a Job is fixed." in ended.err


@pytest.mark.parametrize("words", ["scalein etjob --name=et-mnist", "scale et-mnist --replicas 2"])
async def test_a_job_of_alibabas_operator_is_left_to_it(
    run: CommandLine, cluster: ScriptedCluster, words: str
) -> None:
    owner = {"apiVersion": "kai.alibabacloud.com/v1alpha1", "kind": "TrainingJob"}
    job = {**owner, "metadata": {"name": "et-mnist", "namespace": "default", "uid": "u"}}
    cluster.forget("/api/v1/pods")
    cluster.say("/api/v1/pods", page([pod_of(job, "worker-0", on="n1")]))
    ended = await run(*words.split(), "--yes")
    assert (ended.status, ended.out) == (1, "")
    assert "Could not scale TrainingJob et-mnist.\nAlibaba's et-operator scales it" in ended.err
