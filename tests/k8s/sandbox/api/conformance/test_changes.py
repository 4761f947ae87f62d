"""Changes of objects: replacements, patches of every type, conflicts, status, dry runs."""

from __future__ import annotations

import uuid

import pytest

from tests.k8s.sandbox.calls import (
    JOBS,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    TORCH_JOBS,
    Api,
    Object,
    also_scripted,
    broken_pod,
    config,
    job,
    pod,
    thing,
    torch_job,
)


@also_scripted
async def test_a_merge_patch_sets_and_removes(api: Api) -> None:
    await api.made("configmaps", config("c", {"a": "1", "b": "2"}))
    answer = await api.patch("configmaps", "c", {"data": {"a": None, "c": "3"}})
    assert (answer.code, answer.body["data"]) == (200, {"b": "2", "c": "3"})


async def test_a_json_patch_follows_its_operations_or_does_nothing(api: Api) -> None:
    await api.made("pods", pod("p", labels={"a": "1"}))
    patch = [
        {"op": "test", "path": "/metadata/labels/a", "value": "1"},
        {"op": "add", "path": "/metadata/labels/b~1c", "value": "2"},
    ]
    changed = (await api.patch("pods", "p", patch, JSON_PATCH)).body
    assert changed["metadata"]["labels"] == {"a": "1", "b/c": "2"}
    for wrong, code in (
        ([{"op": "test", "path": "/metadata/labels/a", "value": "9"}], 422),
        ([{"op": "replace", "path": "/metadata/no/where", "value": 1}], 422),
        ({"a": 1}, 400),
    ):
        assert (await api.patch("pods", "p", wrong, JSON_PATCH)).code == code


async def test_a_strategic_patch_merges_named_lists(api: Api) -> None:
    await api.made("pods", pod("p", containers=("a", "b"), finalizers=["x.io/a"]))
    containers = {"containers": [{"name": "b", "image": "new"}]}
    patch: Object = {"metadata": {"finalizers": ["x.io/b"]}, "spec": containers}
    answer = await api.patch("pods", "p", patch, STRATEGIC)
    images = {each["name"]: each["image"] for each in answer.body["spec"]["containers"]}
    assert images == {"a": "busybox", "b": "new"}
    assert sorted(answer.body["metadata"]["finalizers"]) == ["x.io/a", "x.io/b"]
    patch = {"metadata": {"finalizers": None}}
    assert "finalizers" not in (await api.patch("pods", "p", patch, STRATEGIC)).body["metadata"]


async def test_a_strategic_patch_deletes_and_retains(api: Api) -> None:
    conditions = [{"type": kind, "status": "True"} for kind in ("A", "B", "C")]
    await api.made("pods", pod("p", node="nowhere"))
    await api.patch("pods", "p", {"status": {"conditions": conditions}}, STRATEGIC, "status")
    patch: Object = {
        "status": {
            "$setElementOrder/conditions": [{"type": "A"}, {"type": "C"}, {"type": "D"}],
            "conditions": [{"type": "B", "$patch": "delete"}, {"type": "D", "status": "False"}],
        }
    }
    answer = await api.patch("pods", "p", patch, STRATEGIC, "status")
    assert [each["type"] for each in answer.body["status"]["conditions"]] == ["A", "C", "D"]
    await api.made("configmaps", config("c", {"a": "1", "b": "2"}))
    answer = await api.patch("configmaps", "c", {"data": {"$retainKeys": ["d"], "d": "4"}}, STRATEGIC)
    assert answer.body["data"] == {"d": "4"}


async def test_a_custom_kind_takes_no_strategic_patch(api: Api) -> None:
    await api.made(TORCH_JOBS, torch_job("t"))
    answer = await api.patch(TORCH_JOBS, "t", {"spec": {}}, STRATEGIC)
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
    assert (await api.patch(TORCH_JOBS, "t", {}, "application/nonsense")).code == 415


async def test_changes_without_effect_keep_the_version(api: Api) -> None:
    made = await api.made("configmaps", config("c"))
    for answer in (
        await api.patch("configmaps", "c", {"data": {"k": "1"}}),
        await api.patch("configmaps", "c", {}),
    ):
        assert (answer.code, answer.version) == (200, made["metadata"]["resourceVersion"])


async def test_changed_cluster_objects_get_no_namespace(api: Api) -> None:
    path = f"/api/v1/namespaces/{api.namespace}"
    answer = await api.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    assert (answer.code, "namespace" in answer.body["metadata"]) == (200, False)
    assert answer.body["metadata"]["labels"]["a"] == "b"


async def test_changing_an_outdated_version_is_a_conflict(api: Api) -> None:
    made = await api.made("configmaps", config("c"))
    await api.patch("configmaps", "c", {"data": {"k": "2"}})
    outdated = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    answer = await api.patch("configmaps", "c", outdated)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.body["message"] == (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    stranger = {"metadata": {"uid": str(uuid.uuid4())}}
    answer = await api.patch("configmaps", "c", stranger)
    assert (answer.code, set(answer.fields)) == (422, {"metadata.uid"})


async def test_fields_of_the_server_cannot_be_changed(api: Api) -> None:
    made = await api.made("configmaps", config("c"))
    fields = {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "deletionTimestamp": None}
    meta = (await api.patch("configmaps", "c", {"metadata": fields})).body["metadata"]
    assert meta["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert (await api.patch("configmaps", "c", {"metadata": {"name": "d"}})).code in (400, 422)


async def test_immutable_fields_cannot_be_changed(api: Api) -> None:
    for plural, obj, patch, field in (
        ("pods", pod("x"), {"spec": {"restartPolicy": "Never"}}, "spec"),
        (JOBS, job("x"), {"spec": {"completions": 5}}, "spec.completions"),
    ):
        await api.made(plural, obj)
        answer = await api.patch(plural, "x", patch)
        assert (answer.code, answer.reason, answer.fields) == (422, "Invalid", [field])


async def test_an_image_may_change_and_a_job_may_grow(api: Api) -> None:
    await api.made("pods", pod("p"))
    patch = {"spec": {"containers": [{"name": "a", "image": "other"}]}}
    assert (await api.patch("pods", "p", patch, STRATEGIC)).code == 200
    await api.made(JOBS, job("j"))
    assert (await api.patch(JOBS, "j", {"spec": {"parallelism": 0, "backoffLimit": 2}})).code == 200


@pytest.mark.parametrize("plural", ["pods", JOBS, TORCH_JOBS])
async def test_status_is_written_by_its_own_path_only(api: Api, plural: str) -> None:
    obj = {"pods": pod("x", node="nowhere"), JOBS: job("x"), TORCH_JOBS: torch_job("x")}[plural]
    await api.made(plural, obj)
    changed = {"metadata": {"annotations": {"a": "b"}}, "status": {"message": "m", "active": 3}}
    main = await api.patch(plural, "x", changed)
    assert main.body["metadata"]["annotations"] == {"a": "b"}
    assert {"message", "active"}.isdisjoint(main.body.get("status") or {})
    field = {"pods": "message", JOBS: "failed", TORCH_JOBS: "startTime"}[plural]
    value: object = {"pods": "m", JOBS: 4, TORCH_JOBS: "2026-11-20T10:00:00Z"}[plural]
    patch = {"status": {field: value}, "spec": {"nprocPerNode": "9", "activeDeadlineSeconds": 99}}
    answer = await api.patch(plural, "x", patch, subresource="status")
    assert (answer.code, answer.body["status"][field]) == (200, value)
    assert {"nprocPerNode", "activeDeadlineSeconds"}.isdisjoint(answer.body["spec"])


async def test_the_generation_of_a_custom_kind_counts_changes_of_its_spec(api: Api) -> None:
    await api.made(TORCH_JOBS, torch_job("t"))
    patches: tuple[tuple[Object, str, int], ...] = (
        ({"metadata": {"labels": {"a": "b"}}}, "", 1),
        ({"spec": {"nprocPerNode": "2"}}, "", 2),
        ({"status": {"startTime": "2026-11-20T10:00:00Z"}}, "status", 2),
    )
    for patch, subresource, generation in patches:
        answer = await api.patch(TORCH_JOBS, "t", patch, subresource=subresource)
        assert answer.body["metadata"]["generation"] == generation


async def test_a_pod_is_bound_once(api: Api) -> None:
    await api.made("pods", pod("p"))
    binding = thing("Binding", "p", target={"kind": "Node", "name": "nowhere"})
    answer = await api.call("POST", api.path("pods", "p", "binding"), binding)
    assert (answer.code, answer.body["status"]) == (201, "Success")
    bound = (await api.get("pods", "p")).body
    assert bound["spec"]["nodeName"] == "nowhere"
    conditions = [(each["type"], each["status"]) for each in bound["status"]["conditions"]]
    assert conditions == [("PodScheduled", "True")]
    again = await api.call("POST", api.path("pods", "p", "binding"), binding)
    assert (again.code, again.reason) == (409, "Conflict")
    assert 'pod p is already assigned to node "nowhere"' in again.body["message"]


async def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    made = await api.made("configmaps", config("c"))
    dry = {"dryRun": "All"}
    answer = await api.create("configmaps", config("new"), **dry)
    assert (answer.code, "uid" in answer.body["metadata"]) == (201, True)
    assert (await api.get("configmaps", "new")).code == 404
    answer = await api.patch("configmaps", "c", {"data": {"k": "2"}}, **dry)
    assert (answer.code, answer.body["data"]) == (200, {"k": "2"})
    assert (await api.delete("configmaps", "c", None, **dry)).code == 200
    assert (await api.delete("configmaps", "c", {"dryRun": ["All"]})).code == 200
    assert (await api.get("configmaps", "c")).body == made
    assert (await api.create("pods", broken_pod(), **dry)).code == 422


async def test_unknown_dry_run_values_are_refused(api: Api) -> None:
    answer = await api.create("configmaps", config("c"), dryRun="Some")
    assert (answer.code, answer.fields) == (422, ["dryRun"])
