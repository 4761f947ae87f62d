"""Who set which field: managedFields, and server-side apply which lives on them.

A field is known by its path, a tuple of steps as managedFields write them: `f:spec`,
`k:{"name":"a"}` for an element of a named list, `v:"x"` for a word of a set.
Source: "Server-Side Apply", Kubernetes documentation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from k8s.sandbox.api.admission.patches import SETS, merge_key, strategic
from k8s.sandbox.api.api_errors import ApiError

Object = dict[str, Any]
Path = tuple[str, ...]

SYSTEM_META = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "managedFields",
)
"""Metadata that the server alone writes."""
_ABSENT = object()
_NOT_OWNED = frozenset({"apiVersion", "kind", "status"})
_NOT_OWNED_META = frozenset({*SYSTEM_META, "name", "namespace", "generateName", "resourceVersion"})


@dataclass(slots=True)
class Manager:
    """One entry of managedFields."""

    name: str
    operation: str
    """Apply, or Update for every other way of writing."""
    api_version: str
    time: str
    paths: set[Path]

    @property
    def title(self) -> str:
        """Return how a conflict names it."""
        return f'"{self.name}"' if self.operation == "Apply" else f'"{self.name}" using {self.api_version}'


def record_update(obj: Object, old: Object | None, manager: str, now: str) -> None:
    """Write into an object's managedFields that this manager set what differs from `old`."""
    before = dict(_leaves(old)) if old is not None else {}
    after = dict(_leaves(obj))
    changed = {path for path, value in after.items() if before.get(path, _ABSENT) != value}
    gone = before.keys() - after.keys()
    if not changed and not gone:
        return
    managers = _read(obj)
    for each in managers:
        each.paths -= changed | gone
    if changed:
        mine = _entry(managers, manager, "Update", obj["apiVersion"])
        mine.paths |= changed
        mine.time = now
    _write(obj, managers)


def apply(live: Object, wanted: Object, manager: str, now: str, *, force: bool) -> Object:
    """Return `live` with what is wanted, without what this manager wanted before and no longer does.

    Raises:
        ApiError: Another manager has set one of the fields to something else, and `force` is not given.
    """
    live_leaves, wanted_leaves = dict(_leaves(live)), dict(_leaves(wanted))
    managers = _read(live)
    mine = _entry(managers, manager, "Apply", wanted["apiVersion"])
    others = [each for each in managers if each is not mine]
    disputed = {path for path, value in wanted_leaves.items() if live_leaves.get(path, _ABSENT) != value}
    clashes = [(each, path) for each in others for path in sorted(each.paths & disputed)]
    if clashes and not force:
        raise _conflicts(clashes)
    for each in others:
        each.paths -= disputed
    given_up = mine.paths - wanted_leaves.keys()
    for each in others:
        given_up -= each.paths
    merged: Object = strategic(live, {name: value for name, value in wanted.items() if name != "status"})
    for path in given_up:
        if path in live_leaves:
            _remove(merged, path)
    if mine.paths != wanted_leaves.keys() or disputed:
        mine.time = now
    mine.paths = set(wanted_leaves)
    _write(merged, managers)
    return merged


def _leaves(obj: Object) -> Iterator[tuple[Path, Any]]:
    """Yield the path and value of everything in an object that somebody can own."""
    for name, value in obj.items():
        if name == "metadata":
            for key, member in value.items():
                if key not in _NOT_OWNED_META:
                    yield from _walk(member, ("f:metadata", f"f:{key}"))
        elif name not in _NOT_OWNED:
            yield from _walk(value, (f"f:{name}",))


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from _walk(member, (*path, f"f:{name}"))
    elif isinstance(value, list) and value:
        field = path[-1][2:]
        key = merge_key(field, value)
        if field in SETS:
            for word in value:
                yield (*path, f"v:{json.dumps(word)}"), word
        elif key and all(key in element for element in value):
            for element in value:
                yield from _walk(element, (*path, _element_step(key, element[key])))
        else:
            yield path, value
    else:
        yield path, value


def _element_step(key: str, value: Any) -> str:
    return "k:" + json.dumps({key: value}, separators=(",", ":"))


def _remove(obj: Object, path: Path) -> None:
    """Take a field out of an object, with the containers that it leaves empty."""
    trail: list[tuple[Any, Any]] = []
    at: Any = obj
    for step in path:
        if step.startswith("f:"):
            place: Any = step[2:]
        elif step.startswith("v:"):
            place = at.index(json.loads(step[2:]))
        else:
            wanted = json.loads(step[2:]).items()
            place = next((i for i, element in enumerate(at) if wanted <= element.items()), None)
            if place is None:
                return
        trail.append((at, place))
        at = at.get(place) if isinstance(at, dict) else at[place]
        if at is None:
            return
    at, place = trail.pop()
    del at[place]
    while trail and not at:
        at, place = trail.pop()
        del at[place]


def _entry(managers: list[Manager], name: str, operation: str, api_version: str) -> Manager:
    for each in managers:
        if (each.name, each.operation) == (name, operation):
            each.api_version = api_version
            return each
    managers.append(Manager(name, operation, api_version, "", set()))
    return managers[-1]


def _read(obj: Object) -> list[Manager]:
    def paths(fields: Mapping[str, Any], at: Path) -> Iterator[Path]:
        if not fields and at:
            yield at
        for step, below in fields.items():
            yield from paths(below, at if step == "." else (*at, step))

    return [
        Manager(
            each["manager"],
            each["operation"],
            each["apiVersion"],
            each.get("time", ""),
            set(paths(each.get("fieldsV1") or {}, ())),
        )
        for each in obj["metadata"].get("managedFields") or ()
        if not each.get("subresource")
    ]


def _write(obj: Object, managers: list[Manager]) -> None:
    entries = []
    for each in managers:
        fields: Object = {}
        for path in sorted(each.paths):
            at = fields
            for step in path:
                at = at.setdefault(step, {})
        if each.paths:
            entries.append(
                {
                    "manager": each.name,
                    "operation": each.operation,
                    "apiVersion": each.api_version,
                    "time": each.time,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": fields,
                }
            )
    obj["metadata"] = {**obj["metadata"], "managedFields": entries}
    if not entries:
        del obj["metadata"]["managedFields"]


def _conflicts(clashes: list[tuple[Manager, Path]]) -> ApiError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {manager.title}",
            "field": _dotted(path),
        }
        for manager, path in clashes
    ]
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        parts = []
        for title in dict.fromkeys(manager.title for manager, _ in clashes):
            parts.append(f"conflicts with {title}:")
            parts += [f"- {_dotted(path)}" for manager, path in clashes if manager.title == title]
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(parts)
    return ApiError(409, "Conflict", message, {"causes": causes})


def _dotted(path: Path) -> str:
    """Write a path for people: `.spec.containers[name="a"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = json.loads(step[2:]).items()
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in keys) + "]"
        else:
            text += f"[={step[2:]}]"
    return text
