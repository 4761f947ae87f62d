"""Findings of the preflight on a job's own fields, and on names and permissions of objects beside it."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import HostMount, JobSpec, Mount
from k8s.models.resources import CONFIG_MAPS, SERVICES
from k8s.reasons.cause import Cause
from k8s.reasons.cluster_checks import check_objects, permission_findings, run_checks
from k8s.reasons.static_checks import check_statically
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal

KIND = CREATABLE[0]
DIGEST = f"sha256:{'a' * 64}"


def findings(**change: Any) -> list[Cause]:
    spec = JobSpec(**{"name": "bert", "image": "pytorch/pytorch:2.6.0", "command": ("true",), **change})
    return check_statically(KIND, spec, KIND.manifest(spec))


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"image": "Pytorch"}, "image", "is not an image reference"),
        ({"image": "a/b:"}, "image", "registry/name:tag"),
        ({"image": "a//b"}, "image", "is not an image reference"),
        ({"worker_image": "a b"}, "worker_image", "is not an image reference"),
        ({"tensorboard_image": ":tag"}, "tensorboard_image", "is not an image reference"),
        ({"sync_mode": "git", "sync_source": "github.com/x"}, "sync_source", "not a repository's URL"),
        ({"sync_mode": "git", "sync_source": "https://"}, "sync_source", "not a repository's URL"),
        ({"log_dir": "/logs"}, "log_dir", "would lose the event files"),
        ({"log_dir": "/database", "mounts": (Mount("c", "/data"),)}, "log_dir", "not on a mounted volume"),
        ({"log_dir": "/logs", "tensorboard": True}, "log_dir", "where TensorBoard could read them"),
        ({"cpu": "1500m-1"}, "cpu", "more than the limit of 1"),
        ({"host_namespaces": ("network",)}, "host_namespaces", "a node with port 23456 free"),
        ({"memory": "2Gi-1Gi"}, "memory", "at most 1Gi"),
        ({"mounts": (Mount("a", "/w"), Mount("b", "/w/data"))}, "mounts",
         "the volume at /w/data covers that folder of the one at /w"),
    ],
)  # fmt: skip
def test_each_problem_has_its_field_and_a_hint(change: dict[str, Any], field: str, expected: str) -> None:
    found = findings(**change)
    assert [each.field for each in found] == [field]
    assert expected in found[0].warning
    assert found[0].remedy


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"image": "localhost:5000/a/b_c:v1"},
        {"image": f"registry.example.com/team/app@{DIGEST}"},
        {"image": "busybox"},
        {"sync_mode": "git", "sync_source": "https://code.example.com/x/y.git"},
        {"sync_mode": "git", "sync_source": "git@code.example.com:x/y.git"},
        {"sync_mode": "git", "sync_source": "ssh://git@code.example.com:2222/x/y.git"},
        {"sync_mode": "rsync", "sync_source": "10.0.0.1::code"},
        {"log_dir": "/data/logs", "mounts": (Mount("c", "/data"),)},
        {"log_dir": "/data", "mounts": (Mount("c", "/data/"),)},
        {"log_dir": "/mnt/logs", "host_mounts": (HostMount("/mnt", "/mnt"),), "tensorboard": True},
        {"log_dir": "logs"},
        {"cpu": "2000m-2"},
        {"mounts": (Mount("a", "/w"), Mount("b", "/work"))},
    ],
)
def test_a_correct_job_has_no_finding(change: dict[str, Any]) -> None:
    assert findings(**change) == []


def test_a_pod_whose_name_is_too_long_is_found() -> None:
    spec = JobSpec(name="b" * 60, image="a", command=("true",), workers=11)
    found = check_statically(KIND, spec, KIND.manifest(spec))
    assert [each.field for each in found] == ["name"]
    assert "characters, 6 too many" in found[0].text
    spec = replace(spec, name="b" * 54)
    assert check_statically(KIND, spec, KIND.manifest(spec)) == []


@pytest.mark.parametrize(
    ("source", "is_url"),
    [
        ("https://host/x.git", True),
        ("git@host:x.git", True),
        ("file:///home/li/x", True),
        ("file://host/x", True),
        ("/home/li/x", True),
        ("file:////x", False),
        ("file://", False),
        ("x/y", False),
    ],
)
def test_an_invalid_repository_url_is_a_finding(source: str, is_url: bool) -> None:
    git: dict[str, Any] = {"sync_mode": "git", "sync_source": source}
    assert (findings(**git) == []) == is_url


def test_a_password_in_a_repository_url_is_accepted_and_never_shown_in_a_finding() -> None:
    git: dict[str, Any] = {"sync_mode": "git"}
    assert findings(**git, sync_source="https://li:hunter2@host/x.git") == []
    (found,) = findings(**git, sync_source="htps:/li:hunter2@host")
    assert found.field == "sync_source"
    (found,) = findings(**git, sync_source="htps://li:hunter2@host/x")
    assert "hunter2" not in found.warning


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
        return [each.warning for each in await check_objects(client, OBJECTS, "default")]


async def test_a_taken_name_and_a_forbidden_kind_are_reported_for_their_namespace() -> None:
    there = dict.fromkeys([*SPACES.values(), f"{SPACES['default']}/configmaps/script"], Answer({}))
    found = await sentences({**there, "/api/v1": CORE}, Compute(allow_all_but_services))
    assert any("ConfigMap script already exists in default" in text for text in found)
    assert sum("not in this house" in text for text in found) == 2, "in each of the two namespaces"
    assert not any("board already exists" in text for text in found)


async def test_a_missing_namespace_suppresses_other_findings_about_it() -> None:
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
async def test_malformed_responses_cause_no_findings(nonsense: Answer) -> None:
    assert await sentences(dict.fromkeys([*SPACES.values(), "/api/v1"], nonsense), nonsense) == []


async def test_checks_that_are_cancelled_before_their_turn_leave_no_warning() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        asking = asyncio.ensure_future(run_checks([permission_findings(client, [SERVICES], "default")]))
        asyncio.get_running_loop().call_soon(asking.cancel)
        with pytest.raises(asyncio.CancelledError):
            await asking
        gc.collect()
        assert cluster.requests == []


async def test_an_unexpected_exception_in_a_check_is_raised() -> None:
    async def broken() -> list[Cause]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_checks([broken()])
