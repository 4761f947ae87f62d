"""Contract of every kind that can be created: its manifest, its pods, and every field of a job."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from k8s.kinds import CREATABLE, CreatableKind, Replica, kind_of
from k8s.kinds.job_spec import JOB_FIELDS, EnvSource, JobSpec, Mount
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.parse import JobReader
from k8s.models import Pod, Reader
from k8s.text.yaml_writer import to_yaml
from tests import GOLDEN
from tests.k8s.kinds.example_fields import BASE, EXAMPLES, IN_CODE, OF_KIND
from tests.support.objects import join, listed
from tests.support.openapi import schema_errors, schema_of

GOLDEN_KINDS = GOLDEN / "kinds"
SPEC = JobSpec(
    name="bert-base-1",
    namespace="vision",
    image="pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime",
    workers=3,
    gpus=8,
    processes=8,
    command=("torchrun", "-m", "train", "--note", "it's [/b] ünïcode: yes"),
    working_dir="/workspace",
    env={"LR": "1e-4", "PET_TEE": "1"},
    mounts=(Mount("workspace", "/workspace"), Mount("data", "/data")),
    cpu="16",
    memory="128Gi",
    priority_class="high",
    retries=2,
    trainer="ddp",
    log_dir="/workspace/logs",
    user="li",
    labels={"team": "vision"},
)
every_kind_with_pods = pytest.mark.parametrize(
    "kind", [kind for kind in CREATABLE if kind.word != "trainjob"], ids=lambda kind: type(kind).__name__
)
"""A TrainJob's pods are its JobSet's: see `test_sets`."""
every_kind = pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: type(kind).__name__)


def golden_of(kind: CreatableKind) -> Path:
    return GOLDEN_KINDS / f"{kind.title.lower().replace(' ', '-')}.yaml"


def labels_by_operator(kind: CreatableKind, name: str, replica: Replica) -> dict[str, str]:
    """Return the labels that an operator writes beyond those that its kind tells."""
    if kind.title == "MPIJob v1alpha1":
        return {"mpi_job_name": name, "mpi_role_type": replica.role}
    if kind.word != "mpi":
        return {}
    is_v1 = kind.title == "MPIJob v1"
    found = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/operator-name": "mpijob-controller" if is_v1 else "mpi-operator",
        f"training.kubeflow.org/{'replica-type' if is_v1 else 'job-role'}": replica.role,
    }
    return found if replica.is_chief else {**found, "training.kubeflow.org/replica-index": str(replica.index)}


def as_pods(kind: CreatableKind, manifest: Mapping[str, Any]) -> list[Pod]:
    """Return the pods that a cluster makes of a manifest."""
    meta = {**manifest["metadata"], "uid": "job-uid"}
    owner = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "controller": True}
    owner |= {"name": meta["name"], "uid": "job-uid"}
    pods = [
        {
            "metadata": {
                "name": replica.name or f"{meta['name']}-{replica.role}-{number}",
                "namespace": meta["namespace"],
                "uid": f"pod-{number}",
                "labels": {**dict(replica.labels), **labels_by_operator(kind, meta["name"], replica)},
                "ownerReferences": [owner],
            },
            "spec": {**replica.template["spec"], "nodeName": "n1"},
            "status": {"phase": "Running"},
        }
        for number, replica in enumerate(kind.replicas({**manifest, "metadata": meta}))
    ]
    return Reader[Pod](Pod).read_list(listed(*pods))[1]


@every_kind
def test_the_manifest_equals_the_golden_file(kind: CreatableKind) -> None:
    if os.environ.get("UPDATE_MANIFESTS"):
        golden_of(kind).write_text(to_yaml(kind.manifest(SPEC)))
    assert to_yaml(kind.manifest(SPEC)) == golden_of(kind).read_text()


@every_kind
def test_a_manifest_reads_the_same_after_yaml_and_has_no_anchors(kind: CreatableKind) -> None:
    text = to_yaml(kind.manifest(SPEC))
    assert yaml.safe_load(text) == kind.manifest(SPEC)
    assert "&id" not in text
    assert 'value: "1e-4"' in text  # bare it is a number to kubectl


@every_kind
def test_a_manifest_omits_unset_fields(kind: CreatableKind) -> None:
    manifest = kind.manifest(JobSpec(name="a", image="b", command=("c",), shared_memory=""))
    for meta in metadata_in(manifest):
        labels, annotations = meta.pop("labels", {}), meta.pop("annotations", {})
        if "release" in labels:  # by which Arena knows its jobs
            assert set(labels) <= {"app", "chart", "release", "heritage", "createdBy", "master-pod-name"}
            assert annotations == {"requestGPUsOfJobOwner": "0"}
        else:
            assert labels == annotations == {}
    text = to_yaml(manifest).replace("metadata.annotations[", "").replace("launcherResources", "")
    for word in ("resources", "volume", "priorityClassName", "annotations", "labels", "workingDir"):
        assert word not in text


def metadata_in(value: Any) -> list[dict[str, Any]]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [meta for each in inner for meta in metadata_in(each)]
    return [*found, value["metadata"]] if isinstance(value, dict) and "metadata" in value else found


@every_kind
def test_a_parsed_manifest_has_the_values_of_its_spec(kind: CreatableKind) -> None:
    job = kind.parse(json.loads(json.dumps(kind.manifest(SPEC))))
    assert (job.ref.namespace, job.ref.name, job.ref.kind) == ("vision", "bert-base-1", kind.resource.kind)
    assert kind_of(job.ref) is kind
    assert (job.user, job.trainer, job.log_dir) == ("li", "ddp", "/workspace/logs")
    assert job.priority == ("" if "priority_class" in kind.lacks else "high")
    launchers = 1 if kind.word == "mpi" else 0
    assert [replica.is_chief for replica in job.replicas] == [True, *[False] * (2 + launchers)]
    assert job.outcome is None and not job.is_suspended


@every_kind_with_pods
def test_pods_of_a_job_are_matched_to_their_job_and_replicas(kind: CreatableKind) -> None:
    manifest = kind.manifest(SPEC)
    manifest["metadata"]["uid"] = "job-uid"
    pods = as_pods(kind, manifest)
    _, jobs = join([], pods, [kind.parse(manifest)])
    assert [each.pod for each in jobs[0].instances] == [pod.metadata.name for pod in pods]
    assert (jobs[0].gpus_requested, jobs[0].gpus_allocated) == (24, 24)
    for pod in pods:
        assert kind.job_of(pod) == "bert-base-1"
        for wanted in kind.pod_selector("bert-base-1").split(","):
            key, _, value = wanted.partition("=")
            assert pod.metadata.label(key) == value


def variables(replica: Replica) -> dict[str, str | None]:
    containers = replica.template["spec"]["containers"]
    return {each["name"]: each.get("value") for each in containers[0]["env"]}


@every_kind
def test_log_lines_have_a_rank_prefix_unless_a_users_variable_changes_it(kind: CreatableKind) -> None:
    for replica in kind.replicas(kind.manifest(replace(SPEC, env={}))):
        env = variables(replica)
        assert env["PET_TEE"] == "3"
        assert env["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] == "[rank${rank}]: "
    assert variables(kind.replicas(kind.manifest(SPEC))[0])["PET_TEE"] == "1"


@every_kind
def test_the_number_of_parsed_replicas_is_bounded(kind: CreatableKind) -> None:
    job = kind.parse(json.loads(json.dumps(kind.manifest(replace(SPEC, workers=2_000_000_000)))))
    assert len(job.replicas) < 10_000


@every_kind
@given(body=st.binary())
def test_any_bytes_are_parsed_or_rejected(kind: CreatableKind, body: bytes) -> None:
    reader = JobReader(kind)
    for read in (reader.read, reader.read_list):
        try:
            read(body)
        except msgspec.DecodeError:
            continue


@every_kind
def test_a_malformed_job_does_not_hide_the_other_jobs(kind: CreatableKind) -> None:
    good = kind.manifest(SPEC)
    broken = {**good, "metadata": {**good["metadata"], "name": "broken"}, "spec": "nonsense"}
    _, jobs, unreadable = JobReader(kind).read_list(listed(broken, good, {"metadata": [1]}))
    assert [job.ref.name for job in jobs] == ["broken", "bert-base-1"]
    assert [bool(job.meta.unreadable) for job in jobs] == [True, False]
    assert unreadable == 2


every_creatable = pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)


def spec_with(kind: CreatableKind, name: str, *, without: bool = False) -> JobSpec:
    """Return a job with the example value of a field; `without` it, with only the other fields it needs."""
    values = dict(OF_KIND.get(kind.word, {}).get(name) or EXAMPLES[name])
    if without:
        values.pop(name)
    return replace(BASE, **values)


def test_every_field_has_an_example() -> None:
    assert set(EXAMPLES) | IN_CODE == {each.name for each in fields(JobSpec)}
    assert not set(EXAMPLES) & IN_CODE


@every_creatable
def test_a_field_changes_the_manifest_unless_the_kind_lacks_it(kind: CreatableKind) -> None:
    same = {
        name
        for name in EXAMPLES
        if kind.manifest(spec_with(kind, name, without=True)) == kind.manifest(spec_with(kind, name))
    }
    assert same == set(EXAMPLES) & set(kind.lacks)


@every_creatable
def test_each_lacking_field_of_a_kind_exists_and_has_an_explanation(kind: CreatableKind) -> None:
    for name, sentence in kind.lacks.items():
        assert name in JOB_FIELDS
        assert sentence.endswith(".") and sentence[0].isalpha() and len(sentence) < 100


@every_creatable
def test_exactly_the_unsupported_fields_are_reported(kind: CreatableKind) -> None:
    asked = {name: EXAMPLES[name][name] for name in EXAMPLES}
    policies: Mapping[str, Any] = {} if "restart_policy" in kind.lacks else {"restart_policy": "ExitCode"}
    found = kind.unsupported(replace(BASE, **{**asked, **policies}))
    refused = set(policies) if "ExitCode" not in kind.restart_policies else set()
    assert set(found) == set(kind.lacks) - IN_CODE | refused
    assert kind.unsupported(BASE) == {}


FULL = replace(
    BASE,
    **{
        name: value
        for example in EXAMPLES.values()
        for name, value in example.items()
        if name not in ("name", "namespace", "debug", "gpu_topology")
    },
)
"""A job of which nearly every field is set."""
SPECS = {
    "plain": BASE,
    "full": FULL,
    "rigid": replace(FULL, elastic=None),
    "debug": replace(FULL, debug=True),
    "full sources": replace(FULL, env_from=(EnvSource(True, "a"), EnvSource(False, "b"))),
    "topology": replace(BASE, gpu_topology=True),
    "cpu only": replace(BASE, gpus=0),
}


@pytest.mark.parametrize(
    "kind",
    [kind for kind in CREATABLE if kind.word in ("pytorch", "mpi", "trainjob")],
    ids=lambda kind: kind.title,
)
def test_the_released_crd_accepts_the_manifest(kind: CreatableKind) -> None:
    schema = schema_of(f"{kind.resource.kind.lower()}-{kind.resource.version}")
    for name, spec in SPECS.items():
        manifest = kind.manifest(spec)
        assert yaml.safe_load(to_yaml(manifest)) == manifest, name
        assert schema_errors(manifest, schema) == [], name


def test_schema_validation_finds_wrong_types_and_missing_or_unknown_fields() -> None:
    schema = schema_of("pytorchjob-v1")
    manifest = CREATABLE[0].manifest(BASE)
    manifest["spec"] |= {"nprocPerNode": 2, "planted": 1}
    del manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["name"]
    found = schema_errors(manifest, schema)
    assert [error.rpartition(": ")[2] for error in found] == ["is no string", "is missing", "is not known"]


def kinds_of_word(word: str) -> tuple[CreatableKind, ...]:
    return tuple(kind for kind in CREATABLE if word in (kind.word, *kind.aliases))


def test_a_kind_word_resolves_to_all_versions_newest_first() -> None:
    versions = kinds_of_word("mpi")
    assert [kind.resource.version for kind in versions] == ["v2beta1", "v1", "v1alpha1"]
    assert kinds_of_word("mpijob") == versions
    assert kinds_of_word("tfjob") == ()


def test_each_kind_word_belongs_to_exactly_one_kind() -> None:
    words = {word for kind in CREATABLE for word in (kind.word, *kind.aliases)}
    for word in words:
        assert len({(kind.resource.group, kind.resource.plural) for kind in kinds_of_word(word)}) == 1


def test_only_a_multi_pod_batch_job_needs_a_service() -> None:
    for kind in CREATABLE:
        made = kind.owned_objects(BASE)
        assert [resource.kind for resource, _ in made] == (["Service"] if kind.word == "job" else [])
        assert kind.owned_objects(replace(BASE, workers=1)) == ()


PYTORCH, MPI = CREATABLE[0], MPIJob()
