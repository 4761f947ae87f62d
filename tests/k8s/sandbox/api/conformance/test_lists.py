"""Lists with selectors and pages, watches of every change, permission reviews, discovery, missing logs."""

from __future__ import annotations

import pytest

from tests.k8s.sandbox.calls import TORCH_JOBS, Api, config, eventually, pod, thing


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


async def test_a_watch_reports_every_change_in_order(api: Api) -> None:
    start = (await api.get("configmaps")).version
    async with api.watching("configmaps", resourceVersion=start, fieldSelector="metadata.name=c") as events:
        await api.made("configmaps", config("c"))
        await api.made("configmaps", config("other"))
        await api.patch("configmaps", "c", {"data": {"k": "2"}})
        await api.delete("configmaps", "c")
        seen = [await events.next() for _ in range(3)]
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event["object"]["data"]["k"] for event in seen] == ["1", "2", "2"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert int(start) < versions[0] < versions[1] < versions[2]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_a_version_begins_with_all_objects(api: Api, query: dict[str, str]) -> None:
    await api.made("pods", pod("a"))
    await api.made("pods", pod("b"))
    await eventually(lambda: _has(api, "pods", 2))
    async with api.watching("pods", **query) as events:
        assert sorted(await events.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await api.made("pods", pod("c"))
        assert await events.take(1) == [("ADDED", "c")]


async def _has(api: Api, plural: str, count: int) -> bool:
    return len((await api.get(plural, resourceVersion="0")).names) == count


async def test_a_watch_resumes_where_another_ended(api: Api) -> None:
    await api.made("secrets", thing("Secret", "a", type="test/x"))
    middle = (await api.made("secrets", thing("Secret", "b", type="test/x")))["metadata"]["resourceVersion"]
    await api.made("secrets", thing("Secret", "c", type="test/x"))
    await api.delete("secrets", "a")
    async with api.watching("secrets", resourceVersion=middle, fieldSelector="type=test/x") as events:
        assert await events.take(2) == [("ADDED", "c"), ("DELETED", "a")]


async def test_an_object_enters_and_leaves_a_selector(api: Api) -> None:
    start = (await api.get("pods")).version
    query = {"resourceVersion": start, "labelSelector": "on=1"}
    async with api.watching("pods", **query) as events:
        await api.made("pods", pod("p"))
        await api.patch("pods", "p", {"metadata": {"labels": {"on": "1"}}})
        await api.patch("pods", "p", {"metadata": {"annotations": {"a": "b"}}})
        left = (await api.patch("pods", "p", {"metadata": {"labels": {"on": "2"}}})).version
        seen = [await events.next() for _ in range(3)]
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert seen[2]["object"]["metadata"]["resourceVersion"] == left
    assert seen[2]["object"]["metadata"]["labels"] == {"on": "1"}


async def test_a_watch_ends_in_time_with_a_bookmark_of_the_newest_version(api: Api) -> None:
    start = (await api.get("pods")).version
    query = {
        "resourceVersion": start,
        "timeoutSeconds": "4" if api.is_real else "1",
        "allowWatchBookmarks": "true",
    }
    async with api.watching("pods", **query) as events:
        newest = (await api.made("pods", pod("p")))["metadata"]["resourceVersion"]
        added, *bookmarks = await events.rest()
    assert added["type"] == "ADDED"
    assert {event["type"] for event in bookmarks} == {"BOOKMARK"}
    assert int(bookmarks[-1]["object"]["metadata"]["resourceVersion"]) >= int(newest)
    assert bookmarks[-1]["object"]["kind"] == "Pod"


async def test_bookmarks_are_sent_on_request_only(api: Api) -> None:
    start = (await api.get("pods")).version
    async with api.watching("pods", resourceVersion=start, timeoutSeconds="1") as events:
        assert await events.rest() == []


async def test_expired_versions_are_answered_with_410(forgetful_api: Api) -> None:
    api = forgetful_api
    async with api.watching(TORCH_JOBS, resourceVersion="1") as events:
        event = await events.next()
        assert await events.next() == {}
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_watch_from_the_future_waits(api: Api) -> None:
    async with api.watching("pods", resourceVersion="999999999", timeoutSeconds="1") as events:
        await api.made("pods", pod("p"))
        assert await events.rest() == []
