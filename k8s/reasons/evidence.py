"""Everything fetched for the diagnosis of one job; frozen, so that the rules are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from k8s.kinds import DeclaredJob
from k8s.models import ContainerStatus, Node
from k8s.models.event import Event
from k8s.models.namespace import Claim, Quota
from k8s.reasons.failures import CAUSES, ContainerLog, FailureCause, Triage, triage
from k8s.reasons.objects import (
    ExistingObject,
    FullPod,
    LimitRange,
    LocalQueue,
    PodGroup,
    PriorityClass,
    StorageClass,
    Workload,
)
from k8s.reasons.phrases import order, seconds_between
from k8s.reasons.predicates import ClusterCapacity, NodeCapacity
from k8s.reasons.requests import ResourceList, SchedulingSpec, spec_from_template
from k8s.reasons.shortage import PodSet, at_once, pod_sets
from k8s.snapshot import NO_SIGNS, Instance, Job, LifeSigns, NodeRow
from k8s.status import Status

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


class Evidence(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A job and the objects fetched for it.

    In mappings by name, None means that no such object exists; names that could not be read are absent.
    """

    job: Job
    now: datetime
    node_rows: Mapping[str, NodeRow] = msgspec.field(default_factory=dict)
    sees_all_pods: bool = True
    manifest: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The job's object; empty if it could not be read."""
    declared: DeclaredJob | None = None
    is_gone: bool = False
    pods: Mapping[str, FullPod] = msgspec.field(default_factory=dict)
    events: tuple[Event, ...] = ()
    """Events of the job, its pods, PodGroup and Workload, oldest first."""
    nodes: tuple[Node, ...] | None = None
    """None if the nodes were not needed, or may not be read."""
    requested_by_node: Mapping[str, ResourceList] = msgspec.field(default_factory=dict)
    """Requests of all pods of a node, for those nodes where they matter."""
    quotas: tuple[Quota, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    priorities: Mapping[str, PriorityClass | None] = msgspec.field(default_factory=dict)
    claims: Mapping[str, Claim | None] = msgspec.field(default_factory=dict)
    storage_classes: Mapping[str, StorageClass | None] = msgspec.field(default_factory=dict)
    accounts: Mapping[str, ExistingObject | None] = msgspec.field(default_factory=dict)
    secrets: Mapping[str, ExistingObject | None] = msgspec.field(default_factory=dict)
    """Existence of the image pull secrets only; their contents are not retained."""
    pod_group: PodGroup | None = None
    workload: Workload | None = None
    local_queues: Mapping[str, LocalQueue | None] = msgspec.field(default_factory=dict)
    queue_positions: tuple[int, int] | None = None
    """Workloads before it in its LocalQueue, and in the ClusterQueue."""
    signs: LifeSigns = NO_SIGNS
    silent_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Seconds without a sign of life of the jobs that probably hang, by name."""
    logs: tuple[ContainerLog, ...] = ()
    """Ends of the logs of a failed or restarting job."""
    causes: Sequence[FailureCause] = CAUSES
    jobs: tuple[Job, ...] = ()
    """All jobs, of which messages name one by its uid."""
    unseen: tuple[str, ...] = ()
    """Descriptions of what could not be read."""

    @property
    def age_s(self) -> float:
        """Return the age of the job in seconds."""
        return seconds_between(self.job.created, self.now)

    @cached_property
    def triage(self) -> Triage | None:
        """Return the failure that the logs and the states of containers show; None if none has failed."""
        return triage(self.logs, self.causes) if self.logs else None

    @cached_property
    def unfinished(self) -> tuple[Instance, ...]:
        """Return the instances that have not ended."""
        return tuple(each for each in self.job.instances if not each.status.is_final)

    @property
    def is_well(self) -> bool:
        """Return True if the job has succeeded, or all of it that has not ended runs."""
        statuses = {self.job.status, *(each.status for each in self.unfinished)}
        return statuses == {Status.RUNNING} or self.job.status is Status.SUCCEEDED

    @property
    def podless(self) -> tuple[Instance, ...]:
        """Return the instances without a pod."""
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
        """Return the Kueue queue that the job names; empty if none."""
        return self.declared.meta.label(QUEUE_LABEL) if self.declared is not None else ""

    def spec(self, instance: Instance) -> SchedulingSpec:
        """Return the scheduling spec of an instance's pod, or of its template if it has no pod."""
        pod = self.pods.get(instance.pod)
        if pod is not None:
            return pod.spec
        return spec_from_template(self.template(instance))

    def template(self, instance: Instance) -> Mapping[str, Any]:
        """Return the pod template of an instance; empty if unknown."""
        for replica in self.declared.replicas if self.declared is not None else ():
            if (replica.role, replica.index) == (instance.role, instance.index):
                return replica.template if isinstance(replica.template, Mapping) else {}
        return {}

    @cached_property
    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods without a node, grouped by their requests."""
        return pod_sets((each.name, self.spec(each)) for each in self.unscheduled)

    @cached_property
    def together(self) -> tuple[PodSet, ...]:
        """Return the pods that must run at once, grouped by their requests: for a Job, one suffices."""
        enough = self.declared.min_instances if self.declared is not None else None
        return pod_sets((each.name, self.spec(each)) for each in at_once(self.unfinished, enough))

    @cached_property
    def capacity(self) -> ClusterCapacity | None:
        """Return the free capacity of the nodes; None if they are unknown."""
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
        """Return the accelerators that other jobs hold, by node and job."""
        found: dict[str, Counter[str]] = {}
        own = {each.pod for each in self.job.instances if each.pod}
        for name, row in self.node_rows.items():
            for holder in row.holders:
                if holder.namespace != self.job.ref.namespace or holder.pod not in own:
                    found.setdefault(name, Counter())[holder.job] += holder.gpus
        return found

    def events_of(self, kinds: str | None, *reasons: str, names: set[str] | None = None) -> list[Event]:
        """Return events about pods, or with None about everything else, newest first.

        `reasons` are prefixes of the reasons that match; none means all. `names` are the objects' names.
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
        """Return the containers of an instance, each with True if it is an init container."""
        pod = self.pods.get(instance.pod)
        if pod is None:
            return []
        status = pod.status
        return [(each, True) for each in status.init_container_statuses or ()] + [
            (each, False) for each in status.container_statuses or ()
        ]

    def image_of(self, instance: Instance, container: str) -> str:
        """Return the image of a container; empty if unknown."""
        spec = self.spec(instance)
        containers = (*(spec.init_containers or ()), *spec.containers)
        return next((str(each.image) for each in containers if each.name == container), "")

    def command_of(self, instance: Instance, container: str) -> list[str]:
        """Return the command and arguments of a container; empty if its image decides."""
        pod = self.pods.get(instance.pod)
        for each in pod.spec.containers if pod is not None else ():
            if each.name == container:
                return [*(each.command or ()), *(each.args or ())]
        return []


def dig(obj: object, *keys: str) -> Any:
    """Return the value at a path in nested mappings; None if there is none."""
    for key in keys:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(key)
    return obj
