"""Lists and their selectors, pages and past versions.

Every test runs on the sandbox and, marked `cluster`, on a real kube-apiserver.
"""

from __future__ import annotations

import pytest

from tests.k8s.sandbox.calls import (
    Api,
    config,
    pod,
    thing,
)

TORCH_JOBS = "kubeflow.org/v1/pytorchjobs"


@pytest.fixture
async def labelled(api: Api) -> Api:
    for name, labels in (("a", {"x": "1", "y": "2"}), ("b", {"x": "2"}), ("c", {})):
        await api.made("configmaps", config(name, labels=labels))
    return api


@pytest.mark.parametrize(
    ("selector", "names"),
    [
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
    ],
)
async def test_labels_select(labelled: Api, selector: str, names: str) -> None:
    answer = await labelled.get("configmaps", labelSelector=selector)
    assert [name for name in answer.names if name != "kube-root-ca.crt"] == names.split()


@pytest.mark.parametrize("selector", ["a===b", "a in", "a in (b", "a b", "a=b,", "!", "a notin b", "a=b c"])
async def test_a_selector_that_cannot_be_read_is_refused(api: Api, selector: str) -> None:
    answer = await api.get("pods", labelSelector=selector)
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_fields_select(api: Api) -> None:
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


async def test_events_are_found_by_what_they_are_about(api: Api) -> None:
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


@pytest.mark.parametrize("plural", ["pods", TORCH_JOBS])
async def test_a_field_that_does_not_select_is_refused(api: Api, plural: str) -> None:
    answer = await api.get(plural, fieldSelector="spec.foo=x")
    assert (answer.code, answer.body["message"]) == (400, "field label not supported: spec.foo")


async def test_pages_show_the_list_as_it_was_at_the_first_one(api: Api) -> None:
    for name in "abcde":
        await api.made("secrets", thing("Secret", f"s-{name}", type="test/x"))
    query = {"limit": "2", "labelSelector": "", "fieldSelector": "type=test/x"}
    first = await api.get("secrets", **query)
    await api.made("secrets", thing("Secret", "s-bb", type="test/x"))
    await api.delete("secrets", "s-e")
    second = await api.get("secrets", **query, **{"continue": first.body["metadata"]["continue"]})
    third = await api.get("secrets", **query, **{"continue": second.body["metadata"]["continue"]})
    assert first.names + second.names + third.names == ["s-a", "s-b", "s-c", "s-d", "s-e"]
    assert first.version == second.version == third.version
    assert not third.body["metadata"].get("continue")
    assert "remainingItemCount" not in first.body["metadata"]


async def test_a_page_says_how_many_are_left(api: Api) -> None:
    for name in "abc":
        await api.made("pods", pod(name))
    meta = (await api.get("pods", limit="1")).body["metadata"]
    assert (meta["remainingItemCount"], bool(meta["continue"])) == (2, True)


async def test_a_list_can_be_read_as_it_was(api: Api) -> None:
    await api.made("pods", pod("a"))
    then = (await api.get("pods")).version
    await api.made("pods", pod("b"))
    exact = await api.get("pods", resourceVersion=then, resourceVersionMatch="Exact")
    newer = await api.get("pods", resourceVersion=then, resourceVersionMatch="NotOlderThan")
    assert (exact.names, exact.version) == (["a"], then)
    # A real server answers this one from its cache, in no order.
    assert sorted(newer.names) == ["a", "b"]


async def test_lists_that_cannot_be_given_say_why(api: Api) -> None:
    answer = await api.get("pods", **{"limit": "1", "continue": "nonsense"})
    assert (answer.code, answer.reason) == (400, "BadRequest")
    answer = await api.get("pods", resourceVersionMatch="Exact")
    assert (answer.code, answer.fields) == (422, ["resourceVersionMatch"])
    answer = await api.get("pods", limit="x")
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_version_that_is_not_there_yet_is_refused(api: Api) -> None:
    answer = await api.get("pods", resourceVersion="999999999")
    assert (answer.code, answer.reason) == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert answer.body["details"]["retryAfterSeconds"] == 1
