"""Snapshot of the cluster on screen: nodes, jobs and instances as frozen values.

`k8s.cluster.join` builds it; showing it needs no other knowledge of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:  # the first frame needs these values, and not what reads objects
    from k8s.kinds.base import JobRef, Replica
    from k8s.models import Condition, Taint
    from k8s.status import Status

# Suffix of the version that the sandbox's server reports.
SANDBOX_VERSION = "gpuconsole-sandbox"
# Exit code of a container that was asked to stop.
SIGTERM_STATUS = 143


class Share(msgspec.Struct, frozen=True):
    """Totals of one accelerator resource on one node."""

    total: int
    allocated: int
    unhealthy: int
    cards: int | None = None
    """GPUs of which its devices are parts, 0 if unknown; None if each is a whole GPU."""


class SharedGpuMemory(msgspec.Struct, frozen=True):
    """GPU memory of a node on which pods request GiB instead of whole GPUs."""

    total_gib: int
    allocated_gib: int
    devices: int
    """GPUs that have this memory together; 0 if unknown."""
    allocated_by_device: Mapping[int, int]
    """GiB allocated by GPU number, as far as annotations tell."""

    @property
    def devices_allocated(self) -> float | None:
        """Allocated GPUs as a fraction, e.g. 1.5; None if the GPU of some pods is unknown."""
        if not self.devices or sum(self.allocated_by_device.values()) != self.allocated_gib:
            return None
        each_gib = self.total_gib / self.devices
        return sum(min(1.0, round(held / each_gib, 1)) for held in self.allocated_by_device.values())


class Holder(msgspec.Struct, frozen=True, gc=False):
    """Pod that holds accelerators of a node."""

    namespace: str
    pod: str
    job: str
    gpus: int
    resources: Mapping[str, int] = msgspec.field(default_factory=dict)
    memory_by_device: Mapping[int, int] = msgspec.field(default_factory=dict)
    devices: tuple[int, ...] = ()
    gib: int = 0
    fraction: float = 0.0
    """GPUs, usually less than one, of a pod that shares them; they count for another pod."""
    since: datetime | None = None
    """Time of binding, or else of creation."""
    phase: str = ""

    @property
    def units(self) -> int:
        """Number of devices held, or GiB on nodes that share GPUs by memory.

        0 for a part of a device that counts for another pod.
        """
        return self.gpus or self.gib


class NodeRow(msgspec.Struct, frozen=True):
    """Node with the pods that hold its accelerators."""

    name: str
    ip: str
    roles: tuple[str, ...]
    status: str
    """Ready, NotReady, or Unknown if its object cannot be read; `, cordoned` and `, tainted` are appended."""
    is_simulated: bool
    gpu_model: str
    resources: Mapping[str, Share]
    holders: tuple[Holder, ...]
    created: datetime | None
    mode: str = ""
    """exclusive, topology, share, mig, time-slicing, mps, vgpu, partitions, cores or dra; or empty.

    A node with whole GPUs and parts of others has both: `exclusive, mig`.
    """
    gpu_memory: int = 0
    """Bytes of memory of each GPU; 0 if unknown."""
    shared: SharedGpuMemory | None = None
    """None where GPUs are allocated whole."""
    taints: tuple[Taint, ...] = ()
    conditions: tuple[Condition, ...] = ()
    network: tuple[str, ...] = ()
    """One value for each of `k8s.models.node.LEVELS`, empty where unknown."""
    schedule: str = ""
    """Value of the label `ack.node.gpu.schedule` of Alibaba Cloud."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    allocatable: Mapping[str, str | int | float] = msgspec.field(default_factory=dict)
    """Allocatable quantities of every resource; the capacity if the node reports none."""
    faults: tuple[Condition, ...] = ()
    """The conditions beside Ready that report a fault."""
    tainted_devices: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    """Names of devices by the taint that claims must tolerate: `lab.io/xid=79:NoExecute (rule drain)`."""
    cordon: str = ""
    """Author and reason of its cordon, `by li: reboot`; empty if unknown."""
    versions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Versions of `os`, `kernel`, `container_runtime`, `kubelet`, `gpu_driver` and `cuda`."""
    uncounted: tuple[str, ...] = ()
    """Resources that may be accelerators, if none is known to be one."""

    @property
    def trouble(self) -> str:
        """Its faults, and the reason of its cordon: `GpuXidError (XID 79); cordoned by li`; or empty."""
        found = [f"{each.type} ({each.message or each.reason or each.status})" for each in self.faults]
        for taint, names in self.tainted_devices.items():
            named = f"{', '.join(names[:3])}{', …' * (len(names) > 3)}"
            found.append(f"device{'s' * (len(names) > 1)} {named} tainted {taint}")
        return "; ".join([*found, f"cordoned {self.cordon}"] if self.cordon else found)

    @property
    def is_open(self) -> bool:
        """Return True if a pod that tolerates its taints could be bound to it now."""
        return self.status.removesuffix(", tainted") == "Ready"

    @property
    def is_schedulable(self) -> bool:
        """Return True if a pod without tolerations could be bound to it now."""
        return self.status == "Ready"

    @property
    def allocates_full_gpus(self) -> bool:
        """Return True if a pod has each requested GPU to itself: no slice, no sharing."""
        return self.mode in ("", "exclusive", "topology", "dra")

    @property
    def free(self) -> dict[str, int]:
        """Devices by resource that a pod without tolerations could get now."""
        return self.free_if_tolerated if self.is_schedulable else {}

    @property
    def free_if_tolerated(self) -> dict[str, int]:
        """Devices by resource that a pod tolerating the taints could get now."""
        if not self.is_open:
            return {}
        return {name: max(0, share.total - share.allocated) for name, share in self.resources.items()}

    @property
    def gpus_free(self) -> int:
        """Total of `free`."""
        return sum(self.free.values())

    @property
    def largest_free(self) -> int:
        """Largest number of devices of one resource that a single pod could get now."""
        return max(self.free.values(), default=0)

    @property
    def jobs(self) -> tuple[tuple[str, str, str], ...]:
        """Namespace, name and amount held (`2`, `24G`, `shared`) of each job, the largest first."""
        pods_by_job: dict[tuple[str, str], list[Holder]] = {}
        for holder in self.holders:
            pods_by_job.setdefault((holder.namespace, holder.job), []).append(holder)
        units = {job: sum(pod.units for pod in pods) for job, pods in pods_by_job.items()}
        unit = {job: "" if pods[0].gpus else "G" for job, pods in pods_by_job.items()}
        parts = {job: sum(pod.fraction for pod in pods) for job, pods in pods_by_job.items()}
        amounts = {job: f"{units[job]}{unit[job]}" if units[job] else f"{parts[job]:g}" for job in units}
        return tuple(
            (*job, amounts[job] if units[job] or parts[job] else "shared")
            for job in sorted(units, key=lambda job: (-units[job], -parts[job]))
        )

    @property
    def parts(self) -> tuple[Share, ...]:
        """The resources whose devices are parts of GPUs."""
        return tuple(share for share in self.resources.values() if share.cards is not None)

    @property
    def gpus_total(self) -> int:
        """Number of allocatable devices."""
        return sum(share.total for share in self.resources.values())

    @property
    def gpus_allocated(self) -> int:
        """Number of devices held by pods."""
        return sum(share.allocated for share in self.resources.values())

    @property
    def gpus_unhealthy(self) -> int:
        """Number of devices that exist but are not allocatable."""
        return sum(share.unhealthy for share in self.resources.values())


def device_sums(nodes: Iterable[NodeRow]) -> list[tuple[int, int, str]]:
    """Add up whole GPUs and parts of GPUs: held, total, and `GPUs` or `shares of 8 GPUs` of each.

    The parts are left out if there are none, and the whole GPUs if there are parts only.
    """
    nodes = list(nodes)
    parts = [share for node in nodes for share in node.parts]
    held, total = sum(share.allocated for share in parts), sum(share.total for share in parts)
    cards = (
        0
        if any(share.total and not share.cards for share in parts)
        else sum(each.cards or 0 for each in parts)
    )
    of = f" of {cards} GPU{'s' * (cards != 1)}" if cards else ""
    whole = (
        sum(node.gpus_allocated for node in nodes) - held,
        sum(node.gpus_total for node in nodes) - total,
        "GPUs",
    )
    if not total and not held:
        return [whole]
    shares = (held, total, f"shares{of}")
    return [whole, shares] if whole[0] or whole[1] else [shares]


def shares_by_pod(nodes: Iterable[NodeRow]) -> dict[tuple[str, str], int]:
    """Return the number of parts of GPUs that pods hold, by namespace and name of those that hold any."""
    found = {}
    for node in nodes:
        parts = [name for name, share in node.resources.items() if share.cards is not None]
        for holder in node.holders if parts else ():
            if shares := sum(holder.resources.get(name, 0) for name in parts):
                found[holder.namespace, holder.pod] = shares
    return found


def held_shares(nodes: Iterable[NodeRow], jobs: Iterable[Job]) -> int:
    """Return the number of parts of GPUs that some jobs hold."""
    if not (shares := shares_by_pod(nodes)):
        return 0
    return sum(shares.get((job.ref.namespace, each.pod), 0) for job in jobs for each in job.instances)


def format_sums(nodes: Iterable[NodeRow], *, is_short: bool = False) -> str:
    """Format the devices held: `3 of 8 GPUs and 9 of 80 shares of 8 GPUs`; in short `3 of 8`."""
    sums = device_sums(nodes)
    is_short = is_short and len(sums) == 1 and sums[0][2] == "GPUs"
    return " and ".join(f"{held} of {total}{'' if is_short else f' {what}'}" for held, total, what in sums)


class Instance(msgspec.Struct, frozen=True, gc=False):
    """Pod of a job, or a replica whose pod does not exist yet."""

    name: str
    role: str
    index: int
    is_chief: bool
    ranks: tuple[int, ...]
    ranks_proof: str
    status: Status
    reason: str
    gpus: int
    node: str
    restarts: int
    created: datetime | None
    pod: str
    """Pod name; empty before there is a pod."""
    pod_uid: str
    containers: tuple[str, ...]
    """Container names: the training container first, init containers last."""
    finished: datetime | None = None
    """End of the pod, or of its last container run if the pod goes on; None if neither ended."""
    exit_code: int | None = None
    """Exit code of that container, 128 + n for signal n; None if none ended."""
    rank_restarts: int = 0
    """Those of its restarts that are of its processes, by their launcher."""


class Silence(msgspec.Struct, frozen=True):
    """A running job, or some of its ranks, without a sign of life for much longer than usual."""

    since: datetime
    """Time of the newest line, metric or event file of the silent ranks, by the server's clock."""
    usual_s: float
    """Normal interval between two signs of life of this job."""
    writers: tuple[str, ...] = ()
    """The silent ranks or instances (`rank 2`, `worker-1`); empty if all are silent."""


class Straggler(msgspec.Struct, frozen=True):
    """A rank that holds the others up."""

    writer: str
    """The rank or instance: `rank 2`, `worker-1`."""
    instance: str
    steps_behind: int = 0
    wait_share: float = 0.0
    """Share of its steps for which it waits for samples; 0 if it waits no longer than the others."""

    @property
    def text(self) -> str:
        """Short text: `12 steps behind`, `waits for data 40% of each step`."""
        if self.steps_behind:
            return f"{self.steps_behind} step{'s' * (self.steps_behind != 1)} behind"
        return f"waits for data {self.wait_share:.0%} of each step"


class CurveAlert(NamedTuple):
    """Fault of the curves of a running job."""

    rule: str
    text: str
    """As `a step takes 12s, usually 4s`."""
    place: int = 0
    """Position of the point at which it began, for a mark on its curve; of a rate, among its newest."""


class LifeSigns(msgspec.Struct, frozen=True):
    """Trouble that the output of a job shows; of an ended one, only that of its loss."""

    silence: Silence | None = None
    """None if the job is not known to be silent."""
    stragglers: tuple[Straggler, ...] = ()
    alerts: tuple[CurveAlert, ...] = ()
    """The first one is the most important."""

    @property
    def is_trouble(self) -> bool:
        """Return False for stragglers that only wait for samples longer than the others."""
        return bool(self.silence or self.alerts or any(each.steps_behind for each in self.stragglers))


NO_SIGNS = LifeSigns()


class Job(msgspec.Struct, frozen=True):
    """Job with its instances."""

    ref: JobRef
    uid: str
    status: Status
    reason: str
    gpus_requested: int
    gpus_allocated: int
    instances: tuple[Instance, ...]
    instances_running: int
    user: str
    priority: str
    created: datetime | None
    started: datetime | None
    """Start of the first container that ran; None while none has."""
    finished: datetime | None
    conditions: tuple[Condition, ...]
    log_dir: str
    trainer: str
    queue: str = ""
    """Name of its queue; empty if it is in none."""
    restarts: int = 0
    tensorboard: str = ""
    progress: str = ""
    is_elsewhere: bool = False
    """Its pods are in another cluster."""
    gpu_fraction: float = 0.0
    """GPUs, usually less than one, that its pods share by KAI or Run:ai; not in the other counts."""
    log_file: str = ""
    """File in its chief's pod with the program's output; empty if the container log has it."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Those that are kept, see `k8s.models.base`."""
    finalizers: tuple[str, ...] = ()
    replicas: tuple[Replica, ...] = ()
    """Replicas that the object requests; empty if unknown."""
    remedy: str = ""
    """Remedy for the known cause of its failure; empty if there is none."""
    culprit: tuple[str, int | None] | None = None
    """Instance and rank that failed first, as the logs show; None if unknown."""
    lacks_capacity: bool = False
    """True if `reason` is the short form of a capacity shortage."""

    @property
    def gpus_waiting(self) -> int:
        """GPUs requested but not allocated.

        0 for jobs that are finished, suspended, being deleted or in another cluster. Succeeded pods are
        not recreated; failed ones may be, unless the job runs on without them.
        """
        missing = self.gpus_requested - self.gpus_allocated
        if missing <= 0 or not self.status.expects_pods or self.is_elsewhere:
            return 0
        done = ("Succeeded", "Failed") if self.status == "Running" else ("Succeeded",)
        ended = sum(each.gpus for each in self.instances if each.status in done)
        return max(0, missing - ended)

    @property
    def exit_status(self) -> int | None:
        """Exit status as of a command; None before the job ended, 1 if it failed and no container did.

        The chief's code counts; SIGTERM only if nothing else failed, because it follows another failure.
        """
        if not self.status.is_final:
            return None
        if self.status == "Succeeded":
            return 0
        codes = [
            (
                code == SIGTERM_STATUS,
                not each.is_chief,
                each.finished.timestamp() if each.finished else inf,
                code,
            )
            for each in self.instances
            if (code := each.exit_code)
        ]
        return min(codes)[-1] if codes else 1

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes its pods are on, without duplicates."""
        return tuple(dict.fromkeys(each.node for each in self.instances if each.node))

    @property
    def restarts_total(self) -> int:
        """Number of restarts of the job and of its instances."""
        return self.restarts + sum(each.restarts for each in self.instances)

    @property
    def last_exit(self) -> datetime | None:
        """Newest end of an instance or of its last container run; None if none ended."""
        return max((each.finished for each in self.instances if each.finished is not None), default=None)

    @property
    def ranks_total(self) -> int:
        """Number of ranks of all instances; 0 if unknown."""
        return sum(len(each.ranks) for each in self.instances)


class Missing(msgspec.Struct, frozen=True):
    """Collection that cannot be shown in full: access is denied, or some objects cannot be read."""

    verb: str
    """`list` or `watch` if denied; `read` if objects have fields of wrong types."""
    resource: str
    namespace: str = ""
    shown: str = ""
    """Namespace shown instead of all; empty if none can be shown."""
    why: str = ""

    @property
    def words(self) -> str:
        """Sentences on what is missing and why."""
        if self.verb == "read":
            return self.why
        where = f" in namespace {self.namespace}" if self.namespace else ""
        message = f"This user may not {self.verb} {self.resource}{where}."
        if self.shown:
            message = f"Only those in namespace {self.shown} are shown."
        elif self.verb == "watch":
            message += " They are listed again from time to time."
        why = self.why if self.why.endswith((".", "!", "?")) or not self.why else f"{self.why}."
        return f"{message} {why}".rstrip()


class ClusterSnapshot(msgspec.Struct, frozen=True, eq=False):
    """Everything the console shows at one moment.

    Compared by identity, so that each new snapshot notifies at no cost.
    """

    context: str = ""
    user: str = ""
    namespace: str = ""
    """Selected namespace; empty for all."""
    server_version: str = ""
    nodes: tuple[NodeRow, ...] = ()
    jobs: tuple[Job, ...] = ()
    life: Mapping[str, LifeSigns] = msgspec.field(default_factory=dict)
    """Trouble in the output of jobs by uid, also of other namespaces."""
    is_synced: bool = False
    """True once every collection was listed or is known to be unreadable."""
    progress: str = ""
    stale: str = ""
    """Reason why the data may be outdated; empty while it is live."""
    trouble: str = ""
    """`stale` in a word or two: away, failing, throttled, login expired."""
    stale_since_s: float = 0.0
    """Time of the last answer, in seconds of the event loop's clock."""
    throttled_until_s: float = 0.0
    """End of the server's Retry-After, by the same clock; in the past if there is none."""
    clock_offset_s: float = 0.0
    kinds: tuple[str, ...] = ()
    """Job kinds that the server knows; empty while unknown."""
    problems: Mapping[str, Missing] = msgspec.field(default_factory=dict)
    unreadable: tuple[Missing, ...] = ()

    @property
    def missing_jobs(self) -> tuple[Missing, ...]:
        """Gaps in the list of jobs; nodes do not count."""
        return tuple(
            missing
            for name, missing in self.problems.items()
            if name != "nodes" and not (self.namespace and missing.shown == self.namespace)
        ) + tuple(each for each in self.unreadable if each.resource != "nodes")

    @property
    def missing_gpus(self) -> tuple[Missing, ...]:
        """Gaps that make the GPU counts incomplete."""
        counted = ("nodes", "pods")
        refused = tuple(self.problems[name] for name in counted if name in self.problems)
        return refused + tuple(each for each in self.unreadable if each.resource in counted)

    @property
    def is_sandbox(self) -> bool:
        """Return True if the server is the sandbox; False until its version is known."""
        return self.server_version.endswith(SANDBOX_VERSION)

    @property
    def gpus_total(self) -> int:
        """Number of allocatable devices of all nodes."""
        return sum(node.gpus_total for node in self.nodes)

    @property
    def gpus_allocated(self) -> int:
        """Number of devices held on all nodes."""
        return sum(node.gpus_allocated for node in self.nodes)

    @property
    def gpus_free(self) -> int:
        """Number of devices that new pods could get now."""
        return sum(node.gpus_free for node in self.nodes)

    @property
    def largest_free(self) -> int:
        """Largest number of devices that a single pod could get now."""
        return max((node.largest_free for node in self.nodes), default=0)

    @property
    def is_simulated(self) -> bool:
        """Return True if any accelerator shown is simulated."""
        return any(node.is_simulated for node in self.nodes)

    def job(self, ref: JobRef) -> Job | None:
        """Return the job with this reference, or None."""
        return next((job for job in self.jobs if job.ref == ref), None)

    def signs(self, job: Job | None) -> LifeSigns:
        """Return the trouble that the output of a job shows."""
        return self.life.get(job.uid, NO_SIGNS) if job is not None else NO_SIGNS
