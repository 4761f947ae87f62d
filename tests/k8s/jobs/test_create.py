"""From a spec to a job: what the server refuses comes back to the field that made it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from k8s.jobs.create import JobRejected, check, create_job, delete_job, resource_of
from k8s.kinds import CREATABLE, CreatableKind, JobRef
from k8s.kinds.carried_spec import SPEC_ANNOTATION
from k8s.kinds.job_spec import SUBMISSION_ANNOTATION, JobSpec
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CONFIG_MAPS
from k8s.text.errors import Conflict, Forbidden, KubeError, NotFound, Unreachable
from k8s.text.yaml_writer import to_yaml
from tests.scripted.server import Answer, Asked, Compute, Drop, ScriptedCluster, refusal

SPEC = JobSpec(name="bert", namespace="vision", image="b", command=("c",))
KIND = PyTorchJob()
PATH = "/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs"
NAMESPACE = "/api/v1/namespaces/vision"


def echo(asked: Asked) -> Answer:
    return Answer(json.loads(asked.body), 201)


async def refused_with(reply: Answer, spec: JobSpec = SPEC) -> JobRejected:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PATH, reply, method="POST")
        cluster.say(NAMESPACE, Answer({"metadata": {"name": "vision"}}))
        with pytest.raises(JobRejected) as caught:
            await create_job(client, KIND, spec)
    return caught.value


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
async def test_the_created_object_equals_the_shown_manifest(kind: CreatableKind) -> None:
    path = kind.resource.path("vision")
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(path, Compute(echo), method="POST")
        cluster.say(CONFIG_MAPS.path("vision"), refusal(403, "none of yours"), method="POST")
        ref = await create_job(client, kind, SPEC, dry_run=True)
        await create_job(client, kind, SPEC)
        rehearsal, real = cluster.asked(path, method="POST")
    assert ref == JobRef("vision", "bert", kind.resource.kind, kind.resource.api_version)
    sent = json.loads(real.body)
    assert sent["metadata"]["annotations"].pop(SUBMISSION_ANNOTATION)
    assert json.loads(sent["metadata"]["annotations"].pop(SPEC_ANNOTATION))["image"] == SPEC.image
    shown = yaml.safe_load(to_yaml(kind.manifest(SPEC)))
    shown["metadata"].setdefault("annotations", {})
    assert sent == shown
    assert ("dryRun" in rehearsal.query, "dryRun" in real.query) == (True, False)
    assert resource_of(ref) == kind.resource


async def test_a_spec_with_mistakes_is_not_sent() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        with pytest.raises(JobRejected) as caught:
            await create_job(client, KIND, replace(SPEC, name="Bert", image=""))
        assert cluster.requests == []
    assert set(caught.value.causes) == {"name", "image"}
    assert "name: Use lowercase letters" in caught.value.why
    check(SPEC)


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
            await create_job(client, KIND, SPEC)
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
