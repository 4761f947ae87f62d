"""The reason of a failed job is the error of the rank that failed first, read once from its log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.reasons.gather import answer_why
from k8s.reasons.job_reasons import MAX_FAILED, JobReasons
from k8s.snapshot import ClusterSnapshot, Job
from tests.scripted.feed import JOBS, PODS, running, serve_lists
from tests.scripted.server import Answer, ScriptedCluster, page, refusal
from tests.support.objects import Object, node, pod_of, pytorch_job
from tui.tables.filters import own_names

CORE = "/api/v1/namespaces/default"
AT = "2026-11-21T11:59:50Z"
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


def ended(code: int = 1, reason: str = "Error") -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": AT}}


def pods(job: Object, state: Object, phase: str = "Failed", **more: Any) -> list[Object]:
    status = {"name": "pytorch", "state": state, "restartCount": 0, **more}
    return [pod_of(job, "master-0", on="n1", phase=phase, containerStatuses=[status])]


def job_of(name: str = "bert", *, reason: str = "", is_over: bool = True, **meta: Any) -> Object:
    end = {"type": "Failed", "status": "True", "reason": reason or "JobFailed", "message": reason}
    meta.setdefault("creationTimestamp", "2026-11-21T11:50:00Z")
    job = pytorch_job(name, **meta) | {"status": {"conditions": [end] if is_over else []}}
    job["spec"]["nprocPerNode"] = "4"
    return job


def serve(cluster: ScriptedCluster, jobs: Sequence[Object], found: Sequence[Object]) -> Any:
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


def bert(snapshot: ClusterSnapshot) -> Job:
    return next(job for job in snapshot.jobs if job.ref.name == "bert")


@dataclass(frozen=True)
class Case:
    state: Object | None
    reply: Answer
    reason: str
    sentence: str
    unseen: str = ""
    phase: str = "Failed"
    verdict: str = ""
    last: Object | None = None


WAITS = {"waiting": {"reason": "CrashLoopBackOff"}}
CASES = {
    "failed": Case(ended(), Answer(LOG), FOUND, "Failed: rank 2 exit 1, 11:59:50: ValueError: bad"),
    "restarting": Case(
        WAITS, Answer(LOG), FOUND, "Restarts: rank 2 exit 1", phase="Running", last=ended()
    ),
    "forbidden": Case(
        ended(), refusal(403, "pods/log is forbidden", "Forbidden"),
        "master-0 exit 1, 11:59:50", "Failed: master-0 (ranks 0-3) ended with exit 1, 11:59:50.",
        "logs: The cluster says: pods/log is forbidden",
    ),
    "log removed": Case(
        ended(), Answer(b"unable to retrieve container logs for containerd://1"),
        "master-0 exit 1, 11:59:50", "Failed: master-0", "log of master-0: its node has removed it",
    ),
    "pod gone": Case(None, Answer(LOG), "", "Failed: ", "logs of master-0: its pod is gone"),
    "killed for memory, without a log": Case(
        ended(137, "OOMKilled"), refusal(404, "not found", "NotFound"),
        "master-0 OOMKilled", "Failed: master-0 (ranks 0-3) was OOMKilled, 11:59:50.",
        "log of master-0: The cluster says: not found",
    ),
    "stopped at its deadline": Case(
        ended(143), Answer(b""), "DeadlineExceeded", "Failed: ", verdict="DeadlineExceeded",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_row_and_why_name_the_first_failed_rank_or_the_unreadable_log(case: Case) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        job = job_of(reason=case.verdict, is_over=case.phase == "Failed")
        last = {"lastState": case.last, "restartCount": 1} if case.last is not None else {}
        found = pods(job, case.state, case.phase, **last) if case.state is not None else []
        serve(cluster, [job], found)
        cluster.replace(f"{CORE}/pods/bert-master-0/log", case.reply)
        mirror = ClusterMirror(client)
        read = await mirror.read_once()
        explained = bert(await JobReasons(mirror, own_names).explain_once(read.jobs))
        assert explained.reason.startswith(case.reason)
        assert ("memory" in explained.remedy) is ("OOMKilled" in explained.reason)
        answer = await answer_why(client, bert(read), read)
        assert answer.sentence.startswith(case.sentence)
        unseen = [fact.text for fact in answer.facts if fact.kind == "unseen"]
        assert unseen == ([case.unseen] if case.unseen else [])
        assert "backoffLimit" not in "".join(answer.help)
        for asked in cluster.asked(f"{CORE}/pods/bert-master-0/log"):
            assert asked.query.get("previous", "") == ("true" if case.last is not None else "")
        if case.reason == FOUND:
            assert answer.triage is not None
            assert answer.triage.rank == 2
            assert "  ValueError: bad shard 7" in answer.as_text().splitlines()


async def test_failure_logs_are_read_once_for_visible_jobs_and_the_users_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("k8s.reasons.job_reasons.POLL_VISIBLE_S", 0.001)
    own: Object = {"annotations": {"arena.kubeflow.org/username": "li"}}
    async with ScriptedCluster() as cluster:
        jobs = [job_of("bert"), job_of("gpt"), job_of("mine", **own), job_of("loops", is_over=False)]
        failed = [pod for job in jobs[:3] for pod in pods(job, ended())]
        loops = pods(jobs[3], ended(), "Running")
        watches = serve(cluster, jobs, [*failed, *loops])
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
            watches[PODS].event("MODIFIED", pods(jobs[3], ended(), "Running", restartCount=1)[0])
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
        serve(cluster, jobs, [pod for job in jobs for pod in pods(job, ended())])
        mirror = ClusterMirror(client)
        reasons = JobReasons(mirror, own_names)
        shown = await reasons.explain_once((await mirror.read_once()).jobs)
        named = sorted(job.ref.name for job in shown.jobs if job.reason == FOUND)
        assert named == [f"j{n:02}" for n in range(12 - MAX_FAILED, 12)]
