"""Reasons of waiting and failed jobs in lists: in the words of `why`, at few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.reasons.gather import answer_why
from k8s.reasons.job_reasons import MAX_FAILED, JobReasons
from k8s.snapshot import ClusterSnapshot, Job
from tests.scripted.feed import JOBS, PODS, running, serve_lists
from tests.scripted.server import Answer, ScriptedCluster, page, refusal
from tests.support.objects import GPU, Object, node, pod_of, pytorch_job
from tui.tables.filters import own_names

CORE = "/api/v1/namespaces/default"
CREATED = "2026-11-01T00:00:00Z"


def unscheduled(message: str) -> list[Object]:
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]


def event(about: str, reason: str, message: str, kind: str = "Pod") -> Object:
    return {
        "metadata": {"name": f"e-{about}", "namespace": "default", "uid": f"e-{about}"},
        "involvedObject": {"kind": kind, "name": about, "namespace": "default"},
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-11-01T00:01:00Z",
    }


def waiting(job: Object, spec: Object, on: str = "", **status: Any) -> Object:
    pod = pod_of(job, "master-0", phase="Pending", on=on, **status)
    pod["metadata"]["creationTimestamp"] = CREATED
    pod["spec"] |= spec
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"] |= spec
    return pod


def over_quota(job: Object) -> tuple[list[Object], list[Object]]:
    quota = "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=0, "
    refused = f'pods "bert-master-0" is forbidden: {quota}limited: requests.nvidia.com/gpu=4'
    return [], [event("bert", "FailedCreate", refused, "PyTorchJob")]


def large_init_container(job: Object) -> tuple[list[Object], list[Object]]:
    init = {"name": "warm-up", "resources": {"limits": {GPU: "16"}}}
    said = unscheduled(f"0/1 nodes are available: 1 Insufficient {GPU}.")
    return [waiting(job, {"initContainers": [init]}, conditions=said)], []


def without_mount(job: Object) -> tuple[list[Object], list[Object]]:
    creating = [{"name": "pytorch", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    failed = 'MountVolume.SetUp failed for volume "d" : configmap "settings" not found'
    return [waiting(job, {}, on="n1", containerStatuses=creating)], [
        event("bert-master-0", "FailedMount", failed)
    ]


Situation = Callable[[Object], tuple[list[Object], list[Object]]]
SITUATIONS: dict[Situation, str] = {
    over_quota: ("Never starts: master-0 needs 8 nvidia.com/gpu; quota gpus allows 4"),
    large_init_container: "Too big: master-0 needs 16; the largest node has 8",
    without_mount: "Waits for ConfigMap settings, which does not exist in default",
}


def serve(cluster: ScriptedCluster, situation: Situation) -> None:
    """Serve the job bert, which waits for something, and the job gpt beside it, which waits as well."""
    jobs = [
        pytorch_job(name, creationTimestamp=CREATED) | {"status": {"conditions": []}}
        for name in ("bert", "gpt")
    ]
    pods, events = situation(jobs[0])
    serve_lists(cluster, {"/api/v1/nodes": [node("n1")], "/api/v1/pods": pods, JOBS: jobs})
    lists: dict[str, list[Object]] = {"pods": pods, "events": events, "resourcequotas": [], "limitranges": []}
    for plural, items in lists.items():
        cluster.say(f"{CORE}/{plural}", page(items))
    for job in jobs:
        cluster.say(
            f"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{job['metadata']['name']}", Answer(job)
        )


def bert(snapshot: ClusterSnapshot) -> Job:
    return next(job for job in snapshot.jobs if job.ref.name == "bert")


@pytest.mark.parametrize(
    ("situation", "expected"), SITUATIONS.items(), ids=lambda each: getattr(each, "__name__", "")
)
async def test_the_console_explains_visible_jobs_once_and_no_others(
    situation: Situation, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedCluster() as cluster:
        serve(cluster, situation)
        async with running(cluster) as feed:
            snapshot = await feed.until(lambda each: each.is_synced and len(each.jobs) == 2)
            monkeypatch.setattr("k8s.reasons.job_reasons.POLL_VISIBLE_S", 0.001)
            polls: list[None] = []

            def visible() -> list[Job]:
                polls.append(None)
                return [bert(snapshot)]

            feed.reasons.visible_jobs = visible
            snapshot = await feed.until(lambda each: bert(each).reason.startswith(expected))
            explained_at = len(polls)
            while len(polls) < explained_at + 5:
                await asyncio.sleep(0.01)
            paths = [each.path for each in cluster.requests]
        # What the mirrored nodes explain is asked of nobody.
        expected_questions = 0 if situation is large_init_container else 1
        assert len([each for each in paths if each.endswith("/pytorchjobs/bert")]) == expected_questions
        assert not [each for each in paths if each.endswith("/pytorchjobs/gpt")]
        assert len(cluster.asked("/api/v1/nodes")) == 1, "the nodes are mirrored"


@pytest.mark.parametrize(
    ("is_narrow", "name", "is_explained"),
    [(False, "", True), (True, "", False), (False, "bert", True), (False, "other", False)],
    ids=["all", "pods of one namespace", "named job", "another job"],
)
async def test_free_gpus_are_not_guessed_nor_counted_for_nothing(
    is_narrow: bool, name: str, is_explained: bool
) -> None:
    bert, other = pytorch_job("bert"), pytorch_job("other")
    pod = waiting(bert, {}, conditions=unscheduled(f"0/1 nodes are available: 1 Insufficient {GPU}."))
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "8"}}
    mine, holder = (pod_of(other, place, on="n1", gpus=4) for place in ("worker-0", "worker-1"))
    holder["metadata"]["namespace"] = "elsewhere"
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, items in (
            ("/api/v1/nodes", [node("n1", 8)]),
            ("/api/v1/pods", [pod, mine, holder]),
            (JOBS, [bert]),
        ):
            cluster.say(path, page(items))
        mirror = ClusterMirror(client, "default", is_narrow=is_narrow)
        JobReasons(mirror, own_names).name = name
        snapshot = await mirror.read_once()
    job = next(each for each in snapshot.jobs if each.ref.name == "bert")
    assert job.reason.startswith("Waits for GPUs") is is_explained


AT, AT_TIME = "2026-11-21T11:59:50Z", ", 11:59:50"
NOTHING = Answer(b"")
NEVER: Mapping[str, Any] = {"restartCount": 0}
LOG = b"".join(
    b"2026-11-21T11:59:49.00000000%dZ %s\n" % (number, line)
    for number, line in enumerate(
        (
            b"[rank2]: Traceback (most recent call last):",
            b'[rank2]:   File "train.py", line 88, in <module>',
            b"[rank2]:     read(shard)",
            b"[rank2]: ValueError: bad \x1b[31mshard 7",
        )
    )
)
FOUND = "rank 2 exit 1: ValueError: bad shard 7"


def pods(
    job: Object, state: Object, phase: str = "Failed", last: Mapping[str, Any] = NEVER, **more: Any
) -> list[Object]:
    """Return the pod of a job's master; `last` are further fields of its container's status."""
    status = {"name": "pytorch", "state": state, **last}
    return [pod_of(job, "master-0", on="n1", phase=phase, containerStatuses=[status], **more)]


def job_of(
    name: str = "bert", *, reason: str = "JobFailed", message: str = "", is_over: bool = True, **meta: Any
) -> Object:
    end = {"type": "Failed", "status": "True", "reason": reason, "message": message}
    meta.setdefault("creationTimestamp", "2026-11-21T11:50:00Z")
    job = pytorch_job(name, **meta) | {"status": {"conditions": [end] if is_over else []}}
    job["spec"]["nprocPerNode"] = "4"
    return job


def serve_failures(cluster: ScriptedCluster, jobs: Sequence[Object], found: Sequence[Object]) -> Any:
    """Serve failed jobs, their pods, and for each pod a log."""
    watches = serve_lists(cluster, {"/api/v1/nodes": [node("n1")], PODS: list(found), JOBS: list(jobs)})
    cluster.say(f"{CORE}/pods", page(found))
    cluster.say(f"{CORE}/events", page([]))
    for job in jobs:
        cluster.say(
            f"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{job['metadata']['name']}", Answer(job)
        )
    for each in found:
        cluster.say(f"{CORE}/pods/{each['metadata']['name']}/log", Answer(LOG))
    return watches


@dataclass(frozen=True)
class Failure:
    """A failed job, or one that restarts, of one pod."""

    row: str
    """Without the time of the end."""
    state: Object | None = None
    log: Answer = NOTHING
    also: str = ""
    """Only in the sentence of `why`."""
    verdict: str = "JobFailed"
    """Reason and message of the job's condition; empty while it restarts."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Its status; without a state there is none."""
    unseen: str = ""
    remedy: str = ""


def ended(code: int = 1, reason: str = "Error", message: str = "") -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": AT, "message": message}}


def printed(*lines: str) -> Answer:
    """Return a log."""
    stamped = (b"2026-11-21T11:59:49.%09dZ %s\n" % (n, line.encode()) for n, line in enumerate(lines))
    return Answer(b"".join(stamped))


def raised(error: str, remedy: str, module: str = "") -> Failure:
    """Return a job whose program raises an error, of which only the module is not shown."""
    trace = (
        "Traceback (most recent call last):",
        '  File "train.py", line 88, in <module>',
        f"{module}{error}",
    )
    return Failure(f"master-0 exit 1: {error}", ended(), printed(*trace), remedy=remedy)


def gone(reason: str, message: str, remedy: str = "Run it again") -> Failure:
    """Return a job whose pod failed as a whole."""
    pod = {"reason": reason, "message": message}
    return Failure(f"master-0 {reason}: {message}", pod=pod, also=" on n1", remedy=remedy)


def never_started(reason: str, message: str, remedy: str) -> Failure:
    return Failure(f"master-0 {reason}: {message}", ended(128, reason, message), remedy=remedy)


def initial(name: str, end: Object, row: str) -> Failure:
    """Return a job of which an init container failed."""
    status = {"initContainerStatuses": [{"name": name, "state": end}]}
    return Failure(row, {"waiting": {"reason": "PodInitializing"}}, pod=status)


LOOPS = {"waiting": {"reason": "CrashLoopBackOff"}}
NCCL = "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error"
IN_USE = "failed to bind to [::]:29500 (errno: 98 - Address already in use)"
BROKEN = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"
NO_POD = "logs of master-0: its pod is gone"
FAILURES = [
    Failure(FOUND, ended(), Answer(LOG)),
    Failure(FOUND, LOOPS, Answer(LOG), ", 1 restart so far", verdict=""),
    Failure("master-0 exit 3", ended(3)),
    Failure("master-0 exit 1", ended(), refusal(403, "pods/log is forbidden", "Forbidden"),
              unseen="logs: The cluster says: pods/log is forbidden"),
    Failure("master-0 exit 1", ended(), Answer(b"unable to retrieve container logs for containerd://1"),
              unseen="log of master-0: its node has removed it"),
    Failure("master-0 OOMKilled", ended(137, "OOMKilled"), refusal(404, "not found", "NotFound"),
              unseen="log of master-0: The cluster says: not found", remedy="Request more memory"),
    raised("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "Lower the batch", "torch."),
    raised(f"DistBackendError: {NCCL}", "Check NCCL_SOCKET_IFNAME", "torch.distributed."),
    raised(f"DistNetworkError: {IN_USE}", "Use another master port", "torch.distributed."),
    raised("OSError: [Errno 28] No space left on device", "Free space"),
    raised("ModuleNotFoundError: No module named 'apex'", "Install it"),
    Failure("master-0 exit 127: sh: 1: trian: not found", ended(127), printed("sh: 1: trian: not found"),
              remedy="Correct the command"),
    Failure("master-0 exit 139 (SIGSEGV)", ended(139), remedy="Run with PYTHONFAULTHANDLER=1"),
    Failure("master-0 exit 137 (SIGKILL)", ended(137), remedy="Request more memory"),
    Failure("master-0 exit 143 (SIGTERM)", ended(143), remedy="Check the job's events"),
    never_started("StartError", 'exec: "trian": executable file not found in $PATH', "Correct the command"),
    never_started("ContainerCannotRun", "nvidia-container-cli: requirement error: unsatisfied condition: "
                  "cuda>=12.9", "Use an image with an older CUDA"),
    gone("Evicted", "The node was low on resource: memory"),
    gone("Preempting", "Preempted in order to admit critical pod"),
    gone("NodeLost", "Node n1 which was running pod bert-master-0 is unresponsive"),
    gone("UnexpectedAdmissionError", BROKEN),
    initial("warm-up", ended(), "init container warm-up of master-0 exit 1"),
    initial("init-code", ended(128, message="fatal: Remote branch nope not found"),
            "init container init-code of master-0 exit 128: fatal: Remote branch nope not found"),
    Failure("master-0 exit 1", ended(), also="; all its retries are used",
              verdict="BackoffLimitExceeded Job has reached the specified backoff limit"),
    Failure("ran longer than its deadline", ended(143),
              verdict="DeadlineExceeded Job was active longer than specified deadline"),
    Failure("1 Master failed", None, also="; its pods are gone, and their logs with them",
              verdict="JobFailed 1 Master failed", unseen=NO_POD),
    Failure("PyTorchJobSpec is not valid: 1 worker at least", None,
              verdict="FailedValidation PyTorchJobSpec is not valid: 1 worker at least", unseen=NO_POD),
]  # fmt: skip


@pytest.mark.parametrize("situation", FAILURES, ids=lambda each: each.row[:50])
async def test_row_and_why_give_a_failure_in_the_same_words(situation: Failure) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        reason, _, message = situation.verdict.partition(" ")
        job = job_of(reason=reason, message=message, is_over=bool(reason))
        last = {} if reason else {"lastState": ended(), "restartCount": 1}
        found: list[Object] = []
        if situation.state is not None:
            phase = "Failed" if reason else "Running"
            found = pods(job, situation.state, phase, last, **situation.pod)
        elif situation.pod:
            found = [pod_of(job, "master-0", on="n1", phase="Failed", **situation.pod)]
        serve_failures(cluster, [job], found)
        cluster.replace(f"{CORE}/pods/bert-master-0/log", situation.log)
        mirror = ClusterMirror(client)
        read = await mirror.read_once()
        reasons = JobReasons(mirror, own_names)
        row = bert(await reasons.explain_once(read.jobs))
        answer = await answer_why(client, bert(read), read)
        asked = cluster.asked(f"{CORE}/pods/bert-master-0/log")
        assert {each.query.get("previous", "") for each in asked} <= ({""} if reason else {"true"})
    start, _, sentence = answer.sentence.partition(": ")
    assert start == ("Failed" if reason else "Restarts")
    assert situation.also in sentence
    told = sentence.replace(AT_TIME, "").replace(situation.also, "", 1).removesuffix(".")
    assert (row.reason.replace(AT_TIME, "").removesuffix("."), told) == (situation.row, situation.row)
    assert reasons.triage_of(row.uid) == answer.triage, "get and diagnose give the triage"
    assert row.remedy.startswith(situation.remedy) and bool(row.remedy) is bool(situation.remedy)
    assert not situation.remedy or answer.help[0] == row.remedy
    assert "backoffLimit" not in "".join(answer.help)
    assert "".join(each.text for each in answer.facts if each.kind == "unseen") == situation.unseen


async def test_failure_logs_are_read_once_for_visible_jobs_and_the_users_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("k8s.reasons.job_reasons.POLL_VISIBLE_S", 0.001)
    own: Object = {"annotations": {"arena.kubeflow.org/username": "li"}}
    async with ScriptedCluster() as cluster:
        jobs = [job_of("bert"), job_of("gpt"), job_of("mine", **own), job_of("loops", is_over=False)]
        failed = [pod for job in jobs[:3] for pod in pods(job, ended())]
        loops = pods(jobs[3], ended(), "Running")
        watches = serve_failures(cluster, jobs, [*failed, *loops])
        async with running(cluster) as feed:
            feed.reasons.own_names = lambda _user: {"li"}
            snapshot = await feed.until(lambda each: each.is_synced and len(each.jobs) == 4)
            polls: list[None] = []

            def visible() -> list[Job]:
                polls.append(None)
                return [job for job in snapshot.jobs if job.ref.name in ("bert", "loops")]

            def reads() -> list[str]:
                paths = [each.path for each in cluster.requests if each.path.endswith("/log")]
                return sorted(path.split("/")[-2].removesuffix("-master-0") for path in paths)

            async def polled() -> None:
                seen = len(polls)
                while len(polls) < seen + 5:
                    await asyncio.sleep(0.001)

            feed.reasons.visible_jobs = visible
            snapshot = await feed.until(lambda each: [job.reason for job in each.jobs].count(FOUND) == 3)
            await polled()
            assert reads() == ["bert", "loops", "mine"]
            watches[PODS].event("MODIFIED", pods(jobs[3], ended(), "Running", last={"restartCount": 1})[0])
            watches[PODS].event("DELETED", failed[0])
            await feed.until(lambda each: bert(each).instances[0].pod == "")
            while len(reads()) < 4:
                await asyncio.sleep(0.001)
            await polled()
            assert reads() == ["bert", "loops", "loops", "mine"]
            assert bert(feed.mirror.snapshot()).reason == FOUND, "its pod is gone, what it said is known"


async def test_a_command_reads_only_the_newest_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        jobs = [job_of(f"j{n:02}", creationTimestamp=f"2026-11-21T11:{n:02}:00Z") for n in range(12)]
        serve_failures(cluster, jobs, [pod for job in jobs for pod in pods(job, ended())])
        mirror = ClusterMirror(client)
        reasons = JobReasons(mirror, own_names)
        shown = await reasons.explain_once((await mirror.read_once()).jobs)
        named = sorted(job.ref.name for job in shown.jobs if job.reason == FOUND)
        assert named == [f"j{n:02}" for n in range(12 - MAX_FAILED, 12)]
