"""`logs` and `submit --follow`: lines to stdout, and the outcome of the job as exit status."""

from __future__ import annotations

import signal
import time
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from tests.k8s.kinds.operator_objects import objects
from tests.scripted.log_stores import PROXY, ScriptedLoki, entries
from tests.scripted.server import Answer, Asked, Compute, ScriptedCluster, Stream, page, refusal
from tests.support.objects import collided, elastic_job, pod_of, pytorch_job, recorded
from tests.tui.commands.conftest import CommandLine, Forked, echo

STAMPED = (
    b"2026-11-20T18:36:10.000000001Z one\n"
    b"2026-11-20T18:36:11.000000001Z \x1b[31mtwo\x1b[0m \xff\n"
    b"2026-11-20T18:36:12.000000001Z three\n"
)


def pod(name: str) -> Any:
    return next(each for each in recorded("pods") if each["metadata"]["name"] == name)


def serve(cluster: ScriptedCluster, name: str, log: bytes = STAMPED) -> str:
    path = f"/api/v1/namespaces/default/pods/{name}"
    cluster.say(path, Answer(pod(name)))
    cluster.say(f"{path}/log", Compute(lambda asked: Answer(_as_asked(asked, log))))
    return f"{path}/log"


def _answer(log: bytes, asked: Asked) -> Answer:
    return Answer(_as_asked(asked, log))


def _as_asked(asked: Asked, log: bytes) -> bytes:
    return (
        log
        if asked.query.get("timestamps")
        else b"".join(each[31:] for each in log.splitlines(keepends=True))
    )


async def test_the_master_pods_log_is_written_to_stdout_unchanged(run: CommandLine) -> None:
    path = serve(run.cluster, "done-master-0")
    for flags, printed in (((), b"one\n\x1b[31mtwo\x1b[0m \xff\nthree\n"), (("--timestamps",), STAMPED)):
        assert await run.fork("logs", "done", *flags).ends() == (0, printed, b"")
    assert run.cluster.asked(path)[0].query["container"] == "pytorch"


async def test_logs_passes_tail_since_and_previous_to_the_server(run: CommandLine) -> None:
    path = serve(run.cluster, "restarts-master-0")
    assert (await run.process("logs", "restarts", "-t", "5", "--since", "1h30m")).status == 0
    assert (await run.process("logs", "restarts", "--previous")).status == 0
    first, _, second, _ = (each.query for each in run.cluster.asked(path))
    assert (first["tailLines"], first["sinceSeconds"]) == ("5", "5400")
    assert second["previous"] == "true"


@pytest.mark.parametrize(("since", "sent"), [("0s", None), ("9d9999999d", "3153600000")])
async def test_a_server_gets_durations_that_it_knows(run: CommandLine, since: str, sent: str | None) -> None:
    path = serve(run.cluster, "done-master-0")
    assert (await run.process("logs", "done", "--since", since)).status == 0
    assert run.cluster.asked(path)[0].query.get("sinceSeconds") == sent


@pytest.mark.parametrize("words", ["-5", "many", "2.5", "2026-11-20", "2026-11-20T18:00:00"])
async def test_wrong_numbers_of_lines_and_times_are_rejected(run: CommandLine, words: str) -> None:
    (await run("logs", "done", f"--tail={words}")).reports(2, f"--tail: {words!r} is not a number of lines")
    (await run("logs", "gone", f"--since-time={words}")).reports(2, f"{words!r} is not a time such as 20")


async def test_after_a_restart_without_output_the_run_before_is_printed(run: CommandLine) -> None:
    path = serve(run.cluster, "restarts-master-0")
    logs = {"true": STAMPED}
    answer = Compute(lambda asked: _answer(logs.get(asked.query.get("previous", ""), b""), asked))
    run.cluster.replace(path, answer)
    ended = await run.process("logs", "restarts")
    assert (ended.status, "three" in ended.out) == (0, True)
    assert "has printed nothing; this is the run before" in ended.err
    assert (await run.process("logs", "restarts", "--since", "5m")).out == ""


async def test_an_instance_may_be_named(run: CommandLine) -> None:
    path = serve(run.cluster, "waits-master-0")
    assert (await run.process("logs", "waits", "-i", "master-0")).status == 0
    assert [each.query.get("tailLines") for each in run.cluster.asked(path)] == [None, "1"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("waits -i worker-7", "There is no instance worker-7."),
        ("running -r 7", "There is no line of rank 7."),
        ("done -c sidecar", "There is no container sidecar in PyTorchJob default/done."),
        ("done", 'User "li" cannot get resource "pods/log"'),
    ],
)
async def test_a_missing_log_is_reported_with_those_that_exist(
    run: CommandLine, line: str, said: str
) -> None:
    serve(run.cluster, "running-master-0")
    path = serve(run.cluster, "done-master-0")
    run.cluster.replace(path, refusal(403, 'User "li" cannot get resource "pods/log"', "Forbidden"))
    (await run("logs", *line.split())).reports(1, said)


@pytest.mark.parametrize(
    ("flags", "said", "printed", "reports"),
    [
        ("", ("ready", "step 7"), "[rank0]: step 7\n", ""),
        ("-r 1", ("ready", "step 7"), "[rank1]: ready\n", ""),
        ("-t 5", ("", "step 7"), "[rank0]: step 7\n", ""),
        ("-r 1", ("", "step 7"), "", "Rank 1 has printed no line.\nThere are lines of worker-1."),
        ("--since 5m", ("", ""), "", ""),
    ],
)
async def test_rank_0_of_an_elastic_job_is_found_in_any_pod_and_no_log_is_empty_in_silence(
    run: CommandLine, flags: str, said: tuple[str, str], printed: str, reports: str
) -> None:
    job, pods = elastic_job("drift")
    run.cluster.replace("/apis/kubeflow.org/v1/pytorchjobs", page([job]))
    run.cluster.replace("/api/v1/pods", page(pods))
    run.cluster.replace("/api/v1/namespaces/default/pods", page(pods))
    for pod, text, rank in zip(pods, said, (1, 0), strict=True):
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        log = f"2026-11-20T18:36:10.000000001Z [rank{rank}]: {text}\n".encode() if text else b""
        run.cluster.say(path, Answer(pod))
        run.cluster.say(f"{path}/log", Compute(partial(_answer, log)))
    ended = await run.process("logs", "drift", *flags.split())
    assert (ended.out, ended.status) == (printed, int(bool(reports)))
    assert reports in ended.err


@pytest.mark.parametrize(
    ("flags", "printed", "reports"),
    [
        (
            "",
            "[rank1]: IndexError: row 12 of shard 5",
            "-- rank 1 failed first; for rank 0: -r 0, for all: --all\n",
        ),
        ("-r 0", "[rank0]: RuntimeError: Connection closed by peer [10.0.0.7]:4022", ""),
        ("-i worker-0 -t 1", "[rank1]: IndexError: row 12 of shard 5", ""),
    ],
)
async def test_logs_of_a_failed_job_are_those_of_the_rank_that_failed_first(
    run: CommandLine, flags: str, printed: str, reports: str
) -> None:
    job, pods, logs = collided("clash")
    run.cluster.replace("/apis/kubeflow.org/v1/pytorchjobs", page([job]))
    for path in ("/api/v1/pods", "/api/v1/namespaces/default/pods"):
        run.cluster.replace(path, page(pods))
    for pod, log in zip(pods, logs, strict=True):
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        run.cluster.say(path, Answer(pod))
        run.cluster.say(f"{path}/log", Compute(partial(_answer, log)))
    ended = await run.process("logs", "clash", *flags.split())
    assert (ended.out.splitlines()[-1], ended.err, ended.status) == (printed, reports, 0)
    assert {line[:8] for line in ended.out.splitlines()} == {printed[:8]}


async def test_logs_of_a_ray_job_without_a_submitter_name_the_file_of_its_driver(run: CommandLine) -> None:
    job, owned, *rest = objects("rayjob-running")
    job["spec"]["submissionMode"] = "HTTPMode"
    head = next(each for each in rest if each["metadata"].get("labels", {}).get("ray.io/node-type") == "head")
    for path, item in (("rayjobs", job), ("rayclusters", owned)):
        run.cluster.say(f"/apis/ray.io/v1/{path}", page([item]))
    run.cluster.replace("/api/v1/pods", page([head]))
    path = f"/api/v1/namespaces/vision/pods/{head['metadata']['name']}"
    run.cluster.say(path, Answer(head))
    run.cluster.say(f"{path}/log", Answer(b"2026-11-20T18:36:10.000000001Z ray started\n"))
    ended = await run.process("logs", "rayjob/tune", "-A")
    assert "job-driver-tune-x2k9q.log" in ended.err and "-n vision" in ended.err


async def test_a_job_without_pods_has_no_log(run: CommandLine) -> None:
    for path in ("/api/v1/pods", "/api/v1/namespaces/default/pods"):
        run.cluster.replace(path, page([]))
    ended = await run("logs", "too-big")
    assert ended.status == 1
    assert ended.err.startswith("PyTorchJob default/too-big has no log to read yet.\nIt has no pods")
    assert ended.err.endswith("Ask why with: gpuconsole why too-big\n")


@pytest.fixture
def live(cluster: ScriptedCluster) -> ScriptedCluster:
    """Serve watches in which nothing happens."""
    for path in ("/api/v1/nodes", "/api/v1/pods", "/apis/batch/v1/jobs", "/apis/kubeflow.org/v1/pytorchjobs"):
        cluster.say(path, Stream(), watch=True)
    return cluster


async def test_following_a_job_that_has_ended_ends(run: CommandLine, live: ScriptedCluster) -> None:
    serve(live, "done-master-0")
    status, out, err = await run.fork("logs", "-f", "done").ends()
    assert (status, out.count(b"\n")) == (0, 3)
    assert err == b"-- master-0: ended, exit 0\n"


async def test_followed_log_lines_are_printed_as_they_arrive(run: CommandLine, live: ScriptedCluster) -> None:
    log = Stream(b"2026-11-20T18:36:10.000000001Z one\n")
    path = "/api/v1/namespaces/default/pods/running-master-0"
    live.say(path, Answer(pod("running-master-0")))
    live.say(f"{path}/log", log)
    child = run.fork("logs", "-f", "running")
    assert await child.line() == b"one\n"
    log.send(b"2026-11-20T18:36:11.000000001Z two\n")
    assert await child.line() == b"two\n"
    await child.leave()


async def test_following_a_deleted_job_is_reported(run: CommandLine, live: ScriptedCluster) -> None:
    live.replace("/api/v1/pods", Answer({"metadata": {"resourceVersion": "1"}, "items": []}))
    jobs = Stream()
    live.replace("/apis/kubeflow.org/v1/pytorchjobs", jobs, watch=True)
    child = await run.start("logs", "-f", "waits")
    assert child.stderr is not None
    assert b"PyTorchJob default/waits is waiting: no pods yet" in await child.stderr.readline()
    waits = next(each for each in recorded("pytorchjobs") if each["metadata"]["name"] == "waits")
    jobs.event("DELETED", waits)
    out, err = await child.communicate()
    assert (child.returncode, out) == (1, b"")
    assert b"There is no log to print." in err


async def test_logs_of_a_deployment_are_found_through_its_replicaset(
    run: CommandLine, live: ScriptedCluster
) -> None:
    def owner(kind: str, name: str) -> dict[str, Any]:
        return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}

    served = pod("running-master-0")
    served["metadata"].update(labels={}, ownerReferences=[owner("ReplicaSet", "web-5d9")])
    names = [{"name": "replicasets", "kind": "ReplicaSet", "namespaced": True, "verbs": ["get"]}]
    live.say("/apis/apps/v1", Answer({"groupVersion": "apps/v1", "resources": names}))
    meta = {"name": "web-5d9", "uid": "web-5d9", "ownerReferences": [owner("Deployment", "web")]}
    live.say("/apis/apps/v1/namespaces/default/replicasets/web-5d9", Answer({"metadata": meta}))
    live.replace("/api/v1/pods", page([served]))
    path = "/api/v1/namespaces/default/pods/running-master-0"
    live.say(path, Answer(served))
    live.say(f"{path}/log", Stream(b"2026-11-20T18:36:10.000000001Z one\n"))
    child = run.fork("logs", "-f", "Deployment/web")
    assert await child.line() == b"one\n"
    await child.leave()


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
        cluster.say(CREATE, Compute(echo), method="POST")
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
    run.cluster.say(CREATE, Compute(echo), method="POST")
    status, screen = await run.on_terminal(*(word for word in SUBMIT if word != "--follow"), typed="")
    assert status == 0
    for words in ("PyTorchJob default/demo created.", "logs demo -f", "get demo", "why demo"):
        assert words in screen


async def test_logs_of_unrecorded_jobs_come_from_the_store(run: CommandLine) -> None:
    first_ns = time.time_ns() - 3600 * 10**9
    texts = ["RuntimeError: CUDA out of memory. Tried to allocate 2 GiB", "\x1b[2J\x07last"]
    loki = ScriptedLoki([*entries("lost-worker-0", ["zero"], first_ns=first_ns)])
    loki.held += entries("lost-master-0", texts, first_ns=first_ns)
    meta = {"name": "loki", "namespace": "monitoring"}
    run.cluster.replace("/api/v1/services", page([{"metadata": meta, "spec": {"ports": [{"port": 3100}]}}]))
    loki.serve(run.cluster, PROXY.format("monitoring", "loki:3100"))
    until = datetime.fromtimestamp(first_ns / 1e9)
    status, printed, said = await run.fork("logs", "lost", "-n", "vision").ends()
    assert (status, printed.decode()) == (0, "\n".join((*texts, ""))), said
    assert (
        said.decode() == f"-- lost is not in the cluster; from Loki monitoring/loki, until {until:%F %T}:\n"
    )
    assert (await run.fork("logs", "lost", "-A", "-i", "worker-0").ends())[:2] == (0, b"zero\n")
    loki.held.append(({**loki.held[0][0], "container": "envoy"}, first_ns, "proxied"))
    assert (await run.fork("logs", "lost", "-n", "vision", "-c", "envoy").ends())[:2] == (0, b"proxied\n")
    why = await run("why", "lost", "-n", "vision")
    assert "ran out of memory" in why.out and "  log: from Loki monitoring/loki, until 20" in why.out
    (await run("logs", "lost")).reports(1, "Loki monitoring/loki has no line of it.")
    (await run("logs", 'a"b')).reports(1, 'There is no job a"b')
    # The job is there still; its pods are not.
    labels = {**loki.held[0][0], "namespace": "default", "pod": "fails-master-0"}
    loki.held.append((labels, first_ns, "zero"))
    pods = [each for each in recorded("pods") if not each["metadata"]["name"].startswith("fails")]
    for where in ("/api/v1/pods", "/api/v1/namespaces/default/pods"):
        run.cluster.replace(where, page(pods))
    status, printed, said = await run.fork("logs", "fails").ends()
    assert (status, printed) == (0, b"zero\n")
    assert said.startswith(
        b"-- the pods of PyTorchJob default/fails are gone; from Loki monitoring/loki, until 20"
    )
    loki.tenant = "lab"
    (await run("logs", "lost", "-n", "vision")).reports(1, "There is no job lost", "requires a tenant")
    config = run.home / "config" / "gpuconsole" / "config.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("log_store: lab@monitoring/loki:3100\n")
    assert (await run.fork("logs", "lost", "-n", "vision", "-t", "1").ends())[:2] == (0, b"\x1b[2J\x07last\n")
