"""`suspend` and `resume`: they ask, say what they did, and one that cannot be does not keep the others."""

from __future__ import annotations

import json

from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, page, refusal
from tests.support.objects import Object, pytorch_job, recorded
from tests.tui.commands.conftest import CommandLine

JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


def serve(cluster: ScriptedCluster, *jobs: Object) -> None:
    """Serve these jobs, and take every change of them."""
    cluster.replace(JOBS, page(jobs))
    for job in jobs:
        path = f"{PATH}/{job['metadata']['name']}"

        def taken(asked: Asked, job: Object = job) -> Reply:
            return Answer({**job, "spec": {**job["spec"], **json.loads(asked.body)["spec"]}})

        cluster.say(path, Answer(job))
        cluster.say(path, Compute(taken), method="PATCH")


def suspended(name: str) -> Object:
    job = pytorch_job(name)
    job["spec"]["runPolicy"] = {"suspend": True}
    return job


async def test_a_job_is_suspended_by_its_uid(run: CommandLine, cluster: ScriptedCluster) -> None:
    serve(cluster, pytorch_job("bert"))
    ended = await run("suspend", "bert", "--yes")
    assert (ended.status, ended.out, ended.err) == (0, "PyTorchJob default/bert is being suspended.\n", "")
    (asked,) = cluster.asked(f"{PATH}/bert", method="PATCH")
    assert json.loads(asked.body) == {
        "metadata": {"uid": "job-bert", "resourceVersion": "1"},
        "spec": {"runPolicy": {"suspend": True}},
    }


async def test_a_job_is_resumed(run: CommandLine, cluster: ScriptedCluster) -> None:
    serve(cluster, suspended("bert"))
    ended = await run("resume", "bert", "--yes")
    assert (ended.status, ended.out, ended.err) == (0, "PyTorchJob default/bert is being resumed.\n", "")
    (asked,) = cluster.asked(f"{PATH}/bert", method="PATCH")
    assert json.loads(asked.body)["spec"] == {"runPolicy": {"suspend": False}}


async def test_one_failure_does_not_stop_the_others(run: CommandLine, cluster: ScriptedCluster) -> None:
    serve(cluster, pytorch_job("bert"), suspended("asleep"), pytorch_job("refused"))
    cluster.replace(f"{PATH}/refused", refusal(403, "you may not", "Forbidden"), method="PATCH")
    ended = await run("suspend", "nope", "asleep", "refused", "bert", "--yes")
    assert ended.status == 1
    assert ended.out == "PyTorchJob default/bert is being suspended.\n"
    assert "There is no job nope in namespace default." in ended.err
    assert "Could not suspend PyTorchJob asleep.\nIt is already suspended.\n" in ended.err
    assert "Could not change PyTorchJob refused.\nThe cluster says: you may not\n" in ended.err


async def test_a_job_that_ended_is_not_suspended(run: CommandLine, cluster: ScriptedCluster) -> None:
    assert any(job["metadata"]["name"] == "done" for job in recorded("pytorchjobs"))
    ended = await run("suspend", "done", "--yes")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == "Could not suspend PyTorchJob done.\nIt has ended.\n"


async def test_a_dropped_field_is_reported(run: CommandLine, cluster: ScriptedCluster) -> None:
    serve(cluster, pytorch_job("bert"))
    cluster.replace(f"{PATH}/bert", Answer(pytorch_job("bert")), method="PATCH")
    (await run("suspend", "bert", "--yes")).reports(1, "dropped spec.runPolicy.suspend")
