"""What keeps the objects of a file from being created; and that an answer that is none finds nothing."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Mapping

import pytest

from k8s.models.resources import CONFIG_MAPS, SERVICES
from k8s.preflight import Finding, check_objects
from k8s.preflight.object_checks import permission_findings, run_checks
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal

OBJECTS = [
    (CONFIG_MAPS, {"metadata": {"name": "script"}}),
    (SERVICES, {"metadata": {"name": "board", "namespace": "other"}}),
    (SERVICES, {"metadata": {"generateName": "board-"}}),
]
SPACES = {"default": "/api/v1/namespaces/default", "other": "/api/v1/namespaces/other"}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
CORE = Answer({"resources": [{"name": "configmaps", "verbs": []}, {"name": "services", "verbs": []}]})


def allow_all_but_services(asked: Asked) -> Answer:
    allowed = json.loads(asked.body)["spec"]["resourceAttributes"]["resource"] != "services"
    return Answer({"status": {"allowed": allowed, "reason": "" if allowed else "not in this house"}}, 201)


async def sentences(answers: Mapping[str, Reply], review: Reply) -> list[str]:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, reply in answers.items():
            cluster.say(path, reply)
        cluster.say(REVIEWS, review, method="POST")
        return [each.sentence for each in await check_objects(client, OBJECTS, "default")]


async def test_a_taken_name_and_a_kind_one_may_not_create_are_told_where_they_are() -> None:
    there = dict.fromkeys([*SPACES.values(), f"{SPACES['default']}/configmaps/script"], Answer({}))
    found = await sentences({**there, "/api/v1": CORE}, Compute(allow_all_but_services))
    assert any("ConfigMap script already exists in default" in text for text in found)
    assert sum("not in this house" in text for text in found) == 2, "in each of the two namespaces"
    assert not any("board already exists" in text for text in found)


async def test_of_a_namespace_that_is_not_there_nothing_else_is_said() -> None:
    missing = refusal(404, 'namespaces "other" not found')
    answers = {SPACES["default"]: Answer({}), SPACES["other"]: missing, "/api/v1": CORE}
    found = await sentences(answers, Compute(allow_all_but_services))
    assert [text for text in found if "there is no namespace other" in text]
    assert not any("board" in text for text in found)


@pytest.mark.parametrize(
    "nonsense",
    [Answer(b"<html>"), Answer([]), Answer({"resources": 7, "status": 7}), Answer({"resources": [7]})],
    ids=["HTML", "a list", "numbers", "a list of numbers"],
)
async def test_answers_that_make_no_sense_find_nothing(nonsense: Answer) -> None:
    assert await sentences(dict.fromkeys([*SPACES.values(), "/api/v1"], nonsense), nonsense) == []


async def test_checks_that_are_cancelled_before_their_turn_leave_no_warning() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        asking = asyncio.ensure_future(run_checks([permission_findings(client, [SERVICES], "default")]))
        asyncio.get_running_loop().call_soon(asking.cancel)
        with pytest.raises(asyncio.CancelledError):
            await asking
        gc.collect()
        assert cluster.requests == []


async def test_a_fault_of_our_own_in_a_check_is_not_hidden() -> None:
    async def broken() -> list[Finding]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_checks([broken()])
