"""Generated requests, selectors and patches: the sandbox serves or refuses each, and never breaks."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from k8s.sandbox.api import patches
from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.deletion import DeleteOptions
from k8s.sandbox.api.lists import field_requirements, label_requirements
from k8s.sandbox.api.registry import Registry
from k8s.sandbox.api.served import BY_KEY
from k8s.sandbox.api.store import Store
from k8s.sandbox.api.validation import CHECKS
from tests.k8s.sandbox.calls import Object, config, job, pod, thing, torch_job

words = st.text("ab", min_size=1, max_size=2)
plain = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=3)
anything = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(words, anything, max_size=4)
fields = st.sampled_from(sorted({*CHECKS, "status", "*"}))
near_objects = st.recursive(
    plain | st.sampled_from(["Always", "1Gi", "-1", "a", "a/b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=5),
    max_leaves=40,
)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    store = Store(tmp_path_factory.mktemp("fuzz") / "store")
    registry = Registry(store)
    registry.create(BY_KEY["pods"], "default", pod("p", node="n"))
    registry.create(BY_KEY["jobs.batch"], "default", job("p"))
    registry.create(BY_KEY["pytorchjobs.kubeflow.org"], "default", torch_job("p"))
    yield registry
    store.close()


KINDS = [
    *("pods", "jobs.batch", "pytorchjobs.kubeflow.org", "configmaps", "services", "nodes"),
    *("persistentvolumeclaims", "secrets", "events", "namespaces"),
]
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settled = settings(max_examples=80, suppress_health_check=UNCHECKED)


@settled
@given(key=st.sampled_from(KINDS), body=near_objects, spec=near_objects, meta=near_objects)
def test_any_body_is_stored_or_refused(registry: Registry, key: str, body: Any, spec: Any, meta: Any) -> None:
    served = BY_KEY[key]
    bodies = [body]
    if isinstance(body, dict):
        bodies.append({**body, "metadata": {"name": "x"}, "spec": spec})
        made_as = {"kind": served.resource.kind, "apiVersion": served.resource.api_version}
        bodies.append({**pod("x"), **made_as, "metadata": meta})
    for each in bodies:
        try:
            namespace = "default" if served.resource.is_namespaced else ""
            made = registry.create(served, namespace, each, dry_run=True)
        except ApiError as error:
            assert error.code in (400, 409, 422)
        else:
            assert msgspec.json.encode(made)


AT = "2026-11-20T10:00:00Z"
READY = {"type": "Ready", "status": "True"}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}
CLAIM = {"accessModes": ["ReadWriteOnce"]}
CONTAINER = {
    "name": "a",
    "ready": True,
    "restartCount": 1,
    "state": {"running": {"startedAt": AT}},
    "lastState": {"terminated": {"exitCode": 1, "finishedAt": AT}},
}
RICH: dict[str, Object] = {
    "pods": {
        **pod("x", node="n", labels={"a": "b"}, ownerReferences=[OWNER]),
        "status": {
            "phase": "Running",
            "conditions": [READY],
            "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}],
            "containerStatuses": [CONTAINER],
        },
    },
    "jobs.batch": {
        **job("x", completions=2, completionMode="Indexed"),
        "status": {"startTime": AT, "conditions": [{"type": "Failed", "status": "True"}]},
    },
    "pytorchjobs.kubeflow.org": torch_job("x", status={"conditions": [READY | {"type": "Running"}]}),
    "nodes": thing(
        "Node",
        "x",
        spec={"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]},
        status={
            "capacity": {"cpu": 2},
            "conditions": [READY],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1"},
        },
    ),
    "events": thing(
        "Event",
        "x",
        involvedObject={"kind": "Pod", "name": "p"},
        source={"component": "kubelet"},
        lastTimestamp=AT,
        count=2,
    ),
    "services": thing("Service", "x", spec={"ports": [{"port": 80, "nodePort": 1}], "selector": {"a": "b"}}),
    "persistentvolumeclaims": thing(
        "PersistentVolumeClaim",
        "x",
        spec={**CLAIM, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"},
        status={**CLAIM, "phase": "Bound", "capacity": {"storage": "1Gi"}},
    ),
    "secrets": thing("Secret", "x", stringData={"a": "b"}, type="Opaque"),
    "configmaps": config("x"),
    "namespaces": thing("Namespace", "x", spec={"finalizers": ["a"]}),
}

RICH["pods"]["spec"]["initContainers"] = [{"name": "i", "image": "x"}]
RICH["pods"]["spec"]["containers"][0] |= {
    "ports": [{"name": "web", "containerPort": 80}],
    "livenessProbe": {"httpGet": {"port": "web", "httpHeaders": [{"name": "a", "value": "b"}]}},
    "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1},
    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}, "postStart": {"sleep": {"seconds": 1}}},
    "resources": {"limits": {"cpu": "1"}},
}
RICH["jobs.batch"]["spec"] |= {"podFailurePolicy": {"rules": []}, "managedBy": "kubernetes.io/job-controller"}


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, member in pairs:
        yield from paths(member, (*at, step))


ALL_PLACES = [(key, place) for key, obj in RICH.items() for place in paths(obj)]
CPU_LIMIT = "pods", ("spec", "containers", 0, "resources", "limits", "cpu")
assert CPU_LIMIT in ALL_PLACES


@settings(max_examples=600, suppress_health_check=UNCHECKED)
@given(place=st.sampled_from(ALL_PLACES), value=anything)
@example(place=CPU_LIMIT, value=1e100)
@pytest.mark.slow
def test_one_wrong_value_anywhere_is_stored_or_refused(
    registry: Registry, place: tuple[str, tuple[Any, ...]], value: Any
) -> None:
    key, (*path, last) = place
    obj = copy.deepcopy(RICH[key])
    at: Any = obj
    for step in path:
        at = at[step]
    at[last] = value
    served = BY_KEY[key]
    namespace = "default" if served.resource.is_namespaced else ""
    try:
        made = registry.create(served, namespace, obj, dry_run=True)
        if "status" in obj and served.has_status:
            registry.create(served, namespace, RICH[key])
            at_once = DeleteOptions(grace_period_seconds=0, propagation_policy="Background")
            try:
                changed = {**made, **obj}
                made = registry.patch(served, namespace, "x", lambda old: changed, "status", dry_run=True)
            finally:
                registry.delete(served, namespace, "x", at_once)
    except ApiError as error:
        assert error.code in (400, 404, 409, 422)
    else:
        assert msgspec.json.encode(made)


@settled
@given(
    key=st.sampled_from(["pods", "jobs.batch", "pytorchjobs.kubeflow.org"]),
    patch=st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), near_objects, max_size=3),
    subresource=st.sampled_from(["", "status"]),
)
def test_any_patch_is_applied_or_rejected(
    registry: Registry, key: str, patch: Object, subresource: str
) -> None:
    served = BY_KEY[key]
    before = copy.deepcopy(registry.get(served, "default", "p").obj)
    for change in (patches.merge, patches.strategic):
        patched = functools.partial(change, patch=patch)
        try:
            made = registry.patch(served, "default", "p", patched, subresource, dry_run=True)
        except ApiError as error:
            assert error.code in (400, 409, 422)
        else:
            assert msgspec.json.encode(made)
    assert registry.get(served, "default", "p").obj == before


OPERATIONS = ["add", "remove", "replace", "test", "move", "copy", "x"]
POINTERS = ["", "/", "/metadata", "/spec/containers/0", "/spec/containers/-", "/a~", "b"]
operation = st.fixed_dictionaries(
    {"op": st.sampled_from(OPERATIONS)},
    optional={
        "path": st.sampled_from(POINTERS),
        "from": st.sampled_from(["/spec", "/none", ""]),
        "value": near_objects,
    },
)


@settled
@given(operations=st.lists(operation | near_objects, max_size=3))
def test_any_json_patch_is_applied_or_rejected(registry: Registry, operations: list[Any]) -> None:
    pods = BY_KEY["pods"]
    before = copy.deepcopy(registry.get(pods, "default", "p").obj)
    patch = functools.partial(patches.json_patch, patch=operations)
    try:
        registry.patch(pods, "default", "p", patch, dry_run=True)
    except ApiError as error:
        assert error.code in (400, 409, 422)
    assert registry.get(pods, "default", "p").obj == before


def test_stored_objects_are_never_changed_in_place(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    registry = Registry(store)
    served = BY_KEY["configmaps"]
    registry.create(served, "default", config("c"))
    record = registry.get(served, "default", "c")
    seen = copy.deepcopy(record.obj)
    registry.patch(served, "default", "c", lambda old: patches.merge(old, {"data": {"k": "2"}}))
    assert record.obj == seen
    store.close()


@given(text=st.text("ab,=!()in ot./-é", max_size=12))
@example("a=b,,c")
@example("a in ()")
def test_selectors_are_parsed_or_refused(text: str) -> None:
    for read in (label_requirements, lambda text: field_requirements(BY_KEY["pods"], text)):
        try:
            requirements = read(text)
        except ApiError as error:
            assert error.code == 400
        else:
            assert all(holds({"metadata": {"name": "x"}}) in (True, False) for holds in requirements)


def merge_patch_between(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch: Object = dict.fromkeys(old.keys() - new.keys())
    for name, value in new.items():
        if name not in old or old[name] != value or type(old[name]) is not type(value):
            patch[name] = merge_patch_between(old.get(name), value)
    return patch


@given(old=objects.map(patches.without_nulls), new=objects.map(patches.without_nulls))
def test_a_merge_patch_turns_one_object_into_the_other(old: Object, new: Object) -> None:
    before = copy.deepcopy(old)
    assert patches.merge(old, merge_patch_between(old, new)) == new
    assert old == before


@given(old=objects, patch=anything)
def test_without_named_lists_a_strategic_patch_is_a_merge_patch(old: Object, patch: Any) -> None:
    before = copy.deepcopy(old)
    assert patches.strategic(old, patch) == patches.merge(old, patch)
    assert old == before


DIRECTIVES = [
    *("$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers"),
    *("containers", "finalizers"),
]


def with_directives(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    return st.dictionaries(st.sampled_from(DIRECTIVES), inner, max_size=3)


@given(old=objects, patch=st.recursive(near_objects, with_directives, max_leaves=6))
def test_strategic_patches_are_applied_or_refused(old: Object, patch: Any) -> None:
    for target in (old, {"containers": [{"name": "a"}], "finalizers": ["a"]}):
        try:
            patches.strategic(target, patch)
        except ApiError as error:
            assert error.code == 400


NAMED_ABC = [{"name": "A"}, {"name": "B"}, {"name": "C"}]
TOLERATIONS = {"tolerations": [{"key": "b"}]}
VALUES = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "4"}]
CHANGED_B = {"name": "B", "value": "3"}
SERVICE_PORT = {"ports": [{"port": 80, "name": "b"}]}
MOUNTS = [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]
A_80, B_80 = {"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": 1, "b": 2, "c": 3}, {"$retainKeys": ["a", "c"], "a": 4}, {"a": 4, "c": 3}),
        ({"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}, {"finalizers": ["a", "b", "c"]}),
        ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
        ({"tolerations": [{"key": "a"}]}, TOLERATIONS, TOLERATIONS),
        ({"env": VALUES[:2]}, {"env": [CHANGED_B, VALUES[2]]}, {"env": [VALUES[0], CHANGED_B, VALUES[2]]}),
        ({"env": NAMED_ABC[:2]},
         {"env": [{"name": "A", "$patch": "delete"}, {"name": "X", "$patch": "delete"}]},
         {"env": [{"name": "B"}]}),
        ({"env": NAMED_ABC}, {"$setElementOrder/env": [{"name": "C"}, {"name": "A"}]}, {"env": NAMED_ABC}),
        ({"ports": [A_80]}, {"ports": [B_80, {"containerPort": 81}]},
         {"ports": [B_80, {"containerPort": 81}]}),
        ({"ports": [{"port": 80, "name": "a"}]}, SERVICE_PORT, SERVICE_PORT),
        ({"volumeMounts": MOUNTS[:1]}, {"volumeMounts": MOUNTS[1:]}, {"volumeMounts": MOUNTS}),
    ],
)  # fmt: skip
def test_a_strategic_patch_follows_its_directives(old: Object, patch: Object, new: Object) -> None:
    before = copy.deepcopy(old)
    assert patches.strategic(old, patch) == new
    assert old == before


@pytest.mark.parametrize(
    "directive",
    [{"a": {"$patch": "replace"}}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"$retainKeys": 5}],
)
def test_other_directives_are_refused(directive: Object) -> None:
    with pytest.raises(ApiError) as error:
        patches.strategic({"a": {"b": 1}}, directive)
    assert error.value.code == 400


def test_an_element_without_the_key_of_its_list_is_refused() -> None:
    with pytest.raises(ApiError) as error:
        patches.strategic({"env": [{"name": "A"}]}, {"env": [{"value": "1"}]})
    assert error.value.code == 400
    assert "does not contain declared merge key: name" in str(error.value)
