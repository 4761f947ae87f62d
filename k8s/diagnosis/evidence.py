"""What is known about one job at the moment somebody asks why: frozen, so that the rules are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from k8s.diagnosis.objects import (
    Existing,
    LimitRange,
    LocalQueue,
    PodGroup,
    PriorityClass,
    StorageClass,
    WholePod,
    Workload,
)
from k8s.diagnosis.shortage import PodSet, pod_sets
from k8s.diagnosis.words import order, seconds_between
from k8s.kinds import DeclaredJob
from k8s.models import ContainerStatus, Event, Node
from k8s.models.claim import Claim
from k8s.models.namespace import Quota
from k8s.scheduling.predicates import ClusterCapacity, NodeCapacity
from k8s.scheduling.requests import ResourceList
from k8s.scheduling.scheduling_spec import SchedulingSpec, spec_from_template
from k8s.snapshot import Instance, Job, NodeRow
from k8s.status import Status

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Names the Kueue queue of a job."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A job, and all that was looked at.

    In mappings from names, None means that there is nothing of that name; what could not
    be looked at is not in them.
    """

    job: Job
    now: datetime
    """By the cluster's clock."""
    node_rows: Mapping[str, NodeRow] = field(default_factory=dict)
    """The nodes as the console shows them, by name."""
    sees_all_pods: bool = True
    """The rows count everybody's pods."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """The job's object, empty when it could not be read."""
    declared: DeclaredJob | None = None
    is_gone: bool = False
    """The job's object is no longer there."""
    pods: Mapping[str, WholePod] = field(default_factory=dict)
    """Those of the job's pods that were read, by name."""
    events: tuple[Event, ...] = ()
    """Of the job, its pods, its PodGroup, its Workload; oldest first."""
    nodes: tuple[Node, ...] | None = None
    """All nodes; None when nobody looked, or may not."""
    requested_by_node: Mapping[str, ResourceList] = field(default_factory=dict)
    """Node name to what its pods request, for those nodes where it matters."""
    quotas: tuple[Quota, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    priorities: Mapping[str, PriorityClass | None] = field(default_factory=dict)
    claims: Mapping[str, Claim | None] = field(default_factory=dict)
    storage_classes: Mapping[str, StorageClass | None] = field(default_factory=dict)
    accounts: Mapping[str, Existing | None] = field(default_factory=dict)
    secrets: Mapping[str, Existing | None] = field(default_factory=dict)
    """Whether the image pull secrets exist; their contents are not kept."""
    pod_group: PodGroup | None = None
    workload: Workload | None = None
    local_queues: Mapping[str, LocalQueue | None] = field(default_factory=dict)
    queue_positions: tuple[int, int] | None = None
    """How many Workloads are before it in its queue, and in the ClusterQueue."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at, in words."""

    @property
    def age_s(self) -> float:
        """Return how old the job is."""
        return seconds_between(self.job.created, self.now)

    @cached_property
    def unfinished(self) -> tuple[Instance, ...]:
        """Return the instances from which something is still to come."""
        return tuple(each for each in self.job.instances if not each.status.is_final)

    @property
    def podless(self) -> tuple[Instance, ...]:
        """Return the instances that have no pod yet."""
        return tuple(each for each in self.unfinished if not each.pod)

    @property
    def unscheduled(self) -> tuple[Instance, ...]:
        """Return the instances without a node."""
        return tuple(each for each in self.unfinished if not each.node)

    @property
    def unstarted(self) -> tuple[Instance, ...]:
        """Return the instances that have a node and do not run on it."""
        return tuple(each for each in self.unfinished if each.node and each.status is not Status.RUNNING)

    @property
    def queue(self) -> str:
        """Return the Kueue queue that the job names."""
        return self.declared.meta.label(QUEUE_LABEL) if self.declared is not None else ""

    def spec(self, instance: Instance) -> SchedulingSpec:
        """Return what an instance's pod asks for, or what its template does while there is none."""
        pod = self.pods.get(instance.pod)
        if pod is not None:
            return pod.spec
        return spec_from_template(self.template(instance))

    def template(self, instance: Instance) -> Mapping[str, Any]:
        """Return the pod template of an instance; empty when it is not known."""
        for replica in self.declared.replicas if self.declared is not None else ():
            if (replica.role, replica.index) == (instance.role, instance.index):
                return replica.template if isinstance(replica.template, Mapping) else {}
        return {}

    @cached_property
    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods without a node, those that request the same together."""
        return pod_sets((each.name, self.spec(each)) for each in self.unscheduled)

    @cached_property
    def capacity(self) -> ClusterCapacity | None:
        """Return what is left on the nodes; None when they are not known."""
        if self.nodes is None:
            return None
        return ClusterCapacity(
            {
                name: NodeCapacity.of(node, self.requested_by_node.get(name), self.node_rows.get(name))
                for node in self.nodes
                for name in (node.metadata.name,)
            }
        )

    @cached_property
    def holders_by_node(self) -> Mapping[str, Counter[str]]:
        """Return which other jobs hold accelerators of each node, and how many."""
        found: dict[str, Counter[str]] = {}
        own = {each.pod for each in self.job.instances if each.pod}
        for name, row in self.node_rows.items():
            for holder in row.holders:
                if holder.namespace != self.job.ref.namespace or holder.pod not in own:
                    found.setdefault(name, Counter())[holder.job] += holder.gpus
        return found

    def events_of(self, kinds: str | None, *reasons: str, names: set[str] | None = None) -> list[Event]:
        """Return events about objects of a kind, or of any but pods when `kinds` is None; newest first.

        Args:
            kinds: `Pod`, or None for everything else.
            reasons: Beginnings of the reasons that count; none means all.
            names: The objects that count; None means all.
        """
        found = [
            event
            for event in self.events
            if (event.involved_object.kind == "Pod") == (kinds == "Pod")
            and (names is None or event.involved_object.name in names)
            and (not reasons or (event.reason or "").startswith(reasons))
        ]
        return sorted(found, key=lambda event: order(event.at), reverse=True)

    def containers(self, instance: Instance) -> list[tuple[ContainerStatus, bool]]:
        """Return an instance's containers, init containers first, and whether each is one."""
        pod = self.pods.get(instance.pod)
        if pod is None:
            return []
        status = pod.status
        return [(each, True) for each in status.init_container_statuses or ()] + [
            (each, False) for each in status.container_statuses or ()
        ]

    def image_of(self, instance: Instance, container: str) -> str:
        """Return the image of a container."""
        spec = self.spec(instance)
        for each in (*(spec.init_containers or ()), *spec.containers):
            if each.name == container:
                return str(each.image)
        return ""

    def command_of(self, instance: Instance, container: str) -> list[str]:
        """Return the words that a container runs; none where they are its image's or unknown."""
        pod = self.pods.get(instance.pod)
        for each in pod.spec.containers if pod is not None else ():
            if each.name == container:
                return [*(each.command or ()), *(each.args or ())]
        return []


def dig(obj: object, *keys: str) -> Any:
    """Return what is inside nested mappings; None where there is no such thing."""
    for key in keys:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(key)
    return obj
