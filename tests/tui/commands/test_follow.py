"""`submit --follow`: the log of rank 0 until the job has ended, and its outcome as exit status."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, Stream, page
from tests.support.objects import pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine, Forked

JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
CREATE = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
POD = "/api/v1/namespaces/default/pods/demo-master-0"
SUBMIT = ("submit", "pytorch", "--name", "demo", "--image", "x", "--follow", "true")
JOB = pytorch_job("demo", namespace="default")


class Followed:
    """A cluster on which `demo` is created, and comes to be when the test says so."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.jobs, self.pods, self.log = Stream(), Stream(), Stream()
        self.written = b""
        cluster.say(CREATE, Compute(_echo), method="POST")
        for path in (JOBS, "/api/v1/pods"):
            cluster.replace(path, page([], "5"))
        for path, stream in ((JOBS, self.jobs), ("/api/v1/pods", self.pods)):
            cluster.say(path, stream, watch=True)
        for path in ("/api/v1/nodes", "/apis/batch/v1/jobs"):
            cluster.say(path, Stream(), watch=True)
        cluster.say(f"{CREATE}/demo", Answer(JOB))

    def start(self) -> None:
        """Let the job and its pod come, which has written a line."""
        running = {"name": "pytorch", "state": {"running": {"startedAt": "2026-11-20T18:36:00Z"}}}
        pod = pod_of(JOB, "master-0", on="n1", containerStatuses=[{**running, "restartCount": 0}])
        self.cluster.say(POD, Answer(pod))
        self.cluster.say(f"{POD}/log", self.log)
        self.write(b"2026-11-20T18:36:10.000000001Z one\n")
        self.jobs.event("ADDED", _at(JOB, "6"))
        self.pods.event("ADDED", _at(pod, "6"))

    def write(self, line: bytes) -> None:
        self.written += line
        self.log.send(line)

    def close_log(self) -> None:
        """End the log, which can then be read once more from its beginning."""
        self.log.end()
        self.cluster.replace(f"{POD}/log", Answer(self.written))

    def end(self, condition: str, message: str) -> None:
        phase = "Succeeded" if condition == "Succeeded" else "Failed"
        pod = pod_of(JOB, "master-0", on="n1")
        ended = {"exitCode": 0 if phase == "Succeeded" else 1, "finishedAt": "2026-11-20T18:37:00Z"}
        container = {"name": "pytorch", "state": {"terminated": ended}, "restartCount": 0}
        pod["status"] = {"phase": phase, "containerStatuses": [container]}
        self.cluster.replace(POD, Answer(pod))
        self.close_log()
        job = {**JOB, "status": {"conditions": [{"type": condition, "status": "True", "message": message}]}}
        self.pods.event("MODIFIED", _at(pod, "7"))
        self.jobs.event("MODIFIED", _at(job, "7"))


def _echo(asked: Asked) -> Reply:
    return Answer(json.loads(asked.body), 201)


def _at(obj: Any, version: str) -> Any:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}


@pytest.fixture
def followed(cluster: ScriptedCluster) -> Followed:
    """Return the cluster on which the job will be."""
    return Followed(cluster)


async def started(run: CommandLine, followed: Followed) -> Forked:
    """Return the command as it has printed the first line of the log."""
    child = run.fork(*SUBMIT)
    assert await child.line() == b"PyTorchJob default/demo created.\n"
    await followed.cluster.until_asked(f"{CREATE}/demo")
    followed.start()
    assert await child.line() == b"one\n"
    return child


async def test_a_job_is_followed_until_it_has_succeeded(run: CommandLine, followed: Followed) -> None:
    child = await started(run, followed)
    followed.write(b"2026-11-20T18:36:11.000000001Z two\n")
    followed.end("Succeeded", "")
    status, out, err = await child.ends()
    assert (status, out) == (0, b"two\n"), err


async def test_a_followed_job_that_fails_exits_1_and_reports_the_reason(
    run: CommandLine, followed: Followed
) -> None:
    child = await started(run, followed)
    followed.end("Failed", "ran out of retries")
    status, _, err = await child.ends()
    assert status == 1
    assert b"PyTorchJob default/demo failed: master-0 exit 1" in err
    assert err.endswith(b"To see why: gpuconsole why demo\n")


async def test_a_job_that_is_deleted_fails_the_command(run: CommandLine, followed: Followed) -> None:
    child = await started(run, followed)
    followed.close_log()
    for path in (POD, f"{CREATE}/demo"):
        followed.cluster.forget(path)
    followed.jobs.event("DELETED", _at(JOB, "7"))
    followed.pods.event("DELETED", _at(pod_of(JOB, "master-0", on="n1"), "7"))
    status, _, err = await child.ends()
    assert (status, err.splitlines()[-1]) == (1, b"PyTorchJob default/demo was deleted before it ended.")


async def test_ctrl_c_while_following_keeps_the_job_and_prints_how_to_follow_again(
    run: CommandLine, followed: Followed
) -> None:
    child = await run.start(*SUBMIT)
    assert child.stdout is not None
    await followed.cluster.until_asked(f"{CREATE}/demo")
    followed.start()
    assert [await child.stdout.readline() for _ in range(2)] == [
        b"PyTorchJob default/demo created.\n",
        b"one\n",
    ]
    child.send_signal(signal.SIGINT)
    _, err = await child.communicate()
    assert child.returncode == 130
    assert err.endswith(b"-- PyTorchJob default/demo runs on. To follow it again: gpuconsole logs demo -f\n")
    assert followed.cluster.asked(f"{CREATE}/demo", method="DELETE") == []


async def test_a_job_that_ends_without_pods_fails(run: CommandLine, followed: Followed) -> None:
    child = run.fork(*SUBMIT)
    await followed.cluster.until_asked(f"{CREATE}/demo")
    job = {**JOB, "status": {"conditions": [{"type": "Failed", "status": "True", "message": "bad image."}]}}
    followed.jobs.event("ADDED", _at(job, "6"))
    status, out, err = await child.ends()
    assert (status, out) == (1, b"PyTorchJob default/demo created.\n")
    assert b"PyTorchJob default/demo failed: bad image.\n" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*SUBMIT, "--dry-run=server"), "--follow cannot be combined with --dry-run."),
        (("submit", "--follow", "-f", "jobs.yaml"), "--follow: the file has 2 jobs"),
    ],
)
async def test_follow_requires_exactly_one_created_job(
    run: CommandLine, words: tuple[str, ...], said: str
) -> None:
    one = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: NAME}\nspec: {}\n---\n"
    path = run.home / "jobs.yaml"
    path.write_text(one.replace("NAME", "a") + one.replace("NAME", "b"))
    (await run(*(str(path) if word == "jobs.yaml" else word for word in words))).reports(2, said)
    assert run.cluster.requests == []


async def test_submit_on_a_terminal_suggests_the_next_commands(run: CommandLine) -> None:
    run.cluster.say(CREATE, Compute(_echo), method="POST")
    status, screen = await run.on_terminal(*(word for word in SUBMIT if word != "--follow"), typed="")
    assert status == 0
    for words in ("PyTorchJob default/demo created.", "logs demo -f", "get demo", "why demo"):
        assert words in screen
