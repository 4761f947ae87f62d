"""Bodies that are small to send and large to read: refused with 400 before they cost anything."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import pairwise

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.http import decoding
from tests.k8s.sandbox.calls import JSON_PATCH, STRATEGIC, Api, config

YAML = "application/yaml"
LINES = "abcdefghi"
BOMB = "\n".join(
    ["a: &a [" + ",".join(["lol"] * 9) + "]"]
    + [f"{name}: &{name} [" + ",".join([f"*{below}"] * 9) + "]" for below, name in pairwise(LINES)]
    + ["kind: ConfigMap", "metadata: {name: bomb}"]
)
"""Nine levels of nine: 387 million words, written out."""
MERGE_BOMB = "\n".join(
    ["a: &a {x: 1}"]
    + [f"{name}: &{name} {{<<: [" + ",".join([f"*{below}"] * 9) + "]}" for below, name in pairwise(LINES)]
)
LONG_WORD = "a: &a " + "x" * 100_000 + "\nb: [" + ",".join(["*a"] * 1000) + "]"


@pytest.mark.parametrize("body", [BOMB, MERGE_BOMB, LONG_WORD], ids=["aliases", "merge keys", "a long word"])
async def test_yaml_that_multiplies_itself_is_refused_at_once(sandbox: Api, body: str) -> None:
    begun = time.process_time()
    for path in (sandbox.path("configmaps"), "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"):
        answer = await sandbox.call("POST", path, body.encode(), content_type=YAML)
        assert (answer.code, answer.reason) == (400, "BadRequest")
        assert "excessive aliasing" in answer.body["message"]
    assert time.process_time() - begun < 1


async def test_yaml_that_holds_itself_is_refused(sandbox: Api) -> None:
    answer = await sandbox.call("POST", sandbox.path("configmaps"), b"a: &a [*a]", content_type=YAML)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert "contains itself" in answer.body["message"]


async def test_an_alias_means_what_it_names(sandbox: Api) -> None:
    text = b"metadata: {name: c}\ndata: {a: &word hello, b: *word}"
    answer = await sandbox.call("POST", sandbox.path("configmaps"), text, content_type=YAML)
    assert answer.body["data"] == {"a": "hello", "b": "hello"}


@pytest.mark.parametrize("depth", [150, 900, 5_000, 200_000])
@pytest.mark.parametrize("method", ["create", "strategic", "json patch", "apply", "delete", "review"])
async def test_a_body_deeper_than_any_object_is_refused(sandbox: Api, method: str, depth: int) -> None:
    await sandbox.made("configmaps", config("c"))
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
    elif method == "apply":
        apply = "application/apply-patch+yaml"
        answer = await sandbox.call("PATCH", path, nested, content_type=apply, fieldManager="x")
    elif method == "delete":
        answer = await sandbox.call("DELETE", path, nested)
    else:
        review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await sandbox.call("POST", review, nested)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert "max depth" in answer.body["message"]


async def test_brackets_in_a_text_are_no_depth(sandbox: Api) -> None:
    words = {"k": '{"[' * 500 + '\\"[[['}
    assert (await sandbox.made("configmaps", config("c", words)))["data"] == words


async def test_patches_cannot_build_what_may_not_be_sent(sandbox: Api) -> None:
    await sandbox.made("configmaps", config("c"))
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/x{turn}"} for turn in range(24)]
    begun = time.process_time()
    answer = await sandbox.patch("configmaps", "c", doubling, JSON_PATCH)
    assert answer.code == 413
    assert time.process_time() - begun < 2
    many = [{"op": "test", "path": "/data/k", "value": "1"}] * 10_001
    assert (await sandbox.patch("configmaps", "c", many, JSON_PATCH)).code == 413


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


async def test_the_server_answers_others_while_it_reads_a_long_document(sandbox: Api) -> None:
    text = "metadata: {name: c}\ndata:\n" + "".join(f"  key{n}: word\n" for n in range(10_000))
    call = sandbox.call("POST", sandbox.path("configmaps"), text.encode(), content_type=YAML)
    sending = asyncio.create_task(call)
    answered = 0
    while not sending.done():
        assert (await sandbox.call("GET", "/readyz")).code == 200
        answered += 1
    assert (await sending).code == 201
    assert answered > 10


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=30,
)


@given(value=json_values, depth=st.integers(0, 2 * decoding.DEEPEST))
def test_json_is_read_as_it_is_up_to_the_depth_that_is_allowed(value: object, depth: int) -> None:
    value = msgspec.json.decode(msgspec.json.encode(value))
    for _ in range(depth):
        value = [value]
    body = msgspec.json.encode(value)
    if _depth(value) > decoding.DEEPEST:
        with pytest.raises(ApiError) as error:
            decoding.from_json(body, "Pod")
        assert error.value.code == 400
    else:
        assert decoding.from_json(body, "Pod") == value


def _depth(value: object) -> int:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if members is None else 1 + max(map(_depth, members), default=0)


@settings(max_examples=300)
@given(body=st.binary(max_size=60) | st.text(alphabet='[]{}"\\&*a:,-\n <!|>', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for read in (decoding.from_json, decoding.from_yaml):
        try:
            found = read(body, "Pod")
        except ApiError as error:
            assert error.code == 400
        else:
            json.dumps(found)


@given(value=json_values.filter(lambda value: _depth(value) < 20))
def test_yaml_says_what_json_says(value: object) -> None:
    value = msgspec.json.decode(msgspec.json.encode(value))
    text = yaml.safe_dump(value, allow_unicode=False).encode()
    assert decoding.from_yaml(text, "Pod") == value
