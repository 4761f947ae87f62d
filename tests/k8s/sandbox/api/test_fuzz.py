"""Generated requests: the sandbox serves or refuses each, and never breaks."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from k8s.sandbox.api.admission import patches
from k8s.sandbox.api.admission.deletion import DeleteOptions
from k8s.sandbox.api.admission.registry import Registry, Write
from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.http import tables
from k8s.sandbox.api.served import BY_KEY
from k8s.sandbox.api.store import Store
from tests.k8s.sandbox.api.strategies import anything, near_objects
from tests.k8s.sandbox.calls import Object, config, job, pod, thing, torch_job


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    store = Store(tmp_path_factory.mktemp("fuzz") / "store")
    registry = Registry(store)
    registry.create(BY_KEY["pods"], "default", pod("p", node="n"), Write())
    registry.create(BY_KEY["jobs.batch"], "default", job("p"), Write())
    registry.create(BY_KEY["pytorchjobs.kubeflow.org"], "default", torch_job("p"), Write())
    yield registry
    store.close()


kinds = st.sampled_from(
    [
        "pods",
        "jobs.batch",
        "pytorchjobs.kubeflow.org",
        "configmaps",
        "services",
        "nodes",
        "persistentvolumeclaims",
        "secrets",
        "events",
        "namespaces",
    ]
)
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settled = settings(max_examples=150, suppress_health_check=UNCHECKED)


@settled
@given(key=kinds, body=near_objects, spec=near_objects, meta=near_objects)
def test_any_body_is_stored_or_refused(registry: Registry, key: str, body: Any, spec: Any, meta: Any) -> None:
    served = BY_KEY[key]
    bodies = [body]
    if isinstance(body, dict):
        bodies.append({**body, "metadata": {"name": "x"}, "spec": spec})
        bodies.append(
            {
                **pod("x"),
                "kind": served.resource.kind,
                "apiVersion": served.resource.api_version,
                "metadata": meta,
            }
        )
    for each in bodies:
        try:
            namespace = "default" if served.resource.is_namespaced else ""
            made = registry.create(served, namespace, each, Write(dry_run=True, strict=True))
        except ApiError as error:
            assert error.code in (400, 409, 422)
        else:
            assert len(tables.cells(key, made)) == len(tables.column_definitions(key))


RICH: dict[str, Object] = {
    "pods": pod("x", node="n", labels={"a": "b"}, ownerReferences=[{"kind": "Job", "name": "j", "uid": "u"}])
    | {
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}],
            "containerStatuses": [
                {
                    "name": "a",
                    "ready": True,
                    "restartCount": 1,
                    "state": {"running": {"startedAt": "2026-11-20T10:00:00Z"}},
                    "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-20T10:00:00Z"}},
                }
            ],
        }
    },
    "jobs.batch": job("x", completions=2, completionMode="Indexed")
    | {"status": {"startTime": "2026-11-20T10:00:00Z", "conditions": [{"type": "Failed", "status": "True"}]}},
    "pytorchjobs.kubeflow.org": torch_job(
        "x", status={"conditions": [{"type": "Running", "status": "True"}]}
    ),
    "nodes": thing(
        "Node",
        "x",
        spec={"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]},
        status={
            "capacity": {"cpu": 2},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1"},
        },
    ),
    "events": thing(
        "Event",
        "x",
        involvedObject={"kind": "Pod", "name": "p"},
        source={"component": "kubelet"},
        lastTimestamp="2026-11-20T10:00:00Z",
        count=2,
    ),
    "services": thing("Service", "x", spec={"ports": [{"port": 80, "nodePort": 1}], "selector": {"a": "b"}}),
    "persistentvolumeclaims": thing(
        "PersistentVolumeClaim",
        "x",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": "v",
        },
        status={"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    ),
    "secrets": thing("Secret", "x", stringData={"a": "b"}, type="Opaque"),
    "configmaps": config("x"),
    "namespaces": thing("Namespace", "x", spec={"finalizers": ["a"]}),
}

RICH["pods"]["spec"]["initContainers"] = [{"name": "i", "image": "x", "restartPolicy": "Always"}]
RICH["pods"]["spec"]["containers"][0] |= {
    "ports": [{"name": "web", "containerPort": 80}],
    "livenessProbe": {"httpGet": {"port": "web", "httpHeaders": [{"name": "a", "value": "b"}]}},
    "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1},
    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}, "postStart": {"sleep": {"seconds": 1}}},
    "resources": {"limits": {"cpu": "1"}},
}
RICH["jobs.batch"]["spec"] |= {"podFailurePolicy": {"rules": []}, "managedBy": "kubernetes.io/job-controller"}


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in an object."""
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
        made = registry.create(served, namespace, obj, Write(dry_run=True))
        if "status" in obj and served.has_status:
            registry.create(served, namespace, RICH[key], Write())
            at_once = DeleteOptions(grace_period_seconds=0, propagation_policy="Background")
            try:
                made = registry.replace(
                    served, namespace, "x", {**made, **obj}, Write(dry_run=True), "status"
                )
            finally:
                registry.delete(served, namespace, "x", at_once)
    except ApiError as error:
        assert error.code in (400, 404, 409, 422)
    else:
        assert len(tables.cells(key, made)) == len(tables.column_definitions(key))


@settled
@given(
    key=st.sampled_from(["pods", "jobs.batch", "pytorchjobs.kubeflow.org"]),
    patch=st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), near_objects, max_size=3),
    subresource=st.sampled_from(["", "status"]),
)
def test_any_patch_is_done_or_refused(registry: Registry, key: str, patch: Object, subresource: str) -> None:
    served = BY_KEY[key]
    before = copy.deepcopy(registry.get(served, "default", "p").obj)
    for change in (patches.merge, patches.strategic):
        patched = functools.partial(change, patch=patch)
        try:
            made = registry.patch(served, "default", "p", patched, Write(dry_run=True), subresource)
        except ApiError as error:
            assert error.code in (400, 409, 422)
        else:
            assert len(tables.cells(key, made)) == len(tables.column_definitions(key))
    assert registry.get(served, "default", "p").obj == before


@settled
@given(
    operations=st.lists(
        st.fixed_dictionaries(
            {"op": st.sampled_from(["add", "remove", "replace", "test", "move", "copy", "x"])},
            optional={
                "path": st.sampled_from(
                    ["", "/", "/metadata", "/spec/containers/0", "/spec/containers/-", "/a~", "b"]
                ),
                "from": st.sampled_from(["/spec", "/none", ""]),
                "value": near_objects,
            },
        )
        | near_objects,
        max_size=3,
    )
)
def test_any_json_patch_is_done_or_refused(registry: Registry, operations: list[Any]) -> None:
    before = copy.deepcopy(registry.get(BY_KEY["pods"], "default", "p").obj)
    try:
        registry.patch(
            BY_KEY["pods"],
            "default",
            "p",
            lambda old: patches.json_patch(old, operations),
            Write(dry_run=True),
        )
    except ApiError as error:
        assert error.code in (400, 409, 422)
    assert registry.get(BY_KEY["pods"], "default", "p").obj == before


def test_stored_objects_are_never_changed_in_place(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    registry = Registry(store)
    served = BY_KEY["configmaps"]
    registry.create(served, "default", config("c"), Write())
    record = registry.get(served, "default", "c")
    seen = copy.deepcopy(record.obj)
    registry.patch(served, "default", "c", lambda old: patches.merge(old, {"data": {"k": "2"}}), Write())
    assert record.obj == seen
    store.close()


def test_durations_are_in_their_largest_unit() -> None:
    for seconds, text in (
        (-1, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (11_100, "3h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (63_072_000, "2y"),
    ):
        assert tables.human_duration(seconds) == text
