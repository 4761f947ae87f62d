"""Validates objects by the OpenAPI schema of a CustomResourceDefinition, as an API server does."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from typing import Any

from tests import FIXTURES

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "number": (int, float),
}


@cache
def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of `pytorchjob-v1`: that of the released CRD without its descriptions."""
    found: dict[str, Any] = json.loads(gzip.decompress((FIXTURES / "crds" / f"{name}.json.gz").read_bytes()))
    return found


def schema_errors(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Return the violations of a schema by a value: wrong types, missing fields, unknown fields."""
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, int | str) else [f"{path}: is no number or string"]
    expected = schema.get("type", "")
    is_bool_for_number = isinstance(value, bool) and expected in ("integer", "number")
    if expected and (not isinstance(value, _TYPES[expected]) or is_bool_for_number):
        return [f"{path}: is no {expected}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{path}: is none of {schema['enum']}"]
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return [f"{path}: does not match {schema['pattern']}"]
    if isinstance(value, list):
        return _errors_in_list(value, schema, path)
    return _errors_in_object(value, schema, path) if isinstance(value, dict) else []


def _errors_in_list(value: list[Any], schema: dict[str, Any], path: str) -> list[str]:
    found = [
        error
        for index, each in enumerate(value)
        for error in schema_errors(each, schema.get("items", {}), f"{path}[{index}]")
    ]
    if keys := schema.get("x-kubernetes-list-map-keys"):
        seen = [tuple(each.get(key) for key in keys) for each in value]
        found += [f"{path}: {key} twice" for key in set(seen) if seen.count(key) > 1]
    return found


def _errors_in_object(value: dict[str, Any], schema: dict[str, Any], path: str) -> list[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    found = [f"{path}.{name}: is missing" for name in schema.get("required", ()) if name not in value]
    for name, each in value.items():
        if name in properties:
            found += schema_errors(each, properties[name], f"{path}.{name}")
        elif isinstance(others, dict):
            found += schema_errors(each, others, f"{path}.{name}")
        elif properties and not schema.get("x-kubernetes-preserve-unknown-fields"):
            found.append(f"{path}.{name}: is not known")
    return found
