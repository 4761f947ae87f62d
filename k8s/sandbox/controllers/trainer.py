"""Kubeflow Trainer: plan for one TrainJob, from the JobSet template in its runtime. Pure.

The sandbox has one runtime, `torch-distributed`; others can be created.
Source: kubeflow/trainer v2.3.0, `pkg/controller` and the plug-ins `torch`, `plainml` and `jobset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from k8s.kinds.job_set import JOB_SETS
from k8s.models import PodSpec, accelerators, convert, quantity
from k8s.models.resources import TRAINING_RUNTIMES
from k8s.sandbox.controller_runtime import Manifest
from k8s.sandbox.controllers.reconcile import ObservedJob, Plan, is_true, owned_by

OWNED = (JOB_SETS,)
MASTER_PORT = 29500
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_DEFAULT_KIND = "ClusterTrainingRuntime"

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
    plan = Plan(deepcopy(job.get("status") or {}))
    plan.status["conditions"] = list(plan.status.get("conditions") or ())
    job_set = next(iter(observed.children.get(JOB_SETS, ())), None)
    if any(is_true(plan.status["conditions"], end) for end in ("Complete", "Failed")):
        return plan
    runtime = _runtime(job, observed.known)
    if runtime is None:
        message = f"{_named(spec)} does not exist, or is not for PyTorch"
        plan.set_condition("Failed", "TrainingRuntimeNotSupported", message)
        return plan
    _suspend(plan, spec)
    if _is_late(plan, job, spec):
        message = "TrainJob exceeded its active deadline"
        plan.set_condition("Failed", "DeadlineExceeded", message)
        plan.removals = [(JOB_SETS, job_set)] if job_set is not None else []
    elif job_set is None:
        plan.objects.append((JOB_SETS, _job_set(observed, runtime)))
    else:
        _follow(plan, spec, job_set)
    return plan


def _follow(plan: Plan, spec: Manifest, job_set: Manifest) -> None:
    found = job_set.get("status") or {}
    plan.status["jobsStatus"] = [dict(each) for each in found.get("replicatedJobsStatus") or ()]
    for each in found.get("conditions") or ():
        end = {"Completed": "Complete", "Failed": "Failed"}.get(str(each.get("type")))
        if end and each.get("status") == "True":
            plan.set_condition(end, str(each.get("reason")), str(each.get("message")))
    is_suspended = bool(spec.get("suspend"))
    if bool(job_set["spec"].get("suspend")) != is_suspended:
        plan.patches.append((JOB_SETS, job_set["metadata"]["name"], {"spec": {"suspend": is_suspended}}))


def _suspend(plan: Plan, spec: Manifest) -> None:
    is_suspended = is_true(plan.status["conditions"], "Suspended")
    if spec.get("suspend") and not is_suspended:
        plan.set_condition("Suspended", "Suspended", "TrainJob is suspended")
    elif not spec.get("suspend") and is_suspended:
        plan.set_condition("Suspended", "Resumed", "TrainJob is resumed", value=False)


def _is_late(plan: Plan, job: Manifest, spec: Manifest) -> bool:
    if spec.get("suspend"):
        return False
    resumed = [
        each["lastTransitionTime"] for each in plan.status["conditions"] if each["type"] == "Suspended"
    ]
    return plan.has_expired(
        spec.get("activeDeadlineSeconds"), max([job["metadata"]["creationTimestamp"], *resumed])
    )


def _runtime(job: Manifest, known: Mapping[Any, Sequence[Manifest]]) -> Manifest | None:
    reference = (job.get("spec") or {}).get("runtimeRef") or {}
    for resource in TRAINING_RUNTIMES:
        if resource.kind != (reference.get("kind") or _DEFAULT_KIND):
            continue
        for found in known.get(resource, ()):
            meta = found["metadata"]
            is_near = not resource.is_namespaced or meta.get("namespace") == job["metadata"]["namespace"]
            if is_near and meta["name"] == reference.get("name"):
                policy = (found.get("spec") or {}).get("mlPolicy") or {}
                return None if policy.keys() & {"mpi", "flux", "jax", "xgboost"} else found
    return None


def _named(spec: Manifest) -> str:
    reference = spec.get("runtimeRef") or {}
    return f"{reference.get('kind') or _DEFAULT_KIND} {reference.get('name')}"


def _job_set(observed: ObservedJob, runtime: Manifest) -> Manifest:
    job, spec = observed.job, observed.job.get("spec") or {}
    policy = runtime["spec"].get("mlPolicy") or {}
    trainer = spec.get("trainer") or {}
    template = deepcopy(runtime["spec"]["template"])
    nodes = int(trainer.get("numNodes") or policy.get("numNodes") or 1)
    for group in template["spec"]["replicatedJobs"]:
        if _step(group) == "trainer":
            group["template"]["spec"] |= {"parallelism": nodes, "completions": nodes}
            _set_container(job, group["template"]["spec"]["template"]["spec"], trainer, nodes, policy)
    for patch in spec.get("runtimePatches") or ():
        template = merged(template, (patch.get("trainingRuntimeSpec") or {}).get("template") or {})
    template["spec"]["suspend"] = bool(spec.get("suspend"))
    meta = template.get("metadata") or {}
    made = {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {
            "name": job["metadata"]["name"],
            "labels": {**(meta.get("labels") or {}), **(job["metadata"].get("labels") or {})},
            "annotations": dict(meta.get("annotations") or {}),
        },
        "spec": template["spec"],
    }
    return owned_by(observed, made)


def _step(group: Manifest) -> str:
    labels = (group["template"].get("metadata") or {}).get("labels") or {}
    return str(labels.get(STEP) or ("trainer" if group["name"] == "node" else ""))


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
