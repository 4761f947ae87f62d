"""Lists with their selectors and pages, permission reviews, discovery, and missing logs."""

from __future__ import annotations

import pytest

from tests.k8s.sandbox.calls import TORCH_JOBS, Api, config, pod, thing


@pytest.fixture
async def labelled(api: Api) -> Api:
    for name, labels in (("a", {"x": "1", "y": "2"}), ("b", {"x": "2"}), ("c", {})):
        await api.made("configmaps", config(name, labels=labels))
    return api


async def test_label_selectors_select(labelled: Api) -> None:
    for selector, names in (
        ("x=1", "a"),
        ("x==2", "b"),
        ("x!=1", "b c"),
        ("x", "a b"),
        ("!x", "c"),
        ("x in (1,2),y", "a"),
        ("x in (1, 2)", "a b"),
        ("x notin (1)", "b c"),
        ("x=1,y=2", "a"),
        ("x=", ""),
        ("x!=1,!y", "b c"),
    ):
        answer = await labelled.get("configmaps", labelSelector=selector)
        assert [name for name in answer.names if name != "kube-root-ca.crt"] == names.split(), selector


async def test_malformed_selectors_are_refused(api: Api) -> None:
    for selector in ("a===b", "a in", "a in (b", "a b", "a=b,", "!", "a notin b", "a=b c"):
        answer = await api.get("pods", labelSelector=selector)
        assert (answer.code, answer.reason) == (400, "BadRequest"), selector


async def test_field_selectors_select(api: Api) -> None:
    await api.made("pods", pod("free"))
    await api.made("pods", pod("bound", node="nowhere"))
    await api.patch("pods", "bound", {"status": {"phase": "Running"}}, subresource="status")
    for selector, names in (
        ("metadata.name=free", ["free"]),
        (f"metadata.namespace={api.namespace}", ["bound", "free"]),
        ("spec.nodeName=nowhere", ["bound"]),
        ("spec.nodeName=", ["free"]),
        ("status.phase!=Running", ["free"]),
        ("spec.nodeName=nowhere,status.phase!=Succeeded,status.phase!=Failed", ["bound"]),
    ):
        assert (await api.get("pods", fieldSelector=selector)).names == names


async def test_events_are_selected_by_their_object(api: Api) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": api.namespace, "uid": "u-1"}
    event = thing("Event", "e", involvedObject=about, reason="Failed", type="Warning", message="m")
    await api.made("events", event | {"source": {"component": "kubelet"}})
    for selector, count in (
        ("involvedObject.name=p,involvedObject.uid=u-1", 1),
        ("involvedObject.kind=Job", 0),
        ("type=Warning,reason=Failed", 1),
        ("type=Normal", 0),
        ("source=kubelet", 1),
    ):
        assert len((await api.get("events", fieldSelector=selector)).body["items"]) == count


async def test_unsupported_field_selectors_are_refused(api: Api) -> None:
    for plural in ("pods", TORCH_JOBS):
        answer = await api.get(plural, fieldSelector="spec.foo=x")
        assert (answer.code, answer.body["message"]) == (400, "field label not supported: spec.foo")


async def test_pages_hold_every_object_once_and_carry_the_version_of_the_first(api: Api) -> None:
    for name in "abcde":
        await api.made("secrets", thing("Secret", f"s-{name}", type="test/x"))
    query = {"limit": "2", "fieldSelector": "type=test/x"}
    first = await api.get("secrets", **query)
    await api.made("pods", pod("later"))
    second = await api.get("secrets", **query, **{"continue": first.body["metadata"]["continue"]})
    third = await api.get("secrets", **query, **{"continue": second.body["metadata"]["continue"]})
    assert first.names + second.names + third.names == ["s-a", "s-b", "s-c", "s-d", "s-e"]
    assert first.version == second.version == third.version
    assert not third.body["metadata"].get("continue")


async def test_invalid_list_options_are_refused(api: Api) -> None:
    answer = await api.get("pods", **{"limit": "1", "continue": "nonsense"})
    assert (answer.code, answer.reason) == (400, "BadRequest")
    answer = await api.get("pods", resourceVersionMatch="Exact")
    assert (answer.code, answer.fields) == (422, ["resourceVersionMatch"])
    answer = await api.get("pods", limit="x")
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_permission_reviews_are_answered(api: Api) -> None:
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


async def test_discovery_lists_the_served_kinds(api: Api) -> None:
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


async def test_a_missing_log_is_refused_with_the_reason(api: Api) -> None:
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
