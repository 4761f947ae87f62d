"""From an object back to the spec: of our own manifests nothing is lost, of others' nothing silently."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.job_spec import JOB_FIELDS, EnvSource, JobSpec, Mount, Role
from k8s.kinds import CREATABLE, CreatableKind
from tests.k8s.kinds.operator_objects import SITUATIONS, kind_named, objects
from tests.support.objects import Object, recorded

every_kind = pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
BATCH = next(kind for kind in CREATABLE if kind.word == "job")
every_kind_with_templates = pytest.mark.parametrize(
    "kind", [kind for kind in CREATABLE if kind.word != "trainjob"], ids=lambda kind: kind.title
)
"""A TrainJob's pods are its runtime's to describe."""
OURS = {
    "NVIDIA_VISIBLE_DEVICES",
    "PYTHONUNBUFFERED",
    "PET_TEE",
    "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
    "PYTHONSAFEPATH",
}
"""Variables that every job has: one with the very value that it has anyway is left out of the spec."""
WORD = st.text(alphabet="abz09-/=. '\"$éö中\n", min_size=1, max_size=12)
NAME = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
QUANTITY = st.sampled_from(["", "4", "500m", "32Gi", "1.5"])
SPECS = st.builds(
    JobSpec,
    name=NAME,
    namespace=NAME,
    image=st.sampled_from(["a", "pytorch/pytorch:2.6.0", "localhost:5000/x", "x:latest", "y@sha256:12"]),
    workers=st.integers(1, 40),
    gpus=st.integers(0, 16),
    gpu_resource=st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "example.com/npu"]),
    processes=st.integers(1, 64),
    command=st.lists(WORD, min_size=1, max_size=5).map(tuple),
    working_dir=st.sampled_from(["", "/workspace", "/a b"]),
    env=st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), st.text(max_size=9)),
    mounts=st.lists(
        st.builds(Mount, NAME, NAME.map("/{}".format)), max_size=3, unique_by=lambda each: each.path
    ).map(tuple),
    cpu=QUANTITY,
    memory=QUANTITY,
    shared_memory=st.sampled_from(["", "2Gi", "64Mi"]),
    priority_class=NAME | st.just(""),
    retries=st.integers(0, 9),
    clean_pods=st.sampled_from(["None", "Running", "All"]),
    trainer=st.sampled_from(["", "ddp"]),
    log_dir=st.sampled_from(["", "/workspace/logs"]),
    user=NAME | st.just(""),
    labels=st.dictionaries(NAME, NAME, max_size=3),
)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.title, marks=[] if kind.title == "PyTorchJob" else [pytest.mark.slow])
        for kind in CREATABLE
    ],
)
@settings(max_examples=100)
@given(spec=SPECS)
def test_a_console_manifest_is_read_back_as_the_same_spec(kind: CreatableKind, spec: JobSpec) -> None:
    manifest = kind.manifest(spec)
    found, lost = kind.spec_from_manifest(json.loads(json.dumps(manifest)))
    # What the kind lacks its manifest does not say, so that no object can say it either.
    as_found: dict[str, Any] = {name: JOB_FIELDS[name].default for name in kind.lacks}
    if kind.word == "mpi" and spec.clean_pods == "None":
        as_found["clean_pods"] = "Running"  # workers that are kept would hold their GPUs
    if not spec.gpus:
        as_found["gpu_resource"] = "nvidia.com/gpu"
    assert found == replace(spec, **as_found)
    assert lost == ()
    assert kind.manifest(found) == manifest


@every_kind
def test_default_variables_with_other_values_are_kept_as_user_variables(kind: CreatableKind) -> None:
    spec = JobSpec(name="a", image="i", command=("x",), env=dict.fromkeys(sorted(OURS), "0"))
    assert kind.spec_from_manifest(kind.manifest(spec))[0].env == spec.env


@every_kind_with_templates
def test_defaults_filled_in_by_the_server_are_not_reported_as_lost(kind: CreatableKind) -> None:
    obj = kind.manifest(JobSpec(name="a", image="i:1", command=("x",), env={"A": ""}))
    template = _templates(obj)[0]
    template["metadata"] = {**template.get("metadata", {}), "creationTimestamp": None}
    template["spec"] |= {
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    container = template["spec"]["containers"][0]
    container |= {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
    }
    for each in container["env"]:
        if each.get("value") == "":
            del each["value"]
    spec, lost = kind.spec_from_manifest(obj)
    assert (spec.env, lost) == ({"A": ""}, ())


@every_kind_with_templates
def test_manifest_fields_without_a_form_field_are_named_as_lost(kind: CreatableKind) -> None:
    mounts = (Mount("c", "/c"),)
    spec = JobSpec(name="a", image="i", command=("x",), mounts=mounts, mounts_on_launcher=True)
    obj = kind.manifest(spec)
    for template in _templates(obj):
        _add_what_no_spec_says(template["spec"])
    found, lost = kind.spec_from_manifest(obj)
    assert (found.cpu, found.memory, found.memory_request) == ("8", "", "1Gi")
    assert found.mounts == (Mount("c", "/c", "mine"),)
    assert found.env_from == (EnvSource(True, "wandb", "k", "WANDB_API_KEY"),)
    launchers = {"the launcher's own devices"} if "mpiReplicaSpecs" in obj["spec"] else set()
    assert set(lost) == launchers | {
        "nodeName",
        "initContainers",
        "2 sidecars",
        "variable IP, which comes from field",
        "requests.example.com/fpga",
        "subPathExpr of the mount /c",
        "volume host",
        "tolerations",
        "securityContext",
    }


def _add_what_no_spec_says(pod: Object) -> None:
    pod["nodeName"] = "a"
    pod["initContainers"] = [{"name": "sync"}]
    pod["securityContext"] = {"runAsUser": 7, "fsGroup": 7}
    pod["tolerations"] = [{"key": "k", "operator": "Exists", "tolerationSeconds": 30}]
    pod["containers"] += [{"name": "proxy"}, {"name": "agent"}]
    main = pod["containers"][0]
    main["env"] += [
        {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "k"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    main["resources"] = {
        "limits": {"nvidia.com/gpu": 2, "example.com/fpga": 1, "cpu": 8},
        "requests": {"cpu": "8", "memory": "1Gi", "example.com/fpga": "2"},
    }
    main["volumeMounts"][0] |= {"subPath": "mine", "subPathExpr": "$(X)"}
    main["volumeMounts"].append({"name": "host", "mountPath": "/host"})
    pod["volumes"].append({"name": "host", "hostPath": {"path": "/", "type": "Directory"}})


def test_workers_that_differ_from_the_master_are_named() -> None:
    kind = CREATABLE[0]
    obj = kind.manifest(JobSpec(name="a", image="i", command=("x",), workers=3))
    worker = obj["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["containers"][0] |= {"image": "other", "workingDir": "/w"}
    worker["tolerations"] = [{"operator": "Exists"}]
    spec, lost = kind.spec_from_manifest(obj)
    assert (spec.workers, spec.image, spec.worker_image) == (3, "i", "")
    assert spec.roles == (Role("worker", image="other", working_dir="/w"),)
    assert lost == ("worker's own tolerations",)


def test_a_foreign_elastic_policy_without_a_master_is_named_as_lost() -> None:
    kind = CREATABLE[0]
    obj = kind.manifest(JobSpec(name="a", image="i", command=("x",), workers=3, retries=1))
    roles = obj["spec"]["pytorchReplicaSpecs"]
    del roles["Master"]
    obj["spec"]["elasticPolicy"] = {"minReplicas": 1}
    spec, lost = kind.spec_from_manifest(obj)
    assert spec.workers == 2
    assert lost == ("elasticPolicy", "no single master")


def test_a_run_policy_directly_in_the_spec_is_read_back() -> None:
    kind = CREATABLE[0]
    obj = kind.manifest(JobSpec(name="a", image="i", command=("x",), retries=2, clean_pods="All"))
    obj["spec"] |= obj["spec"].pop("runPolicy")
    spec, lost = kind.spec_from_manifest(obj)
    assert (spec.retries, spec.clean_pods, lost) == (2, "All", ())


def test_parallelism_and_completion_mode_of_a_foreign_job_are_named_as_lost() -> None:
    kind = BATCH
    obj = kind.manifest(JobSpec(name="a", image="i", command=("x",), workers=10))
    obj["spec"] |= {"parallelism": 2, "completionMode": "NonIndexed"}
    assert kind.spec_from_manifest(obj)[1] == ("parallelism", "completionMode")


def foreign() -> list[Object]:
    """Return objects of kinds that can be made here, none of which was made here."""
    found = [{**each, "apiVersion": "kubeflow.org/v1"} for each in recorded("pytorchjobs")]
    return found + [objects(name)[0] for name in SITUATIONS if kind_named(objects(name)[0]) in CREATABLE]


@pytest.mark.parametrize("obj", foreign(), ids=lambda obj: obj["metadata"]["name"])
def test_any_added_foreign_field_is_read_or_named_as_lost(obj: Object) -> None:
    obj.pop("status", None)
    kind = next(each for each in CREATABLE if each is kind_named(obj))
    before = kind.spec_from_manifest(obj)
    planted = 0
    for path in _objects_in(obj):
        changed = deepcopy(obj)
        place: Any = changed
        whole = {*map(str, path)}
        for step in path:
            place = place[step]
            whole |= {f"volume {place.get('name')}"} if isinstance(place, dict) else set()
        # What is named as a whole, as `volume code-sync` or `hostAliases`, is not named a second time.
        if whole & {*before[1]}:
            continue
        place["planted"] = {"x": 1}
        assert kind.spec_from_manifest(changed) != before, path
        planted += 1
    assert planted > 5


def _objects_in(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every object within an object."""
    if isinstance(value, list):
        return [found for index, each in enumerate(value) for found in _objects_in(each, (*path, index))]
    if not isinstance(value, dict):
        return []
    return [path, *(found for key, each in value.items() for found in _objects_in(each, (*path, key)))]


def _templates(obj: Object) -> list[Object]:
    spec = obj["spec"]
    roles = spec.get("pytorchReplicaSpecs") or spec.get("mpiReplicaSpecs") or {}
    found = [each["template"] for each in [*roles.values(), *(spec.get("replicaSpecs") or ())]]
    return found or [spec["template"]]
