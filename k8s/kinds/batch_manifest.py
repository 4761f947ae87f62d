"""The manifest of a Kubernetes Job whose pods train together, and back to the spec.

No operator tells such pods of each other: each gets its number from the Job, and all find the first
one by a headless Service. Source: Kubernetes documentation, "Job with Pod-to-Pod Communication".
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds.base import Manifest
from k8s.kinds.from_manifest import take_template, unique
from k8s.kinds.parse import count_of, replica_count, text_of
from k8s.kinds.pods.env import variable, variable_from_field
from k8s.kinds.pods.labels import job_metadata, take_job_metadata
from k8s.kinds.pods.rendezvous import rendezvous_env, take_rendezvous
from k8s.kinds.pods.understood import drop_defaults, named
from k8s.kinds.to_manifest import PodShape, job_object, pod_template
from k8s.models.resources import SERVICES, Resource

INDEX = "batch.kubernetes.io/job-completion-index"
BATCH_SHAPE = PodShape(container="main", app="job")
_PORT = 29500
"""Where the first pod listens: torch's own default."""
_PROCESSES = "PET_NPROC_PER_NODE"
_RETRIES = 6
"""How often a Job starts again that does not say."""
_DEFAULTS: Manifest = {
    "suspend": False,
    "manualSelector": False,
    "podReplacementPolicy": "TerminatingOrFailed",
    "completionMode": "Indexed",
}
"""What servers fill in, and what all that we make have."""


def batch_manifest(resource: Resource, spec: JobSpec) -> Manifest:
    """Return the Job that asks for `spec`: indexed, so that each pod knows its number."""
    env = [*_group_env(spec), *rendezvous_env(spec, _endpoint(spec))]
    template = pod_template(spec, BATCH_SHAPE, env=env)
    if spec.workers > 1:
        template["spec"]["subdomain"] = spec.name
    # A pod that is made anew leaves the log of the one before, a container does not.
    template["spec"]["restartPolicy"] = spec.restart_policy or "Never"
    body: Manifest = {
        "completions": spec.workers,
        "parallelism": spec.workers,
        "completionMode": "Indexed",
        "backoffLimit": spec.retries,
    }
    if spec.running_timeout_s:
        body["activeDeadlineSeconds"] = spec.running_timeout_s
    if spec.ttl_s:
        body["ttlSecondsAfterFinished"] = spec.ttl_s
    if spec.suspend:
        body["suspend"] = True
    return job_object(resource, job_metadata(spec), {**body, "template": template})


def headless_service(spec: JobSpec) -> Manifest:
    """Return the Service that gives each pod of a Job a name; of pods too that are not ready yet."""
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": spec.name, "namespace": spec.namespace},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": spec.name},
            "ports": [{"name": "rendezvous", "port": _PORT}],
        },
    }


def spec_of_batch(obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the spec for a Job like this one, and what it leaves out."""
    obj = deepcopy(obj)
    meta = take_job_metadata(obj.pop("metadata", None) or {})
    left = obj.pop("spec", None) or {}
    template = left.pop("template", None) or {}
    pod_spec = template.get("spec") or {}
    restart_policy = pod_spec.pop("restartPolicy", None) or "Never"
    drop_defaults(pod_spec, {"subdomain": meta.fields["name"]})
    left.setdefault("completionMode", "NonIndexed")
    suspend = left.pop("suspend", False) is True
    drop_defaults(left, _DEFAULTS)
    workers = left.pop("completions", left.get("parallelism", 1))
    drop_defaults(left, {"parallelism": workers})
    known = JobSpec(name=meta.fields["name"], workers=replica_count(workers), processes=_processes(pod_spec))
    pod = take_template(template, BATCH_SHAPE.container, meta.fields, env=_group_env(known))
    has_group = known.processes > 0
    retries = count_of(left.pop("backoffLimit", _RETRIES))
    spec = JobSpec(
        **meta.fields,
        **pod.fields,
        **take_rendezvous(pod.fields["env"], _endpoint(known)),
        workers=known.workers,
        processes=known.processes if has_group else max(1, pod.fields["gpus"]),
        retries=_RETRIES if retries is None else retries,
        restart_policy="" if restart_policy == "Never" else restart_policy,
        running_timeout_s=count_of(left.pop("activeDeadlineSeconds", 0)) or 0,
        ttl_s=count_of(left.pop("ttlSecondsAfterFinished", 0)) or 0,
        suspend=suspend,
    )
    lost = named(obj, "apiVersion", "kind", "status") + meta.lost + named(left) + pod.lost
    return spec, unique(lost)


def _group_env(spec: JobSpec) -> list[Manifest]:
    """Return what an operator would tell the pods: who they are, and where the first of them is."""
    number = f"metadata.annotations['{INDEX}']"
    host, port = _host(spec), str(_PORT)
    return [
        variable("MASTER_ADDR", host),
        variable("MASTER_PORT", port),
        variable("WORLD_SIZE", str(spec.workers * spec.processes)),
        variable_from_field("RANK", number),
        variable("PET_MASTER_ADDR", host),
        variable("PET_MASTER_PORT", port),
        variable("PET_NNODES", str(spec.workers)),
        variable(_PROCESSES, str(spec.processes)),
        variable_from_field("PET_NODE_RANK", number),
    ]


def _host(spec: JobSpec) -> str:
    return f"{spec.name}-0.{spec.name}" if spec.workers > 1 else "localhost"


def _endpoint(spec: JobSpec) -> str:
    return f"{_host(spec)}:{_PORT}"


def _processes(pod_spec: Manifest) -> int:
    """Return how many processes the first container is told to start; 0 where it is not told."""
    containers: Any = pod_spec.get("containers") or [{}]
    env = {text_of(each.get("name")): str(each.get("value")) for each in containers[0].get("env") or ()}
    text = env.get(_PROCESSES, "")
    return int(text) if text.isdecimal() and len(text) < 5 else 0
