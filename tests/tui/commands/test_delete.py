"""`delete`, `suspend`, `resume`, `edit`, `scale`: they change only the job that was meant, and report it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, Stream, page, refusal
from tests.support.objects import Object, batch_job, merged, pod_of, pytorch_job
from tests.support.terminal import fake_kubectl
from tests.tui.commands.conftest import CommandLine

JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


async def test_a_job_is_deleted_by_its_uid(run: CommandLine) -> None:
    run.cluster.say(f"{PATH}/waits", Answer({"status": "Success"}), method="DELETE")
    ended = await run("delete", "waits", "--yes")
    assert (ended.status, ended.out, ended.err) == (0, "PyTorchJob default/waits is being deleted.\n", "")
    (asked,) = run.cluster.asked(f"{PATH}/waits", method="DELETE")
    options = json.loads(asked.body)
    assert options["preconditions"]["uid"]
    assert options["propagationPolicy"] == "Background"


@pytest.mark.parametrize("command", ["delete", "suspend", "resume"])
async def test_advice_about_a_missing_job_names_the_cluster(run: CommandLine, command: str) -> None:
    ended = await run(command, "--context", "recorded", "nope", "--yes")
    assert "To list all jobs: gpuconsole --context recorded list -A" in ended.err


async def test_a_missing_job_does_not_stop_the_others(run: CommandLine) -> None:
    run.cluster.say(f"{PATH}/done", Answer({"status": "Success"}), method="DELETE")
    run.cluster.say(f"{PATH}/fails", refusal(403, "you may not", "Forbidden"), method="DELETE")
    ended = await run("delete", "nope", "fails", "done", "done", "--yes")
    assert ended.status == 1
    assert ended.out == "PyTorchJob default/done is being deleted.\n"
    assert "There is no job nope in namespace default." in ended.err
    assert "To list all jobs: gpuconsole list -A" in ended.err
    assert "you may not" in ended.err
    assert len(run.cluster.asked(f"{PATH}/done", method="DELETE")) == 1


async def test_a_name_that_two_kinds_share_is_not_guessed(run: CommandLine) -> None:
    run.cluster.replace("/apis/batch/v1/jobs", page([batch_job("waits")]))
    run.cluster.say("/apis/batch/v1/namespaces/default/jobs/waits", Answer({}), method="DELETE")
    ended = await run("delete", "waits", "--yes")
    ended.reports(1, "2 jobs are named waits.")
    assert {"PyTorchJob/waits", "Job/waits"} <= set(ended.err.split())
    assert (await run("delete", "job/waits", "--yes")).out == "Job default/waits is being deleted.\n"


async def test_deleting_an_already_deleted_job_succeeds(run: CommandLine) -> None:
    run.cluster.say(f"{PATH}/done", refusal(404, "not found", "NotFound"), method="DELETE")
    ended = await run("delete", "done", "--yes")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/done is already gone.\n")


async def test_delete_sends_the_chosen_propagation_policy(run: CommandLine) -> None:
    run.cluster.say(f"{PATH}/waits", Answer({"status": "Success"}), method="DELETE")
    for propagation in ("Foreground", "Orphan"):
        assert (await run("delete", "waits", "--yes", "--propagation", propagation)).status == 0
        assert json.loads(run.cluster.requests[-1].body)["propagationPolicy"] == propagation
    assert (await run("delete", "waits", "--yes", "--propagation", "Sideways")).status == 2


def serve_deletion(cluster: ScriptedCluster, *left: Object) -> None:
    """Serve a job with two pods, of which these are left once it is deleted."""
    job = pytorch_job("bert", workers=2)
    pods = [pod_of(job, "master-0", on="gpu-node-0"), pod_of(job, "worker-0", on="gpu-node-0")]
    for path, before, after in (
        ("/apis/kubeflow.org/v1/pytorchjobs", [job], []),
        ("/api/v1/pods", pods, list(left)),
    ):
        cluster.replace(path, page(before), page(after))
    for path in ("apis/kubeflow.org/v1/pytorchjobs", "apis/batch/v1/jobs", "api/v1/pods", "api/v1/nodes"):
        cluster.say(f"/{path}", Stream(), watch=True)
    cluster.say(f"{PATH}/bert", Answer({"status": "Success"}), method="DELETE")


async def test_delete_with_wait_waits_until_job_and_pods_are_gone(run: CommandLine) -> None:
    serve_deletion(run.cluster)
    ended = await run("delete", "bert", "--yes", "--wait")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == "PyTorchJob default/bert is being deleted.\nbert is gone.\n"


async def test_delete_names_the_remaining_pods_after_the_wait_timeout(run: CommandLine) -> None:
    stuck = pod_of(pytorch_job("bert"), "worker-0", on="gpu-node-0")
    stuck["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z"
    serve_deletion(run.cluster, stuck)
    ended = await run("delete", "bert", "--yes", "--wait", "--timeout", "0.2")
    assert ended.status == 1
    assert ended.out == "PyTorchJob default/bert is being deleted.\n"
    assert re.search(
        r"bert: 1 pod still there after \d+ s: bert-worker-0 Terminating on gpu-node-0", ended.err
    )


async def test_delete_does_not_wait_for_a_job_whose_deletion_is_forbidden(run: CommandLine) -> None:
    run.cluster.say(f"{PATH}/waits", refusal(403, "you may not", "Forbidden"), method="DELETE")
    ended = await run("delete", "waits", "--yes", "--wait")
    assert (ended.status, ended.out) == (1, "")
    assert "nobody can tell" not in ended.err


async def test_waiting_keeps_the_failure_of_another_job(run: CommandLine) -> None:
    serve_deletion(run.cluster)
    ended = await run("delete", "bert", "nope", "--yes", "--wait")
    assert (ended.status, ended.out) == (1, "PyTorchJob default/bert is being deleted.\nbert is gone.\n")
    assert "There is no job nope in namespace default." in ended.err


def serve_changes(cluster: ScriptedCluster, *jobs: Object) -> None:
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


@pytest.mark.parametrize(
    ("command", "job", "said", "suspend"),
    [("suspend", pytorch_job("bert"), "suspended", True), ("resume", suspended("bert"), "resumed", False)],
    ids=["suspend", "resume"],
)
async def test_a_job_is_held_back_or_let_go_by_its_uid(
    run: CommandLine, command: str, job: Object, said: str, suspend: bool
) -> None:
    serve_changes(run.cluster, job)
    ended = await run(command, "bert", "--yes")
    assert (ended.status, ended.out, ended.err) == (0, f"PyTorchJob default/bert is being {said}.\n", "")
    (asked,) = run.cluster.asked(f"{PATH}/bert", method="PATCH")
    sent = json.loads(asked.body)
    assert sent["metadata"] == {"uid": "job-bert", "resourceVersion": "1"}
    assert sent["spec"] == {"runPolicy": {"suspend": suspend}}


async def test_one_failure_does_not_stop_the_others(run: CommandLine) -> None:
    serve_changes(run.cluster, pytorch_job("bert"), suspended("asleep"), pytorch_job("refused"))
    run.cluster.replace(f"{PATH}/refused", refusal(403, "you may not", "Forbidden"), method="PATCH")
    ended = await run("suspend", "nope", "asleep", "refused", "bert", "--yes")
    assert ended.status == 1
    assert ended.out == "PyTorchJob default/bert is being suspended.\n"
    assert "There is no job nope in namespace default." in ended.err
    assert "Could not suspend PyTorchJob asleep.\nIt is already suspended.\n" in ended.err
    assert "Could not change PyTorchJob refused.\nThe cluster says: you may not\n" in ended.err


async def test_edit_runs_kubectl_on_the_cluster_in_use_and_exits_as_it_does(
    run: CommandLine, tmp_path: Path
) -> None:
    run.set("PATH", fake_kubectl(tmp_path))
    ended = await run.process("--as", "wu", "edit", "running")
    assert (ended.status, ended.err) == (3, "")
    assert ended.out == "--context recorded -n default --as wu edit pytorchjobs.kubeflow.org/running\n"


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("edit", "running"), 1, "kubectl, which edits it, is not found."),
        (("edit", "nosuch"), 1, "There is no job nosuch"),
        (("--readonly", "edit", "running"), 1, "disabled by --readonly"),
        (("edit", "running", "--yes"), 2, "--yes is gone: kubectl applies the change when"),
    ],
)
async def test_edit_reports_why_it_cannot(
    run: CommandLine, tmp_path: Path, words: tuple[str, ...], status: int, why: str
) -> None:
    run.set("PATH", str(tmp_path))
    (await run(*words)).reports(status, why)


async def test_edit_refuses_a_token_that_kubectl_would_not_get(run: CommandLine, tmp_path: Path) -> None:
    run.set("PATH", fake_kubectl(tmp_path))
    run.set("GPUCONSOLE_TOKEN", "another")
    (await run("edit", "running")).reports(1, "kubectl would act as another user")


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
