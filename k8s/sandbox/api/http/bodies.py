"""Request bodies and options, parsed with a real server's errors."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from typing import Any

import msgspec
from aiohttp import web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.admission.deletion import DeleteOptions
from k8s.sandbox.api.admission.patches import without_nulls
from k8s.sandbox.api.api_errors import ApiError, StatusCause
from k8s.sandbox.api.queries import read_query
from k8s.sandbox.api.served import SERVED

JSON = "application/json"
# Name that aiohttp gives to a missing content type; a real server takes such a body for JSON.
UNNAMED_TYPE = "application/octet-stream"
GROUPS = ("system:masters", "system:authenticated")
# Levels of objects and lists in a body, as in Go's decoder; those of a pod template are about fifteen.
MAX_DEPTH = 100
PROPAGATIONS = ("Foreground", "Background", "Orphan")


def owner_name() -> str:
    """Return the account that runs the sandbox, its only user: jobs are submitted in this name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "sandbox"


async def read(request: web.Request, kind: str, accepted: Iterable[str] = (JSON,)) -> Any:
    """Return the decoded body, which may be any JSON value.

    Raises:
        ApiError: The content type is not accepted, or the body cannot be decoded.
    """
    if request.content_type not in (*accepted, UNNAMED_TYPE):
        listed = ", ".join(accepted)
        message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
        raise ApiError(415, "UnsupportedMediaType", message)
    return decode(await request.read(), kind)


def decode(body: bytes, kind: str) -> Any:
    """Decode JSON; `kind` is the expected kind, for the message.

    Raises:
        ApiError: The body is not JSON, or is nested deeper than `MAX_DEPTH`.
    """
    try:
        decoded = msgspec.json.decode(body)
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(decoded) > MAX_DEPTH:
            raise ValueError("exceeded max depth")
    except (ValueError, RecursionError) as error:
        why = "exceeded max depth" if isinstance(error, RecursionError) else str(error)
        raise api_errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): "
            f"couldn't get version/kind; json parse error: {why}"
        ) from error
    return decoded


def _depth(value: Any) -> int:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if members is None else 1 + max(map(_depth, members), default=0)


async def deletion_options(request: web.Request) -> DeleteOptions:
    """Return the options of a delete request, from the body or else from the query."""
    body: Any = {}
    if request.can_read_body:
        body = await read(request, "DeleteOptions") or {}
    if not isinstance(body, dict):
        raise api_errors.bad_request("the body is not a DeleteOptions")
    query = {**request.query, "dryRun": request.query.getall("dryRun", [])}
    options = read_query({**query, **without_nulls(body)}, DeleteOptions)
    if options.propagation_policy not in ("", *PROPAGATIONS):
        cause = StatusCause.unsupported(
            "propagationPolicy", options.propagation_policy, (*PROPAGATIONS, "nil")
        )
        raise api_errors.invalid_options("DeleteOptions", cause)
    is_dry_run(options.dry_run, "DeleteOptions")
    return options


def review(body: Any, version: str, kind: str) -> dict[str, Any]:
    """Answer a review: the holder of the token may do everything that is served."""
    answer: dict[str, Any] = {"kind": kind, "apiVersion": version, "metadata": {"creationTimestamp": None}}
    if kind == "SelfSubjectReview":
        return {**answer, "status": {"userInfo": {"username": owner_name(), "groups": list(GROUPS)}}}
    spec = body.get("spec") if isinstance(body, dict) else None
    spec = spec if isinstance(spec, dict) else {}
    if kind == "SelfSubjectRulesReview":
        rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        paths = [{"verbs": ["get"], "nonResourceURLs": ["*"]}]
        status = {"resourceRules": rules, "nonResourceRules": paths, "incomplete": False}
    else:
        attributes = spec.get("resourceAttributes") or {}
        resource = (attributes.get("group") or "", attributes.get("resource") or "*")
        is_served = resource in {(each.resource.group, each.resource.plural) for each in SERVED}
        status = {"allowed": "*" in resource or not attributes or is_served}
        if not status["allowed"]:
            status["reason"] = f"the sandbox serves no {resource[1]}"
    return {**answer, "spec": spec, "status": status}


def parse_binding(binding: Any) -> tuple[str, dict[str, str]]:
    """Return the node of a Binding, and its annotations for the pod."""
    binding = binding if isinstance(binding, dict) else {}
    target, meta = (binding.get(field) for field in ("target", "metadata"))
    node = target.get("name") if isinstance(target, dict) else None
    if not isinstance(node, str) or not node:
        raise api_errors.bad_request("a Binding needs target.name, the node")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    annotations = annotations if isinstance(annotations, dict) else {}
    return node, {str(key): str(value) for key, value in annotations.items()}


def is_dry_run(values: Iterable[Any], options: str) -> bool:
    """Return True if the `dryRun` values ask for one; `options` is the kind of the request's options.

    Raises:
        ApiError: A value other than `All` was sent.
    """
    given = list(values)
    if any(value != "All" for value in given):
        listed = ", ".join(f'"{value}"' for value in given)
        message = f'Unsupported value: []string{{{listed}}}: supported values: "All"'
        raise api_errors.invalid_options(options, StatusCause("dryRun", "FieldValueNotSupported", message))
    return bool(given)
