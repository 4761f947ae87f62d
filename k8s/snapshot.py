"""What is on screen at one moment: nodes, jobs and instances as frozen values.

Made by `k8s.cluster.join`; whoever shows them needs no other knowledge of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # the first frame needs these values, and not what reads objects
    from k8s.kinds.base import JobRef, Replica
    from k8s.models import Condition, Taint
    from k8s.status import Status

SANDBOX_VERSION = "gpuconsole-sandbox"
"""What the version of the sandbox's server ends with."""


@dataclass(frozen=True, slots=True)
class Share:
    """One accelerator resource of one node."""

    total: int
    """What may be given to pods: allocatable."""
    allocated: int
    """What pods hold that are bound to the node and not finished."""
    unhealthy: int
    """What is there but may not be used: capacity less allocatable."""


@dataclass(frozen=True, slots=True)
class SharedGpuMemory:
    """The memory of a node's GPUs, where pods take gigabytes in place of whole GPUs."""

    total_gib: int
    allocated_gib: int
    devices: int
    """How many GPUs it is the memory of; 0 when that is not told."""
    allocated_by_device: Mapping[int, int]
    """Number of the device to the GiB held there, as far as that is told."""

    @property
    def devices_allocated(self) -> float | None:
        """Return the GPUs that are held, in parts: 1.5; None when it is not told where they are."""
        if not self.devices or sum(self.allocated_by_device.values()) != self.allocated_gib:
            return None
        each_gib = self.total_gib / self.devices
        return sum(min(1.0, round(held / each_gib, 1)) for held in self.allocated_by_device.values())


class Holder(msgspec.Struct, frozen=True, gc=False):
    """A pod that holds accelerators of a node."""

    namespace: str
    pod: str
    job: str
    """Name of its job, or of whatever else owns it."""
    gpus: int
    """Devices it holds, all resources together."""
    resources: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Resource name to what it holds of it."""
    memory_by_device: Mapping[int, int] = msgspec.field(default_factory=dict)
    """On a node that shares GPUs by memory: number of the device to the GiB it holds there."""
    devices: tuple[int, ...] = ()
    """Numbers of the devices that it was given, as far as the scheduler wrote them down."""
    since: datetime | None = None
    """When its node took it, or else when it was made."""
    phase: str = ""
    """In Kubernetes' words: `Pending` until its containers were started."""

    @property
    def units(self) -> int:
        """Return how much it holds, devices or else GiB of shared ones."""
        return self.gpus or sum(self.resources.values())


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node and who holds its accelerators."""

    name: str
    ip: str
    roles: tuple[str, ...]
    status: str
    """Ready or NotReady, and `, cordoned`."""
    is_simulated: bool
    """Its accelerators are simulated, as those of the sandbox."""
    gpu_model: str
    resources: Mapping[str, Share]
    """Resource name to its share; empty on a node without accelerators."""
    holders: tuple[Holder, ...]
    created: datetime | None
    mode: str = ""
    """How its GPUs are given: exclusive, topology, share, mig, time-slicing, mps, dra; normal without any."""
    gpu_memory: int = 0
    """Bytes of memory of each GPU; 0 when unknown."""
    shared: SharedGpuMemory | None = None
    """How the memory of its GPUs is shared; None where GPUs are given whole."""
    taints: tuple[Taint, ...] = ()
    """What keeps pods away that do not tolerate it."""
    conditions: tuple[Condition, ...] = ()
    """What its kubelet claims, as `Ready` or `MemoryPressure`, and since when."""
    network: tuple[str, ...] = ()
    """Where it is in the network: a value for each of `k8s.topology.network.LEVELS`, empty where unknown."""
    schedule: str = ""
    """Its label `ack.node.gpu.schedule`, by which Alibaba Cloud's schedulers share its GPUs."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    allocatable: Mapping[str, str | int | float] = field(default_factory=dict, hash=False, repr=False)
    """What may be given to pods of every resource, as quantities; what it has, where it does not say."""

    @property
    def takes_pods(self) -> bool:
        """Tell whether a new pod could be bound to it now: it is Ready and not cordoned."""
        return self.status == "Ready"

    @property
    def gives_whole_gpus(self) -> bool:
        """Tell whether a pod that asks for a GPU has it for itself: no slice of it, no share, no turns."""
        return self.mode in ("", "exclusive", "topology", "dra")

    @property
    def free(self) -> dict[str, int]:
        """Return of each resource what a new pod could have; nothing on a node that takes no pods."""
        if not self.takes_pods:
            return {}
        return {name: max(0, share.total - share.allocated) for name, share in self.resources.items()}

    @property
    def gpus_free(self) -> int:
        """Return the devices that new pods could have here now."""
        return sum(self.free.values())

    @property
    def largest_free(self) -> int:
        """Return the most devices of one kind that a single pod could have here now."""
        return max(self.free.values(), default=0)

    @property
    def jobs(self) -> tuple[tuple[str, str, str], ...]:
        """Return each job that holds something here, its namespace, name and amount; the largest first."""
        pods_by_job: dict[tuple[str, str], list[Holder]] = {}
        for holder in self.holders:
            pods_by_job.setdefault((holder.namespace, holder.job), []).append(holder)
        units = {job: sum(pod.units for pod in pods) for job, pods in pods_by_job.items()}
        unit = {job: "" if pods[0].gpus else "G" for job, pods in pods_by_job.items()}
        return tuple((*job, f"{units[job]}{unit[job]}") for job in sorted(units, key=lambda job: -units[job]))

    @property
    def gpus_total(self) -> int:
        """Return the devices that may be given to pods."""
        return sum(share.total for share in self.resources.values())

    @property
    def gpus_allocated(self) -> int:
        """Return the devices that pods hold."""
        return sum(share.allocated for share in self.resources.values())

    @property
    def gpus_unhealthy(self) -> int:
        """Return the devices that are there but may not be used."""
        return sum(share.unhealthy for share in self.resources.values())


class Instance(msgspec.Struct, frozen=True, gc=False):
    """One pod of a job, or a replica whose pod does not exist yet."""

    name: str
    """Short name within the job: `worker-2`."""
    role: str
    index: int
    is_chief: bool
    ranks: tuple[int, ...]
    ranks_proof: str
    """`declared`, `assumed`, `observed` or `none`."""
    status: Status
    reason: str
    gpus: int
    node: str
    restarts: int
    created: datetime | None
    pod: str
    """Name of its pod; empty while there is none."""
    pod_uid: str
    containers: tuple[str, ...]
    """Names of its containers, the training one first; init containers last."""
    finished: datetime | None = None
    """When its pod ended, or its container last did while the pod goes on; None when it never has."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its instances."""

    ref: JobRef
    uid: str
    status: Status
    reason: str
    gpus_requested: int
    """What its object asks for, pods or not."""
    gpus_allocated: int
    """What its pods hold now."""
    instances: tuple[Instance, ...]
    instances_running: int
    user: str
    priority: str
    created: datetime | None
    started: datetime | None
    finished: datetime | None
    conditions: tuple[Condition, ...]
    log_dir: str
    trainer: str
    queue: str = ""
    """Where it waits for its turn, or did; empty when in no queue."""
    restarts: int = 0
    """How often its operator has started it anew."""
    tensorboard: str = ""
    """Address of its TensorBoard, where its object tells."""
    progress: str = ""
    """How far it is, in its own words."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    finalizers: tuple[str, ...] = ()
    """Who must be done with its object before that goes."""
    replicas: tuple[Replica, ...] = field(default=(), hash=False, repr=False)
    """What its object asks for, pods or not; none where that is not known."""
    is_short: bool = False
    """There is no room for all of its pods, as its reason says: the brief of `why`."""

    @property
    def gpus_waiting(self) -> int:
        """Return what it requests and waits for; a job that is over, suspended or going waits for nothing."""
        return max(0, self.gpus_requested - self.gpus_allocated) if self.status.expects_pods else 0

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that its pods are on, each once."""
        return tuple(dict.fromkeys(each.node for each in self.instances if each.node))

    @property
    def ranks_total(self) -> int:
        """Return how many ranks its instances have together; 0 when that is unknown."""
        return sum(len(each.ranks) for each in self.instances)


@dataclass(frozen=True, slots=True)
class Missing:
    """A collection that this user may not read, or of which one namespace only."""

    verb: str
    """What is refused: `list` or `watch`."""
    resource: str
    """Of what, as RBAC calls it: `pods`, `pytorchjobs.kubeflow.org`."""
    namespace: str = ""
    """Where; empty for the whole cluster."""
    shown: str = ""
    """The namespace that is shown in place of all; empty where nothing can be."""
    why: str = ""
    """In the server's words."""

    @property
    def words(self) -> str:
        """Return what is missing and why, in sentences."""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        said = f"This user may not {self.verb} {self.resource}{where}."
        if self.shown:
            said = f"Only those in namespace {self.shown} are shown."
        elif self.verb == "watch":
            said += " They are listed again from time to time."
        why = self.why if self.why.endswith((".", "!", "?")) or not self.why else f"{self.why}."
        return f"{said} {why}".rstrip()


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSnapshot:
    """Everything the console shows at one moment.

    Compared by identity, so that a new one always notifies, at no cost.
    """

    context: str = ""
    user: str = ""
    namespace: str = ""
    """The namespace asked for; empty for all."""
    server_version: str = ""
    nodes: tuple[NodeRow, ...] = ()
    jobs: tuple[Job, ...] = ()
    is_synced: bool = False
    """Every collection was listed once, or is known not to be readable."""
    progress: str = ""
    """What is being done before there is anything to show, in words."""
    stale: str = ""
    """Why what is shown may be old, in words; empty while all is live."""
    trouble: str = ""
    """The same in a word or two: away, failing, throttled, login expired."""
    stale_since_s: float = 0.0
    """When the cluster was last heard, in seconds of the event loop's clock."""
    throttled_until_s: float = 0.0
    """Until when the server asks to be left alone, by the same clock; in the past when it does not."""
    clock_offset_s: float = 0.0
    """How far the server's clock is ahead of ours."""
    kinds: tuple[str, ...] = ()
    """The kinds of jobs that the server knows; empty while that is not known."""
    problems: Mapping[str, Missing] = field(default_factory=dict)
    """What may not be read, as RBAC calls it (`nodes`, `pods`, …), for the pane that misses it."""

    @property
    def missing_jobs(self) -> tuple[Missing, ...]:
        """Return what is missing of the jobs that are asked for; nodes are no part of them."""
        return tuple(
            missing
            for name, missing in self.problems.items()
            if name != "nodes" and not (self.namespace and missing.shown == self.namespace)
        )

    @property
    def missing_gpus(self) -> tuple[Missing, ...]:
        """Return why not all GPUs, or not all that are held, are counted."""
        return tuple(self.problems[name] for name in ("nodes", "pods") if name in self.problems)

    @property
    def is_sandbox(self) -> bool:
        """Tell whether the server is the sandbox; false until its version is known."""
        return self.server_version.endswith(SANDBOX_VERSION)

    @property
    def gpus_total(self) -> int:
        """Return the devices of all nodes."""
        return sum(node.gpus_total for node in self.nodes)

    @property
    def gpus_allocated(self) -> int:
        """Return the devices held on all nodes."""
        return sum(node.gpus_allocated for node in self.nodes)

    @property
    def gpus_free(self) -> int:
        """Return the devices that new pods could have now."""
        return sum(node.gpus_free for node in self.nodes)

    @property
    def largest_free(self) -> int:
        """Return the most devices that a single pod could have now."""
        return max((node.largest_free for node in self.nodes), default=0)

    @property
    def is_simulated(self) -> bool:
        """Tell whether any accelerator shown is simulated."""
        return any(node.is_simulated for node in self.nodes)

    def job(self, ref: JobRef) -> Job | None:
        """Return the job with this reference, if it is still there."""
        return next((job for job in self.jobs if job.ref == ref), None)
