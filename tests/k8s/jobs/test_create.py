"""From a spec to a job and the objects beside it: what the server refuses comes back to its field."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from dataclasses import replace
from typing import Any

import pytest
import yaml

from k8s.client.client import Client
from k8s.jobs.clone import clone, copied_owned_objects
from k8s.jobs.create import (
    JobRejected,
    check,
    create_job,
    create_manifest,
    delete_job,
    job_objects,
    resource_of,
)
from k8s.jobs.owned_objects import LONGEST_CONFIG_BYTES, problems_with_files, with_files
from k8s.kinds import CREATABLE, CreatableKind, JobRef
from k8s.kinds.batch_job import BatchJob
from k8s.kinds.carried_spec import SPEC_ANNOTATION
from k8s.kinds.job_spec import NO_FILES, SUBMISSION_ANNOTATION, HostMount, JobFiles, JobSpec, Mount
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CONFIG_MAPS, JOBS, SERVICES
from k8s.text.errors import Conflict, Forbidden, KubeError, NotFound, Unreachable
from k8s.text.redact import MASK, masked
from k8s.text.yaml_writer import to_yaml
from tests.k8s.jobs.bert import ALL, CODE_PATH, FILES, GIT, JOB, KIND, SPEC, arena_object
from tests.scripted.object_store import ObjectStore
from tests.scripted.server import Answer, Asked, Compute, Drop, ScriptedCluster, refusal

PLAIN = JobSpec(name="bert", namespace="vision", image="b", command=("c",))
PYTORCH = PyTorchJob()
PATH = "/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs"
NAMESPACE = "/api/v1/namespaces/vision"


def echo(asked: Asked) -> Answer:
    return Answer(json.loads(asked.body), 201)


async def refused_with(reply: Answer, spec: JobSpec = PLAIN) -> JobRejected:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PATH, reply, method="POST")
        cluster.say(NAMESPACE, Answer({"metadata": {"name": "vision"}}))
        with pytest.raises(JobRejected) as caught:
            await create_job(client, PYTORCH, spec)
    return caught.value


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
async def test_the_created_object_equals_the_shown_manifest(kind: CreatableKind) -> None:
    path = kind.resource.path("vision")
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(path, Compute(echo), method="POST")
        cluster.say(CONFIG_MAPS.path("vision"), refusal(403, "none of yours"), method="POST")
        ref = await create_job(client, kind, PLAIN, dry_run=True)
        await create_job(client, kind, PLAIN)
        rehearsal, real = cluster.asked(path, method="POST")
    assert ref == JobRef("vision", "bert", kind.resource.kind, kind.resource.api_version)
    sent = json.loads(real.body)
    assert sent["metadata"]["annotations"].pop(SUBMISSION_ANNOTATION)
    assert json.loads(sent["metadata"]["annotations"].pop(SPEC_ANNOTATION))["image"] == PLAIN.image
    shown = yaml.safe_load(to_yaml(kind.manifest(PLAIN)))
    shown["metadata"].setdefault("annotations", {})
    assert sent == shown
    assert ("dryRun" in rehearsal.query, "dryRun" in real.query) == (True, False)
    assert resource_of(ref) == kind.resource


async def test_a_spec_with_mistakes_is_not_sent() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        with pytest.raises(JobRejected) as caught:
            await create_job(client, PYTORCH, replace(PLAIN, name="Bert", image=""))
        assert cluster.requests == []
    assert set(caught.value.causes) == {"name", "image"}
    assert "name: Use lowercase letters" in caught.value.why
    check(PLAIN)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("metadata.name", "name"),
        ("spec.template.spec.containers[0].image", "image"),
        ("spec.pytorchReplicaSpecs.Master.template.spec.containers[0].command", "command"),
        ("spec.template.spec.containers[0].workingDir", "working_dir"),
        ("spec.pytorchReplicaSpecs.Worker.replicas", "workers"),
        ("spec.completions", "workers"),
        ("spec.parallelism", "workers"),
        ("spec.nprocPerNode", "processes"),
        ("spec.backoffLimit", "retries"),
        ("spec.template.spec.priorityClassName", "priority_class"),
        ("spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]", "gpus"),
        ("spec.template.spec.containers[0].resources.requests[cpu]", "cpu"),
        ("spec.template.spec.containers[0].resources.limits[memory]", "memory"),
        ("spec.template.spec.containers[0].env[0].name", "env"),
        ("spec.template.spec.volumes[0].persistentVolumeClaim.claimName", "mounts"),
        ("spec.template.spec.containers[0].volumeMounts[0].mountPath", "mounts"),
        ("spec.template.spec.volumes[2].emptyDir.sizeLimit", "shared_memory"),
        ("spec.something.else", "spec.something.else"),
    ],
)
async def test_a_rejected_manifest_path_is_mapped_to_its_form_field(path: str, field: str) -> None:
    error = await refused_with(refusal(422, "invalid", "Invalid", causes={path: "must not be so"}))
    assert error.causes == {field: "must not be so"}


REQUESTS = "spec.template.spec.containers[0].resources.requests"
OVER = 'Invalid value: "2": must be less than or equal to {} limit of 1'


@pytest.mark.parametrize(
    ("causes", "found"),
    [
        ({REQUESTS: OVER.format("cpu")}, {"cpu": OVER.format("cpu")}),
        ({REQUESTS: OVER.format("memory")}, {"memory": OVER.format("memory")}),
        (
            {"spec.a.image": "no such registry", "spec.b.image": "no tag"},
            {"image": "no such registry; no tag"},
        ),
    ],
)
async def test_a_rejected_field_is_explained(causes: dict[str, str], found: dict[str, str]) -> None:
    assert (await refused_with(refusal(422, "invalid", "Invalid", causes=causes))).causes == found


UNSERVED = "This cluster does not serve PyTorchJob kubeflow.org/v1."


async def test_an_existing_name_or_a_missing_namespace_is_a_field_error() -> None:
    error = await refused_with(refusal(409, 'pytorchjobs "bert" already exists', "AlreadyExists"))
    assert error.causes == {"name": "A PyTorchJob of this name already exists in vision."}
    assert error.hint == "Choose another name, or delete that job first."
    error = await refused_with(refusal(404, 'namespaces "vision" not found', "NotFound"))
    assert error.causes == {"namespace": "There is no namespace vision."}


@pytest.mark.parametrize(
    ("answers", "error", "why"),
    [
        ({NAMESPACE: refusal(403, "cannot get namespaces")}, JobRejected, UNSERVED),
        ({NAMESPACE: Answer({"metadata": {}})}, JobRejected, UNSERVED),
        ({}, JobRejected, "There is no namespace vision."),
        ({PATH: refusal(403, "no")}, Forbidden, "no"),
        ({PATH: Drop()}, Unreachable, ""),
        ({PATH: refusal(409, "changed", "Conflict")}, Conflict, "changed"),
    ],
    ids=["an unserved kind", "the same", "a missing namespace", "forbidden", "unreachable", "a conflict"],
)
async def test_each_failure_to_create_a_job_has_its_error(
    answers: dict[str, Any], error: type[KubeError], why: str
) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, reply in answers.items():
            cluster.say(path, reply, method="POST" if path == PATH else "GET")
        with pytest.raises(error) as caught:
            await create_job(client, PYTORCH, PLAIN)
    assert type(caught.value) is error and why in caught.value.why
    assert ("operator" in caught.value.hint) == (why == UNSERVED)


async def test_a_job_is_deleted_with_a_uid_precondition() -> None:
    ref = JobRef("vision", "bert", "PyTorchJob", "kubeflow.org/v1")
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(f"{PATH}/bert", Answer({}), refusal(409, "uid mismatch", "Conflict"), method="DELETE")
        await delete_job(client, ref, uid="u")
        assert json.loads(cluster.requests[0].body)["preconditions"] == {"uid": "u"}
        with pytest.raises(Conflict):
            await delete_job(client, ref, uid="u")
        with pytest.raises(NotFound):
            await delete_job(client, JobRef("vision", "gone", "PyTorchJob", "kubeflow.org/v1"))


async def test_an_object_of_another_kind_is_deleted_at_its_discovered_path() -> None:
    mouse, web = JobRef("vision", "m", "Mouse", "lab.io/v1"), JobRef("vision", "web", "Cat", "lab.io/v1")
    served = {"resources": [{"name": "mice", "kind": "Mouse", "namespaced": True, "verbs": ["delete"]}]}
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/apis/lab.io/v1", Answer(served))
        cluster.say("/apis/lab.io/v1/namespaces/vision/mice/m", Answer({}), method="DELETE")
        await delete_job(client, mouse, uid="u")
        assert json.loads(cluster.requests[-1].body)["preconditions"] == {"uid": "u"}
        with pytest.raises(KubeError, match="Could not delete Cat web"):
            await delete_job(client, web)


@pytest.mark.parametrize(
    ("spec", "files", "field", "words"),
    [
        (SPEC, replace(FILES, code=b""), "sync_source", "has not been read"),
        (replace(SPEC, mounts=(Mount("data", "/data", is_read_only=True),)),
         replace(FILES, code=bytes(LONGEST_CONFIG_BYTES + 1)), "sync_source",
         "1,024 KiB. Add a writable volume (-d claim:/path)"),
        (SPEC, replace(FILES, config_files={"a.yaml": b""}), "config_files", "b.yaml has not been read."),
        (SPEC, replace(FILES, config_files={"a.yaml": bytes(600_000), "b.yaml": bytes(600_000)}),
         "config_files", "The config files: 1,171 KiB; a ConfigMap holds 1,024 KiB."),
        (SPEC, replace(FILES, trainer={}), "trainer", "have not been read"),
        (replace(SPEC, log_dir="/dat"), FILES, "log_dir", "/dat is on no volume of the job"),
    ],
)  # fmt: skip
async def test_missing_or_oversized_files_are_rejected_before_any_request(
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


def test_the_trainer_zip_is_importable_and_reproducible() -> None:
    one, other = (objects(SPEC, FILES)["configmaps/bert-trainer"]["binaryData"] for _ in "ab")
    assert one == other
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(one["trainer.zip"]))) as archive:
        assert archive.namelist() == ["trainer/__init__.py", "trainer/ranks.py"]
        assert archive.read("trainer/ranks.py") == b"x = 1\n"


def test_a_config_file_is_stored_as_text_if_it_is_utf8() -> None:
    made = objects(SPEC, FILES)["configmaps/bert-files"]
    assert made["data"] == {"0-conf.yaml": "a: 1\n"}
    assert made["binaryData"] == {"1-conf.yaml": base64.b64encode(b"\xff\xfe").decode()}


async def test_a_git_password_is_stored_only_in_its_secret(client: Client, store: ObjectStore) -> None:
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


def test_prompted_git_credentials_become_a_secret_of_the_job() -> None:
    spec = replace(GIT, env={}, sync_source="git@host.example:team/code.git")
    made = objects(spec, JobFiles(git_login={"ssh-privatekey": "KEY"}))
    assert made["secrets/bert-git"]["data"] == {"ssh-privatekey": "S0VZ"}
    assert '"secretName": "bert-git"' in json.dumps(made[JOB])
    assert "KEY" not in repr(JobFiles(git_login={"ssh-privatekey": "KEY"}))


def test_unneeded_git_credentials_create_no_secret() -> None:
    """The code is no repository, or a Secret was named for it."""
    login = JobFiles(git_login={"ssh-privatekey": "KEY"})
    for spec in (replace(GIT, sync_mode=""), replace(GIT, git_secret="team")):
        assert with_files(spec, login) is spec


def test_a_preview_shows_no_secret() -> None:
    shown = [masked(manifest) for _, manifest in job_objects(KIND, GIT)]
    assert json.dumps(shown, ensure_ascii=False).count(MASK) == 2
    assert "s3cr3t-pw" not in json.dumps(shown)
    assert "czNjcjN0" not in json.dumps(shown)


def test_the_arena_record_matches_arena_and_contains_no_secret() -> None:
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


def test_the_tensorboard_deployment_matches_arena_with_only_preferred_affinity() -> None:
    mounts, log_dir = (Mount("training-data", "/mnist_data"),), "/mnist_data/pytorch_data/logs"
    spec = replace(SPEC, name="pytorch-dist", mounts=mounts, log_dir=log_dir, tensorboard_image="tb:1")
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
    service = made["services/pytorch-dist-tensorboard"]
    like = arena_object("pytorch-dist.tensorboard-service")
    assert service["spec"]["type"] == like["spec"]["type"] == "NodePort"
    assert service["spec"]["ports"][0]["port"] == like["spec"]["ports"][0]["port"]
    selected = service["spec"]["selector"].items()
    assert selected <= ours["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("change", "mounted"),
    [
        ({}, {"mountPath": "/data/logs", "subPath": "team"}),
        ({"log_dir": "/data/else"}, {"mountPath": "/data"}),
        ({"log_dir": "/host/x/y", "host_mounts": (HostMount("/nfs", "/host/x"),)}, {"mountPath": "/host/x"}),
    ],
)
def test_tensorboard_mounts_the_event_files(change: dict[str, object], mounted: dict[str, object]) -> None:
    made = objects(replace(SPEC, **change), FILES)["deployments/bert-tensorboard"]  # type: ignore[arg-type]
    pod = made["spec"]["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "events", "readOnly": True, **mounted}]
    assert len(pod["volumes"]) == 1


async def test_a_clone_gets_its_own_copies_of_config_maps(client: Client, store: ObjectStore) -> None:
    await create_job(client, KIND, SPEC, files=FILES)
    found = clone(store.named(JOB), {"bert"})
    assert "bert-code" not in json.dumps(found.manifest)
    along = await copied_owned_objects(client, found.manifest, "bert", "vision")
    beside = [each.title for each in along if not each.comes_first]
    assert beside == [
        "ConfigMap bert-2-pytorchjob", "Deployment bert-2-tensorboard", "Service bert-2-tensorboard",
    ]  # fmt: skip
    await create_manifest(client, KIND.resource, found.manifest, "vision", owned_objects=along)
    for suffix in ("code", "files", "trainer"):
        old, new = (store.named(f"configmaps/{name}-{suffix}") for name in ("bert", "bert-2"))
        assert (new.get("data"), new.get("binaryData")) == (old.get("data"), old.get("binaryData"))
        assert new["metadata"]["ownerReferences"][0]["name"] == "bert-2"
    del store.objects[CODE_PATH]
    with pytest.raises(KubeError, match="ConfigMap bert-code, with what it needs to run, is gone"):
        await copied_owned_objects(client, found.manifest, "bert", "vision")


async def test_a_clone_has_a_tensorboard_if_the_job_has_one(client: Client, store: ObjectStore) -> None:
    await create_job(client, KIND, replace(SPEC, tensorboard_image="board:1"), files=FILES)
    found = clone(store.named(JOB), {"bert"})

    async def beside() -> list[Any]:
        along = await copied_owned_objects(client, found.manifest, "bert", "vision")
        return [each.manifest for each in along if not each.comes_first]

    record, deployment, service = await beside()
    assert "deployment.apps/bert-2-tensorboard" in record["data"]["app"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    log_dir = found.manifest["metadata"]["annotations"]["gpuconsole.dev/log-dir"]
    assert (container["image"], container["command"][2]) == ("board:1", log_dir)
    selected = {"app": "pytorchjob", "release": "bert-2", "role": "tensorboard"}
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == selected
    held = store.named("deployments/bert-tensorboard")
    for labels in ({}, {"release": "another", "gpuconsole.dev/job": "another"}):
        held["metadata"]["labels"] = labels
        (record,) = await beside()
        assert "tensorboard" not in record["data"]["app"]


async def test_the_pods_of_a_clone_have_their_own_service(client: Client, store: ObjectStore) -> None:
    spec = JobSpec(name="bert", namespace="vision", image="i", command=("c",), workers=2)
    await create_job(client, BatchJob(), spec)
    found = clone(store.named("jobs/bert"), {"bert"})
    (service,) = await copied_owned_objects(client, found.manifest, "bert", "vision")
    assert (service.title, service.comes_first) == ("Service bert-2", True)
    assert service.manifest["spec"]["selector"] == {"job-name": "bert-2"}
    assert found.manifest["spec"]["template"]["spec"]["subdomain"] == "bert-2"


async def test_a_job_from_git_is_cloned_with_a_copy_of_its_secret(client: Client, store: ObjectStore) -> None:
    await create_job(client, KIND, GIT)
    found = clone(store.named(JOB), {"bert"})
    assert found.spec is None, "the password is nowhere that the form could read it"
    secret, _ = await copied_owned_objects(client, found.manifest, "bert", "vision")
    assert secret.manifest["metadata"]["name"] == "bert-2-git"
    assert secret.manifest["data"] == store.named("secrets/bert-git")["data"]


def test_a_folder_that_a_config_map_holds_needs_no_volume() -> None:
    spec = replace(SPEC, mounts=(), tensorboard=False, log_dir="")
    files = replace(FILES, code=bytes(LONGEST_CONFIG_BYTES))
    assert problems_with_files(spec, files) == {}
    assert set(problems_with_files(spec, replace(files, code=files.code + b"x"))) == {"sync_source"}


def test_only_required_objects_need_permission() -> None:
    objects = job_objects(KIND, SPEC, FILES, is_optional_too=False)
    needed = [manifest["metadata"]["name"] for _, manifest in objects]
    assert needed == [each.partition("/")[2] for each in ALL if each != "configmaps/bert-pytorchjob"]


def test_objects_of_a_job_are_created_in_order() -> None:
    plain = JobSpec(name="bert", namespace="vision", image="i", command=("c",))
    assert [resource for resource, _ in job_objects(KIND, plain)] == [KIND.resource, CONFIG_MAPS]
    several = replace(plain, workers=2)
    assert [resource for resource, _ in job_objects(BatchJob(), several)] == [SERVICES, JOBS]
