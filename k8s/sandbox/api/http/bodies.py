"""Request bodies and options: bytes and queries to values, with a real server's errors."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

from aiohttp import web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.admission.deletion import DeleteOptions
from k8s.sandbox.api.admission.patches import without_nulls
from k8s.sandbox.api.admission.registry import Write
from k8s.sandbox.api.api_errors import StatusCause
from k8s.sandbox.api.http import decoding
from k8s.sandbox.api.queries import read_query

OBJECT_TYPES = ("application/json", "application/yaml")
UNNAMED_TYPE = "application/octet-stream"
"""What aiohttp calls a body without a content type; a real server takes it for JSON."""
USER, GROUPS = "sandbox", ("system:masters", "system:authenticated")
"""Who has the token."""
PROPAGATIONS = ("Foreground", "Background", "Orphan")


async def read(request: web.Request, kind: str, accepted: Iterable[str] = OBJECT_TYPES) -> Any:
    """Return the decoded body, whatever JSON value it is.

    Raises:
        ApiError: It is in no accepted format, or cannot be decoded.
    """
    content_type = request.content_type
    if content_type not in (*accepted, UNNAMED_TYPE):
        raise api_errors.unsupported_media(accepted)
    body = await request.read()
    if content_type.endswith("yaml"):
        return await asyncio.to_thread(decoding.from_yaml, body, kind)
    return decoding.from_json(body, kind)


def write_options(request: web.Request, options: str) -> Write:
    """Return how a request wants its write done; `options` is as in `CreateOptions`."""
    query = request.query
    agent = request.headers.get("User-Agent", "").partition("/")[0]
    return Write(
        manager=query.get("fieldManager") or agent or "unknown",
        dry_run=_is_dry_run(query.getall("dryRun", []), options),
        strict=query.get("fieldValidation") == "Strict",
    )


async def deletion_options(request: web.Request) -> DeleteOptions:
    """Return how an object is to be deleted, from the body and else from the query."""
    body: Any = {}
    if request.can_read_body:
        body = await read(request, "DeleteOptions") or {}
    if not isinstance(body, dict):
        raise api_errors.bad_request("the body is not a DeleteOptions")
    query = {**request.query, "dryRun": request.query.getall("dryRun", [])}
    how = read_query({**query, **without_nulls(body)}, DeleteOptions)
    if how.propagation_policy not in ("", *PROPAGATIONS):
        cause = StatusCause.unsupported("propagationPolicy", how.propagation_policy, (*PROPAGATIONS, "nil"))
        raise api_errors.invalid_options("DeleteOptions", cause)
    _is_dry_run(how.dry_run, "DeleteOptions")
    return how


def review(body: Any, version: str, kind: str, is_served: Collection[tuple[str, str]]) -> dict[str, Any]:
    """Answer who asks and what they may do: whoever has the token may do all that is served."""
    asked = body.get("spec") if isinstance(body, dict) else None
    spec: dict[str, Any] = asked if isinstance(asked, dict) else {}
    answer: dict[str, Any]
    meta = {"creationTimestamp": None}
    if kind == "SelfSubjectReview":
        answer = {"userInfo": {"username": USER, "groups": list(GROUPS)}}
        return {"kind": kind, "apiVersion": version, "metadata": meta, "status": answer}
    if kind == "SelfSubjectRulesReview":
        rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        paths = [{"verbs": ["get"], "nonResourceURLs": ["*"]}]
        answer = {"resourceRules": rules, "nonResourceRules": paths, "incomplete": False}
    else:
        wanted = spec.get("resourceAttributes") or {}
        place = (wanted.get("group") or "", wanted.get("resource") or "*")
        answer = {"allowed": "*" in place or not wanted or place in is_served}
        if not answer["allowed"]:
            answer["reason"] = f"the sandbox serves no {place[1]}"
    return {"kind": kind, "apiVersion": version, "metadata": meta, "spec": spec, "status": answer}


def node_of(binding: Any) -> str:
    """Return the node that a Binding names."""
    target = binding.get("target") if isinstance(binding, dict) else None
    node = target.get("name") if isinstance(target, dict) else None
    if not isinstance(node, str) or not node:
        raise api_errors.bad_request("a Binding needs target.name, the node")
    return node


def annotations_of(binding: Any) -> dict[str, str]:
    """Return the annotations that a Binding has for its pod."""
    meta = binding.get("metadata")
    found = meta.get("annotations") if isinstance(meta, dict) else None
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _is_dry_run(values: Iterable[Any], options: str) -> bool:
    given = list(values)
    if any(value != "All" for value in given):
        listed = ", ".join(f'"{value}"' for value in given)
        message = f'Unsupported value: []string{{{listed}}}: supported values: "All"'
        raise api_errors.invalid_options(options, StatusCause("dryRun", "FieldValueNotSupported", message))
    return bool(given)
