"""Controller of TensorStack's jobs, and of the TensorBoard that a job requests. Pure.

The first role is the master. A failed pod is replaced, so the pods' own restart policy is `Never`. torchrun
uses static rendezvous, or `--standalone` for a single pod: any user of the machine could join the c10d
rendezvous that jobs ask for. A launcher's mpirun finds its workers by a hostfile.
Source: T9k user manuals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import msgspec

from k8s.jobs import arena_objects
from k8s.kinds import MPILauncherKind, Replica
from k8s.kinds.kubeflow.mpi_run import config_map, hostfile, with_config, with_container
from k8s.models.resources import CONFIG_MAPS, DEPLOYMENTS, SERVICES, Resource
from k8s.sandbox.controller_runtime import ENDED, PROCESSES, Manifest
from k8s.sandbox.controllers import reconcile

OWNED = (DEPLOYMENTS, SERVICES, CONFIG_MAPS)
# Annotation of a pod: run mode and number of pods at its start; when they change, the pod is replaced.
LAUNCH = "gpuconsole.dev/launch"
# The agent replaces it by a port of the job's own.
MASTER_PORT = 23456
# Exit codes that are retryable under the policy ExitCode: ended by a signal from outside.
_RETRYABLE = frozenset({130, 137, 138, 143})
_RETRIES = 3
_DEBUG_COMMAND = ["sleep", "inf"]
_HOSTFILE_ENV = (
    ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
    ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
)
_FILESET = "t9k://pvc/"
_LOGS = "/t9k/logs"


def decide(observed: reconcile.ObservedJob) -> reconcile.Plan:
    """Return the plan for a job."""
    job = _T9kJob(observed)
    job.decide()
    plan, wanted = job.plan, tensorboard_of(observed)
    found = {resource: observed.children.get(resource, ()) for resource in (DEPLOYMENTS, SERVICES)}
    if wanted:
        plan.status["tensorboard"] = _tensorboard_status(found[DEPLOYMENTS], wanted[0][1])
        plan.objects += [(resource, obj) for resource, obj in wanted if not found[resource]]
    return plan


class _T9kJob:
    def __init__(self, observed: reconcile.ObservedJob) -> None:
        self.plan = reconcile.Plan.of(observed.job)
        self._status = self.plan.status
        self._conditions: list[Manifest] = self._status["conditions"]
        # The status still knows the restarts of an earlier sandbox.
        restarts = max(observed.restarts, int(self._status.get("backoffCount") or 0))
        self._observed = observed = replace(observed, restarts=restarts)
        self._kind, self._job = observed.kind, observed.job
        self._name = str(self._job["metadata"]["name"])
        self._spec: Manifest = self._job.get("spec") or {}
        self._was_paused = any(each.get("type") == "Paused" for each in self._conditions)
        digest = hashlib.sha256(str(self._job["metadata"]["uid"]).encode()).hexdigest()
        self._prefix = f"{self._name}-{digest[:5]}"
        self._wanted = {
            name: msgspec.structs.replace(each, name=name)
            for each in observed.kind.replicas(self._job)
            for name in [f"{self._prefix}-{each.instance}"]
        }
        self._launch = f"{'debug' if self._is_on('debug') else 'training'}-{len(self._wanted)}"
        policy: Manifest = self._spec.get("runPolicy") or {}
        limit = policy.get("backoffLimit")
        older = "Unfinished" if policy.get("cleanUpWorkers") is True else "None"
        clean_policy = policy.get("cleanUpPolicy") or older
        rules = reconcile.Rules(
            _is_retryable,
            backoff_limit=_RETRIES if limit is None else int(limit),
            deadline_s=policy.get("activeDeadlineSeconds"),
            clean_policy="Running" if clean_policy == "Unfinished" else clean_policy,
            is_outdated=lambda pod: (pod["metadata"].get("annotations") or {}).get(LAUNCH) != self._launch,
            has_deciding_chief=True,
        )
        self.replicas = reconcile.JobReplicas(observed, self._wanted.values(), rules, self.plan, self._pod)

    def decide(self) -> None:
        self._set("Initialized", True, "The job has been initialized successfully.")
        if self._status.get("phase") not in ENDED:
            if self._is_on("pause"):
                self._pause()
            else:
                self._run()
        if self._status.get("phase") in ENDED:
            self.replicas.clean_up()
        self._status["conditions"] = self._conditions
        self._status["backoffCount"] = self._observed.restarts + len(self.plan.replaced)

    def _set(self, condition: str, value: bool, message: str, reason: str = "-") -> None:
        self._conditions = reconcile.set_condition(self._conditions, condition, value, reason, message)

    def _pause(self) -> None:
        self.replicas.delete_all()
        if self.replicas.pods or self.replicas.leaving:
            self._status.setdefault("phase", "Pending")
        elif self._status.get("phase") != "Paused":
            self._status["phase"] = "Paused"
            self._set("Running", False, "The job is paused.", "Paused")
            self._set("Paused", True, "The job is paused.", "Paused")
            self.plan.events.append(("Paused", f"{self._name} is paused", False))

    def _run(self) -> None:
        status, plan = self._status, self.plan
        if status.get("phase") == "Paused":
            status["phase"] = "Resuming"
            self._set("Paused", False, "The job has been resumed.", "Resumed")
            plan.events.append(("Resumed", f"{self._name} is resumed", False))
        status.setdefault("phase", "Pending")
        since = {str(each["type"]): str(each["lastTransitionTime"]) for each in self._conditions}
        end = self.replicas.reconcile(max(since["Initialized"], since.get("Paused", "")))
        if end is not None:
            self._end(end)
            return
        existing = {each["metadata"]["name"] for each in self._observed.children.get(CONFIG_MAPS, ())}
        configs = [each for each in self._configs() if each["metadata"]["name"] not in existing]
        plan.objects += [(CONFIG_MAPS, each) for each in configs]
        for pod in plan.delete:
            if pod["metadata"]["uid"] in plan.replaced:
                message = f"Pod {pod['metadata']['name']} is replaced: {_failure(pod)}"
                plan.events.append(("Restarting", message, True))
        deleted = {str(pod["metadata"]["name"]) for pod in plan.delete}
        live = {name: pod for name, pod in self.replicas.pods.items() if name not in deleted}
        self._report(live)

    def _end(self, end: reconcile.End) -> None:
        phase, condition, reason = "Failed", "Failed", end.reason
        failures = "; ".join(f"pod {pod['metadata']['name']} failed: {_failure(pod)}" for pod in end.pods)
        if end.reason == "Succeeded":
            phase, condition, reason = "Succeeded", "Completed", "-"
            message = "The job has been completed successfully."
        elif end.reason == "DeadlineExceeded":
            message = "The job was active longer than specified deadline."
        elif end.reason == "BackoffLimitExceeded":
            message = f"The job has reached the specified backoff limit; {failures}."
        else:
            reason, message = "ReplicaFailed", f"{failures[:1].upper()}{failures[1:]}."
        self._status["phase"] = phase
        self._set("Running", False, message, reason)
        self._set(condition, True, message, reason)
        self.plan.events.append((phase, message, phase == "Failed"))

    def _report(self, live: Mapping[str, Manifest]) -> None:
        status, wanted = self._status, self.replicas.wanted
        is_running = any(
            reconcile.phase_of(pod) == "Running"
            and name in wanted
            and wanted[name].role == self.replicas.chief
            for name, pod in live.items()
        )
        if is_running:
            status["phase"] = "Running"
            self._set("Running", True, "The job is running.")
        elif status["phase"] == "Running":
            status["phase"] = "Pending"
            self._set("Running", False, "No pod of the master is running.", "NotRunning")
        if failed := [
            name for name, pod in self.replicas.pods.items() if reconcile.phase_of(pod) == "Failed"
        ]:
            self._set("ReplicaFailure", True, f"Failed pods: {', '.join(failed)}.", "ReplicaFailed")
        elif is_running or reconcile.is_true(self._conditions, "ReplicaFailure"):
            self._set("ReplicaFailure", False, "No pod has failed.")

    def _is_on(self, mode: str) -> bool:
        # The manuals have two names for the switch.
        found = (self._spec.get("runMode") or {}).get(mode) or {}
        return found.get("enabled") is True or found.get("enable") is True

    def _pod(self, observed: reconcile.ObservedJob, replica: Replica) -> Manifest:
        labels = {**dict(replica.labels), "replica-type": replica.role}
        if replica.is_chief:
            labels["job-role"] = "master"
        annotations = {
            reconcile.GANG: str(len(self._wanted)),
            reconcile.RESTARTS: str(observed.restarts),
            LAUNCH: self._launch,
        }
        if isinstance(self._kind, MPILauncherKind):
            annotations[PROCESSES] = str(self._kind.slots_of(self._job))
        spec = self._pod_spec(replica)
        return reconcile.owned_pod(observed, replica.template, replica.name, spec, labels, annotations)

    def _configs(self) -> list[Manifest]:
        if not isinstance(self._kind, MPILauncherKind):
            return []
        workers = [name for name, replica in self._wanted.items() if not replica.is_chief]
        files = {"hostfile": hostfile(workers, self._kind.slots_of(self._job))}
        return [reconcile.owned_by(self._observed, config_map(f"{self._prefix}-config", {}, files))]

    def _pod_spec(self, replica: Replica) -> Manifest:
        spec = deepcopy(dict(replica.template.get("spec") or {}))
        spec["restartPolicy"] = "Never"
        containers = spec.get("containers") or ()
        if not containers:
            raise ValueError(f"the role {replica.role} has no containers")
        named = [each for each in containers if each.get("name") == self._kind.container]
        container: Manifest = (named or list(containers))[0]
        debug = self._mode("debug", "replicaSpecs", replica.role) if self._is_on("debug") else {}
        resumed = self._mode("pause", "resumeSpecs", replica.role) if self._was_paused else {}
        torchrun = self._spec.get("torchrunConfig") or {}
        container["args"] = resumed.get("args") or container.get("args") or []
        container["command"] = resumed.get("command") or container.get("command") or []
        if torchrun.get("enabled") is True and not resumed.get("command"):
            container["command"] = self._torchrun(torchrun)
        if self._is_on("debug"):
            container["command"], container["args"] = debug.get("command") or _DEBUG_COMMAND, []
        if debug.get("skipInitContainer") or resumed.get("skipInitContainer"):
            spec.pop("initContainers", None)
        if isinstance(self._kind, MPILauncherKind):
            return self._with_hosts(spec) if replica.is_chief else spec
        container["env"] = [*(container.get("env") or ()), *self._environment(torchrun, replica)]
        return spec

    def _mode(self, mode: str, specs: str, role: str) -> Manifest:
        found = ((self._spec.get("runMode") or {}).get(mode) or {}).get(specs) or ()
        return next((dict(each) for each in found if each.get("type") == role), {})

    def _with_hosts(self, spec: Manifest) -> Manifest:
        mounted = with_container({"spec": spec}, env=_HOSTFILE_ENV, mount=True)
        return with_config(mounted, f"{self._prefix}-config", {"hostfile": 0o444})

    def _torchrun(self, torchrun: Manifest) -> list[str]:
        command = ["torchrun"]
        if len(self._wanted) == 1:
            command.append("--standalone")
        if torchrun.get("maxRestarts") is not None:
            command.append(f"--max-restarts={torchrun['maxRestarts']}")
        return [*command, *map(str, torchrun.get("extraOptions") or ())]

    def _environment(self, torchrun: Manifest, replica: Replica) -> list[Manifest]:
        number = str(list(self._wanted).index(replica.name))
        master = next(iter(self._wanted))
        if torchrun.get("enabled") is True:
            processes = str(len(replica.ranks) or torchrun.get("procPerNode") or 1)
            env = {"PET_NPROC_PER_NODE": processes}
            if len(self._wanted) > 1:
                env |= {"PET_NNODES": str(len(self._wanted)), "PET_NODE_RANK": number}
                env |= {"PET_MASTER_ADDR": master, "PET_MASTER_PORT": str(MASTER_PORT)}
        else:
            env = {"MASTER_ADDR": master, "MASTER_PORT": str(MASTER_PORT)}
            env |= {"WORLD_SIZE": str(len(self._wanted)), "RANK": number}
        return [{"name": key, "value": value} for key, value in env.items()]


def _is_retryable(replica: Replica, pod: Manifest) -> bool:
    if reconcile.phase_of(pod) == "Succeeded":
        return replica.restart_policy == "Always"
    if replica.restart_policy == "ExitCode":
        return any(int(each.get("exitCode") or 0) in _RETRYABLE for each in reconcile.ends_of(pod))
    return replica.restart_policy in ("Always", "OnFailure")


def _failure(pod: Manifest) -> str:
    codes = [f"exit code {each.get('exitCode')}" for each in reconcile.ends_of(pod)]
    return str((pod.get("status") or {}).get("reason") or ", ".join(codes) or reconcile.phase_of(pod))


def tensorboard_of(observed: reconcile.ObservedJob) -> list[tuple[Resource, Manifest]]:
    """Return the Deployment and the Service of a job's TensorBoard; empty if it requests none.

    On T9k a separate controller creates them from a TensorBoard object. Here they carry Arena's labels, by
    which a job's TensorBoard is found.
    """
    job = observed.job
    requested = (job.get("spec") or {}).get("tensorboardSpec") or {}
    folders = _log_folders(requested)
    if not folders:
        return []
    labels = {"role": "tensorboard", "release": str(job["metadata"]["name"])}
    claims = list(dict.fromkeys(claim for claim, _ in folders))
    volumes = {claim: f"logs-{number}" for number, claim in enumerate(claims)}
    container = {
        "name": "tensorboard",
        "image": requested.get("image") or "tensorflow/tensorflow",
        "command": ["tensorboard", *_log_dirs(folders), "--host", "0.0.0.0"],
        "ports": [{"containerPort": arena_objects.PORT}],
        "resources": requested.get("resources") or {},
        "volumeMounts": [
            {"name": volume, "mountPath": f"{_LOGS}/{claim}"} for claim, volume in volumes.items()
        ],
    }
    pod_spec = {
        "containers": [container],
        "volumes": [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            for claim, volume in volumes.items()
        ],
    }
    pair = arena_objects.tensorboard_pair(str(job["metadata"]["name"]), labels, labels, pod_spec)
    return [(resource, reconcile.owned_by(observed, obj)) for resource, obj in pair]


def _tensorboard_status(deployments: Sequence[Manifest], wanted: Manifest) -> Manifest:
    name = wanted["metadata"]["name"]
    found = next((each for each in deployments if each["metadata"]["name"] == name), {})
    is_ready = bool((found.get("status") or {}).get("availableReplicas"))
    dependent = {field: wanted[field] for field in ("apiVersion", "kind")}
    dependent |= {field: wanted["metadata"][field] for field in ("name", "namespace")}
    note = "" if is_ready else "its pod is not running"
    return {"action": "NOP", "dependent": dependent, "note": note, "ready": is_ready, "type": "Normal"}


def _log_folders(requested: Manifest) -> list[tuple[str, str]]:
    # The manuals have two ways to name the folders with event files.
    found = [
        (str(claim["name"]), str(path))
        for claim in (requested.get("logDir") or {}).get("pvc") or ()
        for path in claim.get("subPath") or ("",)
    ]
    for address in requested.get("trainingLogFilesets") or ():
        claim, _, path = str(address).removeprefix(_FILESET).partition("/")
        found.append((claim, path))
    return [(claim, path.removeprefix("./").strip("/")) for claim, path in found if claim]


def _log_dirs(folders: Sequence[tuple[str, str]]) -> list[str]:
    paths = ["/".join(filter(None, (_LOGS, claim, path))) for claim, path in folders]
    if len(paths) == 1:
        return ["--logdir", paths[0]]
    named = [f"{path.removeprefix(_LOGS + '/')}:{path}" for path in paths]
    return ["--logdir_spec", ",".join(named)]
