"""Operator of TrainJobs: the pods of a torch runtime's nodes, and the job's conditions. Pure.

A cluster has a JobSet and its Job between a TrainJob and the pods; here the pods have only their labels. The
sandbox has one runtime, `torch-distributed`; others can be created.
Source: kubeflow/trainer v2.3.0, `pkg/controller` and the plug-ins `torch` and `plainml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec
from msgspec.structs import replace

from k8s.kinds import Replica
from k8s.kinds.job_set import GROUP, GROUP_SIZE, JOB_INDEX, POD_INDEX, SET_NAME
from k8s.models import PodSpec, accelerators, convert, quantity
from k8s.models.resources import TRAINING_RUNTIMES
from k8s.sandbox.controller_runtime import Manifest
from k8s.sandbox.controllers.reconcile import JobReplicas, ObservedJob, Plan, Rules, is_true, phase_of

MASTER_PORT = 29500
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_INDEX = f"metadata.labels['{POD_INDEX}']"
_DEFAULT_KIND = "ClusterTrainingRuntime"
# Of a batch Job without a limit.
_RETRIES = 6
_ENDS = {
    "Succeeded": ("Complete", "AllJobsCompleted", "jobset completed successfully"),
    "DeadlineExceeded": ("Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline"),
}

TORCH_DISTRIBUTED: Manifest = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": _DEFAULT_KIND,
    "metadata": {"name": "torch-distributed", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {STEP: "trainer"}},
                            "spec": {
                                "backoffLimit": 0,
                                "template": {
                                    "spec": {
                                        "restartPolicy": "Never",
                                        "containers": [{"name": "node", "image": "pytorch/pytorch"}],
                                    }
                                },
                            },
                        },
                    }
                ]
            }
        },
    },
}
"""Runtime that the sandbox has from the start; a failed node is not retried."""


def decide(observed: ObservedJob) -> Plan:
    """Return the plan for a TrainJob."""
    job, spec = observed.job, observed.job.get("spec") or {}
    plan = Plan.of(job)
    if any(is_true(plan.status["conditions"], end) for end in ("Complete", "Failed")):
        return plan
    nodes = _nodes_of(job, observed.known)
    if nodes is None:
        reference = spec.get("runtimeRef") or {}
        named = f"{reference.get('kind') or _DEFAULT_KIND} {reference.get('name')}"
        message = f"{named} does not exist, or is not for PyTorch"
        plan.set_condition("Failed", "TrainingRuntimeNotSupported", message)
        return plan
    limit = nodes.get("backoffLimit")
    rules = Rules(
        lambda replica, pod: phase_of(pod) == "Failed",
        backoff_limit=_RETRIES if limit is None else int(limit),
        deadline_s=spec.get("activeDeadlineSeconds"),
        clean_policy="Running",
    )
    replicas = JobReplicas(observed, list(_replicas(observed, nodes)), rules, plan)
    is_suspended = is_true(plan.status["conditions"], "Suspended")
    if spec.get("suspend"):
        replicas.delete_all()
        if not is_suspended:
            plan.set_condition("Suspended", "Suspended", "TrainJob is suspended")
        return plan
    if is_suspended:
        plan.set_condition("Suspended", "Resumed", "TrainJob is resumed", value=False)
    resumed = [
        each["lastTransitionTime"] for each in plan.status["conditions"] if each["type"] == "Suspended"
    ]
    end = replicas.reconcile(max([job["metadata"]["creationTimestamp"], *resumed]))
    if end is not None:
        failed = ", ".join(str(pod["metadata"]["name"]) for pod in end.pods)
        plan.set_condition(*_ENDS.get(end.reason, ("Failed", "FailedJobs", f"these nodes failed: {failed}")))
        replicas.clean_up()
    return plan


def _nodes_of(job: Manifest, known: Mapping[Any, Sequence[Manifest]]) -> Manifest | None:
    spec = job.get("spec") or {}
    runtime = _runtime(job, known)
    policy: Manifest = ((runtime or {}).get("spec") or {}).get("mlPolicy") or {}
    if runtime is None or policy.keys() & {"mpi", "flux", "jax", "xgboost"}:
        return None
    trainer = spec.get("trainer") or {}
    template = deepcopy(runtime["spec"]["template"])
    nodes = int(trainer.get("numNodes") or policy.get("numNodes") or 1)
    found: Manifest | None = None
    for group in template["spec"]["replicatedJobs"]:
        if _is_trainer(group):
            _set_container(job, group["template"]["spec"]["template"]["spec"], trainer, nodes, policy)
    for patch in spec.get("runtimePatches") or ():
        template = merged(template, (patch.get("trainingRuntimeSpec") or {}).get("template") or {})
    for group in filter(_is_trainer, template["spec"]["replicatedJobs"]):
        found = {**group["template"]["spec"], "name": group["name"], "parallelism": nodes}
    return found


def _runtime(job: Manifest, known: Mapping[Any, Sequence[Manifest]]) -> Manifest | None:
    reference = (job.get("spec") or {}).get("runtimeRef") or {}
    for resource in TRAINING_RUNTIMES:
        if resource.kind != (reference.get("kind") or _DEFAULT_KIND):
            continue
        for found in known.get(resource, ()):
            meta = found["metadata"]
            is_near = not resource.is_namespaced or meta.get("namespace") == job["metadata"]["namespace"]
            if is_near and meta["name"] == reference.get("name"):
                return found
    return None


def _is_trainer(group: Manifest) -> bool:
    labels = (group["template"].get("metadata") or {}).get("labels") or {}
    return bool(labels.get(STEP, "trainer" if group["name"] == "node" else "") == "trainer")


def _replicas(observed: ObservedJob, nodes: Manifest) -> Iterator[Replica]:
    name, group = str(observed.job["metadata"]["name"]), str(nodes["name"])
    (pattern, *_) = observed.kind.replicas(observed.job)
    for index in range(nodes["parallelism"]):
        labels = {SET_NAME: name, GROUP: group, GROUP_SIZE: "1", JOB_INDEX: "0", POD_INDEX: str(index)}
        pod_name = f"{name}-{group}-0-{index}"
        template = deepcopy(nodes["template"])
        template["spec"].setdefault("subdomain", name)
        template["spec"].setdefault("hostname", pod_name)
        yield replace(
            pattern,
            name=pod_name,
            role=group,
            index=index,
            is_chief=index == 0,
            template=template,
            restart_policy=template["spec"].get("restartPolicy") or "OnFailure",
            labels=tuple(labels.items()),
        )


def _set_container(
    job: Manifest, pod_spec: Manifest, trainer: Manifest, nodes: int, policy: Manifest
) -> None:
    named = [each for each in pod_spec["containers"] if each["name"] == "node"]
    container: Manifest = (named or pod_spec["containers"])[0]
    container |= {field: trainer[field] for field in ("image", "command", "args") if trainer.get(field)}
    if trainer.get("resourcesPerNode"):
        container["resources"] = trainer["resourcesPerNode"]
    env = [*(container.get("env") or ())]
    if "torch" in policy:
        name = job["metadata"]["name"]
        plain = {
            "PET_NNODES": str(nodes),
            "PET_NPROC_PER_NODE": str(trainer.get("numProcPerNode") or _processes(container)),
            "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
            "PET_MASTER_PORT": str(MASTER_PORT),
        }
        env += [{"name": key, "value": value} for key, value in plain.items()]
        env.append({"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}})
    own = list(trainer.get("env") or ())
    names = {each.get("name") for each in own}
    container["env"] = [*own, *(each for each in env if each["name"] not in names)]


def _processes(container: Manifest) -> str:
    resources = container.get("resources") or {}
    try:
        spec: PodSpec = convert({"containers": [container]}, PodSpec, strict=False)
    except msgspec.ValidationError:
        return "auto"
    gpus = accelerators.count(accelerators.of_pod(spec))
    if gpus:
        return str(gpus)
    cores = (resources.get("limits") or {}).get("cpu") or (resources.get("requests") or {}).get("cpu")
    return str(max(1, int(quantity.parse(cores)))) if cores is not None else "auto"


def merged(base: Any, patch: Any) -> Any:
    """Return `base` changed by `patch`: objects field by field, lists of named elements by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in patch.items()}}
    if isinstance(base, list) and isinstance(patch, list) and all(_name_of(each) for each in [*base, *patch]):
        by_name = {_name_of(each): each for each in base}
        for each in patch:
            by_name[_name_of(each)] = merged(by_name.get(_name_of(each)), each)
        return list(by_name.values())
    return deepcopy(patch)


def _name_of(element: Any) -> str:
    return str(element.get("name") or "") if isinstance(element, dict) else ""
