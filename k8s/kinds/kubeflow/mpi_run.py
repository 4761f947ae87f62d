"""Pods of MPIJobs as their operators create them, and mpirun's configuration.

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
_VOLUME = "mpi-job-config"

# mpirun runs this instead of ssh; `kubexec` is the sandbox's replacement for the operators' kubectl.
KUBEXEC = """#!/bin/sh
POD_NAME=$1
shift
exec kubexec "$POD_NAME" "$*"
"""

Named = tuple[tuple[str, str], ...]
# By these the launchers of older operators reach the workers.
KUBEXEC_ENV: Named = (
    ("OMPI_MCA_plm_rsh_agent", f"{CONFIG_FOLDER}/kubexec.sh"),
    ("OMPI_MCA_orte_default_hostfile", f"{CONFIG_FOLDER}/hostfile"),
)
# For a launcher without GPUs of its own.
NO_GPUS: Named = (("NVIDIA_VISIBLE_DEVICES", ""), ("NVIDIA_DRIVER_CAPABILITIES", ""))


@dataclass(frozen=True, slots=True)
class MPIRun:
    """Pods of an MPIJob with everything that its operator adds, and the rules by which they run."""

    replicas: tuple[Replica, ...]
    """The launcher first."""
    config: Manifest
    """ConfigMap with the hostfile, without namespace and owner."""
    slots: int
    clean_policy: str
    has_launcher_job: bool = True
    """False if the launcher is a bare pod, retried by its restart policy and not as in a Job."""
    waits_for_workers: bool = False
    replaces_workers: bool = False
    has_conditions: bool = True
    """False if the status is the one word `launcherStatus`."""
    problem: str = ""


@runtime_checkable
class MPIKind(RunnableKind, Protocol):
    """Kind for MPI of one of Kubeflow's operators."""

    def run_of(self, obj: Manifest) -> MPIRun:
        """Return what the operator makes of a job."""


def with_container(
    template: Mapping[str, Any], *, env: Named = (), mount: bool = False, **changes: Any
) -> Manifest:
    """Return a pod's spec whose first container has more variables and optionally the configuration."""
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
    """Return a pod's spec with files of a ConfigMap as the volume that `with_container` mounts."""
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    volume = {"name": _VOLUME, "configMap": {"name": config, "items": items}}
    return {**spec, "volumes": [*(spec.get("volumes") or ()), volume]}


def slots_per_worker(spec: Mapping[str, Any]) -> int:
    """Return the number of ranks of each worker."""
    slots = count_of(spec.get("slotsPerWorker"))
    return 1 if slots is None else slots


def config_map(name: str, labels: Mapping[str, str], files: Mapping[str, str]) -> Manifest:
    """Return a ConfigMap that holds files."""
    meta = {"name": name, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(files)}


def hostfile(hosts: Sequence[str], slots: int) -> str:
    """Return the hosts with their slots, in the format of Open MPI."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)
