"""Patches of objects: merge, strategic merge and JSON patch.

Each returns a new object and leaves the original unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import msgspec

from k8s.sandbox.api.api_errors import ApiError, bad_request

# Merge keys of lists by field name: the first of these that an element has.
# Source: `patchMergeKey` in k8s.io/api/core/v1/types.go and batch/v1/types.go.
MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
LIST_DIRECTIVES = ("$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/")
_PATCH_ERRORS = (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException)
# Lists of strings that are merged as sets.
SETS = frozenset({"finalizers"})


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: null removes, objects merge, other values replace.

    Source: RFC 7396.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def json_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON patch, a list of operations.

    Raises:
        ApiError: The patch is malformed or does not fit the object.

    Source: RFC 6902.
    """
    if not isinstance(patch, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    patched = copy.deepcopy(target)
    for number, operation in enumerate(patch):
        if not isinstance(operation, dict):
            raise bad_request("json: cannot unmarshal into Go value of type jsonpatch.Operation")
        try:
            patched = jsonpatch.JsonPatch([operation]).apply(patched, in_place=True)
        except (*_PATCH_ERRORS, TypeError, ValueError, KeyError) as error:
            about = msgspec.json.encode([operation.get(name, "") for name in ("op", "path")]).decode()
            why = f"operation {number} cannot be applied to the object: {about}"
            message = f"the server rejected our request due to an error in our request: {why}"
            raise ApiError(422, "Invalid", message) from error
    return patched


def strategic(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch: like `merge`, but named lists merge element by element.

    Raises:
        ApiError: An element lacks the merge key of its list.

    Source: "Update API Objects in Place Using kubectl patch", Kubernetes documentation.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    for name, value in patch.items():
        if name.startswith(LIST_DIRECTIVES) and not isinstance(value, list):
            raise bad_request(f"the patch's {name} is not a list")
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    replaces = directive == "replace"
    merged = dict(target) if isinstance(target, dict) and not replaces else {}
    if (retained_keys := patch.get("$retainKeys")) is not None:
        merged = {name: value for name, value in merged.items() if name in retained_keys}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            merged[field] = _without(field, merged.get(field), value)
        elif name.startswith("$"):
            continue
        elif value is None:
            merged.pop(name, None)
        elif isinstance(value, list):
            merged[name] = _merged_list(name, merged.get(name), value)
        else:
            merged[name] = strategic(merged.get(name), value)
    for name, order in patch.items():
        field = name.removeprefix("$setElementOrder/")
        if field != name and isinstance(merged.get(field), list):
            merged[field] = _ordered(field, merged[field], order)
    return merged


def merge_key(field: str, elements: Sequence[Any]) -> str:
    """Return the merge key of a list; empty if the list is replaced."""
    if not all(isinstance(element, Mapping) for element in elements):
        return ""
    candidates = MERGE_KEYS.get(field, ())
    for key in candidates:
        if any(key in element for element in elements):
            return key
    return candidates[0] if candidates else ""


def without_nulls(value: Any) -> Any:
    """Return a copy without null members, which mean "not set"."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(element) for element in value]
    return value


def _merged_list(field: str, target: Any, patch: list[Any]) -> list[Any]:
    old: list[Any] = target if isinstance(target, list) else []
    if field in SETS:
        return [*old, *(each for each in patch if each not in old)]
    key = merge_key(field, [*patch, *old])
    if not key:
        return copy.deepcopy(patch)
    if any(element.get("$patch") == "replace" for element in patch):
        return [strategic(None, element) for element in patch if element.keys() != {"$patch"}]
    merged = list(old)
    for element in patch:
        if key not in element:
            raise bad_request(f"map: an element of {field} does not contain declared merge key: {key}")
        at = next((i for i, each in enumerate(merged) if each.get(key) == element[key]), None)
        if element.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append(strategic(None, element))
        else:
            merged[at] = strategic(merged[at], element)
    return merged


def _without(field: str, target: Any, removed: list[Any]) -> list[Any]:
    if not isinstance(target, list | None):
        raise bad_request(f"{field} is not a list")
    return [each for each in target or [] if each not in removed]


def _ordered(field: str, merged: list[Any], order: list[Any]) -> list[Any]:
    key = merge_key(field, [*order, *merged])

    def name(element: Any) -> Any:
        return element.get(key) if key and isinstance(element, Mapping) else element

    expected = [name(element) for element in order]
    return sorted(
        merged, key=lambda each: expected.index(name(each)) if name(each) in expected else len(expected)
    )
