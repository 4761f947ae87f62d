"""The pods of a job of TensorStack: their names, and what runs in them in each mode. Pure.

torchrun meets by static rendezvous, alone in its pod by `--standalone`: the c10d rendezvous that jobs ask
for is open to other users of a machine. A launcher's mpirun finds its workers by a hostfile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from k8s.kinds import MPILauncherKind, Replica
from k8s.kinds.kubeflow.mpi_run import config_map, hostfile, with_config, with_container
from k8s.sandbox.controller_runtime import PROCESSES, Manifest
from k8s.sandbox.controllers.reconcile import GANG, ObservedJob, owner_reference

LAUNCH = "gpuconsole.dev/launch"
"""Annotation of a pod: in which mode and beside how many it was started; another one means a new pod."""
MASTER_PORT = 23456
"""Where the first pod's process waits for the others; the agent gives each job a port of its own."""
_DEBUG_COMMAND = ["sleep", "inf"]
_HOSTFILE_ENV = (
    ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
    ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
)


def launch_of(pod: Manifest) -> str:
    """Return how a pod was started."""
    return str((pod["metadata"].get("annotations") or {}).get(LAUNCH, ""))


class JobPods:
    """What the pods of one job shall be."""

    def __init__(self, observed: ObservedJob) -> None:
        self._kind = observed.kind
        self._job = observed.job
        self._spec: Manifest = observed.job.get("spec") or {}
        conditions = (observed.job.get("status") or {}).get("conditions") or ()
        self._was_paused = any(each.get("type") == "Paused" for each in conditions)
        digest = hashlib.sha256(str(self._job["metadata"]["uid"]).encode()).hexdigest()
        self._prefix = f"{self._job['metadata']['name']}-{digest[:5]}"
        self.replicas = {
            f"{self._prefix}-{each.instance}": each for each in observed.kind.replicas(self._job)
        }
        """By name, the master's first."""
        mode = "debug" if self.is_on("debug") else "training"
        self.launch = f"{mode}-{len(self.replicas)}"
        """How they are started now."""

    def is_on(self, mode: str) -> bool:
        """Tell whether a run mode is on; its switch has two names in the manuals."""
        found = (self._spec.get("runMode") or {}).get(mode) or {}
        return found.get("enabled") is True or found.get("enable") is True

    def pod(self, name: str) -> Manifest:
        """Return one of the pods."""
        replica = self.replicas[name]
        meta: Mapping[str, Any] = replica.template.get("metadata") or {}
        labels = {**(meta.get("labels") or {}), **dict(replica.labels), "replica-type": replica.role}
        if replica.is_chief:
            labels["job-role"] = "master"
        notes = {GANG: str(len(self.replicas)), LAUNCH: self.launch}
        if isinstance(self._kind, MPILauncherKind):
            notes[PROCESSES] = str(self._kind.slots_of(self._job))
        pod_meta = {
            "name": name,
            "labels": labels,
            "annotations": {**(meta.get("annotations") or {}), **notes},
        }
        return self._owned(
            {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": self._pod_spec(name)}
        )

    def configs(self) -> list[Manifest]:
        """Return the ConfigMaps that they read."""
        if not isinstance(self._kind, MPILauncherKind):
            return []
        workers = [name for name, replica in self.replicas.items() if not replica.is_chief]
        files = {"hostfile": hostfile(workers, self._kind.slots_of(self._job))}
        return [self._owned(config_map(f"{self._prefix}-config", {}, files))]

    def _owned(self, obj: Manifest) -> Manifest:
        obj["metadata"]["namespace"] = self._job["metadata"]["namespace"]
        obj["metadata"]["ownerReferences"] = [owner_reference(self._kind.resource, self._job)]
        return obj

    def _pod_spec(self, name: str) -> Manifest:
        """Return a pod's spec, its training container with the command of the mode that is on."""
        replica = self.replicas[name]
        spec = deepcopy(dict(replica.template.get("spec") or {}))
        spec["restartPolicy"] = "Never"
        containers = spec.get("containers") or ()
        if not containers:
            raise ValueError(f"the role {replica.role} has no containers")
        named = [each for each in containers if each.get("name") == self._kind.container]
        container: Manifest = (named or list(containers))[0]
        debug = self._mode("debug", "replicaSpecs", replica.role) if self.is_on("debug") else {}
        resumed = self._mode("pause", "resumeSpecs", replica.role) if self._was_paused else {}
        torchrun = self._spec.get("torchrunConfig") or {}
        container["args"] = resumed.get("args") or container.get("args") or []
        container["command"] = resumed.get("command") or container.get("command") or []
        if torchrun.get("enabled") is True and not resumed.get("command"):
            container["command"] = self._torchrun(torchrun)
        if self.is_on("debug"):
            container["command"], container["args"] = debug.get("command") or _DEBUG_COMMAND, []
        if debug.get("skipInitContainer") or resumed.get("skipInitContainer"):
            spec.pop("initContainers", None)
        if isinstance(self._kind, MPILauncherKind):
            return self._with_hosts(spec) if replica.is_chief else spec
        container["env"] = [*(container.get("env") or ()), *self._environment(torchrun, name, replica)]
        return spec

    def _mode(self, mode: str, specs: str, role: str) -> Manifest:
        """Return what a run mode says of a role."""
        found = ((self._spec.get("runMode") or {}).get(mode) or {}).get(specs) or ()
        return next((dict(each) for each in found if each.get("type") == role), {})

    def _with_hosts(self, spec: Manifest) -> Manifest:
        """Return a launcher's spec, from which mpirun reads where the workers are."""
        mounted = with_container({"spec": spec}, env=_HOSTFILE_ENV, mount=True)
        return with_config(mounted, f"{self._prefix}-config", {"hostfile": 0o444})

    def _torchrun(self, torchrun: Manifest) -> list[str]:
        words = ["torchrun"]
        if len(self.replicas) == 1:
            words.append("--standalone")
        if torchrun.get("maxRestarts") is not None:
            words.append(f"--max-restarts={torchrun['maxRestarts']}")
        return [*words, *map(str, torchrun.get("extraOptions") or ())]

    def _environment(self, torchrun: Manifest, name: str, replica: Replica) -> list[Manifest]:
        """Return what tells a pod who it is among the others: torchrun's words for it, or plain PyTorch's."""
        number = str(list(self.replicas).index(name))
        master = next(iter(self.replicas))
        if torchrun.get("enabled") is True:
            processes = str(len(replica.ranks) or torchrun.get("procPerNode") or 1)
            env = {"PET_NPROC_PER_NODE": processes}
            if len(self.replicas) > 1:
                env |= {"PET_NNODES": str(len(self.replicas)), "PET_NODE_RANK": number}
                env |= {"PET_MASTER_ADDR": master, "PET_MASTER_PORT": str(MASTER_PORT)}
        else:
            env = {"MASTER_ADDR": master, "MASTER_PORT": str(MASTER_PORT)}
            env |= {"WORLD_SIZE": str(len(self.replicas)), "RANK": number}
        return [{"name": key, "value": value} for key, value in env.items()]
