"""What comes along with a job: all of it or nothing, each once, though answers get lost."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import zipfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.errors import Forbidden, KubeError, Unreachable
from k8s.job_spec import (
    NO_FILES,
    SUBMISSION_ANNOTATION,
    ConfigFile,
    HostMount,
    JobFiles,
    JobSpec,
    Mount,
    NewClaim,
)
from k8s.jobs.clone import clone, copied_companions
from k8s.jobs.companions import JOB_LABEL, LONGEST_CONFIG_BYTES, Companion
from k8s.jobs.create import JobRejected, create_job, create_manifest, job_objects
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CONFIG_MAPS
from k8s.text.masked import MASK, masked
from tests import ROOT
from tests.scripted.object_store import ObjectStore, lose
from tests.scripted.server import Asked, Drop, Held, Reply, ScriptedCluster, page, refusal

KIND = PyTorchJob()
SPEC = JobSpec(
    name="bert",
    namespace="vision",
    image="pytorch:1",
    command=("python", "train.py"),
    sync_mode="folder",
    sync_source="/home/li/bert",
    config_files=(ConfigFile("a.yaml", "/etc/a/conf.yaml"), ConfigFile("b.yaml", "/etc/b/conf.yaml")),
    trainer="ddp",
    mounts=(Mount("data", "/data"), Mount("logs", "/data/logs", "team"), Mount("more", "/database")),
    log_dir="/data/logs/bert",
    tensorboard=True,
)
FILES = JobFiles(
    code=b"\x1f\x8btar",
    config_files={"a.yaml": b"a: 1\n", "b.yaml": b"\xff\xfe"},
    trainer={"trainer/__init__.py": b"", "trainer/ranks.py": b"x = 1\n"},
)
FIRST = ["configmaps/bert-code", "configmaps/bert-files", "configmaps/bert-trainer"]
JOB = "pytorchjobs/bert"
AFTER = ["configmaps/bert-pytorchjob", "deployments/bert-tensorboard", "services/bert-tensorboard"]
ALL = [*FIRST, JOB, *AFTER]
GIT = replace(
    SPEC,
    sync_mode="git",
    sync_source="https://host.example/team/code.git",
    config_files=(),
    trainer="",
    tensorboard=False,
    env={"GIT_SYNC_USERNAME": "li", "GIT_SYNC_PASSWORD": "s3cr3t-pw", "LR": "1"},
)


def arena_object(name: str) -> Any:
    """Return what Arena 0.15.2 made on a real cluster."""
    return json.loads((ROOT / "tests" / "fixtures" / "arena" / f"{name}.json").read_text())


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with ScriptedCluster() as found:
        yield found


@pytest.fixture
def store(cluster: ScriptedCluster) -> ObjectStore:
    return ObjectStore(cluster)


@pytest.fixture
async def client(cluster: ScriptedCluster, store: ObjectStore) -> AsyncIterator[Client]:
    async with cluster.client() as found:
        yield found


async def test_all_is_created_what_pods_need_first_and_belongs_to_the_job(
    client: Client, store: ObjectStore
) -> None:
    await create_job(client, KIND, SPEC, files=FILES)
    assert [line.removeprefix("POST ") for line in store.log if line.startswith("POST")] == ALL
    job = store.named(JOB)
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "bert",
        "uid": job["metadata"]["uid"],
    }
    ids = set()
    for what in ALL:
        meta = store.named(what)["metadata"]
        ids.add(meta["annotations"][SUBMISSION_ANNOTATION])
        assert what == JOB or meta["ownerReferences"] == [owner], what
        assert what == JOB or meta["labels"][JOB_LABEL] == "bert", what
        assert meta["namespace"] == "vision"
    assert len(ids) == 1


async def test_two_submissions_have_two_ids(client: Client, store: ObjectStore) -> None:
    for name in ("a", "b"):
        await create_job(client, KIND, replace(SPEC, name=name), files=FILES)
    one, other = (store.named(f"pytorchjobs/{name}")["metadata"]["annotations"] for name in ("a", "b"))
    assert one[SUBMISSION_ANNOTATION] != other[SUBMISSION_ANNOTATION]


@pytest.mark.parametrize("what", ALL)
@pytest.mark.parametrize("is_done", [True, False], ids=["after it was done", "before"])
async def test_a_lost_answer_neither_doubles_nor_loses_anything(
    client: Client, store: ObjectStore, what: str, is_done: bool
) -> None:
    hook = lose(what)
    if is_done:
        store.after = hook
    else:
        store.before = hook
    await create_job(client, KIND, SPEC, files=FILES)
    assert store.names() == sorted(ALL)
    sent = store.log.count(f"POST {what}")
    assert sent == (1 if is_done else 2)


async def test_somebody_elses_job_is_never_taken_for_one_whose_answer_got_lost(
    client: Client, store: ObjectStore
) -> None:
    path = "/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs/bert"
    store.put(path, {"metadata": {"name": "bert", "annotations": {SUBMISSION_ANNOTATION: "another"}}})
    store.before = lose(JOB)
    with pytest.raises(JobRejected) as caught:
        await create_job(client, KIND, SPEC, files=FILES)
    assert set(caught.value.causes) == {"name"}
    assert store.names() == [JOB]


@pytest.mark.parametrize("code", [500, 502, 504])
async def test_a_gateway_that_gave_up_waiting_is_no_answer(
    client: Client, store: ObjectStore, code: int
) -> None:
    said = [refusal(code, "upstream timed out")]
    store.after = lambda asked, what: said.pop() if (what, asked.method) == (JOB, "POST") and said else None
    await create_job(client, KIND, SPEC, files=FILES)
    assert store.names() == sorted(ALL)


@pytest.mark.parametrize("what", FIRST)
async def test_a_lost_answer_to_the_owner_is_said_again(
    client: Client, store: ObjectStore, what: str
) -> None:
    store.before = lose(what, method="PATCH")
    await create_job(client, KIND, SPEC, files=FILES)
    assert store.named(what)["metadata"]["ownerReferences"]


@pytest.mark.parametrize("what", ALL)
async def test_what_is_refused_leaves_nothing_behind(client: Client, store: ObjectStore, what: str) -> None:
    store.before = lambda asked, about: (
        refusal(422, "no such luck", "Invalid") if (about, asked.method) == (what, "POST") else None
    )
    with pytest.raises(JobRejected) as caught:
        await create_job(client, KIND, SPEC, files=FILES)
    assert store.names() == []
    fields = {
        "configmaps/bert-code": "sync_source",
        "configmaps/bert-files": "config_files",
        "configmaps/bert-trainer": "trainer",
        "configmaps/bert-pytorchjob": "name",
        "deployments/bert-tensorboard": "tensorboard",
        "services/bert-tensorboard": "tensorboard",
    }
    if what != JOB:
        assert caught.value.causes == {fields[what]: "The cluster says: no such luck"}


async def test_the_record_of_arena_is_left_out_for_who_may_not_write_it(
    client: Client, store: ObjectStore
) -> None:
    def deny(what: str) -> None:
        store.before = lambda asked, about: (
            refusal(403, "no") if (about, asked.method) == (what, "POST") else None
        )

    deny("configmaps/bert-pytorchjob")
    await create_job(client, KIND, SPEC, files=FILES)
    assert store.names() == sorted({*ALL} - {"configmaps/bert-pytorchjob"})
    store.objects.clear()
    deny("deployments/bert-tensorboard")
    with pytest.raises(Forbidden):
        await create_job(client, KIND, SPEC, files=FILES)
    assert store.names() == []


async def test_what_could_not_be_removed_is_named(client: Client, store: ObjectStore) -> None:
    def hook(asked: object, about: str) -> Reply | None:
        method = store.log[-1].split()[0] if store.log else ""
        if (method, about) == ("POST", JOB):
            return refusal(403, "no jobs today")
        return refusal(403, "no") if (method, about) == ("DELETE", "configmaps/bert-files") else None

    store.before = hook
    with pytest.raises(Forbidden) as caught:
        await create_job(client, KIND, SPEC, files=FILES)
    assert store.names() == ["configmaps/bert-files"]
    assert caught.value.hint.endswith("This may be left in namespace vision: configmaps/bert-files.")


async def test_a_cluster_that_goes_away_leaves_open_what_is_there_and_says_so(
    client: Client, store: ObjectStore, cluster: ScriptedCluster
) -> None:
    def hook(asked: object, about: str) -> Reply | None:
        if store.log[-1:] == [f"POST {JOB}"]:
            cluster.say_everywhere(Drop())
            return Drop()
        return None

    store.after = hook
    with pytest.raises(Unreachable) as caught:
        await create_job(client, KIND, SPEC, files=FILES)
    assert "pytorchjobs.kubeflow.org/bert, configmaps/bert-trainer" in caught.value.hint


async def test_a_submission_that_is_cancelled_is_taken_back(
    client: Client, store: ObjectStore, cluster: ScriptedCluster
) -> None:
    held = Held(refusal(500, "too late"))
    store.after = lambda asked, what: held if (what, asked.method) == (JOB, "POST") else None
    going = asyncio.create_task(create_job(client, KIND, SPEC, files=FILES))
    await cluster.until_asked("/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs", method="POST")
    while JOB not in store.names():
        await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert store.names() == []


async def test_a_dry_run_asks_about_every_object_and_stores_none(
    client: Client, store: ObjectStore, cluster: ScriptedCluster
) -> None:
    await create_job(client, KIND, SPEC, files=FILES, dry_run=True)
    assert [line.removeprefix("POST ") for line in store.log] == ALL
    assert all(asked.query.get("dryRun") == "All" for asked in cluster.requests)
    assert store.names() == []


PATH = "/api/v1/namespaces/vision/configmaps/bert-code"


def leftover(**meta: object) -> dict[str, object]:
    return {"kind": "ConfigMap", "metadata": {"name": "bert-code", "labels": {JOB_LABEL: "bert"}, **meta}}


DEAD = [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "gone"}]


async def test_what_a_dead_job_of_the_name_left_is_replaced(client: Client, store: ObjectStore) -> None:
    for references in (DEAD, []):
        store.objects.clear()
        store.put(PATH, leftover(ownerReferences=references))
        await create_job(client, KIND, SPEC, files=FILES)
        assert store.names() == sorted(ALL)
        assert store.named("configmaps/bert-code")["binaryData"]


async def test_what_is_somebody_elses_is_left_alone(client: Client, store: ObjectStore) -> None:
    alive = store.put("/apis/batch/v1/namespaces/vision/jobs/bert", {"metadata": {"name": "bert"}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert", "uid": alive["metadata"]["uid"]}
    cases: dict[str, dict[str, Any]] = {
        "ConfigMap bert-code was not made for a job of this name.": {"labels": {"app": "web"}},
        "ConfigMap bert-code belongs to Job bert.": {"ownerReferences": [owner]},
        "ConfigMap bert-code is of another submission, which may still go on.": {
            "creationTimestamp": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        },
    }
    for sentence, meta in cases.items():
        held = store.put(PATH, leftover(**meta))
        for is_dry in (True, False):
            with pytest.raises(JobRejected) as caught:
                await create_job(client, KIND, SPEC, files=FILES, dry_run=is_dry)
            assert caught.value.causes["name"].startswith(f"ConfigMap bert-code exists already. {sentence}")
        assert store.objects[PATH] is held
        assert JOB not in store.names()


async def test_a_taken_name_leaves_the_other_job_and_nothing_else(client: Client, store: ObjectStore) -> None:
    store.put("/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs/bert", {"metadata": {"name": "bert"}})
    with pytest.raises(JobRejected) as caught:
        await create_job(client, KIND, SPEC, files=FILES)
    assert caught.value.causes == {"name": "There is already a PyTorchJob of this name in vision."}
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


def refuse(what: str) -> Callable[[Asked, str], Reply | None]:
    """Return a hook that refuses to create one object, and says which pods there are."""

    def hook(asked: Asked, about: str) -> Reply | None:
        if (about, asked.method) == (what, "POST"):
            return refusal(422, "no such luck", "Invalid")
        return page([]) if about == "vision/pods" else None

    return hook


async def test_a_new_claim_is_created_first_and_belongs_to_no_job(client: Client, store: ObjectStore) -> None:
    used: list[Companion] = []
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
    held = store.put(CLAIM_PATH, held_claim("10240Mi"))
    for is_dry in (True, False):
        used: list[Companion] = []
        await create_job(client, KIND, WITH_CLAIM, files=FILES, on_found=used.append, dry_run=is_dry)
        assert [each.title for each in used] == ["PersistentVolumeClaim data"]
    assert store.objects[CLAIM_PATH] is held


async def test_a_claim_that_is_there_and_too_small_is_a_mistake_of_the_field(
    client: Client, store: ObjectStore
) -> None:
    store.put(CLAIM_PATH, held_claim("1Gi"))
    with pytest.raises(JobRejected) as caught:
        await create_job(client, KIND, WITH_CLAIM, files=FILES)
    said = "Volume claim data is there already with 1Gi, less than 10Gi."
    assert caught.value.causes == {"new_claims": said}
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


@pytest.mark.parametrize(
    ("spec", "files", "field", "words"),
    [
        (SPEC, replace(FILES, code=b""), "sync_source", "has not been read"),
        (
            replace(SPEC, mounts=(Mount("data", "/data", is_read_only=True),)),
            replace(FILES, code=bytes(LONGEST_CONFIG_BYTES + 1)),
            "sync_source",
            "1,024 KiB. Add a volume that takes it (-d claim:/path)",
        ),
        (SPEC, replace(FILES, config_files={"a.yaml": b""}), "config_files", "b.yaml has not been read."),
        (
            SPEC,
            replace(FILES, config_files={"a.yaml": bytes(600_000), "b.yaml": bytes(600_000)}),
            "config_files",
            "The config files: 1,171 KiB; a ConfigMap holds 1,024 KiB.",
        ),
        (SPEC, replace(FILES, trainer={}), "trainer", "have not been read"),
        (replace(SPEC, log_dir="/dat"), FILES, "log_dir", "/dat is in no volume of the job"),
    ],
)
async def test_what_cannot_come_along_is_said_before_anything_is_sent(
    client: Client, store: ObjectStore, spec: JobSpec, files: JobFiles, field: str, words: str
) -> None:
    with pytest.raises(JobRejected) as caught:
        await create_job(client, KIND, spec, files=files)
    assert words in caught.value.causes[field]
    assert store.log == []


def objects(spec: JobSpec, files: JobFiles = NO_FILES) -> dict[str, Any]:
    return {
        f"{resource.plural}/{manifest['metadata']['name']}": manifest
        for resource, manifest in job_objects(KIND, spec, files)
    }


def test_the_trainers_travel_as_a_zip_that_python_imports_and_that_is_always_the_same() -> None:
    one, other = (objects(SPEC, FILES)["configmaps/bert-trainer"]["binaryData"] for _ in "ab")
    assert one == other
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(one["trainer.zip"]))) as archive:
        assert archive.namelist() == ["trainer/__init__.py", "trainer/ranks.py"]
        assert archive.read("trainer/ranks.py") == b"x = 1\n"


def test_a_config_file_is_text_where_it_can_be() -> None:
    made = objects(SPEC, FILES)["configmaps/bert-files"]
    assert made["data"] == {"0-conf.yaml": "a: 1\n"}
    assert made["binaryData"] == {"1-conf.yaml": base64.b64encode(b"\xff\xfe").decode()}


async def test_a_git_password_is_in_its_secret_and_nowhere_else(client: Client, store: ObjectStore) -> None:
    await create_job(client, KIND, GIT)
    assert store.names() == ["configmaps/bert-pytorchjob", JOB, "secrets/bert-git"]
    secret = store.named("secrets/bert-git")
    decoded = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert decoded == {"username": "li", "password": "s3cr3t-pw"}
    others = {path: obj for path, obj in store.objects.items() if "secrets" not in path}
    assert "s3cr3t-pw" not in json.dumps(others)


def test_credentials_in_the_url_go_into_the_secret_too() -> None:
    spec = replace(GIT, env={}, sync_source="https://li:s3cr3t%2Fpw@host.example/team/code.git")
    made = objects(spec)
    secret = made.pop("secrets/bert-git")["data"]
    assert secret == {"username": "bGk=", "password": base64.b64encode(b"s3cr3t/pw").decode()}
    assert "s3cr3t" not in json.dumps(made)
    assert '"https://host.example/team/code.git"' in json.dumps(made)


def test_a_login_that_was_asked_for_becomes_the_secret_of_the_job() -> None:
    spec = replace(GIT, env={}, sync_source="git@host.example:team/code.git")
    made = objects(spec, JobFiles(git_login={"ssh-privatekey": "KEY"}))
    assert made["secrets/bert-git"]["data"] == {"ssh-privatekey": "S0VZ"}
    assert '"secretName": "bert-git"' in json.dumps(made[JOB])
    assert "KEY" not in repr(JobFiles(git_login={"ssh-privatekey": "KEY"}))


def test_a_preview_shows_no_secret() -> None:
    shown = [masked(manifest) for _, manifest in job_objects(KIND, GIT)]
    assert json.dumps(shown, ensure_ascii=False).count(MASK) == 2
    assert "s3cr3t-pw" not in json.dumps(shown)
    assert "czNjcjN0" not in json.dumps(shown)


def test_the_record_is_as_arenas_and_holds_no_secret() -> None:
    made = objects(replace(GIT, env={**GIT.env, "WANDB_API_KEY": "abc"}))["configmaps/bert-pytorchjob"]
    arena = arena_object("pytorch-dist.configmap")
    assert made["metadata"]["labels"]["createdBy"] == arena["metadata"]["labels"]["createdBy"]
    assert set(made["data"]) == set(arena["data"])
    assert made["data"]["app"] == "pytorchjob.kubeflow.org/bert"
    assert made["data"]["pytorchjob"] == arena["data"]["pytorchjob"]
    assert "WANDB" not in made["data"]["values"] and "LR" in made["data"]["values"]
    assert objects(SPEC, FILES)["configmaps/bert-pytorchjob"]["data"]["app"].splitlines() == [
        "service/bert-tensorboard",
        "deployment.apps/bert-tensorboard",
        "pytorchjob.kubeflow.org/bert",
    ]


def test_the_tensorboard_is_arenas_but_waits_for_no_node() -> None:
    spec = replace(
        SPEC,
        name="pytorch-dist",
        mounts=(Mount("training-data", "/mnist_data"),),
        log_dir="/mnist_data/pytorch_data/logs",
        tensorboard_image="tb:1",
    )
    made = objects(spec, FILES)
    ours = made["deployments/pytorch-dist-tensorboard"]
    theirs = arena_object("pytorch-dist.tensorboard-deployment")
    pod, wanted = ours["spec"]["template"]["spec"], theirs["spec"]["template"]["spec"]
    assert theirs["metadata"]["labels"].items() <= ours["metadata"]["labels"].items()
    command = pod["containers"][0]["command"]
    assert command[:5] == wanted["containers"][0]["command"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == wanted["volumes"][0]["persistentVolumeClaim"]
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/mnist_data"
    assert set(pod["affinity"]["podAffinity"]) == {"preferredDuringSchedulingIgnoredDuringExecution"}
    service, like = (
        made["services/pytorch-dist-tensorboard"],
        arena_object("pytorch-dist.tensorboard-service"),
    )
    assert service["spec"]["type"] == like["spec"]["type"] == "NodePort"
    assert service["spec"]["ports"][0]["port"] == like["spec"]["ports"][0]["port"]
    selected = service["spec"]["selector"].items()
    assert selected <= ours["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("change", "mounted"),
    [
        ({}, {"name": "events", "mountPath": "/data/logs", "readOnly": True, "subPath": "team"}),
        ({"log_dir": "/data/else"}, {"name": "events", "mountPath": "/data", "readOnly": True}),
        (
            {"log_dir": "/host/x/y", "host_mounts": (HostMount("/nfs", "/host/x"),)},
            {"name": "events", "mountPath": "/host/x", "readOnly": True},
        ),
    ],
)
def test_the_tensorboard_mounts_what_holds_the_event_files(
    change: dict[str, object], mounted: dict[str, object]
) -> None:
    made = objects(replace(SPEC, **change), FILES)["deployments/bert-tensorboard"]  # type: ignore[arg-type]
    pod = made["spec"]["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"] == [mounted]
    assert len(pod["volumes"]) == 1


async def test_a_clone_has_copies_of_its_own(client: Client, store: ObjectStore) -> None:
    await create_job(client, KIND, SPEC, files=FILES)
    found = clone(store.named(JOB), {"bert"})
    assert "bert-code" not in json.dumps(found.manifest)
    along = await copied_companions(client, found.manifest, "bert", "vision")
    await create_manifest(client, KIND.resource, found.manifest, "vision", companions=along)
    for suffix in ("code", "files", "trainer"):
        old, new = (store.named(f"configmaps/{name}-{suffix}") for name in ("bert", "bert-2"))
        assert (new.get("data"), new.get("binaryData")) == (old.get("data"), old.get("binaryData"))
        assert new["metadata"]["ownerReferences"][0]["name"] == "bert-2"
    del store.objects[PATH]
    with pytest.raises(KubeError, match="ConfigMap bert-code, with what it needs to run, is gone"):
        await copied_companions(client, found.manifest, "bert", "vision")


async def test_a_job_from_git_is_cloned_with_a_copy_of_its_login(client: Client, store: ObjectStore) -> None:
    await create_job(client, KIND, GIT)
    found = clone(store.named(JOB), {"bert"})
    assert not found.fits_form, "the password is nowhere that the form could read it"
    (secret,) = await copied_companions(client, found.manifest, "bert", "vision")
    assert secret.manifest["metadata"]["name"] == "bert-2-git"
    assert secret.manifest["data"] == store.named("secrets/bert-git")["data"]


def test_a_job_without_files_has_the_record_alone_beside_it() -> None:
    plain = JobSpec(name="bert", namespace="vision", image="i", command=("c",))
    assert [resource for resource, _ in job_objects(KIND, plain)] == [KIND.resource, CONFIG_MAPS]
