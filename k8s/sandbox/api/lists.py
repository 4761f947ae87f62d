"""Lists in pages, and watches: both show the store at one version, watches also its changes from there on."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.api_errors import ApiError, StatusCause
from k8s.sandbox.api.served import ServedResource
from k8s.sandbox.api.store import Change, Object, Record, Store
from k8s.text.errors import Expired

Selector = Callable[[Object], bool]

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!)\s*)?(?P<key>{_KEY})"
    rf"(?:\s*(?P<equals>==?|!=)\s*(?P<value>{_VALUE})"
    rf"|\s+(?P<among>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\))?\s*"
)
T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0)]
_MISMATCH = re.compile(r"Expected `(\w+).*`\$\.([\w.]+)")
_EXPECTED = {"int": "a whole number, not below zero", "bool": "true or false", "str": "a string"}
BOOKMARK_S = 60.0
# Duration of a watch without a timeout.
WATCH_S = 1800
# Bounds one write, so that other requests get their turn during a flood.
EVENTS_PER_WRITE = 200
INITIAL_END = {"k8s.io/initial-events-end": "true"}


def read_query(query: Mapping[str, object], into: type[T]) -> T:
    """Convert query parameters to the `msgspec.Struct` type `into`; empty ones count as absent.

    Raises:
        ApiError: A parameter cannot be converted.
    """
    given = {name: text for name, text in query.items() if text != ""}
    try:
        return msgspec.convert(given, into, strict=False)
    except msgspec.ValidationError as error:
        match = _MISMATCH.search(str(error))
        expected, path = match.groups() if match else ("object", "")
        value = given.get(path.partition(".")[0], "")
        why = f"must be {_EXPECTED.get(expected, 'an object')}"
        cause = StatusCause.invalid(path or "options", value, why)
        raise api_errors.bad_request(f"{cause.field}: {cause.message}") from error


def selector_of(served: ServedResource, labels: str, fields: str) -> Selector | None:
    """Return a predicate for objects that both selectors match; None if both are empty.

    Raises:
        ApiError: A selector cannot be parsed, or the kind cannot be selected by that field.
    """
    requirements = [*label_requirements(labels), *field_requirements(served, fields)]
    return (lambda obj: all(holds(obj) for holds in requirements)) if requirements else None


def label_requirements(text: str) -> list[Selector]:
    """Parse a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    Source: apimachinery's `labels/selector.go`.
    """
    requirements: list[Selector] = []
    at = 0 if text.strip() else len(text) + 1
    while at <= len(text):
        match = _REQUIREMENT.match(text, at)
        end = match.end() if match is not None else at
        is_negated_twice = match is not None and match["absent"] and (match["equals"] or match["among"])
        if match is None or is_negated_twice or text[end : end + 1] not in ("", ","):
            raise api_errors.bad_request(
                f"unable to parse requirement: found '{text[end:]}', expected: a label, in, notin, =, ==, !="
            )
        requirements.append(_label(match))
        at = end + 1
    return requirements


def field_requirements(served: ServedResource, text: str) -> list[Selector]:
    """Parse a field selector: `status.phase!=Failed,spec.nodeName=a`."""
    requirements: list[Selector] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = re.fullmatch(r"(.+?)(!=|==|=)(.*)", part)
        if match is None:
            raise api_errors.bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        path, operator, expected = match.groups()
        if path not in ("metadata.name", "metadata.namespace", *served.fields):
            raise api_errors.bad_request(f"field label not supported: {path}")
        requirements.append(_field(path, expected, negated=operator == "!="))
    return requirements


def _label(match: re.Match[str]) -> Selector:
    key = match["key"]
    if match["equals"]:
        values = {match["value"]}
    elif match["among"]:
        # An empty value, as in `in (a,)`, is a value too.
        values = {value.strip() for value in match["values"].split(",")}
    else:
        is_wanted = not match["absent"]
        return lambda obj: (key in (obj["metadata"].get("labels") or {})) == is_wanted
    is_wanted = match["equals"] != "!=" and match["among"] != "notin"
    return lambda obj: ((obj["metadata"].get("labels") or {}).get(key) in values) == is_wanted


def _field(path: str, expected: str, *, negated: bool) -> Selector:
    steps = path.split(".")

    def holds(obj: Object) -> bool:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, Mapping) else None
        if path == "source":
            value = (obj.get("source") or {}).get("component")
        return (_text(value) == expected) != negated

    return holds


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


class ListQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Parameters of a list or watch."""

    label_selector: str = ""
    field_selector: str = ""
    # 0 means the newest.
    resource_version: Count = 0
    limit: Count = 0
    token: str = msgspec.field(name="continue", default="")
    # 0 means `WATCH_S`.
    timeout_s: Count = msgspec.field(name="timeoutSeconds", default=0)
    allow_watch_bookmarks: bool = False
    send_initial_events: bool = False
    watch: bool = False


class Listing:
    """A parsed list or watch request; its `selector` is None if it matches every object."""

    def __init__(self, served: ServedResource, namespace: str, parameters: Mapping[str, str]) -> None:
        """Parse the parameters of a request.

        Raises:
            ApiError: A parameter is malformed or does not fit the others.
        """
        self.served = served
        self.namespace = namespace
        self.query = query = read_query(parameters, ListQuery)
        self.selector = selector_of(served, query.label_selector, query.field_selector)
        if parameters.get("resourceVersionMatch", "NotOlderThan") != "NotOlderThan":
            why = "the sandbox lists the newest version only"
            cause = StatusCause.forbidden("resourceVersionMatch", why)
            raise api_errors.invalid_options("ListOptions", cause)

    def selects(self, obj: Object) -> bool:
        """Return True if the selector matches an object."""
        return self.selector is None or self.selector(obj)


def page(store: Store, listing: Listing) -> bytes:
    """Return a list, or the requested page of it.

    All pages carry the version of the first: a watch from there repeats what changed meanwhile.
    """
    query = listing.query
    version, start = _from_token(query.token) if query.token else (store.version, ("", ""))
    selected: list[Record] = []
    meta: dict[str, object] = {"resourceVersion": str(version)}
    for record in store.records(listing.served.key, listing.namespace):
        if (record.namespace, record.name) <= start or not listing.selects(record.obj):
            continue
        if query.limit and len(selected) == query.limit:
            meta["continue"] = _to_token(version, selected[-1])
            break
        selected.append(record)
    resource = listing.served.resource
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta}
    items = b",".join(record.json for record in selected)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


async def watch(
    store: Store, listing: Listing, request: web.Request, stopping: asyncio.Event
) -> web.StreamResponse:
    """Send changes until the client leaves, the watch times out or the server stops."""
    key = listing.served.key
    query = listing.query
    version = query.resource_version or store.version
    initial: list[bytes] = []
    if not query.resource_version:
        records = store.records(key, listing.namespace)
        initial = [_line("ADDED", each.json) for each in records if listing.selects(each.obj)]
        if query.send_initial_events and query.allow_watch_bookmarks:
            initial.append(_bookmark(listing.served, version, INITIAL_END))
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for at in range(0, len(initial), EVENTS_PER_WRITE):
        await response.write(b"".join(initial[at : at + EVENTS_PER_WRITE]))
    ends = time.monotonic() + (query.timeout_s or WATCH_S)
    next_bookmark = time.monotonic() + BOOKMARK_S
    with store.listening(key) as changed:
        while not stopping.is_set():
            changed.clear()
            try:
                changes = store.changes_after(key, version)
            except Expired as error:
                gone = ApiError(410, "Expired", error.why).status
                await response.write(_line("ERROR", msgspec.json.encode(gone)))
                break
            for at in range(0, len(changes), EVENTS_PER_WRITE):
                events = (_event(change, listing) for change in changes[at : at + EVENTS_PER_WRITE])
                if written := b"".join(filter(None, events)):
                    await response.write(written)
            version = max(version, changes[-1].version if changes else 0)
            if changed.is_set():
                continue
            # Changes of other kinds need no events: a bookmark may skip them.
            version = max(version, store.version)
            now = time.monotonic()
            if query.allow_watch_bookmarks and now >= min(next_bookmark, ends):
                await response.write(_bookmark(listing.served, version))
                next_bookmark = now + BOOKMARK_S
            if now >= ends:
                break
            try:
                async with asyncio.timeout(
                    (min(next_bookmark, ends) if query.allow_watch_bookmarks else ends) - now
                ):
                    await changed.wait()
            except TimeoutError:
                continue
    await response.write_eof()
    return response


def _event(change: Change, listing: Listing) -> bytes:
    record = change.new or change.old
    assert record is not None
    if listing.namespace and record.namespace != listing.namespace:
        return b""
    old = change.old if change.old is not None and listing.selects(change.old.obj) else None
    if change.new is not None and listing.selects(change.new.obj):
        return _line("ADDED" if old is None else "MODIFIED", change.new.json)
    if old is None:
        return b""
    # An object that no longer matches is deleted for this client, at the version of the change.
    last = old.obj
    last = {**last, "metadata": {**last["metadata"], "resourceVersion": str(change.version)}}
    return _line("DELETED", msgspec.json.encode(last))


def _line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


def _bookmark(served: ServedResource, version: int, annotations: Mapping[str, str] | None = None) -> bytes:
    meta: dict[str, object] = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        meta["annotations"] = annotations
    resource = served.resource
    obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    return _line("BOOKMARK", msgspec.json.encode(obj))


def _to_token(version: int, last: Record) -> str:
    position = {"v": "meta.k8s.io/v1", "rv": version, "start": [last.namespace, last.name]}
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def _from_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        position = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, name = position["start"]
        return int(position["rv"]), (str(namespace), str(name))
    except (ValueError, KeyError, TypeError) as error:
        why = "continue key is not valid: this server did not make it"
        raise api_errors.bad_request(f"invalid continue token: {why}") from error
