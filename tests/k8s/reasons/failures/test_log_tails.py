"""The logs that are read of a failed job: which, in which order, how much, and what if that is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from k8s.models import PodStatus
from k8s.reasons.failures.log_tails import MAX_LOGS, FailedLogs, LogTails, runs_of
from k8s.snapshot import Job
from k8s.status import Status
from tests.scripted.server import Answer, ScriptedCluster, refusal
from tests.support.evidence import ago, ended, explained, instance, job_of, pod, read, starting, waiting
from tests.support.failures import container_log
from tests.support.objects import Object

LOGS = "/api/v1/namespaces/default/pods"
RUNS = {"name": "pytorch", "state": {"running": {"startedAt": ago(60)}}}


def failed_job(pods: dict[str, Sequence[Object]]) -> tuple[Job, dict[str, PodStatus]]:
    """Return a failed job, and the status of its pods by their containers' statuses."""
    job = job_of([instance(name, Status.FAILED, node="a") for name in pods], Status.FAILED)
    found = {f"bert-{name}": status_of(containers) for name, containers in pods.items()}
    return job, found


def status_of(containers: Sequence[Object], **more: Any) -> PodStatus:
    found: PodStatus = read(PodStatus, {"phase": "Failed", "containerStatuses": list(containers), **more})
    return found


async def read_all(cluster: ScriptedCluster, job: Job, pods: dict[str, PodStatus]) -> FailedLogs:
    async with cluster.client() as client:
        return await LogTails(client).read(job, pods)


def test_logs_are_read_launcher_first_then_by_end_time_and_running_pods_last() -> None:
    restarted = waiting("CrashLoopBackOff") | {"lastState": ended(1, at=20)["state"]}
    job, pods = failed_job(
        {
            "worker-0": [RUNS],
            "worker-1": [ended(1, at=10)],
            "worker-2": [restarted],
            "worker-3": [ended(0)],
            "launcher-0": [ended(1, at=5)],
        }
    )
    runs = runs_of(job, pods)
    assert [run.instance.name for run in runs] == ["launcher-0", "worker-2", "worker-1", "worker-0"]
    assert [run.instance.name for run in runs if run.is_previous] == ["worker-2"]
    assert [run.instance.name for run in runs if not run.has_failed] == ["worker-0"]


async def test_forbidden_logs_are_not_requested_again_and_exit_codes_remain_known() -> None:
    async with ScriptedCluster() as cluster:
        job, pods = failed_job({f"worker-{n}": [ended(1, at=n)] for n in range(30)})
        cluster.say_everywhere(refusal(403, "pods/log is forbidden", "Forbidden"))
        found = await read_all(cluster, job, pods)
        assert found.unseen == ("logs: The cluster says: pods/log is forbidden",)
        assert [each.exit_code for each in found.logs] == [1] * 30
        assert len(cluster.requests) <= 6, "those that were under way"


async def test_logs_of_a_large_job_are_read_up_to_a_limit_that_is_reported() -> None:
    async with ScriptedCluster() as cluster:
        cluster.say_everywhere(Answer(b"2026-11-21T11:59:49.000000001Z ValueError: bad\n"))
        job, pods = failed_job({f"worker-{n}": [ended(1, at=n)] for n in range(MAX_LOGS + 6)})
        found = await read_all(cluster, job, pods)
        assert found.unseen == (f"logs: only {MAX_LOGS} of {MAX_LOGS + 6} were read",)
        assert len(cluster.requests) == MAX_LOGS
        assert [bool(each.lines) for each in found.logs] == [True] * MAX_LOGS + [False] * 6


async def test_the_end_of_a_log_with_very_long_lines_is_read() -> None:
    line = b"2026-11-21T11:59:49.000000001Z " + b"x" * 60_000 + b"\n"
    last = b"2026-11-21T11:59:50.000000001Z ValueError: bad\n"
    async with ScriptedCluster() as cluster:
        cluster.say_everywhere(Answer(line * 50 + last))
        found = await read_all(cluster, *failed_job({"master-0": [ended(1)]}))
    lines = found.logs[0].lines
    assert lines[-1].raw == b"ValueError: bad"
    assert 10 < len(lines) < 50
    assert all(each.is_stamped for each in lines)


async def test_an_evicted_pod_counts_as_failed_without_failed_containers() -> None:
    job, _ = failed_job({"worker-0": []})
    pods = {"bert-worker-0": status_of([], reason="Evicted", message="low on memory")}
    async with ScriptedCluster() as cluster:
        found = await read_all(cluster, job, pods)
    assert [(each.instance, each.pod_reason) for each in found.logs] == [("worker-0", "Evicted")]


SPENT = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "backoff limit"}]


@pytest.mark.parametrize(
    ("text", "sentence", "may_retry"),
    [
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'lr'",
            "Failed: worker-0 exit 1, 11:59:50: KeyError: 'lr'.",
            False,
        ),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
            "OSError: [Errno 116] Stale file handle",
            "Failed: worker-0 exit 1, 11:59:50: OSError: [Errno 116] Stale file handle.",
            True,
        ),
        ("", "Failed: worker-0 exit 1, 11:59:50; all its retries are used.", False),
    ],
)
def test_more_retries_are_advised_only_where_they_can_help(text: str, sentence: str, may_retry: bool) -> None:
    answer = explained(
        instance("worker-0", Status.FAILED, node="a"),
        status=Status.FAILED,
        conditions=SPENT,
        pods=[starting("worker-0", containerStatuses=[ended(1)])],
        logs=(container_log(text, exit=1),),
    )
    assert answer.sentence == sentence
    assert any("backoffLimit" in each for each in answer.help) is may_retry


def test_an_eviction_advises_a_rerun_and_a_higher_backoff_limit() -> None:
    answer = explained(
        instance("worker-0", Status.FAILED, node="a"),
        status=Status.FAILED,
        conditions=SPENT,
        pods=[pod("worker-0", phase="Failed", reason="Evicted", message="low on memory", conditions=[])],
        logs=(container_log(pod_reason="Evicted", message="low on memory"),),
    )
    assert answer.sentence == "Failed: worker-0 Evicted on a: low on memory."
    assert [each.partition(";")[0] for each in answer.help] == [
        "Run it again",
        "Allow more of them: backoffLimit.",
    ]
