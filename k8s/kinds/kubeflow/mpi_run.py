"""What the mpi-operators make of an MPIJob: its workers, its launcher, and how mpirun finds the workers.

Source: kubeflow/mpi-operator v0.8.0 and v0.2.3, `mpi_job_controller.go`; kubeflow/training-operator v1.9.0,
`mpijob_controller.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from k8s.kinds.base import Manifest, Replica, RunnableKind
from k8s.kinds.parse import count_of

CONFIG_FOLDER = "/etc/mpi"
"""Where the pods of an MPIJob have their hostfile."""
_VOLUME = "mpi-job-config"

KUBEXEC = """#!/bin/sh
POD_NAME=$1
shift
exec kubexec "$POD_NAME" "$*"
"""
"""What mpirun runs in place of ssh; `kubexec` is the sandbox's, for the operators' own kubectl."""

Named = tuple[tuple[str, str], ...]
"""Names and values."""
KUBEXEC_ENV: Named = (
    ("OMPI_MCA_plm_rsh_agent", f"{CONFIG_FOLDER}/kubexec.sh"),
    ("OMPI_MCA_orte_default_hostfile", f"{CONFIG_FOLDER}/hostfile"),
)
"""By what the launchers of older operators reach the workers."""
NO_GPUS: Named = (("NVIDIA_VISIBLE_DEVICES", ""), ("NVIDIA_DRIVER_CAPABILITIES", ""))
"""What a launcher is told that takes no GPUs of its own."""


@dataclass(frozen=True, slots=True)
class MPIRun:
    """An MPIJob as its operator carries it out. Objects lack namespace and owner."""

    workers: tuple[Manifest, ...]
    """Pods."""
    launcher: Manifest
    """A batch Job."""
    config: Manifest
    """A ConfigMap, mounted at `CONFIG_FOLDER`."""
    service: Manifest | None
    """What gives the pods their names, where it is the operator's to make."""
    slots: int
    """How many ranks a worker takes."""
    clean_policy: str
    """Which workers go when the job is over: All, Running or None."""
    is_suspended: bool = False
    waits_for_workers: bool = False
    """The launcher is made when all workers are ready, not at once."""
    replaces_workers: bool = False
    """A worker that has ended is made anew."""
    has_conditions: bool = True
    """The status has Kubeflow's conditions; else it is the one word `launcherStatus`."""
    problem: str = ""
    """Why it cannot be carried out; empty when it can."""


@runtime_checkable
class MPIKind(RunnableKind, Protocol):
    """A kind whose jobs an mpi-operator runs."""

    def run_of(self, obj: Manifest) -> MPIRun:
        """Return what the operator makes of a job."""


@runtime_checkable
class PodMPIKind(RunnableKind, Protocol):
    """A kind for MPI all of whose pods its operator makes itself, the launcher too."""

    def run_replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return its pods with all that the operator puts into them."""

    def config_of(self, obj: Manifest, running: Sequence[str]) -> Manifest:
        """Return the ConfigMap with the hostfile, without owner; `running` are the workers that run."""


def with_container(
    template: Mapping[str, Any], *, env: Named = (), mount: bool = False, **changes: Any
) -> Manifest:
    """Return a pod's spec whose first container has more variables, and the job's configuration if asked."""
    spec: Manifest = dict(template.get("spec") or {})
    containers: Sequence[Manifest] = spec.get("containers") or ({},)
    added = [{"name": name, "value": value} for name, value in env]
    first: Manifest = {**containers[0], **changes, "env": [*(containers[0].get("env") or ()), *added]}
    if mount:
        mounts = first.get("volumeMounts") or ()
        first["volumeMounts"] = [*mounts, {"name": _VOLUME, "mountPath": CONFIG_FOLDER}]
    spec["containers"] = [first, *containers[1:]]
    return spec


def with_config(spec: Manifest, config: str, modes: Mapping[str, int]) -> Manifest:
    """Return a pod's spec with some files of a ConfigMap as the volume that `with_container` mounts."""
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    volume = {"name": _VOLUME, "configMap": {"name": config, "items": items}}
    return {**spec, "volumes": [*(spec.get("volumes") or ()), volume]}


def pod_metadata(template: Mapping[str, Any], labels: Mapping[str, str]) -> Manifest:
    """Return a template's labels and annotations, with the operator's labels."""
    meta = template.get("metadata") or {}
    found: Manifest = {"labels": {**(meta.get("labels") or {}), **labels}}
    if annotations := meta.get("annotations"):
        found["annotations"] = dict(annotations)
    return found


def slots_per_worker(spec: Mapping[str, Any]) -> int:
    """Return how many ranks a worker takes, by a job's `spec`."""
    slots = count_of(spec.get("slotsPerWorker"))
    return 1 if slots is None else slots


def launcher_job(
    name: str, labels: Mapping[str, str], template: Manifest, policy: Mapping[str, Any]
) -> Manifest:
    """Return the launcher's Job; of a run policy it has what a Job knows by the same name."""
    known = ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    spec = {field: policy[field] for field in known if policy.get(field) is not None}
    if policy.get("suspend"):
        spec["suspend"] = True
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {**spec, "template": template},
    }


def config_map(name: str, labels: Mapping[str, str], files: Mapping[str, str]) -> Manifest:
    """Return a ConfigMap that holds files."""
    meta = {"name": name, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(files)}


def hostfile(hosts: Sequence[str], slots: int, *, is_hydra: bool = False) -> str:
    """Return the hosts with their slots, as Open MPI reads them or as MPICH and Intel MPI do."""
    return "".join(f"{host}:{slots}\n" if is_hydra else f"{host} slots={slots}\n" for host in hosts)
