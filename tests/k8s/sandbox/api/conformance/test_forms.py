"""Tables, metadata, permissions, discovery, and logs that are not there.

Every test runs on the sandbox and, marked `cluster`, on a real kube-apiserver.
"""

from __future__ import annotations

import pytest

from tests.k8s.sandbox.calls import (
    MERGE,
    TABLE,
    Api,
    Object,
    config,
    pod,
    thing,
    torch_job,
)

TORCH_JOBS = "kubeflow.org/v1/pytorchjobs"


async def test_a_table_has_the_columns_that_kubectl_shows(api: Api) -> None:
    await api.made("pods", pod("p", containers=("a", "b")))
    table = (await api.call("GET", api.path("pods"), accept=TABLE)).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [(each["name"], each["priority"]) for each in table["columnDefinitions"]]
    assert columns == [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ]
    [row] = table["rows"]
    assert [str(cell) for cell in row["cells"][:4]] == ["p", "0/2", "Pending", "0"]
    assert row["cells"][5:] == ["<none>"] * 4
    assert row["object"]["kind"] == "PartialObjectMetadata"
    whole = (await api.call("GET", api.path("pods"), accept=TABLE, includeObject="Object")).body
    assert whole["rows"][0]["object"]["kind"] == "Pod"
    none = (await api.call("GET", api.path("pods"), accept=TABLE, includeObject="None")).body
    assert not none["rows"][0].get("object")


POD_STATES: list[tuple[Object, str, str]] = [
    ({"phase": "Running", "reason": "Evicted"}, "Evicted", "0/1"),
    (
        {
            "phase": "Running",
            "containerStatuses": [{"name": "a", "ready": True, "restartCount": 3, "state": {"running": {}}}],
        },
        "Running",
        "1/1",
    ),
    (
        {
            "phase": "Running",
            "containerStatuses": [
                {"name": "a", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
            ],
        },
        "CrashLoopBackOff",
        "0/1",
    ),
    (
        {
            "phase": "Failed",
            "containerStatuses": [{"name": "a", "restartCount": 3, "state": {"terminated": {"exitCode": 3}}}],
        },
        "ExitCode:3",
        "0/1",
    ),
    (
        {
            "phase": "Succeeded",
            "containerStatuses": [
                {
                    "name": "a",
                    "restartCount": 3,
                    "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
                }
            ],
        },
        "Completed",
        "0/1",
    ),
]


@pytest.mark.parametrize(("status", "word", "ready"), POD_STATES)
async def test_a_table_sums_a_pod_up_in_a_word(api: Api, status: Object, word: str, ready: str) -> None:
    await api.made("pods", pod("p", node="nowhere"))
    statuses = [
        {"image": "", "imageID": "", "ready": False, "lastState": {}, **each}
        for each in status.get("containerStatuses", ())
    ]
    answer = await api.patch(
        "pods", "p", {"status": {**status, "containerStatuses": statuses}}, MERGE, "status"
    )
    assert answer.code == 200, answer.body
    [row] = (await api.call("GET", api.path("pods"), accept=TABLE)).body["rows"]
    assert row["cells"][1:3] == [ready, word]


@pytest.mark.parametrize(
    ("plural", "obj", "columns"),
    [
        ("configmaps", config("x"), "Name Data Age"),
        ("secrets", thing("Secret", "x"), "Name Type Data Age"),
        (
            "events",
            thing("Event", "x", involvedObject={"kind": "Pod", "name": "p"}, reason="R", message="m"),
            "Last Seen Type Reason Object Subobject Source Message First Seen Count Name",
        ),
        (TORCH_JOBS, torch_job("x"), "Name State Age"),
        (
            "services",
            thing("Service", "x", spec={"ports": [{"port": 8}]}),
            "Name Type Cluster-IP External-IP Port(s) Age Selector",
        ),
    ],
)
async def test_every_kind_has_its_table(api: Api, plural: str, obj: Object, columns: str) -> None:
    if plural == "events":
        obj["involvedObject"]["namespace"] = api.namespace
    await api.made(plural, obj)
    table = (await api.call("GET", api.path(plural, "x"), accept=TABLE)).body
    assert " ".join(each["name"] for each in table["columnDefinitions"]) == columns
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])


async def test_a_watch_of_a_table_names_the_columns_once(api: Api) -> None:
    await api.made("pods", pod("a"))
    async with api.watching("pods", accept=TABLE, resourceVersion="0") as events:
        first = (await events.next())["object"]
        await api.made("pods", pod("b"))
        second = (await events.next())["object"]
    assert (first["kind"], len(first["columnDefinitions"]), first["rows"][0]["cells"][0]) == ("Table", 9, "a")
    assert (second["kind"], second["columnDefinitions"], second["rows"][0]["cells"][0]) == (
        "Table",
        None,
        "b",
    )


async def test_metadata_alone_can_be_asked_for(api: Api) -> None:
    await api.made("pods", pod("p"))
    accept = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"
    one = (await api.call("GET", api.path("pods", "p"), accept=accept.format(""))).body
    assert (one["kind"], one["apiVersion"], "spec" in one) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
        False,
    )
    many = (await api.call("GET", api.path("pods"), accept=accept.format("List"))).body
    assert (many["kind"], many["items"][0]["metadata"]["name"]) == ("PartialObjectMetadataList", "p")


async def test_the_holder_of_the_token_may_ask_what_they_may_do(api: Api) -> None:
    path = "/apis/authorization.k8s.io/v1/"
    spec = {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": api.namespace}}
    review = thing("SelfSubjectAccessReview", "", "authorization.k8s.io/v1", spec=spec)
    del review["metadata"]
    answer = await api.call("POST", path + "selfsubjectaccessreviews", review)
    assert (answer.code, answer.body["status"]["allowed"]) == (201, True)
    rules = {
        "kind": "SelfSubjectRulesReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"namespace": api.namespace},
    }
    status = (await api.call("POST", path + "selfsubjectrulesreviews", rules)).body["status"]
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in status["resourceRules"]
    assert status["incomplete"] is False


async def test_the_server_says_what_it_serves(api: Api) -> None:
    assert (await api.call("GET", "/api")).body["versions"] == ["v1"]
    names = {each["name"] for each in (await api.call("GET", "/apis")).body["groups"]}
    assert {"batch", "kubeflow.org", "authorization.k8s.io"} <= names
    core = {each["name"]: each for each in (await api.call("GET", "/api/v1")).body["resources"]}
    assert (core["pods"]["kind"], core["pods"]["namespaced"], core["pods"]["shortNames"]) == (
        "Pod",
        True,
        ["po"],
    )
    assert {"pods/log", "pods/exec", "pods/status", "pods/binding", "nodes/status"} <= core.keys()
    assert (await api.call("GET", "/apis/batch")).body["preferredVersion"]["groupVersion"] == "batch/v1"
    assert (await api.call("GET", "/version")).body["gitVersion"].startswith("v1.")
    for path in ("/healthz", "/readyz", "/livez"):
        answer = await api.call("GET", path)
        assert (answer.code, bytes(answer.body)) == (200, b"ok")


async def test_a_log_that_is_not_there_says_why(api: Api) -> None:
    await api.made("pods", pod("two", containers=("a", "b")))
    several = await api.call("GET", api.path("pods", "two", "log"))
    assert (several.code, several.body["message"]) == (
        400,
        "a container name must be specified for pod two, choose one of: [a b]",
    )
    wrong = await api.call("GET", api.path("pods", "two", "log"), container="z")
    assert (wrong.code, wrong.body["message"]) == (400, "container z is not valid for pod two")
    assert (await api.call("GET", api.path("pods", "none", "log"))).code == 404
    assert (await api.call("GET", api.path("pods", "two", "log"), container="a")).code == 204
