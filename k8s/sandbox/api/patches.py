"""Patches of objects: merge, strategic merge and JSON patch.

Each returns a new object and leaves the original unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch

from k8s.sandbox.api.api_errors import ApiError, bad_request

# Merge keys of lists by field name: the first of these that an element has.
# Source: `patchMergeKey` in k8s.io/api/core/v1/types.go and batch/v1/types.go.
MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
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
    errors = (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, ValueError, KeyError)
    try:
        return jsonpatch.JsonPatch(patch).apply(target)
    except errors as error:
        # The library's own message may show values of a Secret.
        why = "error in our request: the patch does not fit the object"
        raise ApiError(422, "Invalid", f"the server rejected our request due to an {why}") from error


def strategic(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch: like `merge`, but lists with a merge key merge element by element.

    Of the directives only `$retainKeys` and an element's `$patch: delete` are known. `$setElementOrder` has
    no effect: of no list here does the order matter.

    Raises:
        ApiError: An element lacks the merge key of its list, or the patch has another directive.

    Source: "Update API Objects in Place Using kubectl patch", Kubernetes documentation.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    if (retained := patch.get("$retainKeys")) is not None:
        if not isinstance(retained, list):
            raise bad_request("the patch's $retainKeys is not a list")
        merged = {name: value for name, value in merged.items() if name in retained}
    for name, value in patch.items():
        if name.startswith("$"):
            if name != "$retainKeys" and not name.startswith("$setElementOrder/"):
                raise bad_request(f"the sandbox does not know the directive {name} of a patch here")
        elif value is None:
            merged.pop(name, None)
        elif isinstance(value, list):
            merged[name] = _merged_list(name, merged.get(name), value)
        else:
            merged[name] = strategic(merged.get(name), value)
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
