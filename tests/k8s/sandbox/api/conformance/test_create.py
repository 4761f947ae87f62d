"""Creation of objects: defaults, and errors in a real server's words."""

from __future__ import annotations

import base64
import json

from tests.k8s.sandbox.calls import (
    JOBS,
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
