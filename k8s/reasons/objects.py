"""Parts of Kubernetes objects that only a diagnosis needs: fetched on demand, never mirrored.

Objects may be forbidden, missing or malformed; what could not be read is recorded. Names are the
API's, in snake case. Sources: Kubernetes API reference v1, Volcano `scheduling/v1beta1`,
scheduler-plugins `scheduling/v1alpha1`, Kueue `v1beta1` and `visibility`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from k8s import models
from k8s.client.client import Client
from k8s.models import Condition, Meta, PodStatus, Quantities, Reader, Value
from k8s.models.pod import Container
from k8s.models.resources import Resource
from k8s.reasons.phrases import cut
from k8s.reasons.requests import SchedulingSpec
from k8s.text.errors import Forbidden, KubeError, NotFound, without_frames

LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
PRIORITIES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", is_namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", is_namespaced=False)
# Volcano's, and those of two generations of scheduler-plugins.
POD_GROUPS = (
    Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"),
    Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),
    Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup"),
)
# Of Kubernetes itself, KEP-4671 and KEP-5832; pods name them in `spec.schedulingGroup`.
NATIVE_POD_GROUPS = tuple(
    Resource("scheduling.k8s.io", version, "podgroups", "PodGroup") for version in ("v1beta1", "v1alpha2")
)
# Annotations or labels that name a pod's PodGroup: Volcano, scheduler-plugins, ACK.
GROUP_KEYS = (
    "scheduling.k8s.io/group-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io",
)
KUEUE = "kueue.x-k8s.io"
KUEUE_VERSIONS = ("v1beta2", "v1beta1")
AT_ONCE = 6
# Of 500 objects each.
MOST_PAGES = 10
T = TypeVar("T", bound=models.Value)


class _FullPodStatus(PodStatus, frozen=True):
    nominated_node_name: str = ""


class _CommandContainer(Container, frozen=True):
    command: list[str] | None = None
    args: list[str] | None = None

    def key(self) -> Hashable:
        """Return a key that is equal for containers with the same requests and command."""
        return super().key(), tuple(self.command or ()), tuple(self.args or ()), "with its command"


class _FullPodSpec(SchedulingSpec, frozen=True):
    containers: list[_CommandContainer] = msgspec.field(default_factory=list)  # type: ignore[assignment]


class FullPod(Value, frozen=True):
    """A pod with its constraints and commands."""

    metadata: Meta
    spec: _FullPodSpec = _FullPodSpec()
    status: _FullPodStatus = _FullPodStatus()

    @property
    def is_finished(self) -> bool:
        """Return True if it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


class LimitRangeItem(Value, frozen=True):
    """Limits for one container or pod."""

    type: str = ""
    max: Quantities | None = None
    min: Quantities | None = None


class _LimitRangeSpec(Value, frozen=True):
    limits: list[LimitRangeItem] | None = None


class LimitRange(Value, frozen=True):
    """A LimitRange."""

    metadata: Meta
    spec: _LimitRangeSpec = _LimitRangeSpec()


class StorageClass(Value, frozen=True):
    """A StorageClass."""

    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str = ""


class PriorityClass(Value, frozen=True):
    """A PriorityClass."""

    metadata: Meta
    value: int = 0


class ExistingObject(Value, frozen=True):
    """An object of which only the existence matters."""

    metadata: Meta


class _PodGroupSpec(Value, frozen=True):
    min_member: int = 0
    scheduling_policy: dict[str, dict[str, int]] | None = None
    queue: str = ""


class _PodGroupStatus(Value, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None


class PodGroup(Value, frozen=True):
    """A gang of Volcano, scheduler-plugins or Kubernetes, which counts in `schedulingPolicy`."""

    metadata: Meta
    spec: _PodGroupSpec = _PodGroupSpec()
    status: _PodGroupStatus = _PodGroupStatus()

    @property
    def min_pods(self) -> int:
        """Return the number of pods that must start together."""
        policy = self.spec.scheduling_policy or {}
        return self.spec.min_member or policy.get("gang", {}).get("minCount", 0)


def group_names(template: object) -> list[str]:
    """Return the names of PodGroups in a pod template, which may be malformed."""
    meta = template.get("metadata") if isinstance(template, Mapping) else None
    sections = [meta.get(key) for key in ("annotations", "labels")] if isinstance(meta, Mapping) else []
    named = [each for each in sections if isinstance(each, Mapping)]
    return [each[key] for each in named for key in GROUP_KEYS if isinstance(each.get(key), str)]


class _WorkloadSpec(Value, frozen=True):
    queue_name: str = ""
    active: bool = True
    priority: int | None = None


class _Admission(Value, frozen=True):
    cluster_queue: str = ""


class _AdmissionCheck(Value, frozen=True):
    name: str = ""
    state: str = ""
    message: str = ""


class _RequeueState(Value, frozen=True):
    count: int = 0
    requeue_at: datetime | None = None


class WorkloadStatus(Value, frozen=True):
    """The decisions of Kueue."""

    conditions: list[Condition] | None = None
    admission: _Admission | None = None
    cluster_name: str = ""
    admission_checks: list[_AdmissionCheck] | None = None
    requeue_state: _RequeueState | None = None


class Workload(Value, frozen=True):
    """A job as Kueue sees it."""

    metadata: Meta
    spec: _WorkloadSpec = _WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class _LocalQueueSpec(Value, frozen=True):
    cluster_queue: str = ""


class _LocalQueueStatus(Value, frozen=True):
    conditions: list[Condition] | None = None


class LocalQueue(Value, frozen=True):
    """A namespace's entry to a ClusterQueue."""

    metadata: Meta
    spec: _LocalQueueSpec = _LocalQueueSpec()
    status: _LocalQueueStatus = _LocalQueueStatus()


class PendingWorkload(Value, frozen=True):
    """A place in Kueue's queue; positions start at 0."""

    metadata: Meta
    position_in_cluster_queue: int = 0
    position_in_local_queue: int = 0


class Fetcher:
    """Reader for diagnoses made at about the same time; fetches no list twice."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._unseen: dict[str, None] = {}
        self._lists: dict[object, Any] = {}

    @property
    def unseen(self) -> tuple[str, ...]:
        """Return descriptions of what could not be read."""
        return tuple(self._unseen)

    async def get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any] | KubeError:
        """Return an object, or the error."""
        try:
            async with self._turns:
                return await self._client.get(resource, name, namespace)
        except KubeError as error:
            if isinstance(error, Forbidden):
                self._record_unseen(f"{resource.kind} {name}", error)
            return without_frames(error)

    async def get_by_name(
        self, resource: Resource, kind: type[T], wanted: Iterable[str], namespace: str = ""
    ) -> dict[str, T | None]:
        """Fetch objects by name: None if one does not exist, no entry if that is unknown."""
        names = [name for name in dict.fromkeys(wanted) if name]
        found = await asyncio.gather(*(self._one(resource, kind, name, namespace) for name in names))
        return {name: each for name, (is_known, each) in zip(names, found, strict=True) if is_known}

    async def _one(
        self, resource: Resource, kind: type[T], name: str, namespace: str
    ) -> tuple[bool, T | None]:
        obj = await self.get(resource, name, namespace)
        if isinstance(obj, KubeError):
            if not isinstance(obj, (NotFound, Forbidden)):
                self._record_unseen(f"{resource.kind} {name}", obj)
            return isinstance(obj, NotFound), None
        value = self.read(obj, kind)
        if value is None:
            self._unseen[f"{resource.kind} {name}: it is malformed"] = None
        return value is not None, value

    def read(self, obj: object, kind: type[T]) -> T | None:
        """Convert decoded JSON to a value; None if it is malformed."""
        try:
            value: T = models.convert(obj, kind)
        except (msgspec.ValidationError, RecursionError):
            return None
        return value

    async def list_all(
        self,
        resource: Resource,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[T] | None:
        """Return the well-formed objects; empty if the kind is not served, None if refused."""
        key = (resource, kind, namespace, label_selector, field_selector)
        if key not in self._lists:
            self._lists[key] = await self._list_all(*key)
        found: list[T] | None = self._lists[key]
        return found

    async def _list_all(
        self, resource: Resource, kind: type[T], namespace: str, label_selector: str, field_selector: str
    ) -> list[T] | None:
        reader: Reader[T] = Reader(kind)
        found: list[T] = []
        token = ""
        try:
            for _ in range(MOST_PAGES):
                async with self._turns:
                    body = await self._client.list_page(
                        resource,
                        namespace,
                        continue_token=token,
                        label_selector=label_selector,
                        field_selector=field_selector,
                    )
                where, items, unreadable = reader.read_list(body)
                found.extend(items)
                if unreadable:
                    self._unseen[f"{resource.plural}: {unreadable} of them are malformed"] = None
                token = where.continue_
                if not token:
                    return found
        except NotFound:
            return []
        except KubeError as error:
            self._record_unseen(resource.plural, error)
            return None
        except (msgspec.DecodeError, RecursionError):
            self._unseen[f"{resource.plural}: the answer is malformed"] = None
            return None
        self._unseen[f"{resource.plural}: only the first {len(found)} were read"] = None
        return found

    async def list_path(self, path: str, kind: type[T]) -> list[T]:
        """Return the items at a path; empty if it is not served."""
        try:
            async with self._turns:
                body = await self._client.get_json(path)
        except KubeError:
            return []
        items = body.get("items")
        found = (self.read(each, kind) for each in (items if isinstance(items, list) else ()))
        return [each for each in found if each is not None]

    def _record_unseen(self, what: str, error: KubeError) -> None:
        self._unseen[f"{what}: {cut(error.why or error.what)}"] = None
