"""The few fields of Kubernetes objects that the console shows, as the server sends them.

Bodies are decoded straight into these values and everything else is skipped while
reading, which is what makes ten thousand pods cheap: see `decode_list`.
Names are the API's, in snake case. Source: the Kubernetes API reference, v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

Quantities = dict[str, str | int | float]
"""Resource name, as `nvidia.com/gpu`, to quantity."""


class Value(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A part of an API object; unknown fields are ignored."""


class OwnerReference(Value, frozen=True):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class Meta(Value, frozen=True):
    """What every object carries."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None

    def label(self, key: str) -> str:
        """Return a label's value, empty when there is none."""
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str:
        """Return an annotation's value, empty when there is none."""
        return (self.annotations or {}).get(key, "")

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that manages this object, if it has one."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class Resources(Value, frozen=True):
    """What a container asks for."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(Value, frozen=True):
    """A container as it was asked for."""

    name: str = ""
    image: str = ""
    resources: Resources | None = None
    restart_policy: str = ""
    """`Always` on an init container makes it a sidecar."""


class PodSpec(Value, frozen=True):
    """Where a pod runs and what in it."""

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    priority_class_name: str = ""
    restart_policy: str = ""


class Waiting(Value, frozen=True):
    """A container that does not run yet, or again."""

    reason: str = ""
    message: str = ""


class Running(Value, frozen=True):
    """A container that runs."""

    started_at: datetime | None = None


class Terminated(Value, frozen=True):
    """A container that ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Value, frozen=True):
    """One of three, or none of them: then the kubelet has not said."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Value, frozen=True):
    """A container as it is."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False
    restart_count: int = 0


class Condition(Value, frozen=True):
    """A claim about an object: `type` is `status` since then, because of `reason`."""

    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: datetime | None = None


class PodStatus(Value, frozen=True):
    """How a pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    start_time: datetime | None = None


class Pod(Value, frozen=True):
    """A pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        """Tell whether its containers have ended for good, so that it holds nothing."""
        return self.status.phase in ("Succeeded", "Failed")


class Taint(Value, frozen=True):
    """What keeps pods away from a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Value, frozen=True):
    """How a node was set up."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class Address(Value, frozen=True):
    """One of a node's addresses."""

    type: str = ""
    address: str = ""


class NodeStatus(Value, frozen=True):
    """How a node is."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: list[Condition] | None = None
    addresses: list[Address] | None = None


class Node(Value, frozen=True):
    """A machine of the cluster."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ObjectReference(Value, frozen=True):
    """What an event is about."""

    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class EventSource(Value, frozen=True):
    """Who saw it."""

    component: str = ""


class Event(Value, frozen=True):
    """Something that happened to an object."""

    metadata: Meta
    involved_object: ObjectReference = ObjectReference()
    reason: str | None = ""
    message: str | None = ""
    type: str | None = ""
    count: int | None = 1
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    source: EventSource = EventSource()

    @property
    def at(self) -> datetime | None:
        """Return when it was last seen."""
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp


class ListMeta(Value, frozen=True):
    """Where a list stands."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


T = TypeVar("T")


class RawList(Value, frozen=True):
    """A list whose items are still bytes."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    items: list[msgspec.Raw] | None = None


class TypedList(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A list whose items are values."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    object: msgspec.Raw


class Reader(Generic[T]):
    """Decodes lists and watch lines of one type of object."""

    def __init__(self, value_type: Any) -> None:
        """Prepare to decode `value_type`: a `Value`, or `dict` for objects of any kind."""
        self._type = value_type
        self._one: msgspec.json.Decoder[T] = msgspec.json.Decoder(value_type)
        self._list: msgspec.json.Decoder[TypedList[T]] = msgspec.json.Decoder(TypedList[value_type])

    def read(self, body: bytes | msgspec.Raw) -> T:
        """Decode one object; a field that is null counts as not there.

        Raises:
            msgspec.DecodeError: It is not JSON, or not such an object.
        """
        try:
            return _decode(self._one, body)
        except msgspec.ValidationError:
            found: T = convert(_decode(_ANY, body), self._type)
            return found

    def read_list(self, body: bytes) -> tuple[ListMeta, list[T], int]:
        """Decode a list; an item that makes no sense is left out and counted, the rest stays.

        Returns:
            Where the list stands, its items, and how many could not be read.

        Raises:
            msgspec.DecodeError: The body is not a list at all.
        """
        try:
            whole = self._list.decode(body)
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            raw = _decode(_RAW_LIST, body)
            items: list[T] = []
            for item in raw.items or ():
                try:
                    items.append(self.read(item))
                except msgspec.DecodeError:
                    continue
            where: ListMeta = convert(_decode(_ANY, raw.metadata) or {}, ListMeta)
            return where, items, len(raw.items or ()) - len(items)
        return whole.metadata, whole.items or [], 0


_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_RAW_LIST = msgspec.json.Decoder(RawList)
WATCH_LINE = msgspec.json.Decoder(WatchEvent)
"""Decodes one line of a watch, leaving its object as bytes."""


def meta_of(obj: Mapping[str, Any]) -> Meta:
    """Return the metadata of an object of any kind, decoded as JSON into a dict.

    Raises:
        msgspec.ValidationError: The metadata has values of the wrong type.
    """
    meta: Meta = convert(obj.get("metadata") or {}, Meta)
    return meta


def convert(found: object, value_type: Any, *, strict: bool = True) -> Any:
    """Return a value of `value_type` from decoded JSON, in which a null counts as not there.

    Raises:
        msgspec.ValidationError: It has values of the wrong type.
    """
    try:
        return msgspec.convert(found, value_type, strict=strict)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(found), value_type, strict=strict)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """Decode, and call what is no UTF-8 or nested without end by the name that all broken JSON has."""
    try:
        return decoder.decode(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


def _without_nulls(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _without_nulls(value) for key, value in found.items() if value is not None}
    if isinstance(found, list):
        return [_without_nulls(value) for value in found if value is not None]
    return found
