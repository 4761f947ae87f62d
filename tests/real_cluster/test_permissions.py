"""A user who may see one namespace only, on a real cluster that enforces it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from k8s.client.client import Client
from k8s.models.resources import PODS
from k8s.status import Status
from tests import ROOT
from tests.real_cluster import operator_objects
from tests.real_cluster.feed import feed_of, job_called

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
async def alice(kubeconfig: Path) -> AsyncIterator[Client]:
    """A client of the user who has the role `edit` in the namespace of her name, and nothing else."""
    path = kubeconfig.with_name("kubeconfig-alice")
    async with await Client.connect(str(path), namespace="alice") as client:
        yield client


async def test_alice_sees_hers_and_is_told_what_she_may_not_see(admin: Client, alice: Client) -> None:
    name = f"hers-{uuid4().hex[:6]}"
    await operator_objects.make(admin, PODS, "theirs", operator_objects.pod_spec("main", 1))
    await operator_objects.make(alice, PODS, name, operator_objects.pod_spec("main", 1))
    try:
        async with feed_of(alice, "alice") as feed:
            snapshot = await feed.until(
                lambda now: (job := job_called(now, "Pod", name)) is not None and job.gpus_allocated == 1
            )
            assert {job.ref.namespace for job in snapshot.jobs} == {"alice"}
            job = job_called(snapshot, "Pod", name)
            assert job is not None
            assert job.status in (Status.STARTING, Status.RUNNING)
            snapshot = await feed.until(lambda now: now.is_synced)
            words = " ".join(str(problem) for problem in snapshot.problems.values())
            assert {"nodes", "pods", "pytorchjobs.kubeflow.org"} <= set(snapshot.problems)
            assert 'cannot list resource "nodes"' in words
            assert 'cannot list resource "pytorchjobs"' in words
            assert snapshot.stale == ""
    finally:
        await alice.delete(PODS, name, "alice")


async def test_the_list_of_alice_is_partial_and_no_failure(alice: Client, kubeconfig: Path) -> None:
    name = f"hers-{uuid4().hex[:6]}"
    await operator_objects.make(alice, PODS, name, operator_objects.pod_spec("main", 1))
    try:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tui", "list", "-n", "alice", "-o", "json"),
            *("--kubeconfig", str(kubeconfig.with_name("kubeconfig-alice"))),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
    finally:
        await alice.delete(PODS, name, "alice")
    found = json.loads(out)
    assert ("Pod", name) in {(job["kind"], job["name"]) for job in found["items"]}
    assert "pytorchjobs" in found["partial"]
    (line,) = err.decode().splitlines()
    assert line.startswith("Not shown: ") and line.endswith("; you may not list them in namespace alice.")
    assert child.returncode == 0
