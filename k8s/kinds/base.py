"""The contract of a job kind, and the values that describe jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from k8s.job_spec import JOB_FIELDS, LAUNCHER, JobSpec, Role, role_sizes
from k8s.models import Condition, Meta, Pod
from k8s.models.resources import Resource
from k8s.status import Status

Manifest = dict[str, Any]
"""An object as JSON."""
NO_RUNTIME = "Only a TrainJob has a training runtime."
"""Why other kinds have none."""
MOST_REPLICAS = 4096
"""Instances of one job that are listed: a slip of the keyboard may ask for billions."""


@dataclass(frozen=True, slots=True, order=True)
class JobRef:
    """Which job: enough to find it again on its cluster."""

    namespace: str
    name: str
    kind: str
    """As in manifests: `PyTorchJob`."""
    api_version: str
    """As in manifests: `kubeflow.org/v1`."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod that a job asks for, whether it exists or not."""

    name: str
    """The pod's name; empty where the cluster makes one up."""
    role: str
    """`master`, `worker`, `launcher`."""
    index: int
    """Number within its role."""
    is_chief: bool
    """Its log is the one to read first."""
    ranks: tuple[int, ...]
    """Global ranks of its processes, as far as the job's object tells; may be empty."""
    ranks_proof: str
    """`declared`: the object fixes them; `assumed`: they may come out otherwise; `none`."""
    template: Mapping[str, Any]
    """The pod template, as asked for."""
    restart_policy: str
    """Always, OnFailure, Never or ExitCode, as the operator understands it."""
    env: tuple[tuple[str, str], ...] = ()
    """What the operator adds to every container, after what is there."""
    labels: tuple[tuple[str, str], ...] = ()
    """What the operator adds to the pod's labels."""

    @property
    def instance(self) -> str:
        """Return its short name within the job: `worker-2`."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """What a job's object says of itself, its pods left aside."""

    ref: JobRef
    meta: Meta
    replicas: tuple[Replica, ...]
    outcome: Status | None
    """Succeeded or Failed once the operator has said so."""
    outcome_reason: str
    is_suspended: bool
    started: datetime | None
    finished: datetime | None
    conditions: tuple[Condition, ...]
    priority: str
    log_dir: str
    """Folder in its pods with event files, empty when unknown."""
    trainer: str
    user: str
    queue: str = ""
    """Where it waits for its turn, empty when in no queue."""
    enough: int | None = None
    """Fewest instances that can work together; None: all of them."""
    restarts: int = 0
    """How often its operator has started it anew."""
    restarts_allowed: int | None = None
    """How often it may be started anew; None: the object does not tell."""
    has_status: bool = True
    """An operator has said anything at all about it."""
    tensorboard: str = ""
    """Address of its TensorBoard, where the object tells."""
    progress: str = ""
    """How far it is, in its own words: `61 %, 24 min left`."""
    unsuspendable: str = ""
    """Why it cannot be suspended though others of its kind can, one sentence; empty where it can."""


class JobKind(Protocol):
    """A way to run a job on a cluster, as far as it can be watched. All methods are pure."""

    title: str
    """What people call it."""
    resource: Resource
    container: str
    """Name of the training container."""
    suspend_field: str
    """Its field that stops a job and frees what it holds, as `spec.suspend`; empty where it has none."""

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read an object, one that anybody made.

        Raises:
            msgspec.ValidationError: It is not such an object.
        """

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods that an object asks for."""

    def pod_selector(self, name: str) -> str:
        """Return the label selector that finds a job's pods."""

    def job_of(self, pod: Pod) -> str:
        """Return the name of the pod's job when it is of this kind, else nothing."""

    def instance_of(self, pod: Pod) -> tuple[str, int | None] | None:
        """Return a pod's role and index within its job; None instead of what its labels do not tell."""


@runtime_checkable
class RunnableKind(JobKind, Protocol):
    """A kind whose jobs the sandbox runs."""

    operator: str
    """Which of the sandbox's operators does so, by its name there."""


class ElasticSize(NamedTuple):
    """How many replicas an elastic job asks for, and between which bounds that may be changed."""

    field: str
    """Where its object says how many, as `spec.elastic.expectedReplicas`."""
    replicas: int | None
    least: int | None
    most: int | None


@runtime_checkable
class ElasticKind(JobKind, Protocol):
    """A kind whose jobs may go on with more or fewer replicas."""

    def elastic_size(self, obj: Manifest) -> ElasticSize | None:
        """Return the size of a job that is elastic; None of one that is not."""


@runtime_checkable
class MPILauncherKind(RunnableKind, Protocol):
    """A kind whose chief runs mpirun, which reads where the other pods are."""

    def slots_of(self, obj: Manifest) -> int:
        """Return how many ranks each of a job's workers takes."""


class NeededObject(NamedTuple):
    """What must be on the cluster for a job to run at all, though nobody creates it with the job."""

    resource: Resource
    name: str
    field: str
    """The field of `JobSpec` that names it."""


class CreatableKind(JobKind, Protocol):
    """A kind of which the console makes jobs. Kinds that can be created derive from this one."""

    word: str
    """What people type for it: `submit pytorch`. Versions of one kind share it."""
    aliases: tuple[str, ...] = ()
    """What else they may type."""
    lacks: Mapping[str, str]
    """Fields of `JobSpec` that change nothing of such a job, each with the reason in a sentence."""
    launcher: Literal["torchrun", "mpirun"] = "torchrun"
    """What starts the ranks of a packaged trainer: torchrun in every pod, or mpirun in the launcher's."""
    runs_tensorboard: bool = False
    """Its operator runs the TensorBoard that a manifest asks for; else it comes beside the job."""
    restart_policies: tuple[str, ...] = ("Always", "OnFailure", "Never", "ExitCode")
    """The restart policies that its operator accepts."""

    role_names: tuple[str, ...] = ()
    """Its roles, the one with a single pod first; empty: as many as one likes, of any name."""

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the object that asks for `spec`."""

    def companions(self, spec: JobSpec) -> tuple[tuple[Resource, Manifest], ...]:
        """Return the objects that have to be created beside the job, without owner, for it to run at all."""
        return ()

    def needs(self, spec: JobSpec) -> tuple[NeededObject, ...]:
        """Return what must be there already for the job to run at all."""
        return ()

    def spec_from_manifest(self, obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
        """Return the spec that makes a job like an object, and the names of what no spec can say.

        Raises:
            AttributeError, TypeError, ValueError: The object makes no sense.
        """

    def supported(self, spec: JobSpec) -> JobSpec:
        """Return a spec without what the kind lacks: of that nothing comes into the manifest."""
        return replace(spec, **{name: JOB_FIELDS[name].default for name in self.lacks})

    def unsupported(self, spec: JobSpec) -> dict[str, str]:
        """Return what a spec asks for and such a job cannot have, by field, each with a sentence."""
        found = {
            name: sentence
            for name, sentence in self.lacks.items()
            if getattr(spec, name) != JOB_FIELDS[name].default
        }
        policy = spec.restart_policy
        if policy and "restart_policy" not in found and policy not in self.restart_policies:
            words = ", ".join(self.restart_policies)
            found["restart_policy"] = f"A {self.title} knows only these: {words}."
        if spec.roles and "roles" not in found and (sentence := self._roles_problem(spec)):
            found["roles"] = sentence
        return found

    def workers_of(self, roles: tuple[Role, ...]) -> int:
        """Return how many workers a job has that has these roles."""
        return sum(role_sizes(self._counted(roles), 0))

    def _counted(self, roles: tuple[Role, ...]) -> list[Role]:
        """Return the roles, those of which nothing is said too, that are among the workers."""
        said = {role.name: role for role in roles}
        found = [said.get(name, Role(name)) for name in self.role_names] or list(roles)
        return [role for role in found if role.name != LAUNCHER]

    def _roles_problem(self, spec: JobSpec) -> str:
        """Return what a spec says of roles and such a job cannot have, in a sentence."""
        names, chief = self.role_names, self.role_names[:1]
        for role in spec.roles:
            if names and role.name not in names:
                return f"Its roles are {' and '.join(names)}; there is no {role.name}."
            if role.name in chief and role.replicas not in (None, 1):
                return f"There is one {role.name}, no more."
            if role.restart_policy and role.restart_policy not in self.restart_policies:
                return f"{role.name}: restart: must be one of {', '.join(self.restart_policies)}."
        pods = sum(role_sizes(self._counted(spec.roles), spec.workers))
        if pods != spec.workers:
            return f"They have {pods} pods, the job has {spec.workers}: change the one or the other."
        return ""
