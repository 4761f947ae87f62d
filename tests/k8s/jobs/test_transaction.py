"""A job and what comes along with it: all of it or nothing, each once, though answers get lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.jobs import transaction
from k8s.jobs.create import JobRejected, create_job
from k8s.jobs.owned_objects import JOB_LABEL, LONGEST_CONFIG_BYTES, OwnedObject
from k8s.jobs.upload import upload_code
from k8s.kinds.job_spec import SUBMISSION_ANNOTATION, JobFiles, JobSpec, Mount, NewClaim
from k8s.text.errors import Forbidden, Unreachable
from tests.k8s.jobs.bert import ALL, CODE_PATH, FILES, FIRST, JOB, KIND, SPEC
from tests.scripted.object_store import ObjectStore, lose
from tests.scripted.server import Answer, Asked, Compute, Drop, Held, Reply, ScriptedCluster, page, refusal


class JobStore(ObjectStore):
    """The store, with a client that creates a job in it."""

    client: Client

    def __init__(self, cluster: ScriptedCluster) -> None:
        super().__init__(cluster)
        self.cluster = cluster

    async def create(self, spec: JobSpec = SPEC, files: JobFiles = FILES, **more: Any) -> None:
        await create_job(self.client, KIND, spec, files=files, **more)

    async def rejected(self, spec: JobSpec = SPEC, **more: Any) -> JobRejected:
        with pytest.raises(JobRejected) as caught:
            await self.create(spec, **more)
        return caught.value


@pytest.fixture
async def store(cluster: ScriptedCluster) -> AsyncIterator[JobStore]:
    found = JobStore(cluster)
    async with cluster.client() as found.client:
        yield found


def refuse(what: str, reply: Reply) -> Callable[[Asked, str], Reply | None]:
    """Return a hook that refuses to create one object, and says which pods there are."""

    def hook(asked: Asked, about: str) -> Reply | None:
        if (about, asked.method) == (what, "POST"):
            return reply
        return page([]) if about == "vision/pods" else None

    return hook


JOBS_PATH = "/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs"
INVALID = refusal(422, "no such luck", "Invalid")


async def test_everything_is_created_in_order_and_owned(store: JobStore) -> None:
    await store.create()
    assert [line.removeprefix("POST ") for line in store.log if line.startswith("POST")] == ALL
    job = store.named(JOB)
    owner = DEAD[0] | {"uid": job["metadata"]["uid"]}
    ids = set()
    for what in ALL:
        meta = store.named(what)["metadata"]
        ids.add(meta["annotations"][SUBMISSION_ANNOTATION])
        assert what == JOB or meta["ownerReferences"] == [owner], what
        assert what == JOB or meta["labels"][JOB_LABEL] == "bert", what
        assert meta["namespace"] == "vision"
    assert len(ids) == 1


async def test_two_submissions_have_two_ids(store: JobStore) -> None:
    for name in ("a", "b"):
        await store.create(replace(SPEC, name=name))
    one, other = (store.named(f"pytorchjobs/{name}")["metadata"]["annotations"] for name in ("a", "b"))
    assert one[SUBMISSION_ANNOTATION] != other[SUBMISSION_ANNOTATION]


@pytest.mark.parametrize("what", ALL)
@pytest.mark.parametrize("is_done", [True, False], ids=["after it was done", "before"])
async def test_a_lost_create_response_is_safe(store: JobStore, what: str, is_done: bool) -> None:
    hook = lose(what)
    if is_done:
        store.after = hook
    else:
        store.before = hook
    await store.create()
    assert store.names() == sorted(ALL)
    sent = store.log.count(f"POST {what}")
    assert sent == (1 if is_done else 2)


async def test_a_job_of_another_submission_is_not_mistaken_for_the_created_one(store: JobStore) -> None:
    another = {"metadata": {"name": "bert", "annotations": {SUBMISSION_ANNOTATION: "another"}}}
    store.put(f"{JOBS_PATH}/bert", another)
    store.before = lose(JOB)
    assert set((await store.rejected()).causes) == {"name"}
    assert store.names() == [JOB]


@pytest.mark.parametrize("code", [500, 502, 504])
async def test_a_create_is_retried_after_a_gateway_timeout(store: JobStore, code: int) -> None:
    answers = [refusal(code, "upstream timed out")]
    store.after = lambda asked, what: (
        answers.pop() if (what, asked.method) == (JOB, "POST") and answers else None
    )
    await store.create()
    assert store.names() == sorted(ALL)


@pytest.mark.parametrize("what", FIRST)
async def test_setting_the_owner_is_retried(store: JobStore, what: str) -> None:
    store.before = lose(what, method="PATCH")
    await store.create()
    assert store.named(what)["metadata"]["ownerReferences"]


async def test_arenas_record_is_optional(store: JobStore) -> None:
    store.before = refuse("configmaps/bert-pytorchjob", refusal(403, "no"))
    await store.create()
    assert store.names() == sorted({*ALL} - {"configmaps/bert-pytorchjob"})
    store.objects.clear()
    store.before = refuse("deployments/bert-tensorboard", refusal(403, "no"))
    with pytest.raises(Forbidden):
        await store.create()
    assert store.names() == []


async def test_objects_that_the_rollback_could_not_delete_are_named(store: JobStore) -> None:
    refused = {("POST", JOB), ("DELETE", "configmaps/bert-files")}
    store.before = lambda asked, what: refusal(403, "no") if (asked.method, what) in refused else None
    with pytest.raises(Forbidden) as caught:
        await store.create()
    assert store.names() == ["configmaps/bert-files"]
    assert caught.value.hint.endswith("This may be left in namespace vision: configmaps/bert-files.")


async def test_a_cluster_lost_during_creation_is_reported_with_the_remaining_objects(store: JobStore) -> None:
    def hook(asked: object, about: str) -> Reply | None:
        if store.log[-1:] == [f"POST {JOB}"]:
            store.cluster.say_everywhere(Drop())
            return Drop()
        return None

    store.after = hook
    with pytest.raises(Unreachable) as caught:
        await store.create()
    assert "pytorchjobs.kubeflow.org/bert, configmaps/bert-trainer" in caught.value.hint


async def test_cancelling_a_creation_rolls_back(store: JobStore) -> None:
    held = Held(refusal(500, "too late"))
    store.after = lambda asked, what: held if (what, asked.method) == (JOB, "POST") else None
    going = asyncio.create_task(store.create())
    await store.cluster.until_asked(JOBS_PATH, method="POST")
    while JOB not in store.names():
        await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert store.names() == []


async def test_an_object_created_after_cancellation_is_deleted(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "GRACE_S", 60.0)
    is_stored = asyncio.Event()

    def stored(asked: Asked) -> Reply:
        is_stored.set()
        return Answer(store.put(f"{JOBS_PATH}/bert", json.loads(asked.body)), 201)

    late = Held(Compute(stored))
    store.before = lambda asked, what: late if (what, asked.method) == (JOB, "POST") else None
    going = asyncio.create_task(store.create())
    await store.cluster.until_asked(JOBS_PATH, method="POST")
    going.cancel()
    await asyncio.wait([going], timeout=0.1)  # time to look for what is not there yet
    late.let_go()
    await asyncio.wait_for(is_stored.wait(), 20)
    with pytest.raises(asyncio.CancelledError):
        await going
    assert store.names() == []


async def test_a_cancelled_upload_deletes_its_pod(store: JobStore) -> None:
    def made(asked: Asked) -> Reply:
        pod = json.loads(asked.body)
        return Answer(store.put(f"{asked.path}/{pod['metadata']['name']}", pod), 201)

    late = Held(Compute(made))
    store.before = lambda asked, what: late if asked.method == "POST" else None
    spec = replace(SPEC, mounts=(Mount("data", "/data"),))
    going = asyncio.create_task(upload_code(store.client, spec, JobFiles(code=b"code")))
    await store.cluster.until_asked("/api/v1/namespaces/vision/pods", method="POST")
    going.cancel()
    await asyncio.sleep(0)
    late.let_go()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert [line.partition(" ")[0] for line in store.log] == ["POST", "DELETE"]
    assert store.names() == []


async def test_code_that_cannot_be_uploaded_creates_no_job(store: JobStore) -> None:
    store.before = lambda asked, what: refusal(403, "no pods") if what.startswith("pods/") else None
    large = replace(FILES, code=bytes(LONGEST_CONFIG_BYTES + 1))
    await store.create(files=large, dry_run=True)
    with pytest.raises(Forbidden, match="no pods"):
        await store.create(files=large)
    assert store.names() == []


async def test_a_dry_run_stores_nothing(store: JobStore) -> None:
    await store.create(dry_run=True)
    assert [line.removeprefix("POST ") for line in store.log] == ALL
    assert all(asked.query.get("dryRun") == "All" for asked in store.cluster.requests)
    assert store.names() == []


def leftover(**meta: object) -> dict[str, object]:
    return {"kind": "ConfigMap", "metadata": {"name": "bert-code", "labels": {JOB_LABEL: "bert"}, **meta}}


DEAD = [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "gone"}]


async def test_leftovers_of_a_deleted_job_with_the_same_name_are_replaced(store: JobStore) -> None:
    for references in (DEAD, []):
        store.objects.clear()
        store.put(CODE_PATH, leftover(ownerReferences=references))
        await store.create()
        assert store.names() == sorted(ALL)
        assert store.named("configmaps/bert-code")["binaryData"]


async def test_an_existing_foreign_config_map_is_never_replaced(store: JobStore) -> None:
    alive = store.put("/apis/batch/v1/namespaces/vision/jobs/bert", {"metadata": {"name": "bert"}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert", "uid": alive["metadata"]["uid"]}
    cases: dict[str, dict[str, Any]] = {
        "ConfigMap bert-code does not belong to a job of this name.": {"labels": {"app": "web"}},
        "ConfigMap bert-code belongs to Job bert.": {"ownerReferences": [owner]},
        "ConfigMap bert-code belongs to another submission, which may still be in progress.": {
            "creationTimestamp": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        },
    }
    for sentence, meta in cases.items():
        held = store.put(CODE_PATH, leftover(**meta))
        for is_dry in (True, False):
            caught = await store.rejected(dry_run=is_dry)
            assert caught.causes["name"].startswith(f"ConfigMap bert-code exists already. {sentence}")
        assert store.objects[CODE_PATH] is held
        assert JOB not in store.names()


async def test_a_name_conflict_keeps_the_existing_job_and_rolls_back(store: JobStore) -> None:
    store.put(f"{JOBS_PATH}/bert", {"metadata": {"name": "bert"}})
    assert (await store.rejected()).causes == {"name": "A PyTorchJob of this name already exists in vision."}
    assert store.names() == [JOB]


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


async def test_a_new_claim_is_created_first_and_belongs_to_no_job(store: JobStore) -> None:
    used: list[OwnedObject] = []
    await store.create(WITH_CLAIM, on_found=used.append)
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


async def test_a_large_enough_claim_is_used_and_reported(store: JobStore) -> None:
    for is_dry, size in ((True, "10240Mi"), (True, ""), (False, "10240Mi")):
        held = store.put(CLAIM_PATH, held_claim(size))
        used: list[OwnedObject] = []
        await store.create(WITH_CLAIM, on_found=used.append, dry_run=is_dry)
        assert [each.title for each in used] == ["PersistentVolumeClaim data"]
        assert store.objects[CLAIM_PATH] is held


@pytest.mark.parametrize(
    ("size", "meta", "sentence"),
    [
        ("1Gi", {}, "Volume claim data already exists with 1Gi, less than 10Gi."),
        ("10Gi", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Volume claim data is still being deleted."),
    ],
    ids=["too small", "being deleted"],
)  # fmt: skip
async def test_a_claim_that_cannot_be_used_is_an_error_of_the_field(
    store: JobStore, size: str, meta: dict[str, str], sentence: str
) -> None:
    held = held_claim(size)
    store.put(CLAIM_PATH, held | {"metadata": held["metadata"] | meta})
    assert (await store.rejected(WITH_CLAIM)).causes == {"new_claims": sentence}
    assert store.names() == [CLAIM]


FIELDS = {
    CLAIM: "new_claims",
    "configmaps/bert-code": "sync_source",
    "configmaps/bert-files": "config_files",
    "configmaps/bert-trainer": "trainer",
    "configmaps/bert-pytorchjob": "name",
    "deployments/bert-tensorboard": "tensorboard",
    "services/bert-tensorboard": "tensorboard",
}


@pytest.mark.parametrize("what", [CLAIM, *ALL])
async def test_a_rejected_object_rolls_back_all_created_objects(store: JobStore, what: str) -> None:
    store.before = refuse(what, INVALID)
    caught = await store.rejected(WITH_CLAIM)
    assert store.names() == []
    assert what == JOB or caught.causes == {FIELDS[what]: "The cluster says: no such luck"}


async def test_an_existing_claim_outlives_a_rejected_job(store: JobStore) -> None:
    store.put(CLAIM_PATH, held_claim("10Gi"))
    store.before = refuse(JOB, INVALID)
    await store.rejected(WITH_CLAIM)
    assert store.names() == [CLAIM]


@pytest.mark.parametrize(
    "pods",
    [
        page([{"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}}]),
        refusal(403, "no pods for you"),
    ],
    ids=["a pod has it", "nobody knows"],
)
async def test_a_claim_that_may_hold_data_stays(store: JobStore, pods: Reply) -> None:
    refusing = refuse("deployments/bert-tensorboard", INVALID)
    store.before = lambda asked, what: pods if what == "vision/pods" else refusing(asked, what)
    caught = await store.rejected(WITH_CLAIM)
    assert store.names() == [CLAIM]
    assert caught.hint.endswith("This may be left in namespace vision: persistentvolumeclaims/data.")
