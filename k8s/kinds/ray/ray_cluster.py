"""RayCluster, `ray.io/v1`, of KubeRay: a head, and groups of workers that come and go.

Labels and fields: ray-project/kuberay, `ray-operator/controllers/ray/utils/constant.go` and
`ray-operator/apis/ray/v1/raycluster_types.go`. Workers have no numbers; the indexes that newer versions
assign have gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import JobOutcome, count_of, make_replica, nested, read_job, replica_count, text_of
from k8s.models import Pod
from k8s.models.resources import Resource

RAY_CLUSTERS = Resource("ray.io", "v1", "rayclusters", "RayCluster")

CLUSTER = "ray.io/cluster"
NODE_TYPE = "ray.io/node-type"
GROUP = "ray.io/group"
HEAD, WORKER = "head", "worker"


class RayCluster:
    """Cluster of Ray, which runs submitted programs until it is deleted."""

    title = "RayCluster"
    resource = RAY_CLUSTERS
    container = ""
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

    def pod_selector(self, name: str) -> str:
        """Return the selector by the label that KubeRay sets on all pods."""
        return f"{CLUSTER}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the RayCluster's name."""
        return pod.metadata.label(CLUSTER)

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
