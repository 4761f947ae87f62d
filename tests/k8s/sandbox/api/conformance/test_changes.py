"""Creation and changes of objects: defaults, patches of every type, conflicts, dry runs, errors."""

from __future__ import annotations

import base64
import json
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


def with_resources(**resources: Object) -> Object:
    """Return a pod whose container has these resources."""
    made = pod("p")
    made["spec"]["containers"][0]["resources"] = resources
    return made


async def test_a_cpu_request_may_be_below_its_limit(api: Api) -> None:
    await api.made("pods", with_resources(limits={"cpu": "2"}, requests={"cpu": "1"}))


@also_scripted
async def test_created_objects_get_an_identity_and_read_back_the_same(api: Api) -> None:
    answer = await api.create("configmaps", config("c"))
    assert answer.code == 201
    assert {"uid", "resourceVersion", "creationTimestamp", "namespace"} <= answer.body["metadata"].keys()
    assert (await api.get("configmaps", "c")).body == answer.body


async def test_configmaps_and_secrets_are_limited_to_a_mebibyte(api: Api) -> None:
    secret = thing("Secret", "s", data={"k": base64.b64encode(b"x" * 2**20).decode()})
    await api.made("configmaps", config("c", {"k": "x" * 2**19, "l": "\u00e9" * 2**18}))
    await api.made("secrets", secret)
    secret["data"]["l"] = "eA=="
    secret["metadata"]["name"] = "t"
    large = thing("ConfigMap", "d", binaryData={"k": base64.b64encode(b"x" * (2**20 + 1)).decode()})
    refused = [await api.create("configmaps", large), await api.create("secrets", secret)]
    refused.append(await api.patch("configmaps", "c", {"data": {"m": "x"}}))
    assert [(each.code, each.reason, each.fields) for each in refused] == [
        (422, "Invalid", ["[]"]),
        (422, "Invalid", ["data"]),
        (422, "Invalid", ["[]"]),
    ]
    assert refused[0].body["message"].startswith('ConfigMap "d" is invalid: []: Too long: ')


@also_scripted
async def test_a_second_object_of_the_same_name_is_refused(api: Api) -> None:
    await api.made("pods", pod("p"))
    answer = await api.create("pods", pod("p"))
    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.body["message"] == 'pods "p" already exists'
    assert answer.body["details"] == {"name": "p", "kind": "pods"}


@also_scripted
async def test_a_missing_object_is_answered_with_a_status(api: Api) -> None:
    for plural, details in (
        ("pods", {"name": "none", "kind": "pods"}),
        (JOBS, {"name": "none", "group": "batch", "kind": "jobs"}),
        (TORCH_JOBS, {"name": "none", "group": "kubeflow.org", "kind": "pytorchjobs"}),
    ):
        answer = await api.get(plural, "none")
        key = ".".join(filter(None, (details["kind"], details.get("group", ""))))
        assert answer.code == 404
        assert answer.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f'{key} "none" not found',
            "reason": "NotFound",
            "details": details,
            "code": 404,
        }


async def test_generated_names_begin_with_the_prefix(api: Api) -> None:
    obj = config("")
    obj["metadata"] = {"generateName": "run-"}
    names = [(await api.made("configmaps", obj))["metadata"]["name"] for _ in range(2)]
    assert len(set(names)) == 2
    assert all(name.startswith("run-") and len(name) == 9 for name in names)


async def test_objects_in_a_missing_namespace_are_refused(api: Api) -> None:
    answer = await api.call("POST", "/api/v1/namespaces/absent-one/pods", pod("p"))
    assert (answer.code, answer.body["message"]) == (404, 'namespaces "absent-one" not found')
    assert answer.body["details"] == {"name": "absent-one", "kind": "namespaces"}


async def test_pods_get_the_defaults_that_clients_depend_on(api: Api) -> None:
    wanted = pod("p", node="nowhere")
    wanted["spec"]["containers"][0] |= {"image": "x", "resources": {"limits": {"nvidia.com/gpu": 2}}}
    made = await api.made("pods", wanted)
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert spec["priority"] == 0
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}}
    assert made["status"]["phase"] == "Pending"


async def test_jobs_get_defaults_and_label_their_pods(api: Api) -> None:
    wanted = job("j")
    del wanted["spec"]["parallelism"]
    wanted["spec"]["suspend"] = True
    made = await api.made(JOBS, {**wanted, "status": {"succeeded": 9}})
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    labels = spec["template"]["metadata"]["labels"]
    assert (labels["controller-uid"], labels["job-name"]) == (uid, "j")
    assert list(spec["selector"]["matchLabels"].values()) == [uid]
    assert made["status"] == {}


async def test_other_kinds_get_defaults_too(api: Api) -> None:
    secret = await api.made("secrets", thing("Secret", "s", stringData={"a": "1"}))
    assert (secret["type"], secret["data"], "stringData" in secret) == ("Opaque", {"a": "MQ=="}, False)
    service = await api.made("services", thing("Service", "s", spec={"ports": [{"port": 80}]}))
    assert service["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert service["spec"]["type"] == "ClusterIP"
    headless = thing("Service", "h", spec={"clusterIP": "None", "selector": {"a": "b"}})
    assert (await api.made("services", headless))["spec"]["clusterIP"] == "None"
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = await api.made("persistentvolumeclaims", thing("PersistentVolumeClaim", "c", spec=storage))
    assert claim["status"] == {"phase": "Pending"}
    custom = await api.made(TORCH_JOBS, torch_job("t", status={"replicaStatuses": {}}))
    assert (custom["metadata"]["generation"], "status" in custom) == (1, False)


async def test_wrong_fields_of_a_pod_are_named(api: Api) -> None:
    broken = broken_pod()
    first = await api.create("pods", broken)
    assert (first.code, first.reason) == (422, "Invalid")
    assert {"name": "Bad", "kind": "Pod"}.items() <= first.body["details"].items()
    types = {
        "spec.containers[0].name",
        "spec.containers[0].ports[0].containerPort",
        "spec.containers[1].image",
        "spec.containers[2].env[0].name",
        "spec.restartPolicy",
    }
    assert types <= set(first.fields)
    good = pod("p")["spec"]["containers"][0]
    for container, names in (
        (0, {"name": "a", "ports": []}),
        (1, {"name": "b"}),
        (2, {"name": "b", "env": []}),
    ):
        broken["spec"]["containers"][container] |= {"image": good["image"], **names}
    broken["spec"]["restartPolicy"] = "Never"
    assert {
        "metadata.name",
        "spec.containers[0].volumeMounts[0].name",
        "spec.containers[0].resources.requests",
        "spec.containers[2].name",
        "spec.containers[2].resources.limits",
    } <= set((await api.create("pods", broken)).fields)


async def test_wrong_objects_are_refused_with_their_fields(api: Api) -> None:
    for plural, obj, fields in (
        ("pods", thing("Pod", "p", spec={}), ["spec.containers"]),
        ("configmaps", thing("ConfigMap", "Bad"), ["metadata.name"]),
        ("configmaps", thing("ConfigMap", ""), ["metadata.name"]),
        ("configmaps", config("c", labels={"a b": "c"}), ["metadata.labels"]),
        ("configmaps", config("c", labels={"a": "b c"}), ["metadata.labels"]),
        ("persistentvolumeclaims", thing("PersistentVolumeClaim", "c", spec={}),
         ["spec.accessModes", "spec.resources[storage]"]),
        ("pods", with_resources(limits={"nvidia.com/gpu": 2}, requests={"nvidia.com/gpu": 1}),
         ["spec.containers[0].resources.requests"]),
        ("pods", with_resources(limits={"nvidia.com/gpu": 1}, requests={"nvidia.com/gpu": 2}),
         ["spec.containers[0].resources.requests"]),
        (JOBS, job("j", backoffLimit=-1), ["spec.backoffLimit"]),
        (JOBS, job("j", template={"spec": {}}),
         ["spec.template.spec.containers", "spec.template.spec.restartPolicy"]),
        (TORCH_JOBS, torch_job("t", spec={}), ["spec.pytorchReplicaSpecs"]),
    ):  # fmt: skip
        answer = await api.create(plural, obj)
        assert (answer.code, answer.reason) == (422, "Invalid")
        # Rules between fields are checked once each has a value that it may have.
        assert answer.fields == fields if api.is_real else set(answer.fields) <= set(fields)
    unversioned = config("c", ownerReferences=[{"kind": "Pod", "name": "p", "uid": "u"}])
    found = (await api.create("configmaps", unversioned)).fields
    assert [field.replace("[0]", "") for field in found] == ["metadata.ownerReferences.apiVersion"]


async def test_bodies_that_are_not_a_pod_are_refused(api: Api) -> None:
    for body, content_type, code, reason in (
        (b"{nope", "application/json", 400, "BadRequest"),
        (b"[1]", "application/json", 400, "BadRequest"),
        (b"<x/>", "text/xml", 415, "UnsupportedMediaType"),
        (b" " * (4 << 20), "application/json", 413, "RequestEntityTooLarge"),
        (json.dumps(config("c")).encode(), "application/json", 400, "BadRequest"),
        (json.dumps(pod("p", namespace="elsewhere")).encode(), "application/json", 400, "BadRequest"),
    ):  # fmt: skip
        answer = await api.call("POST", api.path("pods"), body, content_type=content_type)
        assert (answer.code, answer.reason, answer.body["kind"]) == (code, reason, "Status"), body[:80]


async def test_values_of_a_wrong_type_are_refused(api: Api) -> None:
    labelled = pod("p") | {"metadata": {"name": "p", "labels": {"a": 1}}}
    for wrong, field in (
        (with_resources(limits={"cpu": "1x"}), "spec.containers[0].resources.limits"),
        (thing("Pod", "p", spec={"containers": "x"}), "spec.containers"),
        (labelled, "metadata.labels"),
    ):
        answer = await api.create("pods", wrong)
        assert answer.code == 400 if api.is_real else (answer.code, answer.fields) == (422, [field])


async def test_unserved_paths_and_methods_are_answered_with_a_status(api: Api) -> None:
    for method, path, code, reason in (
        ("GET", "/api/v1/foos", 404, "NotFound"),
        ("GET", "/apis/batch/v9/jobs", 404, "NotFound"),
        ("GET", "/api/v1/pods/p", 404, "NotFound"),
        ("POST", "/api/v1/pods", 405, "MethodNotAllowed"),
        ("POST", "/api/v1/namespaces/default/pods/p", 405, "MethodNotAllowed"),
        ("PUT", "/api/v1/namespaces/default/pods", 405, "MethodNotAllowed"),
        ("DELETE", "/api/v1/namespaces", 405, "MethodNotAllowed"),
        ("POST", "/version", 405, "MethodNotAllowed"),
    ):
        body: Object | None = None if method in ("GET", "DELETE") else {}
        answer = await api.call(method, path, body)
        assert (answer.code, answer.reason, answer.body["kind"]) == (code, reason, "Status"), (method, path)
