"""Permissions of the user: reviewed once, remembered for a while, and never guessed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from k8s.client.rate_limiter import RateLimiter
from k8s.jobs.permissions import UNKNOWN, Permission, Permissions, ResourceAttributes, needs_of, review
from k8s.kinds import CREATABLE, KINDS, JobRef
from k8s.models.resources import ACCESS_REVIEWS, NAMESPACES, NODES, PODS, Resource
from k8s.text.errors import Forbidden, KubeError, from_status
from tests.scripted.server import (
    Answer,
    Asked,
    Compute,
    Drop,
    Held,
    Reply,
    ScriptedCluster,
    refusal,
    status_object,
)

PATH = ACCESS_REVIEWS.path()
BERT = JobRef("vision", "bert", "PyTorchJob", "kubeflow.org/v1")
MAY = Answer({"status": {"allowed": True}}, 201)
MAY_NOT = Answer({"status": {"allowed": False}}, 201)
THREE = ("delete job", "get job", "get pods/exec")
DELETE_REFUSED = 'user "li" may not delete pytorchjobs in namespace "vision"'


def asked_of(cluster: ScriptedCluster) -> list[dict[str, Any]]:
    """Return the resource attributes of each review sent to the cluster."""
    reviews = cluster.asked(PATH, method="POST")
    return [json.loads(each.body)["spec"]["resourceAttributes"] for each in reviews]


@asynccontextmanager
async def reviewing(*replies: Reply, **more: Any) -> AsyncIterator[tuple[ScriptedCluster, Permissions]]:
    """Serve these answers to reviews in turn, and yield what asks for them."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PATH, *replies, method="POST")
        yield cluster, Permissions(client, **more)


def refused(message: str) -> KubeError:
    return from_status(403, status_object(403, message, "Forbidden"), "delete PyTorchJob bert")


@pytest.mark.parametrize(
    ("status", "right"),
    [
        ({"allowed": True, "reason": "RBAC: allowed"}, Permission(True)),
        ({"allowed": False}, Permission(False, DELETE_REFUSED)),
        (
            {"allowed": False, "denied": True, "reason": "frozen\n"},
            Permission(False, f"{DELETE_REFUSED}: frozen"),
        ),
        ({"allowed": False, "evaluationError": "webhook is away"}, UNKNOWN),
        ({"allowed": True, "evaluationError": "webhook is away"}, Permission(True)),
        (None, UNKNOWN),
    ],
)
async def test_a_denied_access_review_names_user_verb_namespace_and_reason(
    status: object, right: Permission
) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PATH, Answer({"status": status}, 201), method="POST")
        attributes = ResourceAttributes("delete", "kubeflow.org", "pytorchjobs")
        assert await review(client, attributes, "vision") == right
        wanted = {"verb": "delete", "group": "kubeflow.org", "resource": "pytorchjobs", "subresource": ""}
        assert asked_of(cluster) == [wanted | {"namespace": "vision"}]


async def test_a_denied_access_review_without_user_or_namespace_is_worded_generally() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        client.config.user = ""
        cluster.say(PATH, MAY_NOT, method="POST")
        right = await review(client, ResourceAttributes.of("get", PODS, "log"), "")
        assert right.why == "this user may not get pods/log"


def test_permissions_of_known_kinds_need_resources_and_unknown_kinds_need_none() -> None:
    for permission in ("delete job", "patch job", "get job", "create job", "get pods/log", "create any job"):
        for kind in KINDS:
            ref = JobRef("a", "b", kind.resource.kind, kind.resource.api_version)
            needs = needs_of(permission, ref)
            assert {each.verb for each in needs} == {permission.partition(" ")[0]}
            if permission.endswith(" job") and "any" not in permission:
                of_kind = (kind.resource.group, kind.resource.plural)
                assert [(each.group, each.plural) for each in needs] == [of_kind]
    mouse = JobRef("a", "b", "Mouse", "lab.io/v1")
    assert needs_of("delete job", mouse) == ()
    assert needs_of("get pods/exec", mouse) == (ResourceAttributes("get", "", "pods", "exec"),)
    assert needs_of("patch nodes") == (ResourceAttributes.of("patch", NODES),)
    assert needs_of("delete job") == ()
    created = {each.plural for each in needs_of("create any job")}
    assert created == {kind.resource.plural for kind in CREATABLE}
    with pytest.raises(ValueError, match="no permission"):
        needs_of("filter", BERT)


async def test_access_reviews_are_sent_on_demand_and_cached() -> None:
    async with reviewing(MAY_NOT) as (cluster, permissions):
        assert permissions.known("delete job", "vision", BERT) == UNKNOWN
        assert cluster.requests == []
        expected = Permission(False, DELETE_REFUSED)
        assert await permissions.fetch("delete job", "vision", BERT) == expected
        assert await permissions.fetch("delete job", "vision", BERT) == expected
        assert permissions.known("delete job", "vision", BERT) == expected
        await permissions.fetch("delete job", "speech", BERT)
        assert [each["namespace"] for each in asked_of(cluster)] == ["vision", "speech"]
        assert permissions.known("delete job", "speech", BERT).is_allowed is False
        assert permissions.known("get job", "vision", BERT) == UNKNOWN


async def test_concurrent_fetches_of_a_permission_share_one_review() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        answer = Held(MAY)
        cluster.say(PATH, answer, method="POST")
        permissions = Permissions(client)
        waiting = [asyncio.create_task(permissions.fetch("delete job", "vision", BERT)) for _ in range(5)]
        await cluster.until_asked(PATH, method="POST")
        answer.let_go()
        assert await asyncio.gather(*waiting) == [Permission(True)] * 5
        assert len(asked_of(cluster)) == 1


async def test_cancelling_one_fetch_does_not_cancel_the_shared_review() -> None:
    async with reviewing(Held(MAY), MAY) as (cluster, permissions):
        first = asyncio.create_task(permissions.fetch("delete job", "vision", BERT))
        await cluster.until_asked(PATH, method="POST")
        second = asyncio.create_task(permissions.fetch("delete job", "vision", BERT))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == Permission(True)
        assert first.cancelled() or first.cancelling()


async def test_an_expired_permission_is_reviewed_again() -> None:
    async with reviewing(MAY_NOT, MAY, ttl_s=0.0) as (_, permissions):
        assert (await permissions.fetch("delete job", "vision", BERT)).is_allowed is False
        assert permissions.known("delete job", "vision", BERT) == UNKNOWN
        assert (await permissions.fetch("delete job", "vision", BERT)).is_allowed is True


async def test_the_permission_cache_is_bounded_and_evicts_the_least_recently_used() -> None:
    async with reviewing(MAY, max_answers=3) as (_, permissions):
        for namespace in ("a", "b", "c"):
            await permissions.fetch("delete job", namespace, BERT)
        await permissions.fetch("delete job", "a", BERT)
        await permissions.fetch("delete job", "d", BERT)
        known = {each: permissions.known("delete job", each, BERT).is_allowed for each in "abcd"}
        assert known == {"a": True, "b": None, "c": True, "d": True}


async def test_cached_permissions_do_not_apply_to_another_login() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PATH, MAY_NOT, MAY, method="POST")
        permissions = Permissions(client)
        await permissions.fetch("delete job", "vision", BERT)
        client.config.api_key["BearerToken"] = "Bearer another"
        assert permissions.known("delete job", "vision", BERT) == UNKNOWN
        assert (await permissions.fetch("delete job", "vision", BERT)).is_allowed is True


async def test_the_answer_to_an_earlier_login_is_not_kept() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        answer = Held(MAY_NOT)
        cluster.say(PATH, answer, method="POST")
        permissions = Permissions(client)
        asking = asyncio.create_task(permissions.fetch("delete job", "vision", BERT))
        await cluster.until_asked(PATH, method="POST")
        client.config.api_key["BearerToken"] = "Bearer another"
        answer.let_go()
        await asking
        assert permissions.known("delete job", "vision", BERT) == UNKNOWN


@pytest.mark.parametrize(
    "reply", [refusal(403, "no reviews", "Forbidden"), refusal(404), refusal(400), refusal(500), Drop()]
)
async def test_a_failed_review_means_unknown_and_is_not_repeated(reply: Reply) -> None:
    async with reviewing(reply) as (cluster, permissions):
        assert await permissions.fetch("delete job", "vision", BERT) == UNKNOWN
        assert await permissions.fetch("delete job", "vision", BERT) == UNKNOWN
        assert len(asked_of(cluster)) == 1


async def test_any_kind_that_may_be_made_is_enough_for_a_new_job() -> None:
    def answer(asked: Asked) -> Reply:
        plural = json.loads(asked.body)["spec"]["resourceAttributes"]["resource"]
        return MAY if plural == allowed else MAY_NOT

    plurals = [kind.resource.plural for kind in CREATABLE]
    async with reviewing(Compute(answer)) as (_, permissions):
        allowed = plurals[-1]
        assert (await permissions.fetch("create any job", "vision")).is_allowed is True
        permissions.forget()
        allowed = ""
        right = await permissions.fetch("create any job", "vision")
    assert right.is_allowed is False
    words = " or ".join(f"create {plural}" for plural in plurals)
    assert right.why == f'user "li" may not {words} in namespace "vision"'


async def test_a_forbidden_response_is_recorded_as_a_denied_permission() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        permissions = Permissions(client)
        said = (
            'pytorchjobs.kubeflow.org "bert" is forbidden: User "alice" cannot delete resource "pytorchjobs" '
            'in API group "kubeflow.org" in the namespace "vision"'
        )
        permissions.record_refusal(refused(said))
        right = permissions.known("delete job", "vision", BERT)
        assert right == Permission(False, 'user "alice" may not delete pytorchjobs in namespace "vision"')
        permissions.record_refusal(refused(f"{said}: the cluster is frozen until Monday"))
        why = permissions.known("delete job", "vision", BERT).why
        assert why.endswith('"vision": the cluster is frozen until Monday')
        said = (
            'pods "bert-master-0" is forbidden: User "alice" cannot get resource "pods/exec" '
            'in API group "" in the namespace "vision"'
        )
        permissions.record_refusal(refused(said))
        assert permissions.known("get pods/exec", "vision", BERT).is_allowed is False
        assert permissions.known("get pods/log", "vision", BERT) == UNKNOWN
        assert cluster.requests == []


async def test_quota_and_webhook_errors_are_not_recorded_as_denied_permissions() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        permissions = Permissions(client)
        quota = 'jobs.batch "b" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1'
        words = 'User "a" cannot delete resource "jobs" in API group "batch"'
        permissions.record_refusal(refused(quota))
        permissions.record_refusal(Forbidden("Could not delete it.", "A webhook is against it."))
        permissions.record_refusal(KubeError("Could not delete it.", words))
        assert {permissions.known(each, "vision", BERT) for each in THREE} == {UNKNOWN}


class NotingLimiter(RateLimiter):
    """Notes for whom a turn was asked."""

    def __init__(self) -> None:
        super().__init__(1000, 1000)
        self.urgent: list[bool] = []

    async def acquire(self, *, is_urgent: bool) -> None:
        self.urgent.append(is_urgent)
        await super().acquire(is_urgent=is_urgent)


async def test_access_reviews_are_not_urgent_requests() -> None:
    limiter = NotingLimiter()
    async with ScriptedCluster() as cluster, cluster.client(limiter=limiter) as client:
        cluster.say(PATH, MAY, method="POST")
        permissions = Permissions(client)
        await permissions.fetch_all(THREE, "vision", BERT)
        assert limiter.urgent == [False] * 3
        assert all(permissions.known(each, "vision", BERT).is_allowed for each in THREE)


async def test_permissions_of_cluster_scoped_resources_are_cached_without_a_namespace() -> None:
    async with reviewing(MAY_NOT) as (cluster, permissions):
        assert (await permissions.fetch("patch nodes", "vision")).why == 'user "li" may not patch nodes'
        (asked,) = asked_of(cluster)
        assert asked["namespace"] == ""
        assert permissions.known("patch nodes", "speech").is_allowed is False


@pytest.mark.parametrize("resource", [NODES, NAMESPACES, PODS], ids=lambda each: each.plural)
async def test_access_reviews_of_cluster_scoped_resources_have_no_namespace(resource: Resource) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PATH, MAY, method="POST")
        await review(client, ResourceAttributes.of("list", resource), "alice")
        (asked,) = asked_of(cluster)
    assert asked["namespace"] == ("alice" if resource.is_namespaced else "")
