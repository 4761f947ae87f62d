"""Job kinds of KubeRay, `ray.io/v1`: RayCluster, a head and groups of workers, and RayJob, a program on one.

Workers have no numbers; the indexes that newer versions assign have gaps. A RayJob's submitter is a batch
Job of its name; its log has the output of the program's driver. Source: ray-project/kuberay,
`ray-operator/controllers/ray/utils/constant.go` and `ray-operator/apis/ray/v1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from k8s.kinds.base import DeclaredJob, LabelledPods, Manifest, Replica
from k8s.kinds.parse import (
    JobOutcome,
    count_of,
    make_replica,
    nested,
    read_job,
    replica_count,
    text_of,
    time_of,
)
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.status import Status

RAY_CLUSTERS = Resource("ray.io", "v1", "rayclusters", "RayCluster")

CLUSTER = "ray.io/cluster"
NODE_TYPE = "ray.io/node-type"
GROUP = "ray.io/group"
HEAD, WORKER = "head", "worker"


class RayCluster(LabelledPods):
    """Cluster of Ray, which runs submitted programs until it is deleted."""

    title = "RayCluster"
    resource = RAY_CLUSTERS
    container = ""
    pod_names = "(-[a-z0-9]+)*-(head|worker)"
    job_label = CLUSTER
    suspend_field = "spec.suspend"

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a RayCluster, which never ends; with an autoscaler fewer pods suffice."""
        spec = nested(obj, "spec")
        is_suspended = spec.get("suspend") is True
        job = read_job(obj, self.resource, self.replicas(obj), JobOutcome(), is_suspended=is_suspended)
        return replace(job, min_instances=fewest_pods(spec))

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the head and the workers of all groups."""
        return head_and_workers(nested(obj, "spec"))

    def instance_of(self, pod: Pod) -> tuple[str, int | None] | None:
        """Return the head, or a worker's group without a number."""
        return instance_in_cluster(pod)


def head_and_workers(spec: Mapping[str, Any], *, head_is_chief: bool = True) -> tuple[Replica, ...]:
    """Return the pods that a cluster's spec requests."""
    if not spec:
        return ()
    found = [
        make_replica(
            HEAD,
            0,
            nested(spec, "headGroupSpec", "template"),
            is_chief=head_is_chief,
            restart_policy="Always",
        )
    ]
    for group in spec.get("workerGroupSpecs") or ():
        template = nested(group, "template")
        role = text_of(group.get("groupName")) or WORKER
        found += [
            make_replica(role, index, template, restart_policy="Always") for index in range(_pods(group))
        ]
    return tuple(found)


def fewest_pods(spec: Mapping[str, Any]) -> int | None:
    """Return the minimum number of pods with an autoscaler; None without one."""
    if spec.get("enableInTreeAutoscaling") is not True:
        return None
    return 1 + sum(_pods(group, "minReplicas") for group in spec.get("workerGroupSpecs") or ())


def instance_in_cluster(pod: Pod) -> tuple[str, int | None] | None:
    """Return the role and index from a pod's labels; workers have a group and no index."""
    node_type = pod.metadata.label(NODE_TYPE)
    if node_type == WORKER:
        return pod.metadata.label(GROUP) or WORKER, None
    return (node_type, 0) if node_type else None


def _pods(group: Mapping[str, Any], field: str = "replicas") -> int:
    # Each replica of a group may span several hosts.
    if group.get("suspend") is True:
        return 0
    fewest = count_of(group.get("minReplicas")) or 0
    count = replica_count(group.get(field), default=fewest)
    return replica_count(max(count, fewest) * (count_of(group.get("numOfHosts")) or 1))


RAY_JOBS = Resource("ray.io", "v1", "rayjobs", "RayJob")

_SUBMITTER = "submitter"
# The default: a batch Job submits the program.
_BY_JOB = "K8sJobMode"
# Final deployment states.
_FINAL = ("Complete", "Failed", "ValidationFailed")


class RayJob:
    """Program on a Ray cluster created for it."""

    title = "RayJob"
    resource = RAY_JOBS
    # The only one of the submitter; in SidecarMode beside Ray in the head pod.
    container = "ray-job-submitter"
    pod_names = f"({RayCluster.pod_names})?"
    suspend_field = "spec.suspend"

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a RayJob: `jobStatus` is the program's, `jobDeploymentStatus` the deployment's."""
        spec, status = nested(obj, "spec"), nested(obj, "status")
        outcome = _outcome(obj)
        job = read_job(
            obj, self.resource, self.replicas(obj), outcome, is_suspended=spec.get("suspend") is True
        )
        program = text_of(status.get("jobStatus"))
        fewest = fewest_pods(nested(spec, "rayClusterSpec"))
        return replace(
            job,
            min_instances=None if fewest is None else fewest + _has_submitter(obj),
            restarts=0 if outcome.status else count_of(status.get("failed")) or 0,
            restarts_allowed=count_of(spec.get("backoffLimit")) or 0,
            progress=f"program {program.lower()}" if program and not outcome.status else "",
            unsuspendable=_unsuspendable(spec),
            log_file=_driver_log(spec, status),
        )

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the submitter, if any, and the pods of the cluster, unless it uses an existing one."""
        spec = nested(obj, "spec")
        has_submitter = _has_submitter(obj)
        cluster = head_and_workers(nested(spec, "rayClusterSpec"), head_is_chief=not has_submitter)
        if not has_submitter:
            return cluster
        return make_replica(_SUBMITTER, 0, nested(spec, "submitterPodTemplate"), is_chief=True), *cluster

    def pod_selector(self, name: str) -> str:
        """Return the selector of the submitter's pods; the cluster's have its own name only."""
        return f"job-name={name}"

    def job_of(self, pod: Pod) -> str:
        """Return no name: its pods belong to its RayCluster and its Job."""
        return ""

    def instance_of(self, pod: Pod) -> tuple[str, int | None] | None:
        """Return the submitter, or the role in the cluster."""
        return instance_in_cluster(pod) if pod.metadata.label(CLUSTER) else (_SUBMITTER, 0)


def _has_submitter(obj: Manifest) -> bool:
    return (text_of(nested(obj, "spec").get("submissionMode")) or _BY_JOB) == _BY_JOB


def _driver_log(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    # Without a submitter, no container prints what the driver does. Source: Ray, "Configuring logging".
    job_id = text_of(status.get("jobId"))
    is_printed = (text_of(spec.get("submissionMode")) or _BY_JOB) in (_BY_JOB, "SidecarMode")
    return f"/tmp/ray/session_latest/logs/job-driver-{job_id}.log" if job_id and not is_printed else ""


def _unsuspendable(spec: Mapping[str, Any]) -> str:
    # The operator would fail such a job if it were suspended. Source: `ValidateRayJobSpec`.
    if spec.get("clusterSelector"):
        return "It runs on a cluster that is not its own."
    if spec.get("shutdownAfterJobFinishes") is not True:
        return "KubeRay suspends only jobs whose `shutdownAfterJobFinishes` is true."
    return ""


def _outcome(obj: Manifest) -> JobOutcome:
    # The end of the program is not that of the job while it may be retried.
    status = nested(obj, "status")
    state, program = text_of(status.get("jobDeploymentStatus")), text_of(status.get("jobStatus"))
    if state not in _FINAL:
        return JobOutcome()
    at = time_of(status.get("endTime"))
    if state == "Complete" and program not in ("FAILED", "STOPPED"):
        return JobOutcome(Status.SUCCEEDED, "", at)
    reasons = [text_of(status.get("reason")), text_of(status.get("message"))]
    return JobOutcome(Status.FAILED, ": ".join(filter(None, reasons)) or f"program {program.lower()}", at)
