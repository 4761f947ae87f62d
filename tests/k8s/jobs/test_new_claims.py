"""Volume claims that are made with a job: they outlive it, and what may be in them is never deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.job_spec import NewClaim
from k8s.jobs.create import JobRejected, create_job
from k8s.jobs.owned_objects import OwnedObject
from tests.k8s.jobs.bert import ALL, FILES, JOB, KIND, SPEC
from tests.scripted.object_store import ObjectStore
from tests.scripted.server import Asked, Reply, page, refusal

CLAIM = "persistentvolumeclaims/data"
CLAIM_PATH = "/api/v1/namespaces/vision/persistentvolumeclaims/data"
WITH_CLAIM = replace(
    SPEC, new_claims=(NewClaim("data", "10Gi", "fast", "RWX"),), labels={"team": "vision"}, user="li"
)


def held_claim(size: str) -> dict[str, Any]:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"resources": {"requests": {"storage": size}}},
    }


def refuse(what: str) -> Callable[[Asked, str], Reply | None]:
    """Return a hook that refuses to create one object, and says which pods there are."""

    def hook(asked: Asked, about: str) -> Reply | None:
        if (about, asked.method) == (what, "POST"):
            return refusal(422, "no such luck", "Invalid")
        return page([]) if about == "vision/pods" else None

    return hook


async def test_a_new_claim_is_created_first_and_belongs_to_no_job(client: Client, store: ObjectStore) -> None:
    used: list[OwnedObject] = []
    await create_job(client, KIND, WITH_CLAIM, files=FILES, on_found=used.append)
    assert [line.removeprefix("POST ") for line in store.log if line.startswith("POST")] == [CLAIM, *ALL]
    made = store.named(CLAIM)
    assert made["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "fast",
    }
    meta = made["metadata"]
    assert meta["labels"] == {"team": "vision", "app.kubernetes.io/managed-by": "gpuconsole"}
    assert meta["annotations"]["owner"] == "li"
    assert "ownerReferences" not in meta and used == []


async def test_a_claim_that_is_there_and_large_enough_is_used_and_told_of(
    client: Client, store: ObjectStore
) -> None:
    for is_dry, size in ((True, "10240Mi"), (True, ""), (False, "10240Mi")):
        held = store.put(CLAIM_PATH, held_claim(size))
        used: list[OwnedObject] = []
        await create_job(client, KIND, WITH_CLAIM, files=FILES, on_found=used.append, dry_run=is_dry)
        assert [each.title for each in used] == ["PersistentVolumeClaim data"]
        assert store.objects[CLAIM_PATH] is held


async def test_a_claim_that_is_there_and_too_small_is_a_mistake_of_the_field(
    client: Client, store: ObjectStore
) -> None:
    store.put(CLAIM_PATH, held_claim("1Gi"))
    with pytest.raises(JobRejected) as caught:
        await create_job(client, KIND, WITH_CLAIM, files=FILES)
    expected = "Volume claim data already exists with 1Gi, less than 10Gi."
    assert caught.value.causes == {"new_claims": expected}
    assert store.names() == [CLAIM]


async def test_a_claim_that_is_being_deleted_is_not_used(client: Client, store: ObjectStore) -> None:
    held = held_claim("10Gi")
    held["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    store.put(CLAIM_PATH, held)
    with pytest.raises(JobRejected) as caught:
        await create_job(client, KIND, WITH_CLAIM, files=FILES)
    assert caught.value.causes == {"new_claims": "Volume claim data is still being deleted."}
    assert store.names() == [CLAIM]


@pytest.mark.parametrize("what", [CLAIM, *ALL])
async def test_a_new_claim_goes_with_a_job_that_is_refused(
    client: Client, store: ObjectStore, what: str
) -> None:
    store.before = refuse(what)
    with pytest.raises(JobRejected):
        await create_job(client, KIND, WITH_CLAIM, files=FILES)
    assert store.names() == []


async def test_a_claim_that_was_there_before_stays_when_the_job_is_refused(
    client: Client, store: ObjectStore
) -> None:
    store.put(CLAIM_PATH, held_claim("10Gi"))
    store.before = refuse(JOB)
    with pytest.raises(JobRejected):
        await create_job(client, KIND, WITH_CLAIM, files=FILES)
    assert store.names() == [CLAIM]


@pytest.mark.parametrize(
    "pods",
    [
        page([{"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}}]),
        refusal(403, "no pods for you"),
    ],
    ids=["a pod has it", "nobody knows"],
)
async def test_a_claim_that_a_pod_may_have_written_to_is_left_and_named(
    client: Client, store: ObjectStore, pods: Reply
) -> None:
    refusing = refuse("deployments/bert-tensorboard")
    store.before = lambda asked, what: pods if what == "vision/pods" else refusing(asked, what)
    with pytest.raises(JobRejected) as caught:
        await create_job(client, KIND, WITH_CLAIM, files=FILES)
    assert store.names() == [CLAIM]
    assert caught.value.hint.endswith("This may be left in namespace vision: persistentvolumeclaims/data.")
