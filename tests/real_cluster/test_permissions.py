"""A user who may see one namespace only, on a real cluster that enforces it."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.models.resources import PODS
from k8s.status import Status
from k8s.text.errors import Forbidden, NotFound
from tests.real_cluster import operator_objects
from tests.real_cluster.feed import feed_of, job_called
from tests.support.real_cluster import acting_as, console

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def test_a_restricted_user_sees_their_jobs_and_the_forbidden_resources(
    admin: Client, editor: Client
) -> None:
    name = f"hers-{uuid4().hex[:6]}"
    await operator_objects.make(admin, PODS, "theirs", operator_objects.pod_spec("main", 1))
    await operator_objects.make(editor, PODS, name, operator_objects.pod_spec("main", 1))
    try:
        async with feed_of(editor, "alice") as feed:
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
            assert (await ClusterMirror(editor).read_once()).problems["pods"].shown == "alice"
    finally:
        await editor.delete(PODS, name, "alice")


async def test_the_list_of_a_restricted_user_is_partial_and_exits_with_0(
    editor: Client, kubeconfig: Path
) -> None:
    name = f"hers-{uuid4().hex[:6]}"
    await operator_objects.make(editor, PODS, name, operator_objects.pod_spec("main", 1))
    try:
        code, out, err = await console(f"{kubeconfig}-alice", "list", "-n", "alice", "-o", "json")
    finally:
        await editor.delete(PODS, name, "alice")
    found = json.loads(out)
    assert ("Pod", name) in {(job["kind"], job["name"]) for job in found["items"]}
    assert "pytorchjobs" in found["partial"]
    (line,) = err.splitlines()
    assert line.startswith("Not shown: ") and line.endswith("; you may not list them in namespace alice.")
    assert code == 0


@pytest.mark.parametrize(
    ("acting", "namespaces"),
    [({"as": "alice"}, {"alice"}), ({"as": "nobody", "as-groups": ["nothing"]}, set())],
    ids=["alice", "nobody"],
)
async def test_impersonation_in_the_kubeconfig_uses_the_permissions_of_the_other_user(
    kubeconfig: Path, tmp_path: Path, acting: dict[str, object], namespaces: set[str]
) -> None:
    pod = {"metadata": {"generateName": "acting-"}, "spec": operator_objects.pod_spec("main", 0)}
    async with await Client.connect(acting_as(kubeconfig, tmp_path, **acting)) as client:
        for namespace in ("alice", "default", ""):
            requests = [
                client.list(PODS, namespace),
                anext(client.watch(PODS, namespace, version="", timeout_s=1), b""),
                client.create(PODS, pod, namespace or "default", dry_run=True),
                _run_a_command(client, namespace or "default"),
            ]
            for request in requests:
                try:
                    await request
                except Forbidden as error:
                    assert namespace not in namespaces and f'User "{acting["as"]}"' in error.why
                except NotFound:  # of the pod in which the command was to run: so that was allowed
                    assert namespace in namespaces
                else:
                    assert namespace in namespaces


async def _run_a_command(client: Client, namespace: str) -> None:
    async with client.exec("no-such-pod", namespace, ["true"]):
        pass
