"""Creating objects: what a server fills in, and what it refuses, in its own words.

Every test runs on the sandbox and, marked `cluster`, on a real kube-apiserver.
"""

from __future__ import annotations

import json

import pytest

from tests.k8s.sandbox.calls import (
    Api,
    Object,
    broken_pod,
    config,
    job,
    pod,
    thing,
    torch_job,
)

JOBS = "batch/v1/jobs"
TORCH_JOBS = "kubeflow.org/v1/pytorchjobs"


def with_resources(**resources: Object) -> Object:
    """A pod whose container asks for this."""
    made = pod("p")
    made["spec"]["containers"][0]["resources"] = resources
    return made


async def test_a_cpu_request_may_be_below_its_limit(api: Api) -> None:
    await api.made("pods", with_resources(limits={"cpu": "2"}, requests={"cpu": "1"}))


async def test_a_created_object_has_an_identity_and_is_read_back_as_it_was_answered(api: Api) -> None:
    answer = await api.create("configmaps", config("c"))
    assert answer.code == 201
    assert {"uid", "resourceVersion", "creationTimestamp", "namespace"} <= answer.body["metadata"].keys()
    assert (await api.get("configmaps", "c")).body == answer.body


async def test_a_second_object_of_the_same_name_is_refused(api: Api) -> None:
    await api.made("pods", pod("p"))
    answer = await api.create("pods", pod("p"))
    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.body["message"] == 'pods "p" already exists'
    assert answer.body["details"] == {"name": "p", "kind": "pods"}


@pytest.mark.parametrize(
    ("plural", "details"),
    [
        ("pods", {"name": "none", "kind": "pods"}),
        (JOBS, {"name": "none", "group": "batch", "kind": "jobs"}),
        (TORCH_JOBS, {"name": "none", "group": "kubeflow.org", "kind": "pytorchjobs"}),
    ],
)
async def test_an_absent_object_is_a_status_that_names_it(api: Api, plural: str, details: Object) -> None:
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


async def test_a_generated_name_begins_as_asked(api: Api) -> None:
    obj = config("")
    obj["metadata"] = {"generateName": "run-"}
    names = [(await api.made("configmaps", obj))["metadata"]["name"] for _ in range(2)]
    assert len(set(names)) == 2
    assert all(name.startswith("run-") and len(name) == 9 for name in names)


async def test_nothing_is_created_in_an_absent_namespace(api: Api) -> None:
    answer = await api.call("POST", "/api/v1/namespaces/absent-one/pods", pod("p"))
    assert (answer.code, answer.body["message"]) == (404, 'namespaces "absent-one" not found')
    assert answer.body["details"] == {"name": "absent-one", "kind": "namespaces"}


async def test_a_pod_is_completed_with_what_clients_depend_on(api: Api) -> None:
    wanted = pod("p", node="nowhere")
    wanted["spec"]["containers"][0] |= {
        "image": "x",
        "resources": {"limits": {"nvidia.com/gpu": 2}},
        "ports": [{"containerPort": 80}],
    }
    del wanted["spec"]["containers"][0]["imagePullPolicy"]
    made = await api.made("pods", wanted)
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert (spec["dnsPolicy"], spec["priority"], spec["enableServiceLinks"]) == ("ClusterFirst", 0, True)
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}}
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_job_is_completed_and_labels_its_pods(api: Api) -> None:
    wanted = job("j")
    del wanted["spec"]["parallelism"]
    wanted["spec"]["suspend"] = True
    made = await api.made(JOBS, {**wanted, "status": {"succeeded": 9}})
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    labels = spec["template"]["metadata"]["labels"]
    assert (labels["controller-uid"], labels["job-name"]) == (uid, "j")
    assert list(spec["selector"]["matchLabels"].values()) == [uid]
    assert spec["template"]["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert made["status"] == {}


async def test_other_kinds_are_completed_too(api: Api) -> None:
    secret = await api.made("secrets", thing("Secret", "s", stringData={"a": "1"}))
    assert (secret["type"], secret["data"], "stringData" in secret) == ("Opaque", {"a": "MQ=="}, False)
    service = await api.made("services", thing("Service", "s", spec={"ports": [{"port": 80}]}))
    assert service["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (service["spec"]["type"], service["spec"]["sessionAffinity"]) == ("ClusterIP", "None")
    headless = thing("Service", "h", spec={"clusterIP": "None", "selector": {"a": "b"}})
    assert (await api.made("services", headless))["spec"]["clusterIP"] == "None"
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = await api.made("persistentvolumeclaims", thing("PersistentVolumeClaim", "c", spec=storage))
    assert (claim["spec"]["volumeMode"], claim["status"]) == ("Filesystem", {"phase": "Pending"})
    custom = await api.made(TORCH_JOBS, torch_job("t", status={"replicaStatuses": {}}))
    assert (custom["metadata"]["generation"], "status" in custom) == (1, False)


async def test_every_wrong_field_of_a_pod_is_named(api: Api) -> None:
    answer = await api.create("pods", broken_pod())
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert {"name": "Bad", "kind": "Pod"}.items() <= answer.body["details"].items()
    assert sorted(answer.fields) == sorted(
        [
            "metadata.name",
            "spec.containers[0].name",
            "spec.containers[0].ports[0].containerPort",
            "spec.containers[0].volumeMounts[0].name",
            "spec.containers[0].resources.requests",
            "spec.containers[1].image",
            "spec.containers[2].name",
            "spec.containers[2].env[0].name",
            "spec.containers[2].resources.limits",
            "spec.restartPolicy",
        ]
    )


@pytest.mark.parametrize(
    ("plural", "obj", "fields"),
    [
        ("pods", thing("Pod", "p", spec={}), ["spec.containers"]),
        ("configmaps", thing("ConfigMap", "Bad"), ["metadata.name"]),
        ("configmaps", thing("ConfigMap", ""), ["metadata.name"]),
        ("configmaps", config("c", {"a b": "1"}), ["data[a b]"]),
        ("configmaps", config("c", labels={"a b": "c"}), ["metadata.labels"]),
        ("configmaps", config("c", labels={"a": "b c"}), ["metadata.labels"]),
        ("services", thing("Service", "1s", spec={"ports": [{"port": 80}]}), ["metadata.name"]),
        ("services", thing("Service", "s", spec={}), ["spec.ports"]),
        (
            "persistentvolumeclaims",
            thing("PersistentVolumeClaim", "c", spec={}),
            ["spec.accessModes", "spec.resources[storage]"],
        ),
        (
            "pods",
            with_resources(limits={"nvidia.com/gpu": 2}, requests={"nvidia.com/gpu": 1}),
            ["spec.containers[0].resources.requests"],
        ),
        (
            "pods",
            with_resources(limits={"nvidia.com/gpu": 1}, requests={"nvidia.com/gpu": 2}),
            ["spec.containers[0].resources.requests"],
        ),
        (JOBS, job("j", backoffLimit=-1), ["spec.backoffLimit"]),
        (
            JOBS,
            job("j", template={"spec": {}}),
            ["spec.template.spec.containers", "spec.template.spec.restartPolicy"],
        ),
        (TORCH_JOBS, torch_job("t", spec={}), ["spec.pytorchReplicaSpecs"]),
    ],
)
async def test_a_wrong_object_is_refused_by_its_fields(
    api: Api, plural: str, obj: Object, fields: list[str]
) -> None:
    answer = await api.create(plural, obj)
    assert (answer.code, answer.reason, answer.fields) == (422, "Invalid", fields)


@pytest.mark.parametrize(
    ("body", "content_type", "code", "reason"),
    [
        (b"{nope", "application/json", 400, "BadRequest"),
        (b"a: [b", "application/yaml", 400, "BadRequest"),
        (b"[1]", "application/json", 400, "BadRequest"),
        (b"<x/>", "text/xml", 415, "UnsupportedMediaType"),
        (b" " * (4 << 20), "application/json", 413, "RequestEntityTooLarge"),
        (json.dumps(config("c")).encode(), "application/json", 400, "BadRequest"),
        (
            json.dumps(thing("Pod", "p", spec={"containers": "x"})).encode(),
            "application/json",
            400,
            "BadRequest",
        ),
        (
            json.dumps(pod("p") | {"metadata": {"name": "p", "labels": {"a": 1}}}).encode(),
            "application/json",
            400,
            "BadRequest",
        ),
        (json.dumps(pod("p", namespace="elsewhere")).encode(), "application/json", 400, "BadRequest"),
    ],
)
async def test_a_body_that_is_no_pod_is_refused(
    api: Api, body: bytes, content_type: str, code: int, reason: str
) -> None:
    answer = await api.call("POST", api.path("pods"), body, content_type=content_type)
    assert (answer.code, answer.reason, answer.body["kind"]) == (code, reason, "Status")


async def test_a_quantity_that_is_none_is_refused(api: Api) -> None:
    wanted = pod("p")
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1x"}}
    answer = await api.create("pods", wanted)
    assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"),
    [
        ("GET", "/api/v1/foos", 404, "NotFound"),
        ("GET", "/apis/batch/v9/jobs", 404, "NotFound"),
        ("GET", "/api/v1/pods/p", 404, "NotFound"),
        ("POST", "/api/v1/pods", 405, "MethodNotAllowed"),
        ("POST", "/api/v1/namespaces/default/pods/p", 405, "MethodNotAllowed"),
        ("PUT", "/api/v1/namespaces/default/pods", 405, "MethodNotAllowed"),
        ("DELETE", "/api/v1/namespaces", 405, "MethodNotAllowed"),
        ("POST", "/version", 405, "MethodNotAllowed"),
    ],
)
async def test_what_is_not_served_is_a_status_too(
    api: Api, method: str, path: str, code: int, reason: str
) -> None:
    body: Object | None = None if method in ("GET", "DELETE") else {}
    answer = await api.call(method, path, body)
    assert (answer.code, answer.reason, answer.body["kind"]) == (code, reason, "Status")


async def test_an_unknown_token_and_an_unknown_format_are_refused(api: Api) -> None:
    answer = await api.call("GET", "/api/v1/pods", token="wrong")
    assert (answer.code, answer.reason, answer.body["message"]) == (401, "Unauthorized", "Unauthorized")
    answer = await api.call("GET", "/api/v1/pods", accept="application/xml")
    assert (answer.code, answer.reason) == (406, "NotAcceptable")
