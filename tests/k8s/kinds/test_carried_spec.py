"""A job's spec in its annotation: all of it comes back, and only where the job still is what it describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from k8s.jobs.clone import Clone, cleaned, clone
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.carried_spec import LONGEST_CHARS, SPEC_ANNOTATION, differences, with_spec
from k8s.kinds.job_spec import ConfigFile, JobSpec, Mount, NewClaim
from tests.k8s.kinds.example_fields import BASE, EXAMPLES, OF_KIND
from tests.support.objects import Object

every_kind = pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
PYTORCH = CREATABLE[0]
GIT = {"sync_mode": "git", "sync_source": "https://host.example/code.git", "working_dir": "/root"}
CODE: dict[str, dict[str, Any]] = {
    "git": {**GIT, "sync_branch": "main", "env": {"GIT_SYNC_DEPTH": "1"}},
    "git in a volume": {**GIT, "sync_path": "/data/code", "mounts": (Mount("data", "/data"),)},
    "git of a secret": {**GIT, "git_secret": "team", "sync_image": "git:2"},
    "rsync": {"sync_mode": "rsync", "sync_source": "host::code"},
    "text": {"command": ("sh", "-c", 'echo "é$中\'"\n'), "env": {"A": "", "B": " x\ty"}},
}


def stored(kind: CreatableKind, spec: JobSpec) -> Object:
    """Return a job as a server keeps it."""
    obj: Object = json.loads(json.dumps(with_spec(kind.manifest(spec), kind.supported(spec))))
    obj["metadata"] |= {"uid": "u", "generation": 1}
    return {**obj, "status": {"active": 1}}


def copied(kind: CreatableKind, spec: JobSpec) -> Clone:
    return clone(stored(kind, spec), name="copy", user="wu")


@every_kind
def test_a_clone_has_every_field_of_the_job(kind: CreatableKind) -> None:
    for name, change in {**EXAMPLES, **OF_KIND.get(kind.word, {}), **CODE}.items():
        spec = replace(BASE, **{"log_dir": "/workspace/logs", "user": "li", **change})
        found = copied(kind, spec)
        expected = replace(kind.supported(spec), name="copy", user="wu", suspend=False)
        if spec.trainer:
            assert found.spec is not None and found.spec.log_dir.startswith("/workspace/logs/copy-")
            expected = replace(expected, log_dir=found.spec.log_dir)
        assert (name, found.spec, found.lost, found.why_yaml) == (name, expected, (), "")
        assert found.manifest == kind.manifest(expected), name


def test_new_claims_are_mounted_by_a_clone_and_not_created_again() -> None:
    found = copied(PYTORCH, replace(BASE, new_claims=(NewClaim("d", "1Gi"),), mounts=(Mount("d", "/d"),)))
    assert found.spec is not None
    assert (found.spec.new_claims, found.spec.mounts) == ((), (Mount("d", "/d"),))


def test_values_that_servers_fill_in_are_no_difference() -> None:
    for kind in CREATABLE:
        obj = stored(kind, replace(BASE, image="i:1", cpu="1", env={"A": ""}))
        for pod in _pods(obj["spec"]):
            pod |= {
                "dnsPolicy": "ClusterFirst",
                "schedulerName": "default-scheduler",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30,
            }
            pod["containers"][0] |= {
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
            if "resources" in pod["containers"][0]:
                pod["containers"][0]["resources"]["requests"]["cpu"] = "1000m"
            for each in pod["containers"][0]["env"]:
                if each.get("value") == "":
                    del each["value"]
        assert clone(obj).why_yaml == ""


def _pods(value: Any) -> Iterator[Object]:
    if isinstance(value, dict):
        if value.get("containers") and "name" in value["containers"][0] and "env" in value["containers"][0]:
            yield value
        value = [*value.values()]
    for each in value if isinstance(value, list) else ():
        yield from _pods(each)


@every_kind
def test_a_job_that_was_changed_is_cloned_as_yaml(kind: CreatableKind) -> None:
    obj = stored(kind, replace(BASE, mounts=(Mount("c", "/c"),), node_selector={"gpu": "a100"}))
    count = 0
    for changed in [*_changed(obj["spec"])]:
        found = clone({**obj, "spec": changed})
        assert found.spec is None
        assert "from what gpuconsole created" in found.why_yaml
        count += 1
    assert count > 20


def _changed(value: Any) -> Iterator[Any]:
    """Yield the value with one thing added, taken away or changed, at every place."""
    if isinstance(value, dict):
        yield {**value, "planted": "x"}
        for key, each in value.items():
            yield from ({**value, key: other} for other in _changed(each))
            if each not in ("", [], {}, None):
                yield {name: other for name, other in value.items() if name != key}
    elif isinstance(value, list):
        yield [*value, "x"]
        yield value[:-1]
        for number, each in enumerate(value):
            for other in _changed(each):
                yield [*value[:number], other, *value[number + 1 :]]
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, str):
        yield f"{value}0"


def test_labels_and_annotations_that_were_added_are_named() -> None:
    obj = stored(PYTORCH, replace(BASE, labels={"team": "a"}))
    obj["metadata"]["labels"] |= {"team": "b", "kueue.x-k8s.io/queue-name": "q"}
    obj["metadata"]["annotations"]["note"] = "x"
    found = clone(obj)
    assert found.spec is not None
    assert found.lost == ("label team", "label kueue.x-k8s.io/queue-name", "annotation note")


def test_values_of_secret_variables_are_read_from_the_pods() -> None:
    spec = replace(BASE, env={"WANDB_API_KEY": "0123456789abcdef0123", "LR": "1"})
    obj = stored(PYTORCH, spec)
    assert "0123456789abcdef" not in obj["metadata"]["annotations"][SPEC_ANNOTATION]
    found = clone(obj)
    assert found.spec is not None and found.spec.env == spec.env


@pytest.mark.parametrize(
    "change",
    [
        {"sync_mode": "folder", "sync_source": "/home/li/code"},
        {"config_files": (ConfigFile("/home/li/a.yaml", "/etc/a.yaml"),)},
        {**GIT, "env": {"GIT_SYNC_PASSWORD": "pw"}},
        {**GIT, "sync_source": "https://li:pw@host.example/code.git"},
        {**GIT, "git_secret": "bert-git"},
        {"command": ("python", "train.py", "--api-key", "0123456789abcdef0123")},
        {"annotations": {"password": "hunter22"}},
        {"command": ("x" * LONGEST_CHARS,)},
    ],
    ids=["folder", "files", "password", "login", "made secret", "key", "annotation", "too long"],
)
def test_a_job_with_local_files_or_secrets_carries_no_spec(change: dict[str, Any]) -> None:
    found = copied(PYTORCH, replace(BASE, **change))
    assert found.spec is None
    reason = "this PyTorchJob has no annotation gpuconsole.dev/spec"
    assert found.why_yaml == f"The form cannot be filled in: {reason}."


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "7", '"x"', 7, ["{}"], "[" * 20_000, "{" + " " * LONGEST_CHARS + "}",
        '{"workers":"3"}', '{"workers":null}', '{"workers":1e400}', '{"env":5}', '{"env":{"A":null}}',
        '{"env":[]}', '{"mounts":[{"claim":"a"}]}', '{"mounts":[{"claim":"a","path":"/a","mode":"x"}]}',
        '{"clean_pods":"Sometimes"}', '{"name":5}', '{"command":["\\ud800"]}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [CREATABLE[0], CREATABLE[-1]], ids=lambda kind: kind.title)
def test_a_broken_annotation_gives_yaml(kind: CreatableKind, text: object) -> None:
    obj = stored(kind, BASE)
    obj["metadata"]["annotations"][SPEC_ANNOTATION] = text
    found = clone(obj)
    assert found.spec is None
    assert found.why_yaml.startswith("The form cannot be filled in: ")
    assert SPEC_ANNOTATION not in json.dumps(found.manifest)


def test_fields_of_a_newer_version_are_named() -> None:
    obj = stored(PYTORCH, BASE)
    obj["metadata"]["annotations"][SPEC_ANNOTATION] = '{"workers":2,"zones":[],"mesh":1}'
    assert clone(obj).why_yaml == (
        "The form cannot be filled in: another version of gpuconsole made it, with mesh, zones."
    )


def test_the_spec_of_another_job_gives_yaml() -> None:
    obj, other = stored(PYTORCH, BASE), stored(PYTORCH, replace(BASE, workers=8, gpus=4))
    obj["metadata"]["annotations"] |= other["metadata"]["annotations"]
    assert clone(obj).spec is None


def test_differences_name_their_place() -> None:
    made = PYTORCH.manifest(BASE)
    found = deepcopy(made)
    master, worker = (found["spec"]["pytorchReplicaSpecs"][role] for role in ("Master", "Worker"))
    master["template"]["spec"]["containers"][0]["image"] = "other"
    worker["replicas"] = 7
    assert [*differences(made, found)] == [
        "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].image",
        "spec.pytorchReplicaSpecs.Worker.replicas",
    ]
    assert [*differences(made, cleaned(found))] == [*differences(made, found)]
