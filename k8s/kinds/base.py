"""Protocols of job kinds, and the values that describe jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from k8s.kinds import job_spec as job_specs
from k8s.kinds.job_spec import LAUNCHER
from k8s.models import Condition, Meta, Pod
from k8s.models.resources import Resource
from k8s.status import Status

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec, Role

Manifest = dict[str, Any]
NO_RUNTIME = "Only a TrainJob has a training runtime."
# A typing error may ask for billions of replicas.
MOST_REPLICAS = 4096


class JobRef(msgspec.Struct, frozen=True, order=True):
    """Reference to a job on its cluster."""

    namespace: str
    name: str
    kind: str
    api_version: str


class Replica(msgspec.Struct, frozen=True, gc=False):
    """Pod that a job requests, whether it exists or not."""

    name: str
    """Pod name; empty if the cluster generates it."""
    role: str
    index: int
    is_chief: bool
    ranks: tuple[int, ...]
    """Global ranks; empty if unknown."""
    ranks_proof: str
    """`declared`: fixed by the object; `assumed`: may differ; `none`: unknown."""
    template: Mapping[str, Any]
    restart_policy: str
    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def instance(self) -> str:
        """Short name within the job, e.g. `worker-2`."""
        return _instance_name(self.role, self.index)


@lru_cache(maxsize=MOST_REPLICAS)
def _instance_name(role: str, index: int) -> str:
    return f"{role}-{index}"  # most jobs have a worker-0


class DeclaredJob(msgspec.Struct, frozen=True):
    """Contents of a job's object, without its pods."""

    ref: JobRef
    meta: Meta
    replicas: tuple[Replica, ...]
    outcome: Status | None
    """Succeeded or Failed once the operator reports it; None before."""
    outcome_reason: str
    is_suspended: bool
    started: datetime | None
    """Start as the operator tells it, which may include the queue and the image pull."""
    finished: datetime | None
    conditions: tuple[Condition, ...]
    priority: str
    log_dir: str
    """Folder in its pods with event files; empty if unknown."""
    trainer: str
    user: str
    queue: str = ""
    """Empty if the job is in no queue."""
    min_instances: int | None = None
    """Number of instances that suffice to run; None for all."""
    is_gang: bool = False
    """A scheduler that knows pod groups starts its pods together."""
    restarts: int = 0
    restarts_allowed: int | None = None
    """None if the object has no limit."""
    counts_pod_restarts: bool = True
    """Restarts of its containers count towards `restarts_allowed`, too."""
    has_status: bool = True
    tensorboard: str = ""
    progress: str = ""
    unsuspendable: str = ""
    is_elsewhere: bool = False
    """Its pods are in another cluster, of which only the status is mirrored here."""
    log_file: str = ""
    """File in its chief's pod with the program's output; empty if the container log has it."""


class JobKind(Protocol):
    """Way to run a job on a cluster, as far as watching needs it. All methods are pure."""

    title: str
    resource: Resource
    container: str
    suspend_field: str
    """Path of the field that suspends a job, e.g. `spec.suspend`; empty if there is none."""
    pod_names: str
    """Regular expression of the pods' names between that of the job and a random end."""

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read an object, created here or elsewhere.

        Raises:
            msgspec.ValidationError: The object has fields of wrong types.
        """

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods that an object requests."""

    def pod_selector(self, name: str) -> str:
        """Return the label selector of a job's pods."""

    def job_of(self, pod: Pod) -> str:
        """Return the job name of a pod of this kind; empty for other pods."""

    def instance_of(self, pod: Pod) -> tuple[str, int | None] | None:
        """Return a pod's role and index within its job; None where labels do not tell."""


class LabelledPods:
    """Mixin of kinds whose pods all have a label with the job's name."""

    job_label: str

    def pod_selector(self, name: str) -> str:
        """Return the selector by the label."""
        return f"{self.job_label}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the value of the label."""
        return pod.metadata.label(self.job_label)


@runtime_checkable
class RunnableKind(JobKind, Protocol):
    """Kind whose jobs the sandbox runs."""

    operator: str


class ElasticSize(NamedTuple):
    """Number of replicas of an elastic job, with its bounds."""

    field: str
    replicas: int | None
    least: int | None
    most: int | None


@runtime_checkable
class ElasticKind(JobKind, Protocol):
    """Kind whose jobs may run with more or fewer replicas."""

    def elastic_size(self, obj: Manifest) -> ElasticSize | None:
        """Return the size of an elastic job; None for others."""


@runtime_checkable
class MPILauncherKind(RunnableKind, Protocol):
    """Kind whose chief runs mpirun, which reads the addresses of the other pods."""

    def slots_of(self, obj: Manifest) -> int:
        """Return the number of ranks on each worker."""


class NeededObject(NamedTuple):
    """Object that must exist before the job can run, but is not created with it."""

    resource: Resource
    name: str
    field: str


class CreatableKind(JobKind, Protocol):
    """Kind that the console can create. Implementations derive from this class."""

    # Typed in `submit pytorch`; versions of one kind share it.
    word: str
    aliases: tuple[str, ...] = ()
    # Fields of `JobSpec` that such a job ignores, each with a sentence why.
    lacks: Mapping[str, str]
    # Starts the ranks of a packaged trainer: torchrun in every pod, or mpirun in the launcher.
    launcher: Literal["torchrun", "mpirun"] = "torchrun"
    # The operator runs TensorBoard itself, so that none has to be created with the job.
    runs_tensorboard: bool = False
    restart_policies: tuple[str, ...] = ("Always", "OnFailure", "Never", "ExitCode")

    # The first role has a single pod. Empty: any number of roles, of any name.
    role_names: tuple[str, ...] = ()

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the object that requests `spec`."""

    def owned_objects(self, spec: JobSpec) -> tuple[tuple[Resource, Manifest], ...]:
        """Return the objects, without owner, that the job needs to be created with it."""
        return ()

    def needs(self, obj: Manifest) -> tuple[NeededObject, ...]:
        """Return the objects that must exist for the job to run."""
        return ()

    def supported(self, spec: JobSpec) -> JobSpec:
        """Return a spec without the fields that the kind lacks."""
        return replace(spec, **{name: job_specs.JOB_FIELDS[name].default for name in self.lacks})

    def unsupported(self, spec: JobSpec) -> dict[str, str]:
        """Return an error message for each field that such a job cannot have."""
        found = {
            name: sentence
            for name, sentence in self.lacks.items()
            if getattr(spec, name) != job_specs.JOB_FIELDS[name].default
        }
        policy = spec.restart_policy
        if policy and "restart_policy" not in found and policy not in self.restart_policies:
            words = ", ".join(self.restart_policies)
            found["restart_policy"] = f"A {self.title} supports only {words}."
        if spec.roles and "roles" not in found and (sentence := self._roles_problem(spec)):
            found["roles"] = sentence
        return found

    def workers_of(self, roles: tuple[Role, ...]) -> int:
        """Return the number of workers of a job with these roles."""
        return sum(job_specs.role_sizes(self._counted(roles), 0))

    def _counted(self, roles: tuple[Role, ...]) -> list[Role]:
        # Includes roles that the job does not list.
        listed = {role.name: role for role in roles}
        found = [listed.get(name, job_specs.Role(name)) for name in self.role_names] or list(roles)
        return [role for role in found if role.name != LAUNCHER]

    def _roles_problem(self, spec: JobSpec) -> str:
        names, chief = self.role_names, self.role_names[:1]
        for role in spec.roles:
            if names and role.name not in names:
                return f"Its roles are {' and '.join(names)}; there is no {role.name}."
            if role.name in chief and role.replicas not in (None, 1):
                return f"There can only be one {role.name}."
            if role.restart_policy and role.restart_policy not in self.restart_policies:
                return f"{role.name}: restart: must be one of {', '.join(self.restart_policies)}."
        pods = sum(job_specs.role_sizes(self._counted(spec.roles), spec.workers))
        if pods != spec.workers:
            return f"The roles have {pods} pods, the job has {spec.workers}: change one of them."
        return ""
