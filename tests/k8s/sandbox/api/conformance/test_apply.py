"""Server-side apply: who owns a field, and what happens when two want it.

Every test runs on the sandbox and, marked `cluster`, on a real kube-apiserver.
"""

from __future__ import annotations

from tests.k8s.sandbox.calls import (
    APPLY,
    Api,
    Object,
    config,
    pod,
    thing,
)


async def applied(api: Api, words: dict[str, str], manager: str, **query: str) -> tuple[int, Object]:
    obj = config("c", words)
    answer = await api.patch("configmaps", "c", obj, APPLY, fieldManager=manager, **query)
    return answer.code, answer.body


async def test_apply_creates_then_changes_then_removes_what_is_no_longer_wanted(api: Api) -> None:
    code, obj = await applied(api, {"a": "1", "b": "2"}, "one")
    assert (code, obj["data"]) == (201, {"a": "1", "b": "2"})
    [manager] = obj["metadata"]["managedFields"]
    assert (manager["manager"], manager["operation"], manager["fieldsType"]) == ("one", "Apply", "FieldsV1")
    assert manager["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}
    code, obj = await applied(api, {"a": "3"}, "one")
    assert (code, obj["data"]) == (200, {"a": "3"})


async def test_apply_refuses_what_another_manager_set_unless_forced(api: Api) -> None:
    await applied(api, {"a": "1"}, "one")
    code, status = await applied(api, {"a": "2"}, "two")
    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]
    code, obj = await applied(api, {"a": "2"}, "two", force="true")
    assert (code, obj["data"]) == (200, {"a": "2"})
    assert [each["manager"] for each in obj["metadata"]["managedFields"]] == ["two"]


async def test_apply_shares_a_field_that_all_want_the_same(api: Api) -> None:
    await applied(api, {"a": "1", "b": "1"}, "one")
    code, obj = await applied(api, {"a": "1"}, "two")
    assert code == 200
    assert sorted(each["manager"] for each in obj["metadata"]["managedFields"]) == ["one", "two"]
    code, obj = await applied(api, {"b": "1"}, "one")
    assert (code, obj["data"]) == (200, {"a": "1", "b": "1"})


async def test_apply_conflicts_with_other_ways_of_writing(api: Api) -> None:
    await api.made("configmaps", config("c", {"k": "1"}))
    code, status = await applied(api, {"k": "2"}, "one")
    assert (code, status["reason"]) == (409, "Conflict")
    assert status["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "conformance" using v1',
            "field": ".data.k",
        }
    ]


async def test_apply_merges_containers_by_name(api: Api) -> None:
    wanted = pod("p", containers=("a",))
    wanted["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    answer = await api.patch("pods", "p", wanted, APPLY, fieldManager="one")
    assert answer.code == 201
    fields = answer.body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"]
    assert list(fields) == ['k:{"name":"a"}']
    image = thing("Pod", "p", spec={"containers": [{"name": "a", "image": "other"}]})
    answer = await api.patch("pods", "p", image, APPLY, fieldManager="two", force="true")
    assert (answer.code, answer.body["spec"]["containers"][0]["image"]) == (200, "other")
    assert answer.body["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


async def test_apply_needs_to_know_who_applies(api: Api) -> None:
    answer = await api.patch("configmaps", "c", config("c"), APPLY)
    assert (answer.code, answer.fields) == (422, ["fieldManager"])


async def test_apply_takes_yaml(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  k: '2026-11-20'\n"
    answer = await api.patch("configmaps", "c", text, APPLY, fieldManager="one")
    assert (answer.code, answer.body["data"]) == (201, {"k": "2026-11-20"})
