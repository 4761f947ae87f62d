"""The manifest of a PyTorchJob, and back to the spec."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from k8s.job_spec import JobSpec, Role, role_spec
from k8s.kinds.base import Manifest
from k8s.kinds.from_manifest import take_template, unique
from k8s.kinds.kubeflow.common import run_policy_of, take_run_policy
from k8s.kinds.parse import replica_count
from k8s.kinds.pods.labels import MASTER_POD, PYTORCH_CHART, job_metadata, take_job_metadata
from k8s.kinds.pods.rendezvous import DYNAMIC, rendezvous_env, take_rendezvous
from k8s.kinds.pods.understood import Understood, named
from k8s.kinds.roles import TakenRole, fields_of_roles, with_worker_image
from k8s.kinds.to_manifest import PodShape, job_object, pod_template, restarts
from k8s.models.resources import Resource

MASTER_PORT = 23456
"""Where the master listens unless its container names a port `pytorchjob-port`."""
PYTORCH_SHAPE = PodShape(container="pytorch", app="pytorchjob", chart=PYTORCH_CHART)
_ROLES = ("Master", "Worker")
_OLD_POLICY = ("cleanPodPolicy", "backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds")


def pytorch_manifest(resource: Resource, spec: JobSpec) -> Manifest:
    """Return the PyTorchJob that asks for `spec`.

    The master is one of its workers; an elastic job, which may lose any of its pods, has none.
    """
    is_elastic = spec.elastic_min is not None
    body: Manifest = {
        "nprocPerNode": str(spec.processes),
        "runPolicy": run_policy_of(spec, spec.clean_pods, spec.elastic_min or spec.workers),
    }
    if is_elastic:
        body["elasticPolicy"] = _elastic_policy(spec)
        roles = {"Worker": _role(spec, "worker", spec.workers)}
    else:
        roles = {"Master": _role(spec, "master", 1)}
        labels = roles["Master"]["template"]["metadata"]["labels"]
        labels.setdefault(MASTER_POD, f"{spec.name}-master-0")
        if spec.workers > 1:
            roles["Worker"] = _role(spec, "worker", spec.workers - 1)
    return job_object(resource, job_metadata(spec, PYTORCH_CHART), {**body, "pytorchReplicaSpecs": roles})


def spec_of_pytorch(obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the spec for a PyTorchJob like this one, and what it leaves out."""
    obj = deepcopy(obj)
    meta = take_job_metadata(obj.pop("metadata", None) or {})
    spec = obj.pop("spec", None) or {}
    roles = spec.pop("pytorchReplicaSpecs", None) or {}
    # Older operators have the fields of the run policy in `spec` itself.
    policy = {key: spec.pop(key) for key in _OLD_POLICY if key in spec}
    policy |= spec.pop("runPolicy", None) or {}
    elastic = _take_elastic_policy(spec.pop("elasticPolicy", None) or {})
    restart_policy = "OnFailure" if policy.get("backoffLimit") else "Never"
    pods, workers = _take_roles(roles, restart_policy, meta.fields, is_elastic=bool(elastic.fields))
    rules = take_run_policy(policy, pods.fields["priority_class"])
    nproc = str(spec.pop("nprocPerNode", None) or "auto")
    is_number = nproc.isdecimal() and 0 < len(nproc) < 4 and int(nproc) > 0
    processes = int(nproc) if is_number else max(1, pods.fields["gpus"])
    found = {**meta.fields, **pods.fields, **rules.fields}
    found |= elastic.fields or take_rendezvous(found["env"], _endpoint(str(meta.fields["name"])))
    found["gang"] = pods.fields["gang"] or rules.fields.get("gang", False)
    lost = named(obj, "apiVersion", "kind", "status") + meta.lost + named(spec) + rules.lost + elastic.lost
    lost += pods.lost + ([] if is_number or processes == 1 else [f"nprocPerNode {nproc}"])
    return JobSpec(**found, workers=workers, processes=processes), unique(lost)


def _role(spec: JobSpec, name: str, replicas: int) -> Manifest:
    of_role = role_spec(spec, name)
    # Those of an elastic job are told by the operator.
    env = rendezvous_env(spec, _endpoint(spec.name)) if spec.elastic_min is None else ()
    template = pod_template(of_role, PYTORCH_SHAPE, env=env, whole=spec)
    return {"replicas": replicas, "restartPolicy": restarts(of_role), "template": template}


def _elastic_policy(spec: JobSpec) -> Manifest:
    found: Manifest = {
        "minReplicas": spec.elastic_min,
        "maxReplicas": spec.elastic_max,
        "rdzvBackend": spec.rdzv_backend or DYNAMIC,
    }
    if spec.max_restarts:
        found["maxRestarts"] = spec.max_restarts
    return found


def _take_elastic_policy(policy: Manifest) -> Understood:
    """Take an elastic policy that has both bounds; one without is named as a whole."""
    if not policy or not (isinstance(policy.get("minReplicas"), int) and policy.get("maxReplicas")):
        return Understood({}, ["elasticPolicy"] if policy else [])
    backend = str(policy.pop("rdzvBackend", None) or DYNAMIC)
    fields = {
        "elastic_min": policy.pop("minReplicas"),
        "elastic_max": policy.pop("maxReplicas"),
        "rdzv_backend": "" if backend == DYNAMIC else backend,
        "max_restarts": policy.pop("maxRestarts", None) or 0,
    }
    return Understood(fields, named(policy, prefix="elasticPolicy."))


def _endpoint(name: str) -> str:
    return f"{name}-master-0:{MASTER_PORT}"


def _take_roles(
    roles: Manifest, restart_policy: str, job: Mapping[str, Any], *, is_elastic: bool
) -> tuple[Understood, int]:
    """Take the master and the workers, and count them."""
    taken: list[TakenRole] = []
    lost: list[str] = []
    workers = 0
    expected = "Worker" if is_elastic else "Master"
    for role in [name for name in _ROLES if roles.get(name)] or [expected]:
        part = roles.pop(role, None) or {}
        count = replica_count(part.pop("replicas", None))
        workers += count
        policy = part.pop("restartPolicy", None) or "OnFailure"
        fields, left = take_template(part.pop("template", None) or {}, PYTORCH_SHAPE.container, job)
        lost += left + named(part)
        if not taken:
            is_one_master = role == "Master" and count == 1 and not is_elastic
            lost += [] if is_one_master or role == expected == "Worker" else ["no single master"]
        taken.append(TakenRole(role.lower(), None, {**fields, "restart_policy": policy}))
    found = fields_of_roles(taken, is_elastic=is_elastic)
    own = tuple(role for role in found.fields["roles"] if role != Role(role.name))
    fields = with_worker_image({**found.fields, "roles": own})
    if fields["restart_policy"] == restart_policy:
        fields["restart_policy"] = ""
    return Understood(fields, lost + found.lost + named(roles, prefix="role ")), max(1, workers)
