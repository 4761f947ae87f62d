"""`delete`, `suspend`, `resume`, `edit`: they say what they did, and change only the job that was meant."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, Stream, page, refusal
from tests.support.objects import Object, batch_job, pod_of, pytorch_job
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
