"""Every field of a job in every kind: what it becomes, or why that kind has no such thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
import yaml

from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import JOB_FIELDS, EnvSource, JobSpec
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.text.yaml_writer import to_yaml
from tests.k8s.kinds.example_fields import BASE, EXAMPLES, IN_CODE, OF_KIND
from tests.support.openapi import schema_errors, schema_of

every_kind = pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)


def spec_with(kind: CreatableKind, name: str, *, without: bool = False) -> JobSpec:
    """Return a job with the example value of a field; `without` it, with only the other fields it needs."""
    values = dict(OF_KIND.get(kind.word, {}).get(name) or EXAMPLES[name])
    if without:
        values.pop(name)
    return replace(BASE, **values)


def test_every_field_has_an_example() -> None:
    assert set(EXAMPLES) | IN_CODE == {each.name for each in fields(JobSpec)}
    assert not set(EXAMPLES) & IN_CODE


@every_kind
def test_a_field_changes_the_manifest_unless_the_kind_lacks_it(kind: CreatableKind) -> None:
    same = {
        name
        for name in EXAMPLES
        if kind.manifest(spec_with(kind, name, without=True)) == kind.manifest(spec_with(kind, name))
    }
    assert same == set(EXAMPLES) & set(kind.lacks)


@every_kind
def test_each_lacking_field_of_a_kind_exists_and_has_an_explanation(kind: CreatableKind) -> None:
    for name, sentence in kind.lacks.items():
        assert name in JOB_FIELDS
        assert sentence.endswith(".") and sentence[0].isalpha() and len(sentence) < 100


@every_kind
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
