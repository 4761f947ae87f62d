"""Contract of every kind of job for objects from any source, and for their pods."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.kinds import KINDS, JobKind, kind_of
from k8s.kinds.base import JobRef
from k8s.kinds.parse import JobReader
from k8s.kinds.unknown import AnyOwner
from tests.k8s.kinds.operator_objects import SITUATIONS, jobs_in, kind_named, objects, pods_in, read_pods
from tests.support.objects import RECORDED, join

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)


def test_every_kind_has_an_object_to_be_tested_on() -> None:
    seen = {type(kind_named(objects(situation)[0])) for situation in SITUATIONS}
    assert {type(kind) for kind in KINDS} <= seen


def test_kinds_are_unique_by_name_and_version_and_by_title() -> None:
    assert len({(kind.resource.kind, kind.resource.api_version) for kind in KINDS}) == len(KINDS)
    assert len({kind.title for kind in KINDS}) == len(KINDS)
    assert len({kind.resource for kind in KINDS}) == len(KINDS)


def test_a_parsed_job_keeps_its_kind_version_namespace_and_name() -> None:
    for situation in SITUATIONS:
        job, obj = jobs_in(situation)[0], objects(situation)[0]
        assert (job.ref.kind, job.ref.api_version) == (obj["kind"], obj["apiVersion"])
        assert (job.ref.namespace, job.ref.name) == (obj["metadata"]["namespace"], obj["metadata"]["name"])
        assert kind_of(job.ref) is kind_named(obj)


def test_each_pod_is_claimed_by_exactly_one_kind() -> None:
    """Each pod is claimed once, by a kind and for a job that are in the file."""
    for situation in SITUATIONS:
        there = {(job.ref.kind, job.ref.api_version, job.ref.name) for job in jobs_in(situation)}
        for pod in pods_in(situation):
            claims = [
                (kind.resource.kind, kind.resource.api_version, name)
                for kind in KINDS
                if (name := kind.job_of(pod))
            ]
            assert len(claims) == 1, pod.metadata.name
            assert set(claims) <= there, pod.metadata.name


def test_recorded_pods_are_claimed_by_pytorchjob_except_tensorboard_pods() -> None:
    for pod in read_pods(*json.loads((RECORDED / "pods.json").read_bytes())["items"]):
        claims = {type(kind).__name__ for kind in KINDS if kind.job_of(pod)}
        assert claims == (set() if pod.metadata.label("role") == "tensorboard" else {"PyTorchJob"})


def test_a_job_has_a_place_for_each_of_its_pods() -> None:
    """The same place is found from the object and from the pod; where pods have numbers, each its own."""
    for situation in SITUATIONS:
        job = jobs_in(situation)[0]
        kind = kind_of(job.ref)
        places = {(replica.role, replica.index) for replica in job.replicas}
        roles = {replica.role for replica in job.replicas}
        assert len(places) == len(job.replicas)
        for pod in pods_in(situation):
            found = kind.instance_of(pod)
            if found is not None:
                assert found in places if found[1] is not None else found[0] in roles, pod.metadata.name


def test_a_named_replica_matches_the_pod_with_that_name() -> None:
    for situation in SITUATIONS:
        job = jobs_in(situation)[0]
        kind = kind_of(job.ref)
        names = {replica.name: (replica.role, replica.index) for replica in job.replicas if replica.name}
        for pod in pods_in(situation):
            if pod.metadata.name in names:
                assert kind.instance_of(pod) == names[pod.metadata.name]


def test_each_job_has_exactly_one_chief() -> None:
    for situation in SITUATIONS:
        assert sum(replica.is_chief for replica in jobs_in(situation)[0].replicas) == 1


def test_the_selector_finds_the_pods_that_are_claimed() -> None:
    for situation in SITUATIONS:
        for pod in pods_in(situation):
            for kind in KINDS:
                name = kind.job_of(pod)
                wanted = [each.partition("=") for each in kind.pod_selector(name).split(",")] if name else []
                for key, _, value in wanted:
                    assert pod.metadata.label(key) == value, pod.metadata.name


def test_instances_and_gpus_are_known_before_there_are_pods() -> None:
    for situation in SITUATIONS:
        _, jobs = join([], [], jobs_in(situation)[:1])
        asked = sum(count_gpus(obj) for obj in objects(situation)[:1])
        assert jobs[0].instances
        assert (jobs[0].gpus_requested > 0) == (asked > 0)
        assert jobs[0].gpus_allocated == 0


def count_gpus(obj: object) -> int:
    """Return the number of accelerators that a manifest mentions anywhere."""
    if isinstance(obj, list):
        return sum(map(count_gpus, obj))
    if not isinstance(obj, dict):
        return 0
    return sum(int(value) if key == "nvidia.com/gpu" else count_gpus(value) for key, value in obj.items())


def test_any_other_owner_of_pods_gets_a_generic_kind() -> None:
    kind = kind_of(JobRef("vision", "web", "Deployment", "apps/v1"))
    assert isinstance(kind, AnyOwner)
    assert (kind.title, kind.container) == ("Deployment", "")
    assert kind.resource.path("vision", "web") == "/apis/apps/v1/namespaces/vision/deployments/web"
    policy = kind_of(JobRef("", "p", "Policy", "example.com/v1")).resource
    assert policy.plural == "policies"
    pod = kind_of(JobRef("vision", "alone", "Pod", "v1"))
    assert (pod.resource.path("vision", "alone"), pod.title) == (
        "/api/v1/namespaces/vision/pods/alone",
        "Pod",
    )


def test_a_generic_owner_kind_claims_and_numbers_no_pods() -> None:
    kind = kind_of(JobRef("vision", "web", "Deployment", "apps/v1"))
    for situation in SITUATIONS:
        for pod in pods_in(situation):
            assert (kind.job_of(pod), kind.instance_of(pod)) == ("", None)
    job = kind.parse(
        {"metadata": {"name": "web", "namespace": "vision", "uid": "u"}, "status": {"replicas": 1}}
    )
    assert (job.ref.name, job.replicas, job.outcome, job.is_suspended) == ("web", (), None, False)


def test_the_user_is_read_from_creator_annotations_of_known_systems() -> None:
    for key in ("gpuconsole.dev/user", "arena.kubeflow.org/username", "notebooks.kubeflow.org/creator"):
        for kind in KINDS:
            obj = next(found for each in SITUATIONS for found in objects(each) if kind_named(found) is kind)
            obj["metadata"]["annotations"] = {key: "li"}
            assert kind.parse(obj).user == "li"


@every_kind
def test_the_queue_is_the_one_that_a_label_or_an_annotation_names(kind: JobKind) -> None:
    for key in ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue", "scheduling.volcano.sh/queue-name"):
        for where in ("labels", "annotations"):
            obj = next(found for each in SITUATIONS for found in objects(each) if kind_named(found) is kind)
            obj["metadata"] |= {"labels": {}, "annotations": {}, where: {key: "team-b"}}
            assert kind.parse(obj).queue == "team-b"


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2**40, 1e300, "", "x", "7", "9" * 30, [], [None], {}, [{}], {"x": 1}]
).map(deepcopy)


@st.composite
def spoiled(draw: st.DrawFn, kind: JobKind) -> Any:
    """Draw an object of a kind in which some values, anywhere, became others."""
    situations = [each for each in SITUATIONS if kind_named(objects(each)[0]) is kind]
    obj = objects(draw(st.sampled_from(situations)))[0]
    for _ in range(draw(st.integers(1, 3))):
        holders = [each for each in walk(obj) if each]
        holder = draw(st.sampled_from(holders)) if holders else obj
        key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else list(range(len(holder)))))
        holder[key] = draw(ODD | JSON)
    return obj


def walk(obj: Any) -> list[Any]:
    """Return every object and list in a manifest, itself first."""
    inner = obj.values() if isinstance(obj, dict) else obj if isinstance(obj, list) else ()
    found = [each for value in inner for each in walk(value)]
    return [obj, *found] if isinstance(obj, (dict, list)) else found


@every_kind
@given(data=st.data())
@settings(max_examples=100)
def test_any_object_is_joined_or_rejected(kind: JobKind, data: st.DataObject) -> None:
    obj = data.draw(spoiled(kind))
    try:
        job = JobReader(kind).read(json.dumps(obj).encode())
    except msgspec.DecodeError:
        return
    assert len(job.replicas) < 10_000
    _, rows = join([], [], [job])
    assert rows[0].ref == job.ref


@every_kind
@given(obj=JSON)
@settings(max_examples=50)
def test_any_json_is_parsed_or_rejected(kind: JobKind, obj: Any) -> None:
    body = json.dumps({"metadata": {"name": "a", "uid": "u"}, "spec": obj, "status": obj}).encode()
    try:
        assert JobReader(kind).read(body).ref.name == "a"
    except msgspec.DecodeError:
        return


@every_kind
@given(
    labels=st.dictionaries(
        st.sampled_from(
            sorted({key for each in SITUATIONS for pod in pods_in(each) for key in pod.metadata.labels or ()})
        ),
        st.text(max_size=12),
    ),
    name=st.text(max_size=20),
)
@settings(max_examples=50)
def test_any_labels_give_a_place_or_none(kind: JobKind, labels: dict[str, str], name: str) -> None:
    pod = read_pods({"metadata": {"name": name, "labels": labels}})[0]
    instance = kind.instance_of(pod)
    assert instance is None or instance[1] is None or instance[1] >= 0
    assert isinstance(kind.job_of(pod), str)


@every_kind
def test_a_job_is_not_lost_because_of_nulls(kind: JobKind) -> None:
    obj = next(objects(each)[0] for each in SITUATIONS if kind_named(objects(each)[0]) is kind)
    obj["metadata"] |= {
        "labels": None,
        "creationTimestamp": None,
        "ownerReferences": None,
        "annotations": None,
    }
    obj["spec"] = {**dict.fromkeys(obj["spec"]), **obj["spec"]}
    for status in (None, {}, dict.fromkeys(obj.get("status") or {})):
        assert JobReader(kind).read(json.dumps({**obj, "status": status}).encode()).replicas
