"""Suspending and resuming: one field of each kind, on the very job that was meant, and only if it took."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k8s.jobs.modify import TRIES, suspend_job, suspend_patch, why_not
from k8s.kinds import KINDS, JobKind, JobRef, kind_of
from k8s.kinds.parse import JobReader
from k8s.snapshot import Job
from k8s.text.errors import Conflict, Forbidden, KubeError, NotFound
from tests import FIXTURES
from tests.k8s.kinds.operator_objects import SITUATIONS, kind_named, objects
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal
from tests.support.objects import Object, joined, merged, pytorch_job

GOLDEN = json.loads((FIXTURES.parent / "golden" / "kinds" / "suspend.json").read_text())
"""The patch that suspends a job of each kind; null for kinds without a field for it."""
PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)


def job_of(kind: JobKind) -> Object:
    return next(objects(each)[0] for each in SITUATIONS if kind_named(objects(each)[0]) is kind)


def row(name: str = "bert", **meta: Any) -> Job:
    """Return a job as it is shown, with the words of its status as they come."""
    return joined([], [], [pytorch_job(name, **meta)])[1][name]


def suspended(policy: Object | None = None, **meta: Any) -> Job:
    obj = pytorch_job("bert", **meta)
    obj["spec"]["runPolicy"] = {"suspend": True, **(policy or {})}
    return joined([], [], [obj])[1]["bert"]


def test_the_golden_file_names_every_kind() -> None:
    assert set(GOLDEN) == {f"{kind.resource.kind} {kind.resource.api_version}" for kind in KINDS}


@every_kind
def test_the_suspend_patch_equals_the_golden_file(kind: JobKind) -> None:
    expected = GOLDEN[f"{kind.resource.kind} {kind.resource.api_version}"]
    assert suspend_patch(kind, is_suspended=True) == expected
    resumed = json.loads(json.dumps(expected).replace("true", "false"))
    assert suspend_patch(kind, is_suspended=False) == resumed


@every_kind
def test_a_patched_job_is_parsed_as_suspended_and_as_resumed(kind: JobKind) -> None:
    patch = suspend_patch(kind, is_suspended=True)
    if patch is None:
        return
    for is_suspended in (True, False):
        obj = merged(job_of(kind), suspend_patch(kind, is_suspended=is_suspended))
        assert JobReader(kind).read(json.dumps(obj).encode()).is_suspended is is_suspended


async def sent(*replies: Reply, is_suspended: bool = True, found: Object | None = None) -> list[Asked]:
    """Suspend, or resume, the job bert on a server that answers so, and return the patches it got."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PATH, Answer(found or pytorch_job("bert")))
        cluster.say(PATH, *replies, method="PATCH")
        try:
            await suspend_job(client, row().ref, "job-bert", is_suspended=is_suspended)
        finally:
            patches = cluster.asked(PATH, method="PATCH")
            assert len(patches) <= TRIES
        return patches


def taken(asked: Asked) -> Reply:
    """Answer a patch as a server does that knows the field."""
    return Answer(merged(pytorch_job("bert"), json.loads(asked.body)))


@pytest.mark.parametrize("is_suspended", [True, False])
async def test_a_suspend_patch_has_the_uid_and_resource_version_of_the_job(is_suspended: bool) -> None:
    (patch,) = await sent(Compute(taken), is_suspended=is_suspended)
    assert patch.headers["Content-Type"] == "application/merge-patch+json"
    assert json.loads(patch.body) == {
        "metadata": {"uid": "job-bert", "resourceVersion": "1"},
        "spec": {"runPolicy": {"suspend": is_suspended}},
    }


async def test_a_conflicting_change_is_retried_once() -> None:
    patches = await sent(refusal(409, "modified", "Conflict"), Compute(taken))
    assert len(patches) == 2
    with pytest.raises(Conflict, match="Could not change PyTorchJob bert"):
        await sent(refusal(409, "modified", "Conflict"))


async def test_a_job_recreated_under_the_same_name_is_not_patched() -> None:
    with pytest.raises(Conflict, match="Another object has its name now"):
        await sent(Compute(taken), found=pytorch_job("bert", uid="another"))


async def test_a_server_that_drops_the_suspend_field_is_reported_as_an_error() -> None:
    with pytest.raises(KubeError) as caught:
        await sent(Answer(pytorch_job("bert")))
    assert str(caught.value) == (
        "Could not suspend PyTorchJob bert.\n"
        "The cluster accepted the change but dropped spec.runPolicy.suspend: "
        "it is too old for that field of a PyTorchJob."
    )


async def test_a_job_still_suspended_by_kube_queue_is_not_reported_as_resumed() -> None:
    held = pytorch_job("bert", annotations={"scheduling.x-k8s.io/suspend": "true"})
    with pytest.raises(KubeError, match="job is still suspended"):
        await sent(Answer(held), is_suspended=False, found=held)


@pytest.mark.parametrize(("reply", "error"), [(refusal(403, "no"), Forbidden), (refusal(404), NotFound)])
async def test_a_server_refusal_is_reported(reply: Reply, error: type[KubeError]) -> None:
    with pytest.raises(error):
        await sent(reply)


async def test_an_unreadable_job_in_the_response_is_reported() -> None:
    with pytest.raises(KubeError, match="cannot be read"):
        await sent(Answer({"metadata": {"name": 7}}))


@every_kind
async def test_a_kind_without_a_suspend_field_is_never_patched(kind: JobKind) -> None:
    if kind.suspend_field:
        return
    ref = JobRef("vision", "bert", kind.resource.kind, kind.resource.api_version)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        with pytest.raises(KubeError, match=f"A {kind.title} has no field that suspends it."):
            await suspend_job(client, ref, "u", is_suspended=True)
        assert cluster.requests == []


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"shutdownAfterJobFinishes": False}, "shutdownAfterJobFinishes"),
        ({"clusterSelector": {"ray.io/cluster": "shared"}}, "not its own"),
    ],
)
async def test_a_ray_job_that_would_fail_when_suspended_is_not_patched(spec: Object, why: str) -> None:
    obj = objects("rayjob-running")[0]
    ref = JobRef("vision", "tune", "RayJob", "ray.io/v1")
    path = kind_of(ref).resource.path("vision", "tune")
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(path, Answer({**obj, "spec": {**obj["spec"], **spec}}))
        with pytest.raises(KubeError, match=why):
            await suspend_job(client, ref, "ray-tune", is_suspended=True)
        assert cluster.asked(path, method="PATCH") == []


def test_a_job_that_cannot_be_suspended_or_resumed_gives_the_reason() -> None:
    ended = pytorch_job("bert")
    ended["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    of_kueue = suspended(labels={"kueue.x-k8s.io/queue-name": "team-a"})
    of_kube_queue = row(annotations={"scheduling.x-k8s.io/suspend": "true"})
    cases = (
        (row(), True, ""),
        (row(), False, "It is not suspended."),
        (suspended(), True, "It is already suspended."),
        (suspended(), False, ""),
        (joined([], [], [ended])[1]["bert"], True, "It has ended."),
        (row(deletionTimestamp="2026-11-20T10:00:00Z"), True, "It is being deleted."),
        (of_kueue, False, "Kueue decides when it runs, by queue team-a: change its Workload instead."),
        (of_kube_queue, False, "It is suspended until kube-queue has room for it."),
        (suspended({"schedulingPolicy": {"queue": "default"}}), False, ""),
    )
    for job, is_suspended, why in cases:
        assert why_not(job, is_suspended=is_suspended) == why
