"""What objects look like, as OpenAPI 3 for `kubectl explain`: the shapes by which `admission` checks them."""

from __future__ import annotations

from typing import Any

import msgspec

from k8s.sandbox.api.admission.schemas import COMMON, OPEN, SHAPES, SchemaField, Shape
from k8s.sandbox.api.served import SERVED

Document = dict[str, Any]

KUBERNETES = "1.31"
"""The release whose behaviour this server follows."""
REFERENCE = "https://kubernetes.io/docs/reference/kubernetes-api/"
"""Where each field of Kubernetes' own kinds is explained."""
TYPES: dict[str, Document] = {
    "i": {"type": "integer"},
    "whole": {"type": "integer", "minimum": 0},
    "above0": {"type": "integer", "minimum": 1},
    "port": {"type": "integer", "minimum": 1, "maximum": 65535},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
    "*": {"type": "string", "format": "int-or-string"},
    "q": {"type": "string", "description": "A quantity: 2, 500m, 16Gi."},
}
"""How the sorts of values in `schemas` are called in OpenAPI; the others are strings."""


def document(api_version: str) -> Document:
    """Return a group version's kinds, with what they are made of and where they are.

    kubectl needs the `fieldValidation` parameter to leave checking to the server. No patch says
    which bodies it takes, so that kubectl makes patches by the types that it knows itself.
    """
    paths: Document = {}
    shapes = {name: _schema(shape) for name, shape in SHAPES.items() if name[0].isupper()}
    for served in SERVED:
        resource = served.resource
        if resource.api_version != api_version:
            continue
        at = resource.path("{namespace}", "{name}").replace("%7B", "{").replace("%7D", "}")
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        patch = {
            "parameters": [
                {"name": each, "in": "query"} for each in ("dryRun", "fieldManager", "fieldValidation")
            ],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": gvk,
        }
        paths[at] = {"patch": patch}
        words = f"A {resource.kind} as far as the sandbox checks it. All of it: {REFERENCE}"
        shape = COMMON | SHAPES.get(served.key, SHAPES["thing"])
        shapes[resource.kind] = _schema(shape, words) | {"x-kubernetes-group-version-kind": [gvk]}
    about = {"title": "gpuconsole sandbox", "version": KUBERNETES}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": shapes}}


def _schema(shape: Shape, words: str = "") -> Document:
    known = {name: field for name, field in shape.items() if name != OPEN}
    if not words:
        words = f"Explained at {REFERENCE}"
    if OPEN in shape:
        words += " Other fields are kept and not checked."
    found: Document = {
        "type": "object",
        "description": words,
        "properties": {name: _property(field) for name, field in known.items()},
    }
    if required := [name for name, field in known.items() if field.is_required]:
        found["required"] = required
    return found


def _property(field: SchemaField) -> Document:
    default = {"default": msgspec.json.decode(field.default)} if field.default else {}
    return _type(field.kind) | default


def _type(kind: str) -> Document:
    if kind[0] == "[":
        return {"type": "array", "items": _type(kind[1:-1])}
    if kind[0] == "{":
        return {"type": "object", "additionalProperties": _type(kind[1:-1])}
    if kind in SHAPES:
        return {"allOf": [{"$ref": f"#/components/schemas/{kind}"}]}
    if "|" in kind:
        return {"type": "string", "enum": kind.split("|")}
    return TYPES.get(kind, {"type": "string"})
