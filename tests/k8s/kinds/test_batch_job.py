"""Kubernetes' own Job: plain or indexed, with retries."""

from __future__ import annotations

import json

import pytest

from k8s.kinds.batch_job import INDEX, BatchJob
from k8s.kinds.job_spec import JobSpec
from k8s.models import Pod, Reader
from tests.k8s.kinds.operator_objects import a_pod
from tests.support.objects import batch_job

KIND = BatchJob()
FAILED = {"type": "Failed", "status": "True"}


@pytest.mark.parametrize(
    ("parallelism", "completions", "pods"),
    [(3, 3, 3), (2, 10, 2), (10, 2, 2), (4, None, 4), (None, None, 1), (None, 5, 1), (0, 3, 0), (-1, 3, 0)],
)
def test_replicas_are_parallel_pods(parallelism: int | None, completions: int | None, pods: int) -> None:
    job = batch_job("sweep", parallelism=parallelism, completions=completions)
    assert len(KIND.replicas(job)) == pods


def test_a_pod_of_an_indexed_job_has_its_completion_index() -> None:
    replica = KIND.replicas(batch_job("sweep", pods=3, indexed=True))[2]
    assert dict(replica.env) == {"JOB_COMPLETION_INDEX": "2"}
    assert dict(replica.labels)[INDEX] == "2"
    assert KIND.replicas(batch_job("sweep", pods=3))[2].env == ()


@pytest.mark.parametrize(
    ("parallelism", "completed", "failed", "indexes"),
    [
        (3, None, None, [0, 1, 2]),
        (2, "0-3,5", "4", [6, 7]),
        (2, "0-8", "", [8, 9]),
        (3, "0-9", None, [7, 8, 9]),
        (2, "1", None, [0, 2]),
        (2, "nonsense,3-,-4,99999999999,0-999999999", None, [8, 9]),
    ],
)
def test_replicas_of_an_indexed_job_are_its_next_unfinished_indexes(
    parallelism: int, completed: str | None, failed: str | None, indexes: list[int]
) -> None:
    job = batch_job("sweep", indexed=True, parallelism=parallelism, completions=10)
    job["status"] = {"completedIndexes": completed, "failedIndexes": failed}
    found = KIND.replicas(job)
    assert [replica.index for replica in found] == indexes
    assert [replica.is_chief for replica in found] == [True] + [False] * (parallelism - 1)


def test_failed_indexes_are_part_of_the_outcome_reason() -> None:
    job = batch_job("sweep", indexed=True)
    failed = FAILED | {"message": "Job has failed indexes"}
    job["status"] = {"failedIndexes": "1,3-5", "conditions": [failed]}
    assert KIND.parse(job).outcome_reason == "Job has failed indexes; failed indexes: 1,3-5"


@pytest.mark.parametrize(
    ("limit", "failures", "restarts", "allowed"),
    [(6, 2, 2, 6), (0, 1, 0, 0), (None, 3, 3, None), (2**31 - 1, 3, 3, None), (6, None, 0, 6)],
)
def test_failed_pods_count_as_restarts_unless_backoff_limit_is_zero(
    limit: int | None, failures: int | None, restarts: int, allowed: int | None
) -> None:
    job = batch_job("sweep", backoffLimit=limit)
    job["status"] = {"failed": failures}
    assert (KIND.parse(job).restarts, KIND.parse(job).restarts_allowed) == (restarts, allowed)


def test_a_suspended_job_is_parsed_with_the_progress_of_succeeded_pods() -> None:
    job = batch_job("sweep", pods=10, suspend=True)
    job["status"] = {"succeeded": 4}
    assert (KIND.parse(job).is_suspended, KIND.parse(job).progress) == (True, "4 of 10 done")


def test_pods_of_a_volcano_job_are_not_claimed_by_batch_jobs() -> None:
    for api_version, name in (("batch/v1", "vgg"), ("batch.volcano.sh/v1alpha1", "")):
        assert KIND.job_of(a_pod("vgg-0", {}, kind="Job", apiVersion=api_version, name="vgg")) == name


def test_the_completion_index_is_read_from_labels_or_annotations() -> None:
    for where in ("labels", "annotations"):
        body = {"metadata": {"name": "x", where: {INDEX: "4"}}}
        assert KIND.instance_of(Reader[Pod](Pod).read(json.dumps(body).encode())) == ("pod", 4)
    assert KIND.instance_of(Reader[Pod](Pod).read(b'{"metadata": {"name": "x"}}')) is None


def test_a_multi_pod_job_has_a_headless_service_that_publishes_unready_addresses() -> None:
    spec = JobSpec(name="bert", namespace="lab", image="i", command=("x",), workers=2)
    ((_, service),) = BatchJob().owned_objects(spec)
    assert service["metadata"] == {"name": "bert", "namespace": "lab"}
    assert service["spec"]["selector"] == {"job-name": "bert"}
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert BatchJob().manifest(spec)["spec"]["template"]["spec"]["subdomain"] == "bert"
