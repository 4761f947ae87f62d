"""Deleting, suspending and permissions on a real API server: what it accepts, refuses, and ignores."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.jobs.create import delete_job
from k8s.jobs.modify import suspend_job, suspend_patch
from k8s.jobs.permissions import Permission, Permissions
from k8s.kinds import KINDS, JobKind, JobRef
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.models.resources import JOBS, PODS, Resource
from k8s.status import Status
from k8s.text.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from tests.k8s.kinds.operator_objects import SITUATIONS, kind_named, objects
from tests.real_cluster import operator_objects
from tests.real_cluster.feed import feed_of, job_called
from tests.support.real_cluster import acting_as, allow, console
from tui.commands.support.confirm import wait_until_gone
from tui.text.change_plans import ChangePlan, delete_plan
from tui.verbs.changes import leftover_lines

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SUSPENDABLE = [kind for kind in KINDS if kind.suspend_field]


async def served(client: Client, kind: JobKind) -> bool:
    try:
        found = await client.get_json(f"/apis/{kind.resource.api_version}")
    except KubeError:
        return False
    return any(each["name"] == kind.resource.plural for each in found["resources"])


@pytest.mark.parametrize("kind", SUSPENDABLE, ids=lambda kind: type(kind).__name__)
async def test_each_kind_is_suspended_and_resumed_or_refused(admin: Client, kind: JobKind) -> None:
    if not await served(admin, kind):
        pytest.skip(f"this cluster has no {kind.resource.full_name}")
    namespace = admin.config.namespace
    obj = next(objects(each)[0] for each in SITUATIONS if kind_named(objects(each)[0]) is kind)
    spec = {**obj["spec"], **({"suspend": False} if "suspend" in obj["spec"] else {})}
    body = {**obj, "metadata": {"name": "bert"}, "spec": spec}
    body.pop("status", None)
    uid = (await admin.create(kind.resource, body, namespace))["metadata"]["uid"]
    ref = JobRef(namespace, "bert", kind.resource.kind, kind.resource.api_version)
    version = await admin.get_json("/version")
    is_too_old = kind.resource == JOBS and int(re.sub(r"\D", "", version["minor"])) < 21
    if is_too_old:
        with pytest.raises(KubeError, match=r"dropped spec\.suspend"):
            await suspend_job(admin, ref, uid, is_suspended=True)
        return
    for is_suspended in (True, False):
        await suspend_job(admin, ref, uid, is_suspended=is_suspended)
        found = kind.parse(await admin.get(kind.resource, "bert", namespace))
        assert found.is_suspended is is_suspended


@pytest.mark.parametrize("resource", [JOBS, PYTORCH_JOBS], ids=lambda resource: resource.kind)
async def test_a_real_server_rejects_another_uid(admin: Client, resource: Resource) -> None:
    """Of ours as of its own, by uid and by version."""
    namespace = admin.config.namespace
    spec: dict[str, Any] = {"template": operator_objects.template("main", 0)}
    if resource is PYTORCH_JOBS:
        spec = {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": operator_objects.template("pytorch", 0)}
            }
        }
    found = await operator_objects.make(admin, resource, "bert", spec)
    kind = next(kind for kind in KINDS if kind.resource == resource)
    patch = suspend_patch(kind, is_suspended=True)
    assert patch is not None
    uid = found["metadata"]["uid"]
    for meta in ({"uid": str(uuid4())}, {"uid": uid, "resourceVersion": "1"}):
        with pytest.raises((Conflict, Invalid)):
            await admin.patch(resource, "bert", {"metadata": meta, **patch}, namespace)
    ref = JobRef(namespace, "bert", resource.kind, resource.api_version)
    with pytest.raises(Conflict, match="Another object has its name now"):
        await suspend_job(admin, ref, str(uuid4()), is_suspended=True)


async def test_a_missing_delete_permission_is_known_by_review_and_by_refusal(
    admin: Client, alice: Client
) -> None:
    namespace = admin.config.namespace
    await operator_objects.make(admin, JOBS, "theirs", {"template": operator_objects.template("main", 0)})
    ref = JobRef(namespace, "theirs", "Job", "batch/v1")
    refused = Permission(False, f'user "alice" may not delete jobs in namespace "{namespace}"')
    permissions = Permissions(alice)
    assert await permissions.fetch("delete job", namespace, ref) == refused
    assert await permissions.fetch("create any job", "alice") == Permission(True)
    assert (await Permissions(admin).fetch("delete job", namespace, ref)).is_allowed
    permissions.forget()
    with pytest.raises(Forbidden) as caught:
        await delete_job(alice, ref)
    permissions.record_refusal(caught.value)
    assert permissions.known("delete job", namespace, ref) == refused


async def test_exec_needs_the_get_permission_that_the_access_review_checks(
    admin: Client, alice: Client
) -> None:
    """A websocket is opened by a GET, so the right to create an exec is not enough."""
    namespace = admin.config.namespace
    await operator_objects.make(admin, PODS, "pod", operator_objects.pod_spec("main", 0))
    await until_pod_runs(admin)
    await allow(admin, "create", "", "pods/exec")
    permissions = Permissions(alice, ttl_s=0.0)
    assert (await permissions.fetch("get pods/exec", namespace)).is_allowed is False
    with pytest.raises(Forbidden) as caught:
        async with alice.exec("pod", namespace, ["true"]):
            pytest.fail("it was allowed")
    assert 'cannot get resource "pods/exec"' in caught.value.why


async def until_pod_runs(admin: Client) -> None:
    async for line in admin.watch(PODS, admin.config.namespace, version="0"):
        if json.loads(line)["object"].get("status", {}).get("phase") == "Running":
            return


async def plan_of(admin: Client, **how: Any) -> ChangePlan:
    """Return the plan to delete the test's PyTorchJob, once it shows its pods."""
    namespace = admin.config.namespace
    async with feed_of(admin, namespace) as feed:
        snapshot = await feed.until(
            lambda now: (
                (job := job_called(now, "PyTorchJob", "bert", namespace)) is not None
                and all(each.status is Status.RUNNING for each in job.instances)
            )
        )
    job = job_called(snapshot, "PyTorchJob", "bert", namespace)
    assert job is not None
    return delete_plan(snapshot, [job.ref], **how)


async def test_pods_remaining_after_a_delete_are_listed_until_they_are_gone(admin: Client) -> None:
    namespace = admin.config.namespace
    await operator_objects.pytorch_job(admin, "bert", workers=2, gpus=1)
    keep = {"metadata": {"finalizers": ["lab.io/keep"]}}
    await admin.patch(PODS, "bert-worker-0", keep, namespace)
    plan = await plan_of(admin)
    assert (len(plan.pods), plan.gpus) == (2, 2)
    (job,) = plan.jobs
    await delete_job(admin, job.ref, job.uid, propagation=plan.propagation)
    master = replace(job, instances=tuple(each for each in job.instances if each.pod == "bert-master-0"))
    assert leftover_lines(await wait_until_gone(admin, namespace, replace(plan, jobs=(master,))), 5.0) == (
        "bert is gone.",
    )
    left = await wait_until_gone(admin, namespace, plan, longest_s=1.0)
    (words,) = leftover_lines(left, 60.0)
    assert re.fullmatch(
        r"bert: 1 pod still there after 60 s: "
        r"bert-worker-0 (Failed|Succeeded) on real-node-0 \(kept by finalizer lab.io/keep\)\.",
        words,
    )
    await admin.patch(PODS, "bert-worker-0", {"metadata": {"finalizers": None}}, namespace)
    left = await wait_until_gone(admin, namespace, plan)
    assert leftover_lines(left, 5.0) == ("bert is gone.",)


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
async def test_pods_are_deleted_or_orphaned_by_the_propagation_policy(
    admin: Client, propagation: str
) -> None:
    namespace = admin.config.namespace
    await operator_objects.pytorch_job(admin, "bert", workers=2, gpus=1)
    plan = await plan_of(admin, propagation=propagation)
    (job,) = plan.jobs
    await delete_job(admin, job.ref, job.uid, propagation=propagation)
    left = await wait_until_gone(admin, namespace, plan)
    pods = await admin.list(PODS, namespace)
    if propagation == "Foreground":
        assert (leftover_lines(left, 9.0), pods) == (("bert is gone.",), [])
        return
    assert leftover_lines(left, 9.0) == ("bert is gone; 2 pods of it run on as asked, with 2 GPUs.",)
    assert sorted(pod["metadata"]["name"] for pod in pods) == ["bert-master-0", "bert-worker-0"]
    assert all("deletionTimestamp" not in pod["metadata"] for pod in pods)
    snapshot = await ClusterMirror(admin, namespace).read_once()
    assert sum(each.gpus_allocated for each in snapshot.jobs) == 2
    for pod in pods:
        await admin.delete(PODS, pod["metadata"]["name"], namespace, grace_period_s=0)


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
