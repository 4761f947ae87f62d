"""Kubernetes' own Job: plain or indexed, with retries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k8s.kinds.batch_job import INDEX, BatchJob
from k8s.models import Pod, Reader
from k8s.status import Status
from tests.objects import batch_job

KIND = BatchJob()


@pytest.mark.parametrize(
    ("parallelism", "completions", "pods"),
    [(3, 3, 3), (2, 10, 2), (10, 2, 2), (4, None, 4), (None, None, 1), (None, 5, 1), (0, 3, 0), (-1, 3, 0)],
)
def test_a_job_has_as_many_places_as_pods_may_run_at_once(
    parallelism: int | None, completions: int | None, pods: int
) -> None:
    job = batch_job("sweep", parallelism=parallelism, completions=completions)
    assert len(KIND.replicas(job)) == pods


def test_a_pod_of_an_indexed_job_is_told_its_number() -> None:
    replica = KIND.replicas(batch_job("sweep", pods=3, indexed=True))[2]
    assert dict(replica.env) == {"JOB_COMPLETION_INDEX": "2"}
    assert dict(replica.labels)[INDEX] == "2"
    assert KIND.replicas(batch_job("sweep", pods=3))[2].env == ()


@pytest.mark.parametrize(
    ("conditions", "outcome", "words"),
    [
        ([], None, ""),
        ([{"type": "Complete", "status": "True"}], Status.SUCCEEDED, ""),
        ([{"type": "Complete", "status": "False"}, {"type": "Suspended", "status": "True"}], None, ""),
        (
            [
                {"type": "FailureTarget", "status": "True"},
                {
                    "type": "Failed",
                    "status": "True",
                    "reason": "BackoffLimitExceeded",
                    "message": "Job has reached the specified backoff limit",
                },
            ],
            Status.FAILED,
            "Job has reached the specified backoff limit",
        ),
        (
            [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}],
            Status.FAILED,
            "DeadlineExceeded",
        ),
    ],
)
def test_the_outcome_is_what_its_conditions_hold_true(
    conditions: list[dict[str, Any]], outcome: Status | None, words: str
) -> None:
    job = KIND.parse({**batch_job("sweep"), "status": {"conditions": conditions}})
    assert (job.outcome, job.outcome_reason) == (outcome, words)


def test_a_failed_job_ended_when_it_failed_though_it_never_completed() -> None:
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-20T18:36:10Z"}
    job = KIND.parse({**batch_job("sweep"), "status": {"conditions": [failed]}})
    assert job.finished is not None


def test_an_index_is_found_where_servers_of_any_age_put_it() -> None:
    for where in ("labels", "annotations"):
        body = {"metadata": {"name": "x", where: {INDEX: "4"}}}
        assert KIND.instance_of(Reader[Pod](Pod).read(json.dumps(body).encode())) == ("pod", 4)
    assert KIND.instance_of(Reader[Pod](Pod).read(b'{"metadata": {"name": "x"}}')) is None
