"""Limits of request bodies and patches, which are refused before they cost anything."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.http import bodies
from tests.k8s.sandbox.calls import JSON_PATCH, STRATEGIC, Api, config


async def test_yaml_is_refused_with_the_type_that_is_accepted(sandbox: Api) -> None:
    path = sandbox.path("configmaps")
    answer = await sandbox.call("POST", path, b"metadata: {name: c}", content_type="application/yaml")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
    assert "application/json" in answer.body["message"]


async def test_bodies_nested_too_deeply_are_refused(sandbox: Api) -> None:
    await sandbox.made("configmaps", config("c"))
    for depth in (150, 900, 5_000, 200_000):
        for method in ("create", "strategic", "json patch", "delete", "review"):
            deep = b"[" * depth + b"]" * depth
            nested = b'{"spec":' + deep + b"}"
            path = sandbox.path("configmaps", "c")
            patch = b'[{"op":"add","path":"/data/x","value":' + deep + b"}]"
            if method == "create":
                answer = await sandbox.call("POST", sandbox.path("configmaps"), nested)
            elif method == "strategic":
                answer = await sandbox.call("PATCH", path, nested, content_type=STRATEGIC)
            elif method == "json patch":
                answer = await sandbox.call("PATCH", path, patch, content_type=JSON_PATCH)
            elif method == "delete":
                answer = await sandbox.call("DELETE", path, nested)
            else:
                review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
                answer = await sandbox.call("POST", review, nested)
            assert (answer.code, answer.reason) == (400, "BadRequest"), (method, depth)
            assert "max depth" in answer.body["message"]


async def test_an_object_that_patches_make_too_deep_is_refused(sandbox: Api) -> None:
    node = {"metadata": {"name": "n"}, "spec": {"x": {}}}
    assert (await sandbox.call("POST", "/api/v1/nodes", node)).code == 201
    at, codes = "/spec/x", []
    deep: object = {}
    for _ in range(80):
        deep = {"x": deep}
    for _ in range(20):
        change = [{"op": "add", "path": at, "value": deep}]
        answer = await sandbox.call("PATCH", "/api/v1/nodes/n", change, content_type=JSON_PATCH)
        codes.append(answer.code)
        at += "/x" * 80
    assert codes[0] == 200 and 400 in codes and set(codes) <= {200, 400, 422}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=30,
)


@given(value=json_values, depth=st.integers(0, 2 * bodies.MAX_DEPTH))
def test_json_is_decoded_up_to_the_depth_limit(value: object, depth: int) -> None:
    value = msgspec.json.decode(msgspec.json.encode(value))
    for _ in range(depth):
        value = [value]
    body = msgspec.json.encode(value)
    if _depth(value) > bodies.MAX_DEPTH:
        with pytest.raises(ApiError) as error:
            bodies.decode(body, "Pod")
        assert error.value.code == 400
    else:
        assert bodies.decode(body, "Pod") == value


def _depth(value: object) -> int:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if members is None else 1 + max(map(_depth, members), default=0)


@settings(max_examples=300)
@given(body=st.binary(max_size=60) | st.text(alphabet='[]{}"\\&*a:,-\n <!|>', max_size=60).map(str.encode))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    try:
        decoded = bodies.decode(body, "Pod")
    except ApiError as error:
        assert error.code == 400
    else:
        json.dumps(decoded)
