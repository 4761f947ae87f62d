"""The objects of `tests/fixtures/objects` on a real API server: it takes them, and keeps what we read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.cluster.discovery import discover
from k8s.kinds import KINDS, JobKind, kind_of
from k8s.kinds.base import DeclaredJob
from k8s.kinds.job_set import JOB_SETS
from k8s.kinds.kubeflow.kubeflow_job import TF_JOBS
from k8s.kinds.kubeflow.mpi_job import MPI_JOBS
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.kinds.kubeflow.train_job import TRAIN_JOBS
from k8s.models import Meta
from k8s.models.resources import JOBS
from tests.k8s.kinds.operator_objects import SITUATIONS, kind_named, objects

pytestmark = pytest.mark.cluster
FROM_THE_SERVER = ("uid", "ownerReferences", "creationTimestamp")


async def made(client: Client, kind: JobKind, obj: dict[str, Any]) -> DeclaredJob:
    """Create an object with the status that its operator would give it, and read what the server keeps."""
    namespace = client.config.namespace
    meta = {key: value for key, value in obj["metadata"].items() if key not in FROM_THE_SERVER}
    body = {**obj, "metadata": {**meta, "namespace": namespace}}
    await client.create(kind.resource, body, namespace)
    if status := obj.get("status"):
        patch = {"status": status}
        await client.patch(kind.resource, meta["name"], patch, namespace, subresource="status")
    return kind.parse(await client.get(kind.resource, meta["name"], namespace))


def comparable(job: DeclaredJob) -> DeclaredJob:
    """Return a job without the fields that each server sets and the defaults that it fills into templates."""
    places = tuple(replace(each, template={}, restart_policy="") for each in job.replicas)
    return replace(job, meta=Meta(), ref=replace(job.ref, namespace=""), replicas=places, started=None)


async def test_a_real_server_takes_the_objects_and_they_read_the_same(admin: Client) -> None:
    served = await discover(admin, KINDS)
    seen = set()
    for situation in SITUATIONS:
        for obj in objects(situation):
            kind = kind_named(obj)
            if kind is None or kind not in served or kind.resource == JOBS:  # those would be run
                continue
            job = await made(admin, kind, obj)
            assert kind_of(job.ref) is kind
            assert job.meta.uid and job.meta.creation_timestamp is not None
            assert comparable(job) == comparable(kind.parse(obj)), situation
            seen.add(kind.resource)
    assert seen == {JOB_SETS, MPI_JOBS, PYTORCH_JOBS, TF_JOBS, TRAIN_JOBS}


async def test_only_the_served_version_of_a_resource_is_watched(admin: Client) -> None:
    served = {kind.resource for kind in await discover(admin, KINDS)}
    assert {PYTORCH_JOBS, MPI_JOBS, JOBS} <= served
    assert len([resource for resource in served if resource.full_name == MPI_JOBS.full_name]) == 1
