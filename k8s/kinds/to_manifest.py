"""Makes the pieces of a manifest that kinds share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from k8s.job_spec import JobSpec
from k8s.kinds.base import Manifest
from k8s.kinds.pod_code import add_code
from k8s.kinds.pods.command import command_of
from k8s.kinds.pods.env import Env, env_entries, env_sources
from k8s.kinds.pods.labels import ArenaChart, pod_metadata
from k8s.kinds.pods.placement import add_placement
from k8s.kinds.pods.resources import add_resources
from k8s.kinds.pods.volumes import add_volumes
from k8s.models.resources import Resource

TOPOLOGY_RESOURCE = "aliyun.com/gpu"
"""What pods ask for that are placed by the links between GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """What a kind's pods have whatever the spec is."""

    container: str
    """Name of the training container."""
    app: str
    """What the name of their pod group begins with."""
    chart: ArenaChart | None = None
    """How Arena labels this kind; None where it has no such kind."""


def pod_template(spec: JobSpec, shape: PodShape, *, env: Env = (), whole: JobSpec | None = None) -> Manifest:
    """Return the template of a pod that runs `spec`.

    Args:
        spec: What this pod runs.
        shape: What its kind gives every pod.
        env: Variables of the kind's own.
        whole: The job, where this pod runs a part of it only, as a launcher does.
    """
    pod_spec = placed_by_topology(spec) if spec.gpu_topology else spec
    container: Manifest = {"name": shape.container, "image": spec.image}
    if spec.pull_policy:
        container["imagePullPolicy"] = spec.pull_policy
    if command := command_of(spec):
        container["command"] = command
    if spec.working_dir:
        container["workingDir"] = spec.working_dir
    container["env"] = env_entries(pod_spec, env)
    if sources := env_sources(spec):
        container["envFrom"] = sources
    pod: Manifest = {"containers": [container]}
    add_resources(pod, container, pod_spec)
    add_volumes(pod, container, pod_spec)
    add_placement(pod, pod_spec)
    add_code(pod, container, pod_spec)
    meta = pod_metadata(whole or spec, shape.app, shape.chart)
    return {"metadata": meta, "spec": pod} if meta else {"spec": pod}


def job_object(resource: Resource, metadata: Manifest, body: Manifest) -> Manifest:
    """Return a job's object with a body for its `spec`."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": body,
    }


def placed_by_topology(spec: JobSpec) -> JobSpec:
    """Return what the pods of a job with GPU topology ask for: as Arena has it, no memory volume."""
    return replace(spec, gpu_resource=TOPOLOGY_RESOURCE, host_network=True, shared_memory="")


def restarts(spec: JobSpec) -> str:
    """Return the restart policy of a role."""
    return spec.restart_policy or ("OnFailure" if spec.retries else "Never")
