"""Deletion: answers, preconditions, finalizers, grace periods and dependents."""

from __future__ import annotations

import uuid

from tests.k8s.sandbox.calls import (
    JOBS,
    TORCH_JOBS,
    Api,
    also_scripted,
    config,
    eventually,
    job,
    pod,
    thing,
    torch_job,
)


async def test_deletions_are_answered_as_their_kind_requires(api: Api) -> None:
    for plural, obj, kind in (
        ("configmaps", config("x"), "Status"),
        ("secrets", thing("Secret", "x"), "Status"),
        (TORCH_JOBS, torch_job("x"), "Status"),
        ("pods", pod("x"), "Pod"),
        ("serviceaccounts", thing("ServiceAccount", "x"), "ServiceAccount"),
    ):
        made = await api.made(plural, obj)
        answer = await api.delete(plural, "x")
        assert (answer.code, answer.body["kind"]) == (200, kind)
        if kind == "Status":
            assert (answer.body["status"], answer.body["details"]["uid"]) == (
                "Success",
                made["metadata"]["uid"],
            )
        again = await api.delete(plural, "x")
        assert (again.code, again.reason) == (404, "NotFound")


@also_scripted
async def test_a_deletion_can_be_conditional(api: Api) -> None:
    made = (await api.made("configmaps", config("c")))["metadata"]
    for condition in ({"uid": "other"}, {"resourceVersion": "1"}):
        answer = await api.delete("configmaps", "c", {"preconditions": condition})
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert "in the precondition" in answer.body["message"]
    right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    assert (await api.delete("configmaps", "c", {"preconditions": right})).code == 200


async def test_a_finalizer_delays_a_deletion(api: Api) -> None:
    await api.made("configmaps", config("c", finalizers=["x.io/hold"]))
    answer = await api.delete("configmaps", "c")
    assert (answer.code, answer.body["kind"]) == (200, "ConfigMap")
    held = (await api.get("configmaps", "c")).body["metadata"]
    assert (held["deletionGracePeriodSeconds"], "deletionTimestamp" in held) == (0, True)
    taken = await api.create("configmaps", config("c"))
    assert taken.body["message"].startswith("object is being deleted:")
    assert (await api.patch("configmaps", "c", {"metadata": {"finalizers": None}})).code == 200
    assert (await api.get("configmaps", "c")).code == 404


async def test_only_bound_pods_get_a_grace_period(api: Api) -> None:
    await api.made("pods", pod("bound", node="nowhere"))
    first = (await api.delete("pods", "bound")).body["metadata"]
    assert (first["deletionGracePeriodSeconds"], "deletionTimestamp" in first) == (30, True)
    sooner = (await api.delete("pods", "bound", gracePeriodSeconds="5")).body["metadata"]
    assert sooner["deletionGracePeriodSeconds"] == 5
    later = (await api.delete("pods", "bound", gracePeriodSeconds="50")).body["metadata"]
    assert later["deletionGracePeriodSeconds"] == 5
    assert (await api.delete("pods", "bound", {"gracePeriodSeconds": 0})).code == 200
    assert (await api.get("pods", "bound")).code == 404
    await api.made("pods", pod("free"))
    await api.delete("pods", "free")
    assert (await api.get("pods", "free")).code == 404


async def owner_and_owned(api: Api, *, blocks: bool = True) -> None:
    owner = await api.made("configmaps", config("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }
    await api.made("configmaps", config("owned", ownerReferences=[reference], finalizers=["x.io/hold"]))
    # A collector that does not know of `owned` yet would orphan nothing. It learns of objects in turn, so
    # wait until it has collected one that came later.
    stray = {**reference, "name": "nobody", "uid": str(uuid.uuid4())}
    await api.made("configmaps", config("stray", ownerReferences=[stray]))
    await eventually(lambda: is_gone(api, "configmaps", "stray"))


async def is_gone(api: Api, plural: str, name: str) -> bool:
    return (await api.get(plural, name)).code == 404


async def is_going(api: Api, plural: str, name: str) -> bool:
    return "deletionTimestamp" in (await api.get(plural, name)).body["metadata"]


async def test_background_deletion_removes_the_owner_first(api: Api) -> None:
    await owner_and_owned(api)
    answer = await api.delete("configmaps", "owner", propagationPolicy="Background")
    assert answer.body["status"] == "Success"
    assert await is_gone(api, "configmaps", "owner")
    await eventually(lambda: is_going(api, "configmaps", "owned"))
    await api.patch("configmaps", "owned", {"metadata": {"finalizers": None}})
    await eventually(lambda: is_gone(api, "configmaps", "owned"))


async def test_foreground_deletion_removes_the_owner_last(api: Api) -> None:
    await owner_and_owned(api)
    answer = await api.delete("configmaps", "owner", {"propagationPolicy": "Foreground"})
    assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    await eventually(lambda: is_going(api, "configmaps", "owned"))
    assert await is_going(api, "configmaps", "owner")
    await api.patch("configmaps", "owned", {"metadata": {"finalizers": None}})
    await eventually(lambda: is_gone(api, "configmaps", "owned"))
    await eventually(lambda: is_gone(api, "configmaps", "owner"))


async def test_orphans_stay_without_an_owner(api: Api) -> None:
    await owner_and_owned(api)
    answer = await api.delete("configmaps", "owner", propagationPolicy="Orphan")
    assert answer.body["metadata"]["finalizers"] == ["orphan"]
    await eventually(lambda: is_gone(api, "configmaps", "owner"))
    left = (await api.get("configmaps", "owned")).body["metadata"]
    assert {"ownerReferences", "deletionTimestamp"}.isdisjoint(left)


async def test_a_job_orphans_its_pods_by_default(api: Api) -> None:
    await api.made(JOBS, job("j"))
    answer = await api.delete(JOBS, "j")
    assert answer.body["metadata"]["finalizers"] == ["orphan"]
    await eventually(lambda: is_gone(api, JOBS, "j"))


async def test_objects_of_a_missing_owner_are_collected(api: Api) -> None:
    gone = await api.made("configmaps", config("owner"))
    await api.delete("configmaps", "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": gone["metadata"]["uid"]}
    await api.made("configmaps", config("late", ownerReferences=[reference]))
    await eventually(lambda: is_gone(api, "configmaps", "late"))


async def test_unknown_propagation_policies_are_refused(api: Api) -> None:
    await api.made("configmaps", config("c"))
    answer = await api.delete("configmaps", "c", {"propagationPolicy": "Sideways"})
    assert (answer.code, answer.fields) == (422, ["propagationPolicy"])


async def test_a_namespace_is_deleted_with_its_objects(api: Api) -> None:
    await api.made("configmaps", config("held", finalizers=["x.io/hold"]))
    await api.made("pods", pod("p"))
    path = f"/api/v1/namespaces/{api.namespace}"
    answer = await api.call("DELETE", path)
    assert (answer.code, answer.body["status"]["phase"]) == (200, "Terminating")
    refused = await api.create("configmaps", config("new"))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    await eventually(lambda: is_gone(api, "pods", "p"))
    await eventually(lambda: is_going(api, "configmaps", "held"))
    assert (await api.call("GET", path)).body["status"]["phase"] == "Terminating"
    await api.patch("configmaps", "held", {"metadata": {"finalizers": None}})

    async def namespace_is_gone() -> bool:
        return (await api.call("GET", path)).code == 404

    await eventually(namespace_is_gone, 60)


async def test_the_default_namespace_cannot_be_deleted(api: Api) -> None:
    answer = await api.call("DELETE", "/api/v1/namespaces/default")
    assert (answer.code, answer.reason) == (403, "Forbidden")
