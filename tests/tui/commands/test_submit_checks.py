"""What `submit` says before it creates a job that would never start."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests import ROOT
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, Compute, ScriptedCluster, refusal
from tests.support.objects import pytorch_job
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.submitting import BATCH_JOBS, PYTORCH_JOBS, echo

HUGE = ("submit", "pytorch", "--name", "demo", "--image", "x", "--gpus", "64")
NEVER = "would never start: needs 1 × 64 GPUs; the cluster has 15, at most 8 per node."


async def test_a_job_that_fits_no_node_needs_force(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "true")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == (
        f"PyTorchJob demo {NEVER}\nNothing was created.\nTo create it all the same: --force\n"
    )
    assert cluster.asked(PYTORCH_JOBS, method="POST") == []
    for flag, dry_run in (("--force", ""), ("--dry-run=server", " (server dry run)")):
        ended = await run(*HUGE, flag, "true")
        assert (ended.status, ended.out) == (0, f"PyTorchJob default/demo created{dry_run}.\n")
        assert ended.err == f"Warning: {NEVER}\n"


async def test_too_few_images_for_one_step_are_reported(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    cluster.accept_companions("default")
    words = ("submit", "pytorch", "--name", "demo", "--image", "x", "--workers", "2", "--trainer", "ddp")
    ended = await run(*words, "--", "--batch-size", "6001")
    assert ended.status == 0
    assert (
        "Warning: would fail: a step takes 6,001 × 2 ranks = 12,002 images, and there are 12,000" in ended.err
    )


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1)])
async def test_somebody_at_a_terminal_is_asked_whether_to_create_what_never_fits(
    run: CommandLine, cluster: ScriptedCluster, answer: str, status: int
) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    words = (sys.executable, "-P", "-m", "tui", *HUGE, "true")

    def end() -> int | None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with Terminal(words, columns=160, env=env, folder=run.home) as terminal:
            terminal.wait_for("Create it all the same? [y/N]")
            terminal.send(answer)
            return terminal.wait_for_end()

    assert await asyncio.to_thread(end) == status
    assert len(cluster.asked(PYTORCH_JOBS, method="POST")) == (1 if status == 0 else 0)


async def test_unreadable_nodes_keep_no_job_back(run: CommandLine, cluster: ScriptedCluster) -> None:
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/default/pods"):
        cluster.replace(path, refusal(403, "no", "Forbidden"))
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "true")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")


DEMO = ("submit", "pytorch", "--name", "demo", "--image", "x")
TAKEN = 'pytorchjobs.kubeflow.org "demo" already exists'
TAKEN_WARNING = (
    "Warning: would be refused: PyTorchJob demo already exists in default;"
    " choose another name, or delete that one first."
)


def say_name_is_taken(cluster: ScriptedCluster) -> None:
    cluster.say(f"{PYTORCH_JOBS}/demo", Answer(pytorch_job("demo")))
    cluster.say(PYTORCH_JOBS, refusal(409, TAKEN, "AlreadyExists"), method="POST")


@pytest.mark.parametrize("more", [(), ("--dry-run=server",)])
async def test_a_name_that_is_taken_is_said_once(
    run: CommandLine, cluster: ScriptedCluster, more: tuple[str, ...]
) -> None:
    say_name_is_taken(cluster)
    ended = await run(*DEMO, *more, "true")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.splitlines() == [
        f"Could not create PyTorchJob demo{' in a dry run' if more else ''}.",
        f"The cluster says: {TAKEN}",
        "Choose another name, or delete that job first.",
    ]


async def test_further_problems_follow_the_servers_error(run: CommandLine, cluster: ScriptedCluster) -> None:
    say_name_is_taken(cluster)
    ended = await run(*DEMO, "--cpu=1", "--cpu-request=2", "true")
    assert ended.err.splitlines()[:-2] == [
        "Warning: would be refused: the request of 2 is more than the limit of 1; request at most 1.",
        "Could not create PyTorchJob demo.",
    ]


async def test_a_wrongly_accepted_job_is_warned_about(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*DEMO, "--cpu=1", "--cpu-request=2", "true")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert ended.err == (
        "Warning: would be refused: the request of 2 is more than the limit of 1; request at most 1.\n"
    )


async def test_a_taken_name_is_reported_beside_others(run: CommandLine, cluster: ScriptedCluster) -> None:
    say_name_is_taken(cluster)
    ended = await run(*DEMO, "--gpus", "64", "true")
    assert ended.err.splitlines()[:2] == [TAKEN_WARNING, f"PyTorchJob demo {NEVER}"]


async def test_a_request_over_the_limit_is_reported_once(run: CommandLine, cluster: ScriptedCluster) -> None:
    path = "spec.template.spec.containers[0].resources.requests"
    words = 'Invalid value: "2": must be less than or equal to cpu limit of 1'
    cluster.say(BATCH_JOBS, refusal(422, f"{path}: {words}", "Invalid", causes={path: words}), method="POST")
    ended = await run("submit", "job", *DEMO[2:], "--cpu=1", "--cpu-request=2", "true")
    assert ended.err.splitlines() == [
        "Could not create Job demo.",
        f"The cluster says: {path}: {words}",
        "Request at most 1.",
    ]


async def test_a_namespace_that_is_not_there_is_said_once(run: CommandLine, cluster: ScriptedCluster) -> None:
    words = 'namespaces "nowhere" not found'
    cluster.say("/api/v1/namespaces/nowhere", refusal(404, words, "NotFound"))
    cluster.say(PYTORCH_JOBS.replace("default", "nowhere"), refusal(404, words, "NotFound"), method="POST")
    ended = await run("-n", "nowhere", *DEMO, "true")
    assert ended.err.splitlines() == [
        "Could not create PyTorchJob demo.",
        "There is no namespace nowhere.",
        "Choose one that exists.",
    ]


async def test_who_may_not_is_told_so_once(run: CommandLine, cluster: ScriptedCluster) -> None:
    denied = Answer({"status": {"allowed": False, "denied": True}}, 201)
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    cluster.say(reviews, denied, method="POST")
    cluster.say(PYTORCH_JOBS, refusal(403, "you may not", "Forbidden"), method="POST")
    ended = await run(*DEMO, "true")
    assert ended.err.splitlines() == [
        "Could not create PyTorchJob demo.",
        "The cluster says: you may not",
        "Pick another namespace, or ask for a role that allows it.",
    ]


async def test_a_kind_that_is_not_served_is_said_once(run: CommandLine, cluster: ScriptedCluster) -> None:
    say_kinds(cluster, {"batch/v1": ["jobs"], "kubeflow.org/v1": []})
    ended = await run(*DEMO, "true")
    assert ended.err.splitlines() == [
        "Could not create PyTorchJob demo.",
        "This cluster does not serve PyTorchJob kubeflow.org/v1.",
        "Choose another kind of job, or ask for its operator to be installed.",
    ]
