"""Impersonation in a kubeconfig, and fields that would change the identity."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from k8s.client.auth.cluster_config import load
from k8s.client.client import Client, fetch_username
from k8s.models.resources import PODS
from k8s.text.errors import NoCluster
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.server import SUCCESS, Answer, Asked, ScriptedCluster, Socket, Stream, page, refusal

VERSION = "/version"
ALL_PODS = "/api/v1/pods"
ONE = "/api/v1/namespaces/default/pods/a"
ACTING = {
    "as": "jane@lab.org",
    "as-uid": "u-1",
    "as-groups": ["readers", "Forschung ä"],
    "as-user-extra": {"example.com/scope": ["view", "logs"], "plain": ["x"]},
}
SENT = [
    ("impersonate-extra-example.com%2fscope", "logs"),
    ("impersonate-extra-example.com%2fscope", "view"),
    ("impersonate-extra-plain", "x"),
    ("impersonate-group", "Forschung ä"),
    ("impersonate-group", "readers"),
    ("impersonate-uid", "u-1"),
    ("impersonate-user", "jane@lab.org"),
]


def impersonated(asked: Asked) -> Sequence[tuple[str, str]]:
    headers = [(name.lower(), value) for name, value in asked.headers.items()]
    return sorted(each for each in headers if each[0].startswith("impersonate-"))


async def test_every_request_sends_the_impersonation_headers(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        path = write(tmp_path / "config", config(cluster.host, {"token": "t", **ACTING}))
        cluster.say(VERSION, Answer({}))
        cluster.say(ALL_PODS, page([]))
        cluster.say(ALL_PODS, Stream().end(), watch=True)
        cluster.say(f"{ONE}/log", Stream().end())
        cluster.say(f"{ONE}/exec", Socket([SUCCESS]))
        cluster.say(f"{ONE}/portforward", Socket([]))
        cluster.say(f"{ONE}/proxy/metrics", Answer({}))
        for method in ("PUT", "PATCH", "DELETE"):
            cluster.say(ONE, Answer({}), method=method)
        cluster.say("/api/v1/namespaces/default/pods", Answer({}, 201), method="POST")
        async with Client(await load(path)) as client:
            await client.get_json(VERSION)
            await client.list(PODS)
            assert [line async for line in client.watch(PODS, version="1")] == []
            async with client.log("a", "default") as body:
                await body.read()
            async with client.exec("a", "default", ["true"]) as opened:
                await opened.receive()
            async with client.open_socket(f"{ONE}/portforward", "forward", {"ports": "1"}):
                pass
            async with client.stream(f"{ONE}/proxy/metrics", "read metrics", is_proxied=True) as body:
                await body.read()
            await client.create(PODS, {"metadata": {"name": "a"}}, "default")
            await client.patch(PODS, "a", {}, "default")
            await client.delete(PODS, "a", "default")
            assert client.config.acts_as == "jane@lab.org (groups: readers, Forschung ä)"
    assert len(cluster.requests) == 10
    assert all(impersonated(asked) == SENT for asked in cluster.requests)


async def test_empty_impersonation_fields_impersonate_no_user(tmp_path: Path) -> None:
    reached = await load(write(tmp_path / "config", config(user={"token": "t", "as": "", "as-groups": None})))
    assert (reached.impersonation, reached.acts_as, reached.acting_user) == ((), "", "lab-user")


USED: dict[str, Any] = {
    "token": "t",
    "tokenFile": "token",
    "client-certificate": "token",
    "client-certificate-data": "eA==",
    "client-key": "token",
    "client-key-data": "eA==",
    "username": "li",
    "password": "x",
    "exec": {
        "apiVersion": "v1",
        "command": "echo",
        "args": [json.dumps({"apiVersion": "v1", "kind": "ExecCredential", "status": {"token": "t"}})],
    },
    "extensions": [],
    **{key: {"as": "jane", key: value} for key, value in ACTING.items() if key != "as"},
    "as": "jane",
}


@pytest.mark.parametrize("field", USED)
async def test_known_fields_of_a_user_are_used(tmp_path: Path, field: str) -> None:
    write(tmp_path / "token", "t")
    value = USED[field]
    user = value if field.startswith("as-") else {field: value}
    reached = await load(write(tmp_path / "config", config("https://x", user)))
    nobody = await load(write(tmp_path / "nobody", config("https://x")))
    changes_nothing = field in ("extensions", "password")  # a password alone is no login, as for kubectl
    is_same = (reached.identity(), reached.impersonation) == (nobody.identity(), nobody.impersonation)
    assert is_same is changes_nothing


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        ({"as-group": ["a"], "as": "jane"}, {}, "as-group is not a known field"),
        ({"AS": "jane"}, {}, "AS is not a known field"),
        ({"impersonate": "jane"}, {}, "impersonate is not a known field"),
        ({"as": 5}, {}, "as must be text"),
        ({"as": True}, {}, "as must be text"),
        ({"as": ["jane"]}, {}, "as must be text"),
        ({"as": "jane\nx"}, {}, "control characters"),
        ({"as": "jane", "as-groups": "admins"}, {}, "as-groups must be a list"),
        ({"as": "jane", "as-groups": [5]}, {}, "Impersonate-Group"),
        ({"as": "jane", "as-user-extra": {"a": "b"}}, {}, "as-user-extra: a must be a list"),
        ({"as": "jane", "as-user-extra": []}, {}, "as-user-extra must be a mapping"),
        ({"as-groups": ["a"]}, {}, "as-groups needs a user to act as"),
        ({"as-uid": "a"}, {}, "as-uid needs a user to act as"),
        ({"as-user-extra": {"a": ["b"]}}, {}, "as-user-extra needs a user to act as"),
        ({"token": 12}, {}, "token must be text"),
        ({"username": "li", "password": 12}, {}, "password must be text"),
        ({"token": "t", "username": "li"}, {}, "token and username"),
        ({"exec": "aws"}, {}, "exec must be a mapping"),
        ({}, {"insecure-skip-tls-verify": "false"}, "insecure-skip-tls-verify must be true or false"),
        ({}, {"proxy-url": 5}, "proxy-url must be text"),
    ],
    ids=str,
)
async def test_unknown_or_invalid_kubeconfig_fields_that_affect_identity_are_rejected(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], words: str
) -> None:
    path = write(tmp_path / "config", config("https://x", user, cluster=cluster))
    with pytest.raises(NoCluster) as caught:
        await load(path)
    assert words in caught.value.why
    assert path in caught.value.why


@pytest.mark.parametrize("section", ["clusters", "users", "contexts"])
async def test_a_name_that_is_given_twice_is_refused_as_kubectl_does(tmp_path: Path, section: str) -> None:
    made = config()
    made[section] = made[section] * 2
    with pytest.raises(NoCluster) as caught:
        await load(write(tmp_path / "config", made))
    assert f"two {section} are named {made[section][0]['name']}" in caught.value.why


REVIEWS = "/apis/authentication.k8s.io/{}/selfsubjectreviews"
JANE = Answer({"status": {"userInfo": {"username": "jane@lab.org", "groups": ["a"]}}}, 201)


async def test_the_username_is_fetched_from_selfsubjectreviews_and_cached() -> None:
    cases: list[tuple[dict[str, Answer], dict[str, Any], str]] = [
        ({"v1": JANE}, {}, "jane@lab.org"),
        ({"v1beta1": JANE}, {}, "jane@lab.org"),
        ({"v1alpha1": JANE}, {}, "jane@lab.org"),
        ({}, {}, ""),
        ({}, {"impersonation": (("Impersonate-User", "alice"),)}, "alice"),
        ({"v1": refusal(403)}, {}, ""),
        ({"v1": Answer({"status": {"userInfo": None}}, 201)}, {}, ""),
        ({"v1": Answer({"status": "x"}, 201)}, {}, ""),
    ]
    for replies, config_, name in cases:
        async with ScriptedCluster() as cluster, cluster.client(**config_) as client:
            for version, reply in replies.items():
                cluster.say(REVIEWS.format(version), reply, method="POST")
            assert await fetch_username(client) == name
            assert client.config.acting_user == (name or "li")
            asked = len(cluster.requests)
            if name:
                assert await fetch_username(client) == name
                assert len(cluster.requests) == asked
