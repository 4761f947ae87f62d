"""Request bodies and options: bytes and queries to values, with a real server's errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import yaml
from aiohttp import web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.admission.deletion import DeleteOptions
from k8s.sandbox.api.admission.patches import without_nulls
from k8s.sandbox.api.admission.registry import Write
from k8s.sandbox.api.api_errors import StatusCause
from k8s.sandbox.api.http.discovery import REVIEW_VERSION
from k8s.sandbox.api.queries import read_query

OBJECT_TYPES = ("application/json", "application/yaml")
UNNAMED_TYPE = "application/octet-stream"
"""What aiohttp calls a body without a content type; a real server takes it for JSON."""
PROPAGATIONS = ("Foreground", "Background", "Orphan")


class PlainLoader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: times stay text."""


PlainLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


async def read(request: web.Request, kind: str, accepted: Iterable[str] = OBJECT_TYPES) -> Any:
    """Return the decoded body, whatever JSON value it is.

    Raises:
        ApiError: It is in no accepted format, or cannot be decoded.
    """
    content_type = request.content_type
    if content_type not in (*accepted, UNNAMED_TYPE):
        raise api_errors.unsupported_media(accepted)
    body = await request.read()
    try:
        if content_type.endswith("yaml"):
            return yaml.load(body, Loader=PlainLoader)
        return msgspec.json.decode(body)
    except (yaml.YAMLError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise api_errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): "
            f"couldn't get version/kind; json parse error: {error}"
        ) from error


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


def review(body: Any, kind: str, is_served: Collection[tuple[str, str]]) -> dict[str, Any]:
    """Answer a question about permissions: whoever has the token may do all that is served."""
    asked = body.get("spec") if isinstance(body, dict) else None
    spec: dict[str, Any] = asked if isinstance(asked, dict) else {}
    answer: dict[str, Any]
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
    meta = {"creationTimestamp": None}
    return {"kind": kind, "apiVersion": REVIEW_VERSION, "metadata": meta, "spec": spec, "status": answer}


def node_of(binding: Any) -> str:
    """Return the node that a Binding names."""
    target = binding.get("target") if isinstance(binding, dict) else None
    node = target.get("name") if isinstance(target, dict) else None
    if not isinstance(node, str) or not node:
        raise api_errors.bad_request("a Binding needs target.name, the node")
    return node


def _is_dry_run(values: Iterable[Any], options: str) -> bool:
    given = list(values)
    if any(value != "All" for value in given):
        listed = ", ".join(f'"{value}"' for value in given)
        message = f'Unsupported value: []string{{{listed}}}: supported values: "All"'
        raise api_errors.invalid_options(options, StatusCause("dryRun", "FieldValueNotSupported", message))
    return bool(given)
